"""A silent controller is waited for, and then reported."""

from datetime import UTC, datetime, timedelta

import pytest

from kvserving_operator.observe.health import RoleHealth, read_workload
from kvserving_operator.reconcile.patience import MOMENT, Patience

NOW = datetime(2026, 11, 30, tzinfo=UTC)


def health(generation: int, observed: int) -> RoleHealth:
    workload = {
        "kind": "Deployment",
        "metadata": {"name": "x-router", "uid": "d", "generation": generation},
        "spec": {"replicas": 1},
        "status": {"observedGeneration": observed, "replicas": 1, "updatedReplicas": 1},
    }
    return read_workload(workload, (), label="Deployment x-router", desired=1)


SEEN, UNSEEN = health(2, 2), health(3, 2)


def test_a_change_that_its_controller_sees_in_time_is_no_news():
    patience = Patience()
    assert patience.left("u", [SEEN, UNSEEN, None], NOW) == MOMENT.total_seconds()
    later = NOW + timedelta(seconds=2)
    assert patience.left("u", [UNSEEN], later) == pytest.approx(MOMENT.total_seconds() - 2)
    assert patience.left("u", [SEEN], later) is None


def test_a_controller_that_stays_silent_is_reported_and_stays_so():
    patience = Patience()
    patience.left("u", [UNSEEN], NOW)
    assert patience.left("u", [UNSEEN], NOW + MOMENT) is None
    assert patience.left("u", [UNSEEN], NOW + 2 * MOMENT) is None


def test_the_next_change_has_its_own_moment_and_so_has_another_object():
    patience = Patience()
    patience.left("u", [UNSEEN], NOW)
    patience.left("u", [SEEN], NOW + MOMENT)
    assert patience.left("u", [UNSEEN], NOW + 2 * MOMENT) == MOMENT.total_seconds()
    assert patience.left("v", [UNSEEN], NOW + 2 * MOMENT) == MOMENT.total_seconds()


def test_a_clock_that_is_set_back_makes_the_moment_no_longer():
    patience = Patience()
    patience.left("u", [UNSEEN], NOW)
    hour_ago = NOW - timedelta(hours=1)
    assert patience.left("u", [UNSEEN], hour_ago) == MOMENT.total_seconds()


def test_a_role_without_a_workload_is_news_at_once():
    missing = read_workload(None, (), label="Deployment x-router", desired=1)
    assert Patience().left("u", [missing, None], NOW) is None
