from __future__ import annotations

import base64

import pytest

from stack.kubectl import Kubectl, Object
from stack.rotation import Tier
from stack.tests.standin import Standin


def test_each_password_is_taken_or_not(standin: Standin) -> None:
    standin.answer(exec=["PONG\nNOAUTH Authentication required.\n"])
    assert Tier(standin.kubectl, "x").takes("x-valkey-0", "one", "two") == [True, False]


@pytest.mark.parametrize("said", ["PONG\ndown\n", "PONG\n", ""])
def test_an_instance_that_does_not_answer_refuses_nothing(standin: Standin, said: str) -> None:
    standin.answer(exec=[said])
    with pytest.raises(RuntimeError, match="x-valkey-0 does not answer"):
        Tier(standin.kubectl, "x").takes("x-valkey-0", "one", "two")


def test_the_steps_of_a_watch_are_those_of_the_secret_alone() -> None:
    def event(name: str, step: str) -> Object:
        data = {"rotation-step": base64.b64encode(step.encode()).decode()}
        return {"type": "MODIFIED", "object": {"metadata": {"name": name}, "data": data}}

    seen = ["settled", "next", "next", "previous", "retired", "settled"]
    events = [event("x-auth", step) for step in seen]
    events.insert(2, {"type": "ADDED", "object": {"metadata": {"name": "other"}}})
    tier = Tier(Kubectl("none", "none"), "x")
    assert tier.steps(events) == ["next", "previous", "retired"]
