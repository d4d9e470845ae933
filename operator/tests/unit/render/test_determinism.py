"""The same spec gives the same bytes; and what cannot change in a cluster never does."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvserving_operator.render import render
from tests.unit.render import golden
from tests.unit.stack import AUTH, SPLIT, TIER, Manifest, owner, planned, rendered

HERE = Path(__file__)
PRINT_ALL = """
import hashlib, json
from tests.unit.render import golden
for case in golden.CASES:
    text = json.dumps(golden.objects(case))
    print(case, hashlib.sha256(text.encode()).hexdigest())
"""


@pytest.mark.thorough
def test_bytes_are_equal_under_any_hash_seed():
    here = os.environ.get("PYTHONHASHSEED", "random")
    there = subprocess.run(
        [sys.executable, "-c", PRINT_ALL],
        cwd=HERE.parents[3],
        env={"PYTHONHASHSEED": "2" if here == "1" else "1", "PATH": "/usr/bin:/bin", "LANG": "C"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    digests = (
        (case, hashlib.sha256(json.dumps(golden.objects(case)).encode()).hexdigest())
        for case in golden.CASES
    )
    assert there.splitlines() == [f"{case} {digest}" for case, digest in digests]


CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "decode.replicas": st.integers(0, 5),
        "engine.image": st.sampled_from(["engine:1", "engine:2"]),
        "decode.parallelism": st.fixed_dictionaries({}, optional={"tensor": st.integers(1, 8)}),
        "kvCache.chunkTokens": st.sampled_from([64, 128, 256]),
        "kvCache.dtype": st.sampled_from(["Auto", "FP8"]),
        "model.revision": st.sampled_from(["", "v1", "v2"]),
        "router.replicas": st.integers(0, 3),
        "router.policy": st.sampled_from(["Random", "CacheAware"]),
        "decode.workloadLabels": st.dictionaries(
            st.sampled_from(["a", "b.c/d"]), st.sampled_from(["1", "2"])
        ),
        "decode.drain": st.just({"timeout": "1s"}),
        "decode.accelerator": st.just({"resourceName": "amd.com/gpu"}),
        "networkPolicy": st.just({"mode": "Disabled"}),
        "rollout": st.just({"paused": True, "maxUnavailable": "50%"}),
        "decode.podTemplate": st.just({"metadata": {"labels": {"team": "a"}}}),
    },
)


def immutable(objects: tuple[Manifest, ...]) -> dict[str, object]:
    """What the apiserver refuses to change."""
    kept: dict[str, object] = {}
    for manifest in objects:
        key = f"{manifest['kind']}/{manifest['metadata']['name']}"
        spec = manifest.get("spec", {})
        if manifest["kind"] in ("StatefulSet", "Deployment"):
            kept[f"{key} selector"] = spec["selector"]
            kept[f"{key} service"] = spec.get("serviceName")
            kept[f"{key} management"] = spec.get("podManagementPolicy")
        elif manifest["kind"] == "Service":
            kept[f"{key} clusterIP"] = spec.get("clusterIP")
            kept[f"{key} selector"] = spec["selector"]
        elif manifest["kind"] == "RoleBinding":
            kept[key] = manifest["roleRef"]
        elif manifest["kind"] == "NetworkPolicy":
            kept[key] = spec["podSelector"]
    return kept


@pytest.mark.thorough
@settings(max_examples=20, deadline=None)
@given(CHANGES, CHANGES)
def test_no_selector_changes_between_generations(old: dict, new: dict):
    before = immutable(rendered({**SPLIT, **TIER, **old}))
    after = immutable(rendered({**SPLIT, **TIER, **new}))
    both = before.keys() & after.keys()
    assert both
    assert {key: before[key] for key in both} == {key: after[key] for key in both}


@pytest.mark.thorough
@settings(max_examples=20, deadline=None)
@given(CHANGES)
def test_selectors_select_the_pods_of_their_workload(changes: dict):
    for manifest in rendered({**SPLIT, **TIER, **changes}):
        if manifest["kind"] in ("StatefulSet", "Deployment"):
            spec = manifest["spec"]
            labels = spec["template"]["metadata"]["labels"]
            assert spec["selector"]["matchLabels"].items() <= labels.items()
            assert set(spec["selector"]["matchLabels"]) == {
                "kvserving.io/kvserving",
                "kvserving.io/role",
            }


@pytest.mark.thorough
@settings(max_examples=20, deadline=None)
@given(CHANGES)
def test_rendering_again_gives_the_same_and_shares_nothing(changes: dict):
    plan = planned({**SPLIT, **TIER, **changes})
    first = render(plan, AUTH, owner())
    second = render(plan, AUTH, owner())
    assert first == second
    _scramble(list(first))
    assert render(plan, AUTH, owner()) == second


def _scramble(value: object) -> None:
    if isinstance(value, dict):
        for item in value.values():
            _scramble(item)
        value["scrambled"] = True
    elif isinstance(value, list):
        for item in value:
            _scramble(item)
        value.append("scrambled")
