"""Where the instances of an object's tier are, and who logs in to them: what a look needs."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

from kvserving_operator.engines import paths as files
from kvserving_operator.engines import ports
from kvserving_operator.engines.base import TierAccess, TierAuth
from kvserving_operator.kube import paths
from kvserving_operator.observe.gather import Observed, Reader
from kvserving_operator.observe.instances import running_pods
from kvserving_operator.observe.pods import read_pod
from kvserving_operator.observe.tier import NoInstancesError, Tiers
from kvserving_operator.observe.tier_client import Address, Login, Trust
from kvserving_operator.observe.tier_health import TierHealth
from kvserving_operator.observe.tier_probe import Instance, Place
from kvserving_operator.plan.model import Manifest, Plan, Refusal
from kvserving_operator.reconcile.auth import auth_from
from kvserving_operator.render.secret import OPERATOR_USER


async def tier_health(
    tiers: Tiers | None, reader: Reader, planned: Plan | Refusal, observed: Observed
) -> TierHealth:
    """The health of the tier; without one, or without a plan, it was not to be looked at."""
    if tiers is None or not isinstance(planned, Plan) or planned.tier_access is None:
        return TierHealth()
    access = planned.tier_access
    pods = running_pods(planned.tier, observed) if planned.tier is not None else None
    secret = observed.child(paths.SECRETS, planned.names.auth)
    if pods is not None and (not pods or secret is None):
        return TierHealth(asked=True)
    look = _Look(reader, observed.key.namespace, access, pods, secret)
    interval = planned.look_seconds
    return await tiers.look(
        observed.key, observed.uid, look.targets, interval, look.instances, ready=look.ready
    )


class _Look:
    """What one look at the instances needs; passwords are read when it begins."""

    def __init__(
        self,
        reader: Reader,
        namespace: str,
        access: TierAccess,
        pods: Mapping[int, Manifest] | None,
        secret: Manifest | None,
    ) -> None:
        self._reader, self._namespace, self._access = reader, namespace, access
        self._pods = pods
        self._secret = secret

    @property
    def targets(self) -> frozenset[str]:
        """The identities of the instances."""
        if self._pods is not None:
            return frozenset(pod["metadata"]["uid"] for pod in self._pods.values())
        return frozenset(self._access.instances)

    @property
    def ready(self) -> frozenset[str]:
        """Those that the kubelet has found to answer."""
        pods = (read_pod(pod) for pod in (self._pods or {}).values())
        return frozenset(pod.uid for pod in pods if pod.ready)

    async def instances(self) -> Sequence[Instance]:
        """The instances; raises NoInstancesError where a Secret is not what it should be."""
        authority = await self._authority()
        if self._pods is not None:
            return [self._managed(n, pod, authority) for n, pod in sorted(self._pods.items())]
        login = await self._login(self._access.auth)
        ordinals: dict[str, list[int]] = {}
        for ordinal, place in enumerate(self._access.instances):
            ordinals.setdefault(place, []).append(ordinal)
        return [self._external(at, of, login, authority) for at, of in ordinals.items()]

    def _managed(self, ordinal: int, pod: Manifest, authority: str) -> Instance:
        auth = auth_from(self._secret)
        name = self._access.instances[ordinal].rpartition(":")[0]
        return Instance(
            identity=pod["metadata"]["uid"],
            place=Place(name=f"pod {pod['metadata']['name']}", ordinal=ordinal),
            address=Address(
                host=pod["status"]["podIP"],
                port=ports.VALKEY.number,
                trust=self._trust(name, authority),
            ),
            engine=Login(
                user=self._access.auth.user or "" if self._access.auth else "",
                password=auth.engine_password,
            ),
            operator=Login(user=OPERATOR_USER, password=auth.operator_password),
            secret=self._access.auth.secret if self._access.auth else "",
        )

    def _external(
        self, at: str, ordinals: Sequence[int], login: Login | None, authority: str
    ) -> Instance:
        host, _, port = at.rpartition(":")
        return Instance(
            identity=at,
            place=Place(name=at, ordinal=ordinals[0], count=len(ordinals)),
            address=Address(host=host, port=int(port), trust=self._trust(host, authority)),
            engine=login,
            operator=None,
            secret=self._access.auth.secret if self._access.auth else "",
        )

    def _trust(self, name: str, authority: str) -> Trust | None:
        return Trust(name=name, authority=authority) if self._access.tls else None

    async def _authority(self) -> str:
        if not self._access.tls or not self._access.authority_secret:
            return ""
        return await self._value(self._access.authority_secret, files.AUTHORITY_FILE)

    async def _login(self, auth: TierAuth | None) -> Login | None:
        if auth is None:
            return None
        password = await self._value(auth.secret, auth.password_key)
        user = auth.user or await self._value(auth.secret, auth.user_key)
        if auth.quoted:
            user, password = unquote(user), unquote(password)
        return Login(user=user, password=password)

    async def _value(self, name: str, key: str) -> str:
        secret = await self._reader.get(paths.SECRETS, self._namespace, name)
        if secret is None:
            raise NoInstancesError(f"Secret {name} does not exist")
        try:
            return base64.b64decode(secret.get("data", {})[key], validate=True).decode()
        except (KeyError, binascii.Error, UnicodeDecodeError):
            raise NoInstancesError(f"Secret {name} has no key {key} with text in it") from None
