"""The state survives in a status, small, and whatever somebody wrote there."""

import json
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kvserving_operator.tuner import Knob, State, from_data, to_data
from tests.unit.tuner.plant import APPLY, CALM, HOT, Run, slow


def busy_run() -> Run:
    """Everything that can be asked for, back and forth."""
    run = Run(settings=replace(APPLY, hot=True), state=State(in_force={Knob.HOT_PERCENT: 30.0}))
    for turn in range(40):
        facts = slow(0.4e9) if turn % 2 else CALM
        hot = replace(HOT, failed_admissions=turn % 2, occupancy=0.99, preemptions=(turn + 1) % 2)
        run.steps(replace(facts, hot=hot), 8)
    return run


def test_a_restart_changes_nothing():
    state = busy_run().state
    data = to_data(state)
    assert from_data(json.loads(json.dumps(data))) == state
    assert to_data(from_data(data)) == data


def test_the_history_is_the_last_twenty_and_all_of_it_fits_a_status():
    data = to_data(busy_run().state)
    assert len(data["history"]) == 20
    assert len(json.dumps(data)) < 10_000


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
KEYS = (
    "inForce", "turned", "recommended", "asked", "failures", "decided", "probed", "trial",
    "history",
)  # fmt: skip


@given(ANYTHING, st.dictionaries(st.sampled_from(KEYS), ANYTHING))
def test_any_status_gives_a_state_that_goes_on(anything: object, fields: dict[str, Any]):
    for data in (anything, fields, {"trial": fields, "history": [fields] * 30}):
        run = Run(state=from_data(data))
        run.steps(CALM, 3)
        assert len(run.state.history) <= 20


def test_numbers_and_knobs_that_are_none_of_ours_are_left_out():
    data = {
        "inForce": {
            "Loading": "Bypass",
            "HotPercent": float("nan"),
            "Colour": 3,
            "Model": {"R": 1},
        },
        "turned": {"Loading": 10**400},
        "failures": {"Loading": 1_000_000},
        "decided": {"MinTokens": [1.0], "Loading": ["x", 2.0], "Model": 7},
        "trial": {"knob": "Colour", "since": 3},
        "history": [{"knob": "Loading", "at": 1}],
    }
    assert from_data(data) == State(in_force={Knob.LOADING: "Bypass"})
