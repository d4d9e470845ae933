"""One look at one instance of the tier: can engines use it, how quickly, and what does it say?

The engines' user stores a small value, reads it back and deletes it, in one connection; then the
operator's user asks for INFO. The value lives for half a minute at most, under a key that no
engine makes: theirs begin with an epoch or a model's name.
"""

import os
import time
from dataclasses import dataclass, field
from typing import Final

from kvserving_operator.observe.tier_client import (
    TIMEOUT,
    Address,
    Failure,
    Login,
    Reply,
    Session,
    TierError,
    connected,
)
from kvserving_operator.observe.tier_info import Numbers, numbers

_PREFIX: Final = b"kvserving:smoke:"
_LIFETIME_SECONDS: Final = 30
_VALUE_BYTES: Final = 64 * 1024
"""Small beside a chunk of KV, and large enough that a link of some MB a second is told from one
of some hundred."""
_READS: Final = 3
"""The quickest counts: this process has other work, which makes some of them wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Which instance of a tier it is."""

    name: str
    """For people: the pod's name, or ``host:port``."""
    ordinal: int
    """The first, where it is several instances at once: an external address may be that."""
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """An instance to be looked at."""

    identity: str
    """Another one after a restart or a move: the pod's uid, or ``host:port``."""
    place: Place
    address: Address
    engine: Login | None
    """Whom engines log in as; None: without a login."""
    operator: Login | None
    """Who asks for INFO where that is another user; None: the same."""
    secret: str = ""
    """Where the passwords are, for messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one look has found."""

    failure: Failure | None = None
    code: str = ""
    """The first word of the error reply, for `Failure.REFUSED`."""
    user: str = ""
    """Whose login or command was refused."""
    round_trip: float | None = None
    """Seconds of the quickest read of the small value; None where it did not come to one."""
    numbers: Numbers = field(default_factory=Numbers)


async def probe(instance: Instance, *, timeout: float = TIMEOUT) -> Reading:
    """Look once; never raises but when cancelled, and takes no longer than `timeout` seconds."""
    user = instance.engine.user if instance.engine else ""
    try:
        async with connected(instance.address, instance.engine, timeout=timeout) as session:
            round_trip = await _smoke(session)
            user = instance.operator.user if instance.operator else user
            return Reading(round_trip=round_trip, numbers=await _told(session, instance.operator))
    except TierError as error:
        return Reading(failure=error.failure, code=error.code, user=user)


async def _smoke(session: Session) -> float:
    key, value = _PREFIX + os.urandom(12).hex().encode(), os.urandom(64) * (_VALUE_BYTES // 64)
    for reply in await session.ask_all(("PING",), ("SET", key, value, "EX", _LIFETIME_SECONDS)):
        _good(reply, b"PONG", b"OK")
    best = min([await _read(session, key, value) for _ in range(_READS)])
    _good(await session.ask("DEL", key), 0, 1)
    return best


async def _read(session: Session, key: bytes, value: bytes) -> float:
    began = time.perf_counter()
    reply = await session.ask("GET", key)
    took = time.perf_counter() - began
    # A full instance may let it go at once, as it may any value: that is no failure.
    _good(reply, value, None)
    return took


def _good(reply: Reply | TierError, *expected: Reply) -> None:
    if isinstance(reply, TierError):
        raise reply
    if reply not in expected:
        raise TierError(Failure.NONSENSE)


async def _told(session: Session, operator: Login | None) -> Numbers:
    """INFO, by the operator's user where there is one. Who may not ask does not know."""
    if operator is not None:
        await session.login(operator)
    try:
        return numbers(await session.ask("INFO", "all"))
    except TierError as error:
        if error.failure in {Failure.PERMISSION, Failure.REFUSED}:
            return Numbers()
        raise
