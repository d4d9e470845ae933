"""Where a pass reads what engines do: their agents, or a Prometheus that scrapes those."""

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kvserving_operator.api.conditions import Reason
from kvserving_operator.kube import errors, paths
from kvserving_operator.kube.paths import Resource
from kvserving_operator.measure import EngineFacts
from kvserving_operator.observe.agents import Agents
from kvserving_operator.observe.prometheus import Fault, Prometheus, Server
from kvserving_operator.plan.model import Manifest, Plan, PrometheusPlan, Refusal
from kvserving_operator.status.measured import SourceTrouble

_MOST_CREDENTIAL = 8192


class Secrets(Protocol):
    """The part of the API client that credentials need."""

    async def get(self, resource: Resource, namespace: str, name: str) -> Manifest | None:
        """The object, or None."""


class Source(Protocol):
    """Whoever knows the facts of engines."""

    async def facts(
        self, pods: Iterable[Manifest], token: str, *, anew: bool = False
    ) -> Mapping[str, EngineFacts | None]:
        """The facts of each pod by its name; None where there are none."""


@dataclass(slots=True)
class Scraped:
    """A Prometheus; the token of agents is not for it."""

    secrets: Secrets
    prometheus: Prometheus
    plan: PrometheusPlan
    owner: str
    namespace: str
    trouble: SourceTrouble | None = None
    """Why nothing could be read at the last question; None: it is up to the pods."""

    async def facts(
        self, pods: Iterable[Manifest], token: str, *, anew: bool = False
    ) -> Mapping[str, EngineFacts | None]:
        """See `Source`."""
        asked = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}
        reading = await self.prometheus.read(
            self._server,
            target=self.plan,
            owner=self.owner,
            namespace=self.namespace,
            pods=asked,
            anew=anew,
        )
        self.trouble = _trouble(reading.fault, reading.facts, asked)
        return {name: reading.facts.get(name) for name in asked}

    async def _server(self) -> Server | None:
        plan, names = self.plan, (self.plan.token, self.plan.basic, self.plan.authority)
        found = {name: await self._secret(name) for name in names if name}
        token = _text(found.get(plan.token), plan.token_key)
        basic = found.get(plan.basic)
        user, password = _text(basic, "username"), _text(basic, "password")
        authority = _text(found.get(plan.authority), "ca.crt", lines=True)
        wanted = ((plan.token, token), (plan.basic, user), (plan.basic, password))
        if any(name and value is None for name, value in (*wanted, (plan.authority, authority))):
            return None
        return Server(
            url=plan.url,
            token=token,
            basic=None if user is None or password is None else (user, password),
            authority=authority,
        )

    async def _secret(self, name: str) -> Mapping[str, Any]:
        try:
            found = await self.secrets.get(paths.SECRETS, self.namespace, name)
        except errors.RequestError:
            return {}
        return (found or {}).get("data") or {}


def _text(data: Mapping[str, Any] | None, key: str, *, lines: bool = False) -> str | None:
    """The text of a key; None where it is none that a header can carry, or a file of lines."""
    try:
        text = base64.b64decode((data or {}).get(key, ""), validate=True).decode().strip()
    except (binascii.Error, UnicodeDecodeError, TypeError):
        return None
    if lines:
        return text or None
    return text if text and text.isprintable() and len(text) <= _MOST_CREDENTIAL else None


def _trouble(
    fault: Fault | None, facts: Mapping[str, EngineFacts | None], asked: Mapping[str, str]
) -> SourceTrouble | None:
    server = "the server of spec.metrics.prometheus"
    if fault is not None:
        reason, message = Reason.PROMETHEUS_UNREACHABLE, f"{server} {fault.value}"
        return SourceTrouble(reason=reason, message=f"{message}: knobs stay as they are")
    if not asked or any(facts.get(name) for name in asked):
        return None
    message = (
        f"{server} has nothing current of the engines' agents: have it select the PodMonitor, and "
        "keep its labels namespace and pod"
    )
    return SourceTrouble(reason=Reason.PODS_NOT_SCRAPED, message=message)


class Sources:
    """Chooses the source of a pass."""

    def __init__(
        self, secrets: Secrets, agents: Agents | None, prometheus: Prometheus | None
    ) -> None:
        self._secrets = secrets
        self._agents = agents
        self._prometheus = prometheus

    def of(self, uid: str, planned: Plan | Refusal) -> Source | None:
        """The source of an object's facts; None where nobody is asked."""
        if self._agents is None or not isinstance(planned, Plan):
            return None
        if planned.prometheus is None:
            return self._agents
        if self._prometheus is None:
            return None
        return Scraped(self._secrets, self._prometheus, planned.prometheus, uid, planned.namespace)
