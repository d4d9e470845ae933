"""An operator that stops in good order and starts again over objects that are settled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from .harness import PATIENCE, Cluster, Kubelet, OperatorProcess, example, wait_for


@contextmanager
def restarted(
    cluster: Cluster, folder: Path, names: Sequence[str]
) -> Iterator[tuple[OperatorProcess, int]]:
    """The operator after a pass of each object, and the audit log's mark from before its start."""
    with OperatorProcess(cluster, folder) as operator, Kubelet(cluster):
        for name in names:
            cluster.create(example(name))
        for name in names:
            cluster.settled(name)
        assert operator.stop() == 0
        mark = cluster.mark()
        operator.start()
        cluster.plane.audit.wait_for(
            lambda w: w.resource == "leases" and w.namespace == cluster.namespace,
            since=mark,
            at_least=3,
            timeout=PATIENCE,
        )
        passes = 'kvserving_operator_passes_total{outcome="success"}'
        wait_for(lambda: operator.metric(passes) >= len(names), what="a pass of each object")
        yield operator, mark
