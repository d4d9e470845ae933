"""Which passwords an instance of the managed tier takes, by logging in with them.

An instance that does not agree with the Secret is told to load its ACL file, and asked again. The
kubelet brings a changed Secret into a pod a minute late, so the file may still be the old one: then
the answers are the old ones too, and somebody looks again.
"""

import asyncio
from collections.abc import Iterable

from kvserving_operator.engines.base import TIER_USER
from kvserving_operator.observe.tier_client import (
    Address,
    Failure,
    Login,
    TierError,
    connected,
)
from kvserving_operator.plan.model import AuthMaterial
from kvserving_operator.plan.rotation import InstanceLogins, LoginAnswer, agrees
from kvserving_operator.render.secret import OPERATOR_USER


async def read_logins(name: str, address: Address | None, auth: AuthMaterial) -> InstanceLogins:
    """What the instance answers, after it was told to load its file where that is needed.

    `address` is None for an instance that cannot be asked.
    """
    if address is None:
        return InstanceLogins(name=name)
    found = await _asked(name, address, auth)
    if agrees(auth, found) or not await _reloaded(address, auth):
        return found
    return await _asked(name, address, auth)


async def _asked(name: str, address: Address, auth: AuthMaterial) -> InstanceLogins:
    in_use = (auth.engine_password, auth.operator_password)
    spare = auth.spare
    pairs = (
        [in_use] if spare is None else [in_use, (spare.engine_password, spare.operator_password)]
    )
    answers = await asyncio.gather(*(_pair(address, *pair) for pair in pairs))
    return InstanceLogins(name=name, in_use=answers[0], spare=answers[-1])


async def _pair(address: Address, engine: str, operator: str) -> LoginAnswer:
    """The answer that both users get; UNKNOWN where they get different ones."""
    logins = (Login(user=TIER_USER, password=engine), Login(user=OPERATOR_USER, password=operator))
    one, other = await asyncio.gather(*(_answer(address, login) for login in logins))
    return one if one is other else LoginAnswer.UNKNOWN


async def _answer(address: Address, login: Login) -> LoginAnswer:
    try:
        async with connected(address, login) as session:
            await session.ask("PING")
    except TierError as error:
        refused = error.failure is Failure.LOGIN
        return LoginAnswer.REFUSED if refused else LoginAnswer.UNKNOWN
    return LoginAnswer.TAKEN


async def _reloaded(address: Address, auth: AuthMaterial) -> bool:
    """Whether the instance has loaded its ACL file anew."""
    for password in _operator_passwords(auth):
        try:
            async with connected(address, Login(user=OPERATOR_USER, password=password)) as session:
                await session.ask("ACL", "LOAD")
        except TierError:
            continue
        return True
    return False


def _operator_passwords(auth: AuthMaterial) -> Iterable[str]:
    yield auth.operator_password
    if auth.spare is not None:
        yield auth.spare.operator_password
