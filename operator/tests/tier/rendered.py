"""The files that a Valkey pod is given, for a real server: only folders and port are elsewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from kvserving_operator.plan.model import AuthMaterial, TierPlan
from kvserving_operator.render.config import valkey_conf
from kvserving_operator.render.valkey import AUTH_FOLDER, CONFIG_FILE, DATA_FOLDER, TLS_FOLDER
from tests.tier_servers import Server, free_port, redis_binary
from tests.unit.stack import AUTH, planned

RANKED: dict[str, Any] = {
    "model.attention": "MLA",
    "engine.features": ["ShardedStore", "RankedRemote"],
    "prefill": {},
    "prefill.parallelism": {"prefillContext": 2},
    "kvCache.remote": {"type": "Managed", "memoryPerInstance": "128Mi"},
}


def tier(**changes: Any) -> TierPlan:
    """The plan of a tier, with changes of ``kvCache.remote``."""
    found = planned({**RANKED, **{f"kvCache.remote.{k}": v for k, v in changes.items()}}).tier
    assert found is not None
    return found


class Rendered(Server):
    """A server that reads the rendered valkey.conf and ACL file."""

    def __init__(
        self,
        folder: Path,
        plan: TierPlan,
        *,
        auth: AuthMaterial = AUTH,
        binary: Path | None = None,
        port: int = 0,
    ) -> None:
        super().__init__(folder, auth=None, binary=binary, port=port or free_port())
        self.plan = plan
        self.data = folder / "data"
        self.data.mkdir(exist_ok=True)
        self.write_acl(auth)
        self.configure(plan)

    def configure(self, plan: TierPlan) -> None:
        """The configuration of this plan, read at the next start."""
        self.plan = plan
        places = {AUTH_FOLDER: self.folder, DATA_FOLDER: self.data, TLS_FOLDER: self.folder / "tls"}
        text = valkey_conf(plan)
        for inside, outside in places.items():
            text = text.replace(inside, str(outside))
        text, changed = re.subn(r"^((?:tls-)?port) 6379$", rf"\1 {self.port}", text, flags=re.M)
        assert changed == 1
        if self._binary.name == "redis-server":
            text = re.sub(r"^tls-auto-reload-interval .*\n", "", text, flags=re.M)
        (self.folder / CONFIG_FILE).write_text(text)

    def _command(self) -> list[str]:
        return [str(self._binary), str(self.folder / CONFIG_FILE)]

    def end(self) -> int:
        """SIGTERM, as a kubelet sends it, and the exit status."""
        assert self.process is not None
        self.process.terminate()
        status = self.process.wait(60)
        self.process = None
        return status


def tls_rendered(folder: Path, plan: TierPlan, **more: Any) -> Rendered:
    """The same under Debian's redis-server 7.0, which knows neither of two newer words."""
    folder.mkdir(parents=True, exist_ok=True)
    return Rendered(folder, plan, binary=redis_binary(folder), **more)
