"""Since when a role is as it is."""

from __future__ import annotations

from kvserving_operator.observe.health import RoleHealth, read_workload
from kvserving_operator.reconcile.sight import settled_since
from tests.unit.observe.pods import pod, statefulset


def health(*pods: dict[str, object], revision: str = "new", observed: int = 1) -> RoleHealth:
    workload = statefulset(revision=revision, observed=observed)
    return read_workload(workload, pods, label="x-decode", desired=2)


WELL = health(pod("x-decode-0"), pod("x-decode-1"))


def test_a_role_is_settled_from_the_first_look_at_which_all_is_well():
    assert settled_since(None, WELL, paused=False, now=10.0) == ("new", 10.0)
    assert settled_since(("new", 10.0), WELL, paused=False, now=99.0) == ("new", 10.0)


def test_a_roll_that_nobody_saw_begins_anew():
    assert settled_since(("old", 10.0), WELL, paused=False, now=99.0) == ("new", 99.0)


def test_while_anything_is_under_way_nothing_is_settled():
    for other in (
        None,
        health(pod("x-decode-0"), pod("x-decode-1", ready=False)),
        health(pod("x-decode-0"), pod("x-decode-1", revision="old")),
        health(pod("x-decode-0"), pod("x-decode-1", terminating=True)),
        health(pod("x-decode-0"), pod("x-decode-1"), observed=0),
        health(pod("x-decode-0")),
    ):
        assert settled_since(("new", 10.0), other, paused=False, now=99.0) is None
    assert settled_since(("new", 10.0), WELL, paused=True, now=99.0) is None
