"""Which decision a pass renders, and that nothing that is lost makes engines start anew."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvserving_operator.api import meta
from kvserving_operator.kube import paths
from kvserving_operator.kube.paths import Key
from kvserving_operator.observe.gather import Observed
from kvserving_operator.plan.decided import Decided, of_text
from kvserving_operator.plan.model import Manifest, Plan
from kvserving_operator.reconcile.acceptance import last_good, owner_of, stored_record, wanted
from kvserving_operator.reconcile.decisions import KEY, with_decision
from kvserving_operator.reconcile.planning import planned_of
from kvserving_operator.reconcile.seeds import as_started
from kvserving_operator.render.metadata import seal
from kvserving_operator.tuner import Knob, Mode, Reason, State, decide, from_text, to_text
from tests.unit.api.builders import make
from tests.unit.stack import AUTH, DEFAULTS, SPLIT, TIER
from tests.unit.tuner.plant import CALM, known, number, slow

NOW = 1_700_000_000
HOUR = 3_600
STOCK = {**TIER, **SPLIT, "tuning": {"mode": "Apply"}}
TOLD = Decided(min_tokens=1280, at=NOW - 500)
LATER = Decided(min_tokens=2048, at=NOW - 20)


def live(
    stored: Decided | None = None, changes: dict[str, Any] | None = None, **more: Any
) -> Manifest:
    made = make({**STOCK, **(changes or {})}, name="x")
    made["metadata"] |= {"namespace": "n", "uid": "uid-1"}
    if stored is not None:
        state = State(decided={Knob.MIN_TOKENS: (float(stored.min_tokens), float(stored.at))})
        made["status"] = {"tuning": {"state": to_text(state)}}
    return made | more


def seen(*children: Manifest) -> Observed:
    found: dict[Any, tuple[Manifest, ...]] = {paths.STATEFULSETS: (), paths.CONFIGMAPS: ()}
    for child in children:
        kind = paths.STATEFULSETS if child["kind"] == "StatefulSet" else paths.CONFIGMAPS
        found[kind] = (*found[kind], child)
    return Observed(key=Key("n", "x"), uid="uid-1", children=found)


def started(text: object) -> Manifest:
    """The prefill StatefulSet as it is, with this in its template."""
    annotations = {} if text is None else {meta.ANNOTATION_TUNED: text}
    workload = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "x-prefill", "namespace": "n"},
        "spec": {"template": {"metadata": {"annotations": annotations}}},
    }
    return seal(workload, owner_of(live()))


def chosen(object_: Manifest, *children: Manifest) -> Decided | None:
    spec = with_decision(object_, seen(*children), NOW)["spec"]
    data = spec.get(KEY)
    return None if data is None else Decided(**data)


def test_what_pods_started_with_stays_whatever_became_of_the_status():
    for stored in (None, replace(LATER, at=TOLD.at - 1), replace(LATER, at=TOLD.at)):
        assert chosen(live(stored), started(TOLD.text)) == TOLD
    for status in ({}, {"tuning": None}, {"tuning": {"state": 7}}, {"tuning": {"state": "x"}}, 7):
        assert chosen(live(status=status), started(TOLD.text)) == TOLD


def test_a_later_decision_is_carried_out_in_apply_alone():
    assert chosen(live(LATER), started(TOLD.text)) == LATER
    assert chosen(live(LATER), started(None)) == LATER
    for mode in ("Off", "Recommend"):
        changes = {"tuning": {"mode": mode}}
        assert chosen(live(LATER, changes), started(TOLD.text)) == TOLD
        assert chosen(live(LATER, changes), started(None)) is None


def test_where_the_workload_is_gone_the_status_knows():
    """It is deleted and made anew for fields that cannot be changed; its pods stay."""
    assert chosen(live(LATER)) == LATER
    assert chosen(live(LATER, {"tuning": {"mode": "Off"}})) == LATER
    assert chosen(live()) is None


def test_a_decision_of_the_future_is_none_and_a_foreign_workload_says_nothing():
    assert chosen(live(replace(LATER, at=NOW + 400)), started(TOLD.text)) == TOLD
    foreign = started(LATER.text)
    foreign["metadata"]["ownerReferences"][0]["uid"] = "another"
    assert chosen(live(), foreign) is None
    assert chosen(live(), started("{}")) is None


def test_a_clock_that_is_set_back_holds_no_decision_up():
    """What pods were started with then has a time that is yet to come."""
    ahead = replace(TOLD, at=NOW + 365 * 24 * HOUR)
    assert chosen(live(), started(ahead.text)) == ahead
    assert chosen(live(LATER), started(ahead.text)) == LATER
    effective = with_decision(live(), seen(started(ahead.text)), NOW)
    planned = planned_of(effective, DEFAULTS)
    assert isinstance(planned, Plan)
    assert planned.tuning is not None
    turned = {Knob.MIN_TOKENS: float(NOW - HOUR)}
    found = as_started(State(turned=turned), planned.tuning, float(NOW))
    assert found.turned == turned
    assert found.in_force[Knob.MIN_TOKENS] == ahead.min_tokens


def test_nobody_smuggles_a_decision_in_by_the_spec():
    smuggled = live()
    smuggled["spec"][KEY] = LATER.data
    assert chosen(smuggled) is None


# With the record of what was accepted.


def kept(object_: Manifest, *children: Manifest) -> dict[str, Manifest]:
    """The children after a pass, by kind and name; of the pass before: ``children``."""
    observed = seen(*children)
    effective = with_decision(object_, observed, NOW)
    record = stored_record(observed, "x")
    planned = planned_of(effective, DEFAULTS)
    if isinstance(planned, Plan):
        made = wanted(effective, planned, record, AUTH, DEFAULTS)
    else:
        found = last_good(effective, record, AUTH, DEFAULTS)
        assert found is not None
        made = found
    return {f"{m['kind']} {m['metadata']['name']}": m for m in made.manifests}


def own(children: dict[str, Manifest]) -> list[Manifest]:
    return [c for c in children.values() if c["kind"] in ("StatefulSet", "ConfigMap")]


def template(children: dict[str, Manifest]) -> Manifest:
    found: Manifest = children["StatefulSet x-prefill"]["spec"]["template"]
    return found


def test_a_new_decision_rolls_the_prefill_engines_and_the_next_pass_nothing():
    first = kept(live())
    second = kept(live(LATER), *own(first))
    assert template(second) != template(first)
    assert of_text(template(second)["metadata"]["annotations"][meta.ANNOTATION_TUNED]) == LATER
    assert second["StatefulSet x-decode"] == first["StatefulSet x-decode"]
    for status in (LATER, None, TOLD):
        assert kept(live(status), *own(second)) == second


def test_a_refused_spec_rolls_nothing_whatever_was_decided():
    first = kept(live(TOLD))
    refused = {"rollout.strategy": "BlueGreen"}
    assert kept(live(LATER, refused), *own(first)) == first
    # Nor does it when the record is there and the status is not.
    assert kept(live(None, refused), *own(first)) == first


def test_a_pin_wins_and_its_end_goes_back_to_what_was_decided():
    first = kept(live(TOLD))
    pin = {"kvCache.remote.loading": {"minTokens": 0}}
    pinned = kept(live(None, pin), *own(first))
    assert template(pinned) != template(first)
    assert template(kept(live(), *own(pinned))) == template(first)


def test_a_lost_record_rolls_nothing():
    first = kept(live(TOLD))
    without = [c for c in own(first) if c["metadata"]["name"] != "x-accepted"]
    assert len(without) < len(own(first))
    assert template(kept(live(), *without)) == template(first)


# The whole way: facts, decisions, statuses that are lost, and pods.


@dataclass
class Stack:
    """A stack interval by interval: the template is real, pods follow it at once."""

    children: dict[str, Manifest] = field(default_factory=dict)
    state: State | None = None
    stored: str | None = None
    changes: dict[str, Any] = field(default_factory=dict)
    rolls: list[int] = field(default_factory=list)
    """When each was decided."""
    now: int = NOW
    planned: Plan | None = None
    spec: Manifest = field(default_factory=dict)

    def step(self, event: str, facts: Any) -> None:
        self.now += 60
        if event == "wiped":
            self.stored = None
        if event in ("wiped", "restarted"):
            self.state = None
        observed = seen(*own(self.children))
        effective = with_decision(self._live(), observed, self.now)
        # As the operator does: planned and rendered once for equal inputs.
        if self.planned is None or effective["spec"] != self.spec:
            planned = planned_of(effective, DEFAULTS)
            assert isinstance(planned, Plan)
            self.planned, self.spec = planned, effective["spec"]
            record = stored_record(observed, "x")
            made = wanted(effective, planned, record, AUTH, DEFAULTS)
            children = {f"{m['kind']} {m['metadata']['name']}": m for m in made.manifests}
            if self.children and template(children) != template(self.children):
                self.rolls.append(self._decided(children))
            self.children = children
        plan = self.planned.tuning
        assert plan is not None
        state = from_text(self.stored) if self.state is None else self.state
        outcome = decide(
            as_started(state, plan, float(self.now)),
            replace(facts, at=float(self.now)),
            plan.settings,
        )
        self.state = outcome.state
        if event != "status is not written":
            self.stored = to_text(outcome.state)

    def _decided(self, children: dict[str, Manifest]) -> int:
        """When what is rolled out was decided: a status that is written late delays the roll alone.

        A roll without a decision counts as of now, and one for the same decision at the same time.
        """
        made = of_text(template(children)["metadata"]["annotations"].get(meta.ANNOTATION_TUNED))
        return self.now if made is None else made.at

    def _live(self) -> Manifest:
        made = live(None, self.changes)
        return made | {"status": {"tuning": {"state": self.stored}}}


WORSE = replace(CALM, first_token_seconds=5.0)
CHEAP = replace(CALM, known=known(engine=0.0, request=0.0))
SILENT = replace(CALM, age_seconds=1e4)
AGED = replace(
    CALM, known=replace(CALM.known, bandwidth=replace(number(10.76e9), age_seconds=2.0 * HOUR))
)
FACTS = st.sampled_from([CALM, CALM, CALM, WORSE, CHEAP, SILENT, AGED, slow(4e9), slow(0.4e9)])
EVENTS = st.sampled_from(["", "", "", "wiped", "restarted", "status is not written"])


def lived(rows: list[tuple[str, Any, int]]) -> Stack:
    """A stack after so many intervals of each row's facts, which begin with its event."""
    stack = Stack()
    for event, facts, times in rows:
        for count in range(times):
            stack.step(event if count == 0 else "", facts)
    return stack


