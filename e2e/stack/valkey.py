"""What each instance of a tier says of itself: values it holds, and what it took and gave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stack.kubectl import Kubectl

# The way of the readiness probe: the operator's user may ask for INFO, nobody else. Our own CLI
# knows no TLS, so its flags are there only where there is an authority.
ASK = (
    'ca=/etc/valkey/tls/ca.crt; tls=; [ ! -e $ca ] || tls="--tls --cacert $ca"; '
    'REDISCLI_AUTH="$(cat /etc/valkey/auth/valkey-operator-password)" '
    "valkey-cli $tls --user operator --no-auth-warning "
)
INFO = f"{ASK}INFO stats commandstats keyspace"


@dataclass(frozen=True)
class Instance:
    """One instance at one moment; all but `keys` count from its start."""

    pod: str
    keys: int
    gets: int
    received: int
    sent: int

    def since(self, before: Instance) -> Instance:
        """What happened after another moment; `keys` stay as they are now."""
        return Instance(
            self.pod,
            self.keys,
            self.gets - before.gets,
            self.received - before.received,
            self.sent - before.sent,
        )


def instances(kubectl: Kubectl, name: str) -> list[Instance]:
    """The instances of a KVServing's managed tier, by ordinal."""
    pods = kubectl.list("pods", f"kvserving.io/kvserving={name},kvserving.io/role=valkey")
    names = sorted((pod["metadata"]["name"] for pod in pods), key=lambda n: int(n.split("-")[-1]))
    return [read(pod, kubectl.exec(pod, "sh", "-c", INFO)) for pod in names]


def since(kubectl: Kubectl, name: str, before: list[Instance]) -> list[Instance]:
    """The same, with what happened after another moment."""
    earlier: Mapping[str, Instance] = {one.pod: one for one in before}
    return [now.since(earlier[now.pod]) for now in instances(kubectl, name)]


def maxmemory(kubectl: Kubectl, pod: str) -> int:
    """Bytes that an instance may hold, by its own account."""
    lines = kubectl.exec(pod, "sh", "-c", f"{ASK}INFO memory").splitlines()
    found = dict(line.strip().partition(":")[::2] for line in lines)
    return int(found["maxmemory"])


def read(pod: str, info: str) -> Instance:
    """An instance from its INFO; a counter that is not there has not counted yet."""
    lines = (line.strip().partition(":") for line in info.splitlines())
    found = {name: value for name, _, value in lines if value}
    if "total_net_output_bytes" not in found:
        raise RuntimeError(f"{pod} does not say what it served: {info.strip()[:200]}")
    spaces = [value for name, value in found.items() if name.startswith("db")]
    return Instance(
        pod=pod,
        keys=sum(_part(value, "keys") for value in spaces),
        gets=_part(found.get("cmdstat_get", ""), "calls"),
        received=int(found["total_net_input_bytes"]),
        sent=int(found["total_net_output_bytes"]),
    )


def _part(value: str, name: str) -> int:
    parts = dict(part.partition("=")[::2] for part in value.split(",") if "=" in part)
    return int(parts.get(name, 0))


def table(shown: list[Instance]) -> list[str]:
    """Lines of text: what each instance holds and served."""
    head = f"{'instance':<28} {'values':>7} {'GETs':>6} {'bytes served':>13}"
    rows = [f"{one.pod:<28} {one.keys:>7} {one.gets:>6} {one.sent:>13,}" for one in shown]
    return [head, *rows]
