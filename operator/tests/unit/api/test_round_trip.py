"""pydantic and the generated schema say the same of every object."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from kvserving_operator.api.crdgen import root_schema
from kvserving_operator.api.v1alpha1 import KVServing
from tests.unit.api.builders import make, put
from tests.unit.api.schema_tools import faults, validator, values, with_defaults

SCHEMA = root_schema()
CHECKER = validator(SCHEMA)
EXAMPLES = sorted((Path(__file__).parents[4] / "examples").glob("*.yaml"))
SLOW = settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def assert_agreement(obj: dict[str, Any]) -> None:
    """The object is legal for both, both fill in the same, and a second pass changes nothing."""
    assert faults(CHECKER, obj) == []
    parsed = KVServing.parse(obj)
    written = parsed.to_dict()
    assert faults(CHECKER, written) == []
    assert written["spec"] == with_defaults(SCHEMA["properties"]["spec"], obj["spec"])
    assert KVServing.parse(written) == parsed


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples(path: Path) -> None:
    for document in yaml.safe_load_all(path.read_text()):
        if document["kind"] == "KVServing":
            assert_agreement(document)


def test_the_smallest_object() -> None:
    assert_agreement(make())


@SLOW
@given(values(SCHEMA["properties"]["spec"]))
def test_any_spec_of_the_schema(spec: dict[str, Any]) -> None:
    assert_agreement(make() | {"spec": spec})


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.text(max_size=8),
    st.just([]),
    st.just({}),
    st.just("x" * 40_000),
)
PLACES = [
    *(
        "suspend",
        "model",
        "model.name",
        "model.servedNames",
        "model.maxModelLen",
        "model.attention",
    ),
    *("engine.image", "engine.features", "engine.extraArgs", "engine.env", "decode.replicas"),
    *("decode.parallelism.tensor", "prefill", "prefill.drain.timeout", "prefill.workloadLabels"),
    *("kvCache.chunkTokens", "kvCache.local.sizePerReplica", "kvCache.remote.image"),
    *("rollout.maxUnavailable", "sla.ttft.p90", "transfer.nixl.backends", "tuning.mode"),
    *("prefill.rdma.resources", "router.gateway.hostnames", "networkPolicy.clients"),
]


@SLOW
@given(st.sampled_from(PLACES), SCALARS)
def test_hostile_values_are_refused_by_both_or_by_none(path: str, value: Any) -> None:
    obj = make()
    put(obj["spec"], path, value)
    parsed, found = _parses(obj), faults(CHECKER, obj)
    if value is not None and not isinstance(value, float):
        # The server prunes null and reads 1.0 as 1; here those must merely not crash.
        assert parsed == (found == []), found


def _parses(obj: dict[str, Any]) -> bool:
    try:
        KVServing.parse(obj)
    except ValidationError:
        return False
    return True
