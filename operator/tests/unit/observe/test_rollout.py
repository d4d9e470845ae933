"""Which pod is replaced next: old ones only, idle ones first, never beyond the budget."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kvserving_operator.observe.health import RoleHealth, read_workload
from kvserving_operator.observe.rollout import next_replacement

from .pods import Object, pod, statefulset


def health(pods: list[Object], *, desired: int | None = None, observed: int = 1) -> RoleHealth:
    wanted = len(pods) if desired is None else desired
    workload = statefulset(replicas=wanted, observed=observed)
    return read_workload(workload, pods, label="x", desired=wanted)


def chosen(pods: list[Object], *, budget: int = 1, **more: int) -> str | None:
    found = next_replacement(health(pods, **more), max_unavailable=budget)
    return None if found is None else found.name


OLD = {"revision": "old"}


def test_nothing_old_nothing_replaced() -> None:
    assert chosen([pod("x-0"), pod("x-1", ready=False)]) is None


def test_the_highest_ordinal_goes_first() -> None:
    assert chosen([pod("x-0", **OLD), pod("x-1", **OLD)]) == "x-1"


def test_idle_old_pods_go_before_serving_ones_and_cost_no_budget() -> None:
    pods = [pod("x-0", **OLD, ready=False), pod("x-1", **OLD), pod("x-2", ready=False)]
    assert chosen(pods) == "x-0"


def test_serving_pods_wait_until_the_budget_is_free() -> None:
    starting = [pod("x-0", **OLD), pod("x-1", ready=False)]
    assert chosen(starting) is None
    leaving = [pod("x-0", **OLD), pod("x-1", **OLD, terminating=True)]
    assert chosen(leaving) is None
    missing = [pod("x-0", **OLD)]
    assert chosen(missing, desired=2) is None
    assert chosen(missing, desired=2, budget=2) == "x-0"


def test_a_broken_new_revision_stops_the_rollout_and_a_repair_goes_through_it() -> None:
    broken = [pod("x-0", **OLD), pod("x-1", revision="broken", ready=False)]
    assert chosen(broken) == "x-1"
    stuck = [pod("x-0", **OLD), pod("x-1", ready=False)]
    assert chosen(stuck) is None


def claiming(pods: list[Object], *, desired: int) -> RoleHealth:
    """The pods of a StatefulSet that has got a claim named data since."""
    workload = statefulset(replicas=desired)
    workload["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}}]
    return read_workload(workload, pods, label="x", desired=desired)


def with_claim(name: str, **more: Any) -> Object:
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": f"data-{name}"}}
    return pod(name, **more) | {"spec": {"volumes": [claim]}}


def test_pods_that_lack_a_claim_go_from_the_lowest_ordinal_up() -> None:
    """The controller stops at the first of them, so what is missing beyond it would never come."""
    olds = [pod(f"x-{i}", **OLD) for i in range(3)]
    first = next_replacement(claiming(olds, desired=3), max_unavailable=1)
    assert first is not None
    assert first.name == "x-0"
    coming = claiming([with_claim("x-0", ready=False), *olds[1:]], desired=3)
    assert next_replacement(coming, max_unavailable=1) is None
    absent = claiming(olds[1:], desired=3)
    assert next_replacement(absent, max_unavailable=1) is None
    second = next_replacement(
        claiming([with_claim("x-0"), *olds[1:]], desired=3), max_unavailable=1
    )
    assert second is not None
    assert second.name == "x-1"


def test_a_replica_that_waits_behind_a_pod_without_its_claim_does_not_block_it() -> None:
    lost = claiming([pod("x-0", **OLD), pod("x-1", **OLD)], desired=3)
    found = next_replacement(lost, max_unavailable=1)
    assert found is not None
    assert found.name == "x-0"


def test_pods_that_have_the_claim_go_as_ever() -> None:
    pods = [with_claim(f"x-{i}", **OLD) for i in range(2)]
    found = next_replacement(claiming(pods, desired=2), max_unavailable=1)
    assert found is not None
    assert found.name == "x-1"


def test_nothing_is_deleted_on_stale_knowledge() -> None:
    assert chosen([pod("x-0", **OLD)], observed=0) is None


def test_a_surplus_of_ready_pods_is_no_licence_to_delete_current_ones() -> None:
    assert chosen([pod("x-0"), pod("x-1"), pod("x-2")], desired=1) is None


PODS = st.lists(
    st.tuples(st.sampled_from(["old", "older", "new"]), st.booleans(), st.booleans()),
    min_size=1,
    max_size=8,
)


@given(PODS, st.integers(1, 4))
def test_never_a_current_pod_and_never_beyond_the_budget(
    states: list[tuple[str, bool, bool]], budget: int
) -> None:
    pods = [
        pod(f"x-{i}", revision=revision, ready=ready, terminating=leaving)
        for i, (revision, ready, leaving) in enumerate(states)
    ]
    before = health(pods)
    found = next_replacement(before, max_unavailable=budget)
    if found is None:
        return
    assert found.revision != "new"
    assert not found.terminating
    if found.ready:
        assert before.desired - (before.ready - 1) <= budget


@given(st.integers(1, 6), st.integers(1, 3))
def test_a_rollout_ends_with_every_pod_replaced_within_the_budget(count: int, budget: int) -> None:
    pods = [pod(f"x-{i}", revision="old") for i in range(count)]
    for _ in range(10 * count):
        found = next_replacement(health(pods), max_unavailable=budget)
        if found is None:
            # Nothing may go now: the replaced ones come up.
            pods = [pod(p["metadata"]["name"]) if _revision(p) == "new" else p for p in pods]
            if all(_revision(p) == "new" for p in pods):
                return
            continue
        pods = [
            pod(found.name, ready=False) if p["metadata"]["name"] == found.name else p for p in pods
        ]
        away = sum(p["status"]["conditions"][0]["status"] != "True" for p in pods)
        assert away <= budget
    raise AssertionError("the rollout did not end")


def _revision(manifest: Object) -> str:
    return str(manifest["metadata"]["labels"]["controller-revision-hash"])
