"""Objects of APIs that the cluster lacks are left out and named; the next look comes in time."""

import pytest

from kvserving_operator.kube import paths
from kvserving_operator.reconcile.rechecks import (
    API_RECHECK,
    CONFLICT_RECHECK,
    LEAVING_RECHECK,
    by_api,
    next_look,
)
from tests.unit.render import golden


def test_only_objects_whose_api_exists_are_wanted():
    rendered = golden.objects("http-route")
    wanted, absent = by_api(rendered, ())
    assert absent == ("HTTPRoute (gateway.networking.k8s.io/v1)",)
    assert [m for m in rendered if m not in wanted] == [
        m for m in rendered if m["kind"] == "HTTPRoute"
    ]
    assert by_api(rendered, {paths.HTTP_ROUTES}) == (list(rendered), ())


@pytest.mark.parametrize(
    ("look_again", "missing", "expected"),
    [
        (None, "", None),
        (5.0, "", 5.0),
        (None, "api", API_RECHECK),
        (5.0, "api", 5.0),
        (300.0, "api", API_RECHECK),
        (5.0, "name", 5.0),
        (None, "name", CONFLICT_RECHECK),
        (300.0, "name", CONFLICT_RECHECK),
        (None, "child", LEAVING_RECHECK),
        (300.0, "child", LEAVING_RECHECK),
        (5.0, "child", 5.0),
    ],
)
def test_the_next_look(look_again: float | None, missing: str, expected: float | None):
    found = next_look(
        look_again, foreign=missing == "name", absent=missing == "api", leaving=missing == "child"
    )
    assert found == expected
