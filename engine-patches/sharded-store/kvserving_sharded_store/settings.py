"""What an engine's configuration says about the store. Needs LMCache.

``remote_url`` is the template of ``address``; the rest stands in ``extra_config`` under these
names: ``kvserving.tier_epoch`` (text), ``kvserving.revision`` and ``kvserving.digest`` (text),
``kvserving.instances_per_rank`` (1), ``kvserving.exchange_bytes`` (256 MiB), ``kvserving.threads``
(connections per instance, 4), ``kvserving.ca_file`` (text, for valkeys://), ``kvserving.attention``
(MLA, GQA or MHA: what the operator was told; empty for no check), ``kvserving.control_port`` (9096;
0 for none), ``kvserving.mode`` (Auto, Async, Sync, Bypass) and ``kvserving.min_tokens`` (0), both
until the control contract says otherwise, ``kvserving.self_test`` (true). ``kvserving.element`` is
set by the connector: what the engine calls the type of its KV. User and password come
from LMCACHE_RESP_USERNAME and LMCACHE_RESP_PASSWORD.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from typing import Any

from kvserving_sharded_store.address import Address, instances
from kvserving_sharded_store.resp.connection import Credentials
from kvserving_sharded_store.resp.work import Options


@dataclass(frozen=True, slots=True)
class Settings:
    """The store's part of a configuration.

    Attributes:
        url: Template of the instances; none for local memory alone.
        tier_epoch: See ``keys.Identity``.
        revision: See ``keys.Identity``.
        digest: See ``keys.Identity``.
        element: What the engine calls the type of its KV, where that is not the model's own.
        slots: Instances per rank.
        exchange_bytes: Size of the exchange buffer.
        threads: Connections per instance.
        ca_file: Certificates that may have signed an instance's; empty for the system's.
        attention: What the operator was told; empty for no check.
        control_port: Of the control contract, on loopback; 0 for none.
        mode: In force at the start.
        min_tokens: Shorter hits are recomputed, from the start.
        self_test: Whether to test the whole path at the start.
        load_seconds: Most a load may take.
        lookup_seconds: Most a lookup may take, prefetch included.
    """

    url: str | None
    tier_epoch: str
    revision: str
    digest: str
    element: str
    slots: int
    exchange_bytes: int
    threads: int
    ca_file: str
    attention: str
    control_port: int
    mode: str
    min_tokens: int
    self_test: bool
    load_seconds: float
    lookup_seconds: float

    @classmethod
    def of(cls, config: Any) -> Settings:
        """The settings in an LMCacheEngineConfig."""

        def extra(name: str, default: Any) -> Any:
            return config.get_extra_config_value(f"kvserving.{name}", default)

        return cls(
            url=config.remote_url,
            tier_epoch=str(extra("tier_epoch", "")),
            revision=str(extra("revision", "")),
            digest=str(extra("digest", "")),
            element=str(extra("element", "")),
            slots=int(extra("instances_per_rank", 1)),
            exchange_bytes=int(extra("exchange_bytes", 256 << 20)),
            threads=int(extra("threads", 4)),
            ca_file=str(extra("ca_file", "")),
            attention=str(extra("attention", "")),
            control_port=int(extra("control_port", 9096)),
            mode=str(extra("mode", "Auto")),
            min_tokens=int(extra("min_tokens", 0)),
            self_test=bool(extra("self_test", True)),
            load_seconds=float(config.blocking_timeout_secs),
            lookup_seconds=config.lookup_timeout_ms / 1000,
        )

    def mismatches(self, latent: bool) -> bool:  # noqa: FBT001 (one thing, said by the model)
        """Whether the model's attention is another than what the operator was told."""
        return self.attention not in {"", "Auto"} and (self.attention == "MLA") != latent

    def addresses(self, *, rank: int, world: int) -> tuple[Address, ...]:
        """The instances of a rank; none without a remote tier."""
        if self.url is None:
            return ()
        return instances(self.url, rank=rank, world=world, slots=self.slots)

    def options(self, addresses: tuple[Address, ...]) -> Options:
        """How to talk to them."""
        context = None
        if any(address.tls for address in addresses):
            context = ssl.create_default_context(cafile=self.ca_file or None)
        return Options(credentials=credentials, context=context, threads=self.threads)


def credentials() -> Credentials | None:
    """User and password of the environment, none without a password."""
    password = os.environ.get("LMCACHE_RESP_PASSWORD", "")
    if not password:
        return None
    return Credentials(os.environ.get("LMCACHE_RESP_USERNAME", ""), password)
