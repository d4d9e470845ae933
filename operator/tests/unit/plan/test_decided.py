"""What the tuner decided, as pods carry it."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kvserving_operator.api import meta
from kvserving_operator.plan import build
from kvserving_operator.plan.decided import Decided, of_data, of_text
from kvserving_operator.plan.model import Manifest, Plan
from kvserving_operator.render import render
from kvserving_operator.tuner import Knob
from tests.unit.stack import AUTH, DEFAULTS, SPLIT, TIER, kvserving, owner

STOCK = {**TIER, **SPLIT, "tuning": {"mode": "Apply"}}
TOLD = Decided(min_tokens=1280, at=1_700_000_000)


def made(
    decided: Decided | None, changes: Mapping[str, object] | None = None
) -> tuple[Plan, dict[str, Manifest]]:
    spec = {**STOCK, **(changes or {})}
    plan = build(kvserving(spec), DEFAULTS, decided=decided)
    assert isinstance(plan, Plan), [str(fault) for fault in plan.faults]
    objects = {f"{m['kind']} {m['metadata']['name']}": m for m in render(plan, AUTH, owner())}
    return plan, objects


def template(objects: dict[str, Manifest], role: str = "prefill") -> Manifest:
    found: Manifest = next(
        m for n, m in objects.items() if n.startswith("StatefulSet") and n.endswith(role)
    )["spec"]["template"]
    return found


def lmcache(objects: dict[str, Manifest]) -> dict[str, object]:
    config = next(m for n, m in objects.items() if n.startswith("ConfigMap") and "lmcache" in n)
    found: dict[str, object] = yaml.safe_load(next(iter(config["data"].values())))
    return found


def test_a_decision_is_in_the_file_that_engines_read_and_in_their_template():
    plan, objects = made(TOLD)
    assert lmcache(objects)["min_retrieve_tokens"] == 1280
    assert of_text(template(objects)["metadata"]["annotations"][meta.ANNOTATION_TUNED]) == TOLD
    assert meta.ANNOTATION_TUNED not in template(objects, "decode")["metadata"]["annotations"]
    assert plan.tuning is not None
    assert (plan.tuning.restarts, plan.tuning.least_tokens) == (True, 1280.0)
    assert plan.tuning.settings.pinned == {}


def test_without_one_nothing_is_rendered_for_it():
    _, objects = made(None)
    assert "min_retrieve_tokens" not in lmcache(objects)
    assert meta.ANNOTATION_TUNED not in json.dumps(objects)


def test_the_spec_wins_and_the_decision_is_kept_for_later():
    plan, objects = made(TOLD, {"kvCache.remote.loading": {"minTokens": 0}})
    assert lmcache(objects)["min_retrieve_tokens"] == 0
    assert of_text(template(objects)["metadata"]["annotations"][meta.ANNOTATION_TUNED]) == TOLD
    assert plan.tuning is not None
    assert plan.tuning.settings.pinned == {Knob.MIN_TOKENS: 0.0}
    assert plan.tuning.least_tokens == 0.0


def test_engines_that_are_told_while_they_run_have_no_use_for_it():
    ours = ["ShardedStore", "RankedRemote", "AsyncLoading", "LoadOrRecompute"]
    for changes in ({"engine.features": ours}, {"kvCache.remote": {"type": "None"}}):
        assert made(TOLD, changes)[1] == made(None, changes)[1]


def test_only_the_pods_that_carry_the_tier_are_rolled():
    before, after = made(None)[1], made(TOLD)[1]
    changed = {name for name in after if before[name] != after[name]}
    assert {name.split()[0] for name in changed} == {"StatefulSet", "ConfigMap"}
    assert len(changed) == 2


@pytest.mark.parametrize(
    "text",
    [
        None, 7, "", "x", "[]", '{"min_tokens": 1}', '{"min_tokens": -1, "at": 1}', "[" * 200,
        '{"min_tokens": true, "at": 1}', '{"min_tokens": 1.5, "at": 1}', '{"at": 1e99}' + " " * 300,
        '{"min_tokens": 1, "at": 99999999999999}', '{"min_tokens": 100000001, "at": 1}',
    ],
)  # fmt: skip
def test_what_somebody_else_wrote_there_is_no_decision(text: object):
    assert of_text(text) is None


@given(st.integers(0, 100_000_000), st.integers(0, (1 << 40) - 1))
def test_what_is_written_is_read(tokens: int, at: int):
    decided = Decided(min_tokens=tokens, at=at)
    assert of_text(decided.text) == decided
    assert of_data(decided.data) == decided
