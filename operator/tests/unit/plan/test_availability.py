"""Every field of the API whose feature is not built yet is refused, and told apart from a fault."""

import pytest

from kvserving_operator.api.conditions import Reason
from kvserving_operator.plan.availability import NOT_YET
from tests.unit.stack import CPU, SPLIT, TIER, planned, refused

ASKED = [
    ({"engine.type": "SGLang"}, "spec.engine.type"),
    ({"engine.features": ["GraniKV"]}, "spec.engine.features"),
    ({**SPLIT, "prefill.nodesPerReplica": 2}, "spec.prefill.nodesPerReplica"),
    ({"decode.nodesPerReplica": 2}, "spec.decode.nodesPerReplica"),
    (
        {
            **CPU,
            "model.attention": "MLA",
            "kvCache.remote": {"type": "External", "external": {"urlTemplate": "resp://h:1"}},
        },
        "spec.kvCache.remote.type",
    ),
    ({**TIER, "kvCache.remote.instancesPerRank": 2}, "spec.kvCache.remote.instancesPerRank"),
    (
        {**TIER, "kvCache.remote.tls": {"mode": "Secret", "secretRef": {"name": "s"}}},
        "spec.kvCache.remote.tls.mode",
    ),
    (
        {**TIER, "kvCache.remote.persistence": {"volumeClaim": {"size": "1Gi"}}},
        "spec.kvCache.remote.persistence.volumeClaim",
    ),
    ({**TIER, "kvCache.remote.loading": {"mode": "Sync"}}, "spec.kvCache.remote.loading.mode"),
    ({**TIER, "kvCache.remote.loading": {"mode": "Bypass"}}, "spec.kvCache.remote.loading.mode"),
    ({"kvCache.hot": {"mode": "Fixed"}}, "spec.kvCache.hot.mode"),
    ({"transfer.peerRestart": "RestartDecode"}, "spec.transfer.peerRestart"),
    ({"router.type": "SMG"}, "spec.router.type"),
    ({"router.gateway": {"parentRefs": [{"name": "g"}]}}, "spec.router.gateway"),
    ({"router.gateway": {"hostnames": ["a.b"]}}, "spec.router.gateway"),
    ({"rollout.strategy": "BlueGreen"}, "spec.rollout.strategy"),
    ({"autoscaling": {"mode": "Recommend"}}, "spec.autoscaling.mode"),
    ({"tuning": {"mode": "Apply"}}, "spec.tuning.mode"),
    (
        {"metrics": {"source": "Prometheus", "prometheus": {"url": "http://p:9090"}}},
        "spec.metrics.source",
    ),
    ({"metrics": {"podMonitor": {}}}, "spec.metrics.podMonitor"),
]


@pytest.mark.parametrize(("changes", "field"), ASKED)
def test_not_available_yet(changes: dict, field: str):
    fault = refused(changes)[field]
    assert fault.reason is Reason.NOT_AVAILABLE_YET
    assert "not available yet" in fault.what
    assert fault.remedy


def test_every_line_of_the_table_is_tried_here():
    assert {field for field, _, _, _ in NOT_YET} == {field for _, field in ASKED}


@pytest.mark.parametrize(
    "changes",
    [
        {"engine.features": []},
        {"tuning": {"mode": "Off"}, "autoscaling": {"mode": "Off", "gpuBudget": 8}},
        {"kvCache.hot": {"mode": "Off", "percent": 30}},
        {**TIER, "kvCache.remote.loading": {"mode": "Auto", "minTokens": 512}},
        {"router.gateway": {"parentRefs": [], "hostnames": []}},
        {"router.type": "None"},
        {"metrics": {"source": "Direct"}},
        {"sla": {"ttft": {"p90": "1s"}}},
        {"suspend": True},
        {"rollout": {"paused": True, "maxUnavailable": "25%"}},
    ],
)
def test_what_is_built_is_accepted(changes: dict):
    planned(changes)
