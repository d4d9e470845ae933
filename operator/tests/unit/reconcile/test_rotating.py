"""What is said of a rotation that waits; its steps run on a real API server: component/."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from kvserving_operator.engines import ports
from kvserving_operator.kube import paths
from kvserving_operator.kube.client import ApiClient
from kvserving_operator.plan.model import Manifest, SparePasswords, SpareUse
from kvserving_operator.reconcile.acting import Outcome
from kvserving_operator.reconcile.changes import Applied
from kvserving_operator.reconcile.rotating import Rotating
from kvserving_operator.render.secret import auth_secret
from tests.unit.stack import AUTH, CPU_SPLIT, TIER, planned

from .test_tiers import RANKED, UID, observed, owned, pod

PLAN = planned({**CPU_SPLIT, **TIER, **RANKED})
SPARE = SparePasswords(use=SpareUse.PREVIOUS, engine_password="e2", operator_password="o2")
ROTATED = replace(AUTH, rotation="r1", spare=SPARE)
LIVE = {"metadata": {"namespace": "n", "name": "x", "uid": UID, "annotations": {}}}
OTHER_FORM = {"kvserving.io/config-hash": "of an earlier operator"}


class Engines:
    """Settled workloads without pods, with this template."""

    async def get(self, _: object, __: str, name: str) -> Manifest:
        template = {"metadata": {"annotations": OTHER_FORM}}
        status = {"observedGeneration": 1, "updateRevision": "r", "replicas": 0}
        return owned(
            {
                "kind": "StatefulSet",
                "metadata": {"name": name, "uid": "sts", "generation": 1},
                "spec": {"replicas": 0, "template": template},
                "status": status,
            }
        )

    async def list(self, *_: object, **__: object) -> list[Manifest]:
        return []


@pytest.mark.thorough
async def test_an_instance_that_hangs_is_asked_ever_more_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It takes connections and says nothing; others of the object are asked as ever."""
    taken: list[asyncio.StreamWriter] = []

    async def take(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken.append(writer)

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    monkeypatch.setattr(ports, "VALKEY", replace(ports.VALKEY, number=port))
    seen = observed(PLAN, pod(0, podIP="127.0.0.1"))
    next_ = replace(ROTATED, spare=replace(SPARE, use=SpareUse.NEXT))
    secret: Any = owned(auth_secret(PLAN, next_))
    seen = replace(seen, children={**seen.children, paths.SECRETS: (secret,)})
    now, looked = [0.0], []
    rotating = Rotating(cast("ApiClient", Engines()), clock=lambda: now[0])
    for second in range(0, 200, 5):
        now[0], before = float(second), len(taken)
        rotation = await rotating(LIVE, PLAN, Outcome(observed=seen, applied=Applied()))
        assert "instances learn the new ones, not yet: x-valkey-0" in rotation.message
        looked += [second] * (len(taken) > before)
    assert looked == [0, 30, 90]
    for writer in taken:
        writer.close()
    server.close()


@pytest.mark.parametrize("held", [True, False])
async def test_a_rotation_that_waits_for_a_held_template_says_so(*, held: bool) -> None:
    seen = observed(PLAN)
    secret: Any = owned(auth_secret(PLAN, ROTATED))
    seen = replace(seen, children={**seen.children, paths.SECRETS: (secret,)})
    [reader] = [role.name for role in PLAN.roles if role.reads_auth]
    labels = (f"StatefulSet {reader}", "StatefulSet x-valkey") if held else ()
    outcome = Outcome(observed=seen, applied=Applied(), held=labels)
    rotation = await Rotating(cast("ApiClient", Engines()))(LIVE, PLAN, outcome)
    waits = "passwords are rotated, step 2 of 3: engines with the old ones are replaced"
    more = (
        f"; StatefulSet {reader} as an earlier operator rendered it does not say which ones it "
        "uses: annotation kvserving.io/adopt with a new value replaces its engines"
    )
    assert rotation.message == waits + more * held
