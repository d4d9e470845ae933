"""The share of keys that a change costs is told as it is."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
from kvserving_sharded_store.ownership import places, slot_of

from kvserving_operator.plan.losses import expected_loss
from tests.tier.rendered import RANKED
from tests.unit.stack import one, rendered

DISK = {"volumeClaim": {"size": "1Gi"}}


def workload(**remote: Any) -> dict[str, Any]:
    changes = {f"kvCache.remote.{key}": value for key, value in remote.items()}
    objects = rendered({**RANKED, **changes})
    return copy.deepcopy(one(objects, "StatefulSet", "x-valkey"))


def test_what_costs_nothing_is_not_told() -> None:
    assert expected_loss(workload(), workload(), restarts=False) == ""


def test_instances_in_memory_come_back_empty_one_after_the_other() -> None:
    told = expected_loss(workload(), workload(memoryPerInstance="256Mi"), restarts=True)
    assert told == (
        "StatefulSet x-valkey: 2 instances are replaced one at a time and come back empty: "
        "50 % of the keys with each, all in the end"
    )


def test_on_disk_keys_are_away_for_a_while() -> None:
    before = workload(persistence=DISK)
    after = workload(persistence=DISK, memoryPerInstance="256Mi")
    told = expected_loss(before, after, restarts=True)
    assert told.endswith("read their keys from their disks: 50 % of the keys are away meanwhile")


def test_on_disk_what_does_not_fit_is_lost() -> None:
    before = workload(persistence=DISK, memoryPerInstance="512Mi")
    after = workload(persistence=DISK, memoryPerInstance="128Mi")
    told = expected_loss(before, after, restarts=True)
    assert told.endswith("of which 75 % at most do not fit any more")


@pytest.mark.parametrize(("before", "after"), [({}, {"persistence": DISK})])
def test_a_disk_that_is_new_holds_nothing_yet(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    told = expected_loss(workload(**before), workload(**after), restarts=True)
    assert "come back empty" in told


@pytest.mark.parametrize(("before", "after"), [(1, 2), (1, 3), (2, 3), (3, 4)])
def test_growth_moves_the_share_that_the_stores_hash_moves_and_loses_none(
    before: int, after: int
) -> None:
    told = expected_loss(
        workload(instancesPerRank=before), workload(instancesPerRank=after), restarts=False
    )
    keys = [b"key-%d" % n for n in range(20_000)]
    moved = sum(slot_of(key, before) != slot_of(key, after) for key in keys) / len(keys)
    expected = (after - before) / after
    assert math.isclose(moved, expected, abs_tol=0.015)
    assert f": {100 * expected:.0f} % of the keys belong to new ones" in told
    assert all(slot_of(key, before) in places(key, after) for key in keys[:2000])


def test_what_goes_takes_its_keys_along() -> None:
    told = expected_loss(workload(instancesPerRank=4), workload(instancesPerRank=3), restarts=False)
    assert told == "StatefulSet x-valkey: 2 of 8 instances go, and with them 25 % of the keys"
    keys = [b"key-%d" % n for n in range(20_000)]
    assert math.isclose(sum(slot_of(k, 4) == 3 for k in keys) / len(keys), 0.25, abs_tol=0.015)
