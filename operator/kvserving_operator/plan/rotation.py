"""Which step of a rotation of the tier's passwords comes next. Pure.

A rotation lives in the Secret alone, so an operator that dies between any two writes is followed by
one that goes on from what it finds:

====================  ===========================  =====================================  =====
step (in the Secret)  what the Secret holds        goes on when                           Valkey
====================  ===========================  =====================================  =====
settled               one pair                     another request is on the KVServing    A
next                  the pair in use, and a new   every instance takes both              A, B
previous              the new pair, and the old    every engine was started with the new  A, B
retired               the new pair, and the old    every instance refuses the old         B
====================  ===========================  =====================================  =====

At each moment each running instance takes the passwords of all running engines: nobody uses the new
ones before all instances were seen to take them, and the old ones go when nobody is left who uses
them. An instance that starts anew reads a file that is not older than what it was told to load.

A request that comes in the middle waits for the end of the rotation that runs.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from kvserving_operator.api import meta
from kvserving_operator.plan.model import AuthMaterial, Manifest, SparePasswords, SpareUse


class LoginAnswer(StrEnum):
    """What an instance answers to a password."""

    TAKEN = "taken"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    """It was not reached, or not asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceLogins:
    """One instance of the tier: what it answers to the passwords of both users."""

    name: str
    in_use: LoginAnswer = LoginAnswer.UNKNOWN
    """TAKEN or REFUSED only when that is so for both users."""
    spare: LoginAnswer = LoginAnswer.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginesAtWork:
    """The engines that log in to the tier."""

    outdated: tuple[str, ...]
    """Names of pods, also of those that are ending, which were started with other passwords."""
    known: bool
    """Whether their workloads ask for the passwords in use, and all pods could be read."""


def request_of(live: Manifest) -> str:
    """Digest of the request that a KVServing carries; empty without one."""
    annotations: Mapping[str, str] = live["metadata"].get("annotations") or {}
    value = str(annotations.get(meta.ANNOTATION_ROTATE, ""))
    return hashlib.sha256(value.encode()).hexdigest()[:16] if value else ""


def agrees(auth: AuthMaterial, instance: InstanceLogins) -> bool:
    """Whether the instance takes and refuses what the Secret says."""
    retired = auth.spare is not None and auth.spare.use is SpareUse.RETIRED
    wanted = LoginAnswer.REFUSED if retired else LoginAnswer.TAKEN
    spare = auth.spare is None or instance.spare is wanted
    return instance.in_use is LoginAnswer.TAKEN and spare


def unsettled(auth: AuthMaterial, instances: Sequence[InstanceLogins]) -> tuple[str, ...]:
    """The instances that do not yet take and refuse what the Secret says."""
    return tuple(each.name for each in instances if not agrees(auth, each))


def next_step(
    auth: AuthMaterial,
    *,
    request: str,
    instances: Sequence[InstanceLogins],
    engines: EnginesAtWork,
    make: Callable[[], str],
) -> AuthMaterial:
    """What the Secret shall hold next; `auth` itself while something must be waited for.

    `instances` are all that the plan wants; those that could not be asked are among them. `make`
    gives a new password at each call.
    """
    spare = auth.spare
    if spare is None:
        return _begun(auth, request, make) if request not in {"", auth.rotation} else auth
    if spare.use is SpareUse.PREVIOUS:
        if engines.outdated or not engines.known:
            return auth
        return replace(auth, spare=replace(spare, use=SpareUse.RETIRED))
    if not instances or unsettled(auth, instances):
        return auth
    return _swapped(auth, spare) if spare.use is SpareUse.NEXT else replace(auth, spare=None)


def earlier(auth: AuthMaterial) -> AuthMaterial | None:
    """The passwords that were in use before; None where they are not known."""
    spare = auth.spare
    if spare is None or spare.use is SpareUse.NEXT:
        return None
    return replace(
        auth,
        engine_password=spare.engine_password,
        operator_password=spare.operator_password,
        spare=None,
    )


def _begun(auth: AuthMaterial, request: str, make: Callable[[], str]) -> AuthMaterial:
    spare = SparePasswords(use=SpareUse.NEXT, engine_password=make(), operator_password=make())
    return replace(auth, rotation=request, spare=spare)


def _swapped(auth: AuthMaterial, spare: SparePasswords) -> AuthMaterial:
    return replace(
        auth,
        engine_password=spare.engine_password,
        operator_password=spare.operator_password,
        spare=SparePasswords(
            use=SpareUse.PREVIOUS,
            engine_password=auth.engine_password,
            operator_password=auth.operator_password,
        ),
    )
