from typing import Any

import pytest
from pydantic import ValidationError

from kvserving_operator.api.v1alpha1 import (
    Attention,
    AutomationMode,
    HotMode,
    KVServing,
    RemoteType,
)
from tests.unit.api.builders import ABSENT, make


def test_the_smallest_object_has_every_default() -> None:
    spec = KVServing.parse(make()).spec
    assert spec.model.attention is Attention.AUTO
    assert spec.kv_cache.remote.type is RemoteType.NONE
    assert spec.kv_cache.hot.mode is HotMode.OFF
    assert spec.tuning.mode is AutomationMode.OFF
    assert spec.prefill is None
    assert spec.decode.replicas is None
    assert spec.decode.drain.timeout == "600s"
    assert spec.rollout.max_unavailable == 1
    assert spec.transfer.nixl.backends == ("UCX",)


def test_prefill_defaults_differ_from_decode() -> None:
    prefill = KVServing.parse(make({"prefill": {}})).spec.prefill
    assert prefill is not None
    assert (prefill.drain.timeout, prefill.drain.lease) == ("120s", "50s")
    assert prefill.replicas is None


def test_both_spellings_are_read_and_camel_case_is_written() -> None:
    obj = KVServing.parse(make({"model.maxModelLen": 4096, "kvCache.chunkTokens": 64}))
    assert obj.spec.model.max_model_len == 4096
    written = obj.spec.to_dict()
    assert written["kvCache"]["chunkTokens"] == 64
    assert "max_model_len" not in written["model"]


def test_unknown_keys_are_ignored() -> None:
    assert "extra" not in KVServing.parse(make({"engine.extra": 1})).spec.engine.to_dict()


def test_a_volume_source_stands_beside_the_known_fields() -> None:
    claim = {"claimName": "hf"}
    obj = make({"model.cache.persistentVolumeClaim": claim, "model.volume.path": "/models/x"})
    model = KVServing.parse(obj).spec.model
    assert model.cache.source == {"persistentVolumeClaim": claim}
    assert model.cache.mount_path == "/models/hf"
    assert model.volume is not None
    assert (model.volume.source, model.volume.read_only) == ({}, True)


def test_parts_that_are_handed_on_keep_every_byte() -> None:
    template = {"spec": {"tolerations": None, "volumes": [{"name": "x", "emptyDir": {}}]}}
    obj = KVServing.parse(make({"engine.podTemplate": template}))
    assert obj.spec.engine.pod_template == template
    assert obj.to_dict()["spec"]["engine"]["podTemplate"] == template


def test_metadata_and_status_of_a_live_object_are_read() -> None:
    live = make() | {
        "metadata": {
            "name": "x",
            "namespace": "ns",
            "uid": "u",
            "generation": 3,
            "deletionTimestamp": "2026-11-30T09:00:00Z",
            "managedFields": [{"manager": "kubectl"}],
        },
        "status": {
            "observedGeneration": 2,
            "prefill": {"replicas": 4, "selector": "a=b"},
            "conditions": [{"type": "FromTheFuture", "status": "True", "reason": "New"}],
        },
    }
    obj = KVServing.parse(live)
    assert obj.metadata.deletion_timestamp == "2026-11-30T09:00:00Z"
    assert obj.status.prefill is not None
    assert obj.status.prefill.replicas == 4
    assert obj.status.conditions[0].type == "FromTheFuture"


def test_models_are_frozen() -> None:
    obj = KVServing.parse(make())
    with pytest.raises(ValidationError, match="frozen"):
        obj.spec.suspend = True  # type: ignore[misc]


@pytest.mark.parametrize(
    ("path", "value", "place"),
    [
        ("model.name", ABSENT, "model.name"),
        ("engine.image", ABSENT, "engine.image"),
        ("decode.parallelism", ABSENT, "decode.parallelism"),
        ("decode.replicas", "2", "decode.replicas"),
        ("decode.replicas", True, "decode.replicas"),
        ("decode.replicas", 1.5, "decode.replicas"),
        ("decode.replicas", -1, "decode.replicas"),
        ("suspend", "true", "suspend"),
        ("tuning.mode", False, "tuning.mode"),  # YAML 1.1's reading of a bare Off
        ("kvCache.chunkTokens", 100, "kvCache.chunkTokens"),
        ("kvCache.local.sizePerReplica", "-1Gi", "sizePerReplica"),
        ("kvCache.local.sizePerReplica", "1GB", "sizePerReplica"),
        ("kvCache.hot.percent", 81, "hot.percent"),
        ("tuning.interval", "-60s", "tuning.interval"),
        ("rollout.maxUnavailable", 0, "maxUnavailable"),
        ("rollout.maxUnavailable", "0%", "maxUnavailable"),
        ("model.name", "-x", "model.name"),
        ("model.name", "a\nb", "model.name"),
        ("engine.extraArgs", ["a\u0000b"], "extraArgs"),
        ("engine.env", [{"name": "A"}, {"name": "A"}], "engine.env"),
        ("model.servedNames", ["a", "a"], "servedNames"),
    ],
)
def test_what_the_apiserver_refuses_is_refused_offline_too(
    path: str, value: Any, place: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        KVServing.parse(make({path: value}))
    places = [".".join(str(part) for part in error["loc"]) for error in caught.value.errors()]
    assert any(place in found for found in places), places
