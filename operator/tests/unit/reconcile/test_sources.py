"""Whom a pass asks for facts, and with which credentials; the servers are real ones."""

import base64
from typing import Any

import pytest

from kvserving_operator.api.conditions import ConditionStatus, ConditionType, Reason, find
from kvserving_operator.kube import errors, paths
from kvserving_operator.kube.paths import Resource
from kvserving_operator.observe.agents import Agents
from kvserving_operator.observe.prometheus import Prometheus
from kvserving_operator.plan.model import Plan, PrometheusPlan, Refusal
from kvserving_operator.reconcile.sources import Scraped, Sources
from kvserving_operator.status.writing import FAILURES
from tests.unit.observe.pods import pod
from tests.unit.observe.test_prometheus import Odd, odd
from tests.unit.reconcile.test_tuning import Fleet, Loop, agents, fleet
from tests.unit.stack import SPLIT, planned

__all__ = ["agents", "fleet", "odd"]  # the fixtures

ENGINE = pod("x-prefill-0", role="prefill")


class Secrets:
    """What the API server has of Secrets."""

    def __init__(self, **secrets: dict[str, str]) -> None:
        self.secrets = secrets
        self.asked: list[str] = []

    async def get(self, resource: Resource, namespace: str, name: str) -> dict[str, Any] | None:
        assert resource == paths.SECRETS
        assert namespace in {"ns", "default"}
        self.asked.append(name)
        if name == "forbidden":
            raise errors.UnreachableError(call="GET", cause=OSError("no"))
        found = self.secrets.get(name)
        encoded = {k: base64.b64encode(v.encode()).decode() for k, v in (found or {}).items()}
        return None if found is None else {"data": encoded}


async def asked(odd: Odd, secrets: Secrets, **plan: str) -> Scraped:
    async with Prometheus() as prometheus:
        source = Scraped(secrets, prometheus, PrometheusPlan(url=odd.url, **plan), "uid", "ns")
        assert await source.facts([ENGINE], "token of agents") == {"x-prefill-0": None}
    return source


@pytest.mark.parametrize(
    ("plan", "header"),
    [
        ({}, None),
        ({"token": "t", "token_key": "k"}, "Bearer word"),
        ({"basic": "b"}, "Basic " + base64.b64encode(b"u:p").decode()),
    ],
)
async def test_what_the_secrets_hold_is_sent(odd: Odd, plan: dict[str, str], header: str | None):
    secrets = Secrets(t={"k": "word\n"}, b={"username": "u", "password": "p"})
    source = await asked(odd, secrets, **plan)
    assert {request.headers.get("Authorization") for request in odd.asked} == {header}
    assert source.trouble is not None
    assert source.trouble.reason is Reason.PODS_NOT_SCRAPED


@pytest.mark.parametrize(
    "plan",
    [
        {"token": "absent", "token_key": "k"},
        {"token": "t", "token_key": "other"},
        {"token": "t", "token_key": "lines"},
        {"token": "t", "token_key": "empty"},
        {"token": "forbidden", "token_key": "k"},
        {"basic": "t"},
        {"authority": "t"},
    ],
)
async def test_without_them_nobody_is_asked(odd: Odd, plan: dict[str, str]):
    secrets = Secrets(t={"k": "word", "lines": "a\r\nX-Evil: b", "empty": ""})
    source = await asked(odd, secrets, **plan)
    assert odd.asked == []
    assert source.trouble is not None
    assert source.trouble.reason is Reason.PROMETHEUS_UNREACHABLE
    assert "a Secret or a key" in source.trouble.message


async def test_secrets_are_read_when_the_server_is_asked_and_not_before(odd: Odd):
    secrets = Secrets(t={"k": "word"})
    plan = PrometheusPlan(url=odd.url, token="t", token_key="k")
    async with Prometheus() as prometheus:
        for _ in range(3):
            await Scraped(secrets, prometheus, plan, "uid", "ns").facts([ENGINE], "")
    assert secrets.asked == ["t"]


async def test_a_server_that_fails_is_told_of(odd: Odd):
    odd.how = "status"
    source = await asked(odd, Secrets())
    assert source.trouble is not None
    assert "spec.metrics.prometheus refuses the queries" in source.trouble.message


async def test_the_source_follows_from_the_plan():
    agents, prometheus, secrets = Agents(), Prometheus(), Secrets()
    plan = planned(SPLIT)
    sources = Sources(secrets, agents, prometheus)
    assert sources.of("uid", plan) is agents
    assert sources.of("uid", Refusal(faults=())) is None
    scraped = sources.of("uid", Plan(**_fields(plan) | {"prometheus": PrometheusPlan(url="u")}))
    assert isinstance(scraped, Scraped)


def _fields(plan: Plan) -> dict[str, Any]:
    return {name: getattr(plan, name) for name in Plan.__slots__}


@pytest.mark.parametrize(
    ("how", "reason"),
    [("status", Reason.PROMETHEUS_UNREACHABLE), (None, Reason.PODS_NOT_SCRAPED)],
)
async def test_a_prometheus_that_says_nothing_stops_the_tuner_and_is_named(
    odd: Odd, fleet: Fleet, agents: Agents, how: str | None, reason: Reason
):
    odd.how = how
    loop = Loop(fleet, agents)
    async with Prometheus() as prometheus:
        plan = PrometheusPlan(url=odd.url)
        loop.source = Scraped(Secrets(), prometheus, plan, "uid-1", "default")
        for _ in range(3):
            await loop.look()
    active = find(loop.status.conditions, ConditionType.TUNING_ACTIVE)
    assert active is not None
    assert (active.status, active.reason) == (ConditionStatus.FALSE, reason)
    assert reason in FAILURES, "it is told at once"
    assert fleet.puts == []
