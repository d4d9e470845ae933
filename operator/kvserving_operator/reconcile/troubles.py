"""What keeps a child from being written, in the words of a condition. Pure."""

from kvserving_operator.api.conditions import Reason
from kvserving_operator.kube import errors
from kvserving_operator.plan.model import Manifest
from kvserving_operator.render.metadata import label
from kvserving_operator.status import Trouble

# Statuses that say "not now": the pass is repeated, nobody needs to be told.
_NOT_NOW = frozenset({409, 429, 503, 504})
# OwnerReferencesPermissionEnforcement names neither the verb nor the resource that it misses.
_OWNER_REFUSED = "cannot set blockOwnerDeletion"
_OWNER_UNKNOWN = "cannot find RESTMapping"
"""Its admission looks for new kinds every 30 seconds, and ours was installed since."""


def conflict_of(rendered: Manifest) -> Trouble:
    """The name of a child is somebody else's."""
    return Trouble(
        reason=Reason.NAME_CONFLICT,
        message=f"{label(rendered)} exists and does not belong to this KVServing; it was not "
        "touched: delete or rename it, or give this KVServing another name",
        stalled=True,
    )


def not_now(error: errors.RequestError) -> bool:
    """Whether a later pass may simply succeed."""
    if isinstance(error, errors.ForbiddenError):
        return error.namespace_terminating or _OWNER_UNKNOWN in error.message
    return not isinstance(error, errors.ApiError) or error.status in _NOT_NOW


def trouble_of(rendered: Manifest, error: errors.RequestError) -> Trouble:
    """What a refused write means for the object."""
    if isinstance(error, errors.InvalidError):
        return Trouble(
            reason=Reason.REJECTED_BY_SERVER,
            message=f"the API server refuses {label(rendered)}: {error.message}",
            stalled=True,
        )
    what = f"{error.reason}: {error.message}" if isinstance(error, errors.ApiError) else str(error)
    if _OWNER_REFUSED in what:
        what += "; the operator's role lacks the right to update kvservings/finalizers"
    return Trouble(
        reason=Reason.APPLY_FAILED,
        message=f"{label(rendered)} could not be written: {what}",
        stalled=isinstance(error, errors.ForbiddenError),
    )
