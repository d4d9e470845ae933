"""A bad day of the API server: refusals, lost answers, broken watches, restarts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvserving_operator.kube import paths

from .fault_proxy import Fault, FaultProxy, Rule, Seen
from .harness import (
    PATIENCE,
    Cluster,
    Kubelet,
    OperatorProcess,
    example,
    supervised,
    user_kubeconfig,
    wait_for,
)


@contextmanager
def behind_proxy(
    cluster: Cluster, folder: Path, *rules: Rule
) -> Iterator[tuple[FaultProxy, OperatorProcess]]:
    with FaultProxy(user_kubeconfig(cluster, "operator")) as proxy, Kubelet(cluster):
        proxy.rules = list(rules)
        operator = OperatorProcess(cluster, folder, server=proxy.url)
        with supervised(operator, "--resync-interval=600"):
            yield proxy, operator


def every(count: int, fault: Fault) -> Rule:
    """The fault for each `count`th request that is no watch and not about the Lease."""
    numbers = iter(range(1, 10**9))

    def rule(seen: Seen) -> Fault | None:
        if seen.watch or "leases" in seen.path:
            return None
        return fault if next(numbers) % count == 0 else None

    return rule


@pytest.mark.parametrize(
    "fault",
    [
        Fault(status=429, retry_after="1"),
        Fault(status=503),
        Fault(status=500),
        Fault(status=0),
        Fault(status=0, forwarded=True),
    ],
    ids=["429", "503", "500", "closed", "answer lost"],
)
def test_it_converges_although_every_fourth_request_fails(
    cluster: Cluster, tmp_path: Path, fault: Fault
) -> None:
    with behind_proxy(cluster, tmp_path, every(4, fault)) as (_, operator):
        cluster.create(example("x"))
        cluster.settled("x")
        cluster.delete(paths.SERVICES, "x")
        wait_for(lambda: cluster.get(paths.SERVICES, "x"), what="the repair")
        assert operator.unexpected == []


def test_broken_watches_are_opened_again_and_nothing_is_missed(
    cluster: Cluster, tmp_path: Path
) -> None:
    with behind_proxy(cluster, tmp_path) as (proxy, operator):
        cluster.create(example("x"))
        cluster.settled("x")
        kinds = len(paths.WATCHED) + 1
        wait_for(lambda: proxy.watches == kinds, what=f"{kinds} watches")
        assert proxy.cut_watches() == kinds
        cluster.delete(paths.SERVICES, "x")
        wait_for(lambda: cluster.get(paths.SERVICES, "x"), what="the repair after a cut")
        wait_for(lambda: proxy.watches == kinds, what="all watches again")
        assert operator.unexpected == []


def test_expired_watches_list_again(cluster: Cluster, tmp_path: Path) -> None:
    """410: the objects come again as a list; what was deleted meanwhile is in no event."""
    with behind_proxy(cluster, tmp_path) as (proxy, operator):
        cluster.create(example("x"))
        cluster.settled("x")
        kinds = len(paths.WATCHED) + 1
        wait_for(lambda: proxy.watches == kinds, what=f"{kinds} watches")
        down = True

        def no_lists(seen: Seen) -> Fault | None:
            ours = seen.path.startswith(paths.SERVICES.path(cluster.namespace))
            return Fault(status=503) if down and ours and not seen.write else None

        proxy.rules = [no_lists]
        proxy.tell_watches(410)
        cluster.delete(paths.SERVICES, "x")
        down = False
        wait_for(lambda: cluster.get(paths.SERVICES, "x"), what="the repair after a 410")
        assert operator.unexpected == []


def test_an_error_that_ends_the_watches_ends_the_process(cluster: Cluster, tmp_path: Path) -> None:
    """Crash-only: kopf gives up on such events by design, and the next start knows everything."""
    with behind_proxy(cluster, tmp_path) as (proxy, operator):
        cluster.create(example("x"))
        cluster.settled("x")
        first = operator.process
        wait_for(lambda: proxy.watches == len(paths.WATCHED) + 1, what="all watches")
        proxy.tell_watches(500)
        assert first.wait(PATIENCE) == 1
        assert operator.said("watches ended|feed ended")
        cluster.delete(paths.SERVICES, "x")
        wait_for(lambda: cluster.get(paths.SERVICES, "x"), what="the repair by the next run")


def test_a_restarted_api_server_is_survived(cluster: Cluster, tmp_path: Path) -> None:
    operator = OperatorProcess(cluster, tmp_path)
    with Kubelet(cluster), supervised(operator):
        cluster.create(example("x"))
        cluster.settled("x")
        before = {name: c["metadata"]["uid"] for name, c in cluster.children("x").items()}
        cluster.plane.kill_apiserver()
        cluster.plane.start_apiserver()
        cluster.delete(paths.SERVICES, "x")
        wait_for(lambda: cluster.get(paths.SERVICES, "x"), timeout=120, what="the repair")
        cluster.create(example("y"))
        cluster.settled("y")
        after = {name: c["metadata"]["uid"] for name, c in cluster.children("x").items()}
        assert {n for n in before if before[n] != after.get(n)} == {"services/x"}


def test_a_missing_permission_is_said_and_cured_by_granting_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    forbidden = True

    def rule(seen: Seen) -> Fault | None:
        return Fault(status=403) if forbidden and "networkpolicies" in seen.path else None

    with behind_proxy(cluster, tmp_path, rule):
        cluster.create(example("x"))
        said = cluster.wait_condition("x", "Stalled", "True", "ReadFailed")
        assert "networkpolicies" in said["message"]
        assert cluster.children("x") == {}
        forbidden = False
        cluster.settled("x")
