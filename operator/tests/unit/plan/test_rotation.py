"""A rotation goes on from whatever is found, and locks nobody out at any moment."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kvserving_operator.plan.model import AuthMaterial, SparePasswords, SpareUse
from kvserving_operator.plan.rotation import (
    EnginesAtWork,
    InstanceLogins,
    LoginAnswer,
    agrees,
    earlier,
    next_step,
    request_of,
    unsettled,
)
from tests.unit.stack import AUTH

TAKEN, REFUSED, UNKNOWN = LoginAnswer.TAKEN, LoginAnswer.REFUSED, LoginAnswer.UNKNOWN
NEW = EnginesAtWork(outdated=(), known=True)
SPARE = SparePasswords(use=SpareUse.NEXT, engine_password="e2", operator_password="o2")


def during(use: SpareUse) -> AuthMaterial:
    return replace(AUTH, rotation="r1", spare=replace(SPARE, use=use))


def instances(*answers: tuple[LoginAnswer, LoginAnswer]) -> tuple[InstanceLogins, ...]:
    return tuple(
        InstanceLogins(name=f"x-valkey-{n}", in_use=in_use, spare=spare)
        for n, (in_use, spare) in enumerate(answers)
    )


def step(
    auth: AuthMaterial,
    *,
    request: str = "r1",
    found: Sequence[InstanceLogins] = (),
    engines: EnginesAtWork = NEW,
) -> AuthMaterial:
    made = (f"made-{n}" for n in itertools.count())
    return next_step(
        auth, request=request, instances=found, engines=engines, make=lambda: next(made)
    )


def test_without_a_request_nothing_begins() -> None:
    assert step(AUTH, request="") is AUTH
    done = replace(AUTH, rotation="r1")
    assert step(done, request="r1") is done


def test_a_request_begins_with_a_pair_that_nobody_uses() -> None:
    begun = step(AUTH)
    assert begun.spare == SparePasswords(
        use=SpareUse.NEXT, engine_password="made-0", operator_password="made-1"
    )
    assert begun.rotation == "r1"
    assert replace(begun, spare=None, rotation="") == AUTH


@pytest.mark.parametrize(
    "answers",
    [
        [],
        [(TAKEN, REFUSED)],
        [(TAKEN, TAKEN), (TAKEN, UNKNOWN)],
        [(TAKEN, TAKEN), (UNKNOWN, UNKNOWN)],
        [(REFUSED, TAKEN)],
    ],
)
def test_the_new_pair_is_not_used_before_every_instance_takes_both(
    answers: list[tuple[LoginAnswer, LoginAnswer]],
) -> None:
    auth = during(SpareUse.NEXT)
    assert step(auth, found=instances(*answers)) is auth


def test_then_the_pairs_change_places() -> None:
    auth = during(SpareUse.NEXT)
    swapped = step(auth, found=instances((TAKEN, TAKEN), (TAKEN, TAKEN)))
    assert (swapped.engine_password, swapped.operator_password) == ("e2", "o2")
    assert swapped.spare == SparePasswords(
        use=SpareUse.PREVIOUS,
        engine_password=AUTH.engine_password,
        operator_password=AUTH.operator_password,
    )
    assert swapped.tier_id == AUTH.tier_id


@pytest.mark.parametrize(
    "engines",
    [
        EnginesAtWork(outdated=("x-decode-0",), known=True),
        EnginesAtWork(outdated=(), known=False),
    ],
)
def test_the_old_pair_stays_while_an_engine_may_use_it(engines: EnginesAtWork) -> None:
    auth = during(SpareUse.PREVIOUS)
    assert step(auth, engines=engines) is auth


def test_then_it_is_retired_and_dropped_when_every_instance_refuses_it() -> None:
    retired = step(during(SpareUse.PREVIOUS))
    assert retired == during(SpareUse.RETIRED)
    for answers in ([], [(TAKEN, TAKEN)], [(TAKEN, REFUSED), (TAKEN, UNKNOWN)]):
        assert step(retired, found=instances(*answers)) is retired
    assert step(retired, found=instances((TAKEN, REFUSED))) == replace(AUTH, rotation="r1")


def test_another_request_waits_for_the_end_of_the_rotation_that_runs() -> None:
    for use, found in (
        (SpareUse.NEXT, instances((TAKEN, TAKEN))),
        (SpareUse.PREVIOUS, ()),
        (SpareUse.RETIRED, instances((TAKEN, REFUSED))),
    ):
        auth = during(use)
        assert step(auth, request="r2", found=found).rotation == "r1"
    assert step(replace(AUTH, rotation="r1"), request="r2").rotation == "r2"


def test_who_is_waited_for_is_named() -> None:
    found = instances((TAKEN, TAKEN), (TAKEN, REFUSED), (UNKNOWN, UNKNOWN))
    assert unsettled(during(SpareUse.NEXT), found) == ("x-valkey-1", "x-valkey-2")
    assert unsettled(during(SpareUse.RETIRED), found) == ("x-valkey-0", "x-valkey-2")


def test_the_passwords_before_the_swap_are_known_until_they_are_dropped() -> None:
    assert earlier(AUTH) is None
    assert earlier(during(SpareUse.NEXT)) is None
    before = earlier(during(SpareUse.PREVIOUS))
    assert before is not None
    assert (before.engine_password, before.operator_password) == ("e2", "o2")


@pytest.mark.parametrize("annotations", [None, {}, {"kvserving.io/rotate-passwords": ""}])
def test_without_a_value_nothing_is_asked_for(annotations: dict[str, str] | None) -> None:
    assert request_of({"metadata": {"annotations": annotations}}) == ""


def test_every_value_is_a_request_of_its_own() -> None:
    asked = {
        request_of({"metadata": {"annotations": {"kvserving.io/rotate-passwords": value}}})
        for value in ("1", "2", "now", "x" * 10_000)
    }
    assert len(asked - {""}) == 4


@dataclass
class Place:
    """A pod: which version of the Secret its kubelet has, and what its process read of it."""

    view: int
    read: int
    """Of an instance: the version whose ACL file is loaded; of an engine: that of its start."""
    revision: str = ""


class Life(RuleBasedStateMachine):
    """Kubelets that lag, processes that restart, an operator that dies between any two steps."""

    def __init__(self) -> None:
        super().__init__()
        self.secrets = [AUTH]
        self.template, self.template_at = AUTH.engine_password, 0
        self.request = ""
        self.numbers = itertools.count()
        self.tier = [Place(0, 0) for _ in range(3)]
        self.engines = [Place(0, 0, AUTH.engine_password) for _ in range(3)]

    @property
    def now(self) -> AuthMaterial:
        return self.secrets[-1]

    @initialize()
    def begin(self) -> None:
        self.request = "r0"

    @rule()
    def ask(self) -> None:
        self.request = f"r{next(self.numbers)}"

    @rule(which=st.integers(0, 5))
    def kubelet_follows(self, which: int) -> None:
        place = [*self.tier, *self.engines][which]
        place.view = min(place.view + 1, len(self.secrets) - 1)

    @rule(which=st.integers(0, 5))
    def container_restarts(self, which: int) -> None:
        place = [*self.tier, *self.engines][which]
        place.read = place.view

    @rule(which=st.integers(0, 2))
    def instance_moves(self, which: int) -> None:
        self.tier[which] = Place(len(self.secrets) - 1, len(self.secrets) - 1)

    @rule(which=st.integers(0, 2), late=st.integers(0, 5))
    def engine_is_replaced(self, which: int, late: int) -> None:
        # A pod is made after its template was written, which was after the Secret.
        view = max(self.template_at, len(self.secrets) - 1 - late)
        self.engines[which] = Place(view, view, self.template)

    @rule(
        reached=st.one_of(st.just({0, 1, 2}), st.sets(st.integers(0, 2))),
        dies=st.sampled_from([0, 0, 0, 1, 2, 3]),
    )
    def operator_passes(self, reached: set[int], dies: int) -> None:
        if dies == 1:
            return
        self.template, self.template_at = self.now.engine_password, len(self.secrets) - 1
        if dies == 2:
            return
        found = [self.look(n) if n in reached else InstanceLogins(name=str(n)) for n in range(3)]
        outdated = tuple(
            str(n) for n, place in enumerate(self.engines) if place.revision != self.template
        )
        engines = EnginesAtWork(outdated=outdated, known=True)
        following = next_step(
            self.now, request=self.request, instances=found, engines=engines, make=self.make
        )
        if following is not self.now and dies != 3:
            self.secrets.append(following)

    def make(self) -> str:
        return f"made-{next(self.numbers)}"

    def look(self, number: int) -> InstanceLogins:
        place = self.tier[number]
        if agrees(self.now, found := self.answers(place, str(number))):
            return found
        place.read = place.view  # ACL LOAD
        return self.answers(place, str(number))

    def answers(self, place: Place, name: str) -> InstanceLogins:
        takes = self.secrets[place.read].accepted_engine_passwords
        spare = self.now.spare
        return InstanceLogins(
            name=name,
            in_use=TAKEN if self.now.engine_password in takes else REFUSED,
            spare=TAKEN if spare and spare.engine_password in takes else REFUSED,
        )

    @invariant()
    def every_instance_takes_the_passwords_of_all_engines(self) -> None:
        for engine, instance in itertools.product(self.engines, self.tier):
            password = self.secrets[engine.read].engine_password
            assert password in self.secrets[instance.read].accepted_engine_passwords

    @invariant()
    def the_operator_is_let_in(self) -> None:
        for instance in self.tier:
            taken = self.secrets[instance.read].accepted_operator_passwords
            assert self.now.operator_password in taken

    @invariant()
    def probes_are_let_in(self) -> None:
        for instance in self.tier:
            password = self.secrets[instance.view].operator_password
            assert password in self.secrets[instance.read].accepted_operator_passwords

    def teardown(self) -> None:
        """Left alone, it comes to an end, and nobody takes what was rotated out."""
        for _ in range(20):
            for place in [*self.tier, *self.engines]:
                place.view = len(self.secrets) - 1
            self.operator_passes({0, 1, 2}, 0)
            self.every_instance_takes_the_passwords_of_all_engines()
            old = [n for n, place in enumerate(self.engines) if place.revision != self.template]
            for number in old[:1]:
                self.engine_is_replaced(number, 0)
        if self.request not in {"", self.now.rotation} or self.now.spare is not None:
            raise AssertionError("the rotation did not end")
        for place in self.tier:
            assert self.secrets[place.read].accepted_engine_passwords == (self.now.engine_password,)


TestLife = Life.TestCase
TestLife.settings = settings(stateful_step_count=40, deadline=None)
