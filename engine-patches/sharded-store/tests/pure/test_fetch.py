"""What a fetch holds is given back, also when it cannot be begun or is given up in between."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kvserving_sharded_store.address import Address
from kvserving_sharded_store.exchange import Cause
from kvserving_sharded_store.fetch import Fetch, Wanted
from kvserving_sharded_store.resp.ticket import Outcome, Ticket, Verb
from kvserving_sharded_store.resp.work import Options
from kvserving_sharded_store.tier import Ask, Tier

NOBODY = Address("127.0.0.1", 1)


class Memory:
    """A rank's memory: so many chunks, some of them cached."""

    def __init__(self, cached: set[str], breaks_at: str = "") -> None:
        self.cached = cached
        self.breaks_at = breaks_at
        self.holds = 0

    @property
    def held_bytes(self) -> int:
        return self.holds

    def get(self, key: Any) -> Any | None:
        if key == self.breaks_at:
            raise RuntimeError("the cache is broken")
        return self._hold() if key in self.cached else None

    def allocate(self) -> Any | None:
        return self._hold()

    def _hold(self) -> bytearray:
        self.holds += 1
        return bytearray(1)

    def view(self, memory: Any) -> memoryview:
        return memoryview(memory)

    def keep(self, key: Any, memory: Any) -> None:
        self.cached.add(key)

    def release(self, memory: Any) -> None:
        self.holds -= 1


def wanted(*names: str) -> list[Wanted]:
    return [Wanted(index, name, name.encode()) for index, name in enumerate(names)]


def test_a_fetch_that_cannot_be_begun_holds_nothing() -> None:
    local = Memory({"a", "b"}, breaks_at="d")
    tier = Tier([NOBODY], Options())
    try:
        first, second = wanted("a", "b", "c"), wanted("d")
        with pytest.raises(RuntimeError, match="broken"):
            Fetch(local, tier, [first, second], 5.0)
        deadline = time.monotonic() + 5
        while local.holds:
            assert time.monotonic() < deadline, "something is held that nobody can release"
    finally:
        assert tier.close()


def test_what_the_tier_does_not_take_is_given_back() -> None:
    local = Memory(set())
    tier = Tier([NOBODY], Options())
    try:
        local.view = lambda _memory: memoryview(b"")  # type: ignore[method-assign]
        with pytest.raises(ValueError, match="buffer"):
            Fetch(local, tier, [wanted("a", "b")], 5.0)
        assert local.holds == 0
    finally:
        assert tier.close()


def test_a_fetch_knows_which_chunks_it_is_of() -> None:
    fetch = Fetch(Memory({"a", "b"}), None, [wanted("a", "b")], 1.0)
    assert fetch.is_of(wanted("a", "b"))
    assert fetch.is_of(wanted("a", "b", "c")), "one it was not asked for is a miss, not a mixture"
    assert not fetch.is_of(wanted("a", "x"))
    assert fetch.wait(2) is Cause.FAILED
    fetch.release()


class Moved(tuple[int, ...]):
    """Places of a key; looking at the second one is when somebody gives up."""

    __slots__ = ()
    asks: list[Ask] = []  # noqa: RUF012 (the test's one)

    def __getitem__(self, depth: Any) -> Any:
        if depth == 1:
            self.asks[0].cancel()
        return super().__getitem__(depth)


class Instance:
    """Has nothing, or, the former one, never answers."""

    def __init__(self, *, answers: bool) -> None:
        self.answers = answers
        self.got: list[Ticket] = []

    def submit(self, ticket: Ticket) -> None:
        self.got.append(ticket)

    def answer(self, outcome: Outcome = Outcome.ABSENT) -> None:
        for index in range(len(self.got[0].keys)):
            self.got[0].settle(index, outcome)


class Places:
    """A tier of two instances whose keys have moved."""

    def __init__(self) -> None:
        self.instances = (Instance(answers=True), Instance(answers=False))

    def places(self, key: bytes, verb: Verb) -> tuple[int, ...]:
        return Moved((0, 1))


def test_a_chunk_that_the_cache_does_not_want_is_here_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(_key: Any, _memory: Any) -> None:
        raise RuntimeError("full")

    local, (tier, instance) = Memory(set()), one_instance()
    monkeypatch.setattr(local, "keep", full)
    fetch = Fetch(local, tier, [wanted("a", "b")], 60.0)
    final: list[Fetch] = []
    fetch.when_final(final.append)
    instance.answer(Outcome.DONE)
    assert final == [fetch]
    assert fetch.leading([0, 1]) == 2
    fetch.release()
    assert local.holds == 0


def one_instance() -> tuple[Tier, Instance]:
    instance: Any = Instance(answers=True)
    tier = Tier([], Options())
    tier.instances = (instance,)
    return tier, instance


def test_giving_up_between_two_places_of_a_key_gives_its_buffer_back() -> None:
    tier: Any = Places()
    ask = Ask(tier, Verb.GET, [b"k"], [memoryview(bytearray(1))], time.monotonic() + 60)
    Moved.asks[:] = [ask]
    tier.instances[0].answer()
    final: list[Ask] = []
    ask.when_final(final.append)
    assert final == [ask], "the buffer is held until the deadline"
    assert ask.outcomes() == (Outcome.CANCELLED,)