def _hourly(rolls: list[int]) -> bool:
    return all(b - a >= HOUR for a, b in pairwise(rolls))


@settings(max_examples=4, deadline=None)
@given(st.lists(st.tuples(EVENTS, FACTS, st.integers(1, 20)), min_size=4, max_size=14))
def test_there_is_never_more_than_one_roll_an_hour(rows: list[tuple[str, Any, int]]):
    assert _hourly(lived(rows).rolls)


@pytest.mark.thorough
@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(EVENTS, FACTS, st.integers(1, 30)), min_size=10, max_size=30))
def test_the_same_in_longer_lives(rows: list[tuple[str, Any, int]]):
    assert _hourly(lived(rows).rolls)


def test_it_does_roll_and_once_for_one_tier():
    """Else the tests above would pass with a tuner that does nothing."""
    stack = Stack()
    for _ in range(70):
        stack.step("", CALM)
    assert len(stack.rolls) == 1
    assert stack.state is not None
    assert stack.state.in_force[Knob.MIN_TOKENS] == 22_528.0
    stack = Stack()
    for count in range(140):
        stack.step("", CALM if count < 5 else WORSE)
    assert len(stack.rolls) >= 2
    assert stack.state is not None
    assert Reason.WORSE in {entry.reason for entry in stack.state.history}


@pytest.mark.parametrize("event", ["wiped", "restarted"])
def test_who_forgets_in_every_interval_rolls_nothing_back(event: str):
    stack = Stack()
    for _ in range(5):
        stack.step("", CALM)
    assert len(stack.rolls) == 1
    for _ in range(30):
        stack.step(event, CALM)
    assert len(stack.rolls) == 1


@pytest.mark.parametrize("facts", [SILENT, AGED], ids=["silent", "an hour old"])
def test_nothing_is_rolled_by_stale_facts(facts: Any):
    stack = Stack()
    for _ in range(100):
        stack.step("", facts)
    assert stack.rolls == []


@pytest.mark.parametrize(
    "changes",
    [
        {"kvCache.remote.loading": {"minTokens": 0}},
        {"tuning": {"mode": Mode.RECOMMEND.value}},
        {"tuning": {"mode": Mode.OFF.value}},
    ],
    ids=["pinned", "Recommend", "Off"],
)
def test_nothing_is_rolled_where_the_spec_forbids_it(changes: dict[str, Any]):
    stack = Stack(changes=changes)
    for _ in range(100):
        stack.step("", CALM)
    assert stack.rolls == []
