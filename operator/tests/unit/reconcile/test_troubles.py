"""What a refused write says to whoever has to cure it."""

from kvserving_operator.api.conditions import Reason
from kvserving_operator.kube import errors
from kvserving_operator.reconcile.troubles import not_now, trouble_of
from tests.unit.stack import one, rendered

SERVICE = one(rendered(), "Service", "x")


def forbidden(message: str) -> errors.ForbiddenError:
    return errors.ForbiddenError(status=403, reason="Forbidden", message=message, call="apply")


def test_a_forbidden_write_names_verb_and_resource_as_the_server_does() -> None:
    found = trouble_of(SERVICE, forbidden('cannot patch resource "services" in API group ""'))
    assert (found.reason, found.stalled) == (Reason.APPLY_FAILED, True)
    assert found.message.startswith("Service x could not be written: ")
    assert 'cannot patch resource "services" in API group ""' in found.message


def test_a_refused_owner_reference_names_the_right_that_the_server_does_not_name() -> None:
    said = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set"
    found = trouble_of(SERVICE, forbidden(said))
    assert "lacks the right to update kvservings/finalizers" in found.message


def test_an_owner_of_a_kind_just_installed_is_waited_for() -> None:
    said = (
        "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion"
    )
    assert not_now(forbidden(said))
