from __future__ import annotations

import pytest

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
