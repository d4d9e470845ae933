"""Every field of the API whose feature is not built yet is refused, and told apart from a fault."""

import pytest

from kvserving_operator.api.conditions import Reason
from kvserving_operator.plan import Refusal, build
from kvserving_operator.plan.availability import NOT_YET, UNRENDERED
from tests.unit.stack import CPU, DEFAULTS, SPLIT, TIER, kvserving, planned, refused

STORE = ["ShardedStore", "RankedRemote", "AsyncLoading", "LoadOrRecompute"]

ASKED = [
    ({"engine.features": ["GraniKV"]}, "spec.engine.features"),
    ({**SPLIT, "prefill.nodesPerReplica": 2}, "spec.prefill.nodesPerReplica"),
    ({"decode.nodesPerReplica": 2}, "spec.decode.nodesPerReplica"),
    ({"kvCache.hot": {"mode": "Fixed"}}, "spec.kvCache.hot.mode"),
    ({"transfer.peerRestart": "RestartDecode"}, "spec.transfer.peerRestart"),
    ({"rollout.strategy": "BlueGreen"}, "spec.rollout.strategy"),
    ({"autoscaling": {"mode": "Recommend"}}, "spec.autoscaling.mode"),
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
        {**TIER, "engine.features": STORE},
        {**TIER, "engine.features": STORE, "kvCache.remote.loading": {"mode": "Bypass"}},
        {"tuning": {"mode": "Apply"}},
        {"tuning": {"mode": "Recommend"}},
        {"tuning": {"mode": "Off"}, "autoscaling": {"mode": "Off", "gpuBudget": 8}},
        {"kvCache.hot": {"mode": "Off", "percent": 30}},
        {**TIER, "kvCache.remote.loading": {"mode": "Auto", "minTokens": 512}},
        {"router.gateway": {"parentRefs": [], "hostnames": []}},
        {"router.type": "None"},
        {"router.type": "SMG"},
        {"engine.type": "SGLang", "router.type": "SMG"},
        {"engine.type": "SGLang", "router.type": "SMG", "engine.features": ["GraniKV"]},
        {"router.gateway": {"parentRefs": [{"name": "g"}], "hostnames": ["a.b"]}},
        {"metrics": {"podMonitor": {}}},
        {**TIER, "kvCache.remote.tls": {"mode": "Secret", "secretRef": {"name": "s"}}},
        {**TIER, "kvCache.remote.persistence": {"volumeClaim": {"size": "1Gi"}}},
        {
            **CPU,
            "model.attention": "MLA",
            "kvCache.remote": {"type": "External", "external": {"urlTemplate": "resp://h:1"}},
        },
        {"metrics": {"source": "Direct"}},
        {"sla": {"ttft": {"p90": "1s"}}},
        {"suspend": True},
        {"rollout": {"paused": True, "maxUnavailable": "25%"}},
    ],
)
def test_what_is_built_is_accepted(changes: dict):
    planned(changes)


@pytest.mark.parametrize(("changes", "field"), ASKED)
def test_a_preview_plans_what_is_rendered_already(changes: dict, field: str):
    built = build(kvserving(changes), DEFAULTS, preview=True)
    refused_here = {f.field for f in built.faults} if isinstance(built, Refusal) else set()
    assert (field in refused_here) is (field in UNRENDERED)
