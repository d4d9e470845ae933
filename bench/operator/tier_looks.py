"""What a look at a tier costs the operator: its CPU and its wall time, beside a bare connection.

Usage: PYTHONPATH=operator:e2e python bench/operator/tier_looks.py [--instances 8] [--json FILE]

Real Valkeys with the users that the operator writes, over loopback; one look is what the operator
does once an interval for one object. In the same run the same number of TCP connections with one
PING each, without a login, is the floor. Target: 20 ms of CPU for 8 instances.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from importlib import metadata
from pathlib import Path
from typing import Any

from kvserving_operator.kube.paths import Key
from kvserving_operator.observe.tier import Tiers
from kvserving_operator.observe.tier_client import Address, Login, Trust
from kvserving_operator.observe.tier_probe import Instance, Place
from kvserving_operator.render.secret import OPERATOR_USER
from tests.tier_servers import AUTH, Certificates, Server, tls_server

LOOKS = 20
ROUNDS = 5
NAME = "localhost"


def instances(servers: Sequence[Server], trust: Trust | None) -> list[Instance]:
    return [
        Instance(
            identity=str(n),
            place=Place(name=f"pod x-valkey-{n}", ordinal=n),
            address=Address(host=server.address, port=server.port, trust=trust),
            engine=Login(user="engine", password=AUTH.engine_password),
            operator=Login(user=OPERATOR_USER, password=AUTH.operator_password),
        )
        for n, server in enumerate(servers)
    ]


async def looks(made: list[Instance]) -> Callable[[], Awaitable[None]]:
    """One look a call, all of them by the same `Tiers`, whose clock is always an interval on."""
    now = [0.0]
    tiers = Tiers(clock=lambda: now[0])
    targets = frozenset(instance.identity for instance in made)

    async def found() -> Sequence[Instance]:
        return made

    async def once() -> None:
        now[0] += 61.0
        while True:  # a machine that is busy may take longer than a pass waits
            health = await tiers.look(Key("n", "x"), "uid", targets, 60.0, found)
            if health.look_again == 60.0:
                break
        assert health.good == len(made), health

    return once


def pings(servers: Sequence[Server]) -> Callable[[], Awaitable[None]]:
    async def one(server: Server) -> None:
        reader, writer = await asyncio.open_connection(server.address, server.port)
        writer.write(b"PING\r\n")
        await reader.readline()
        writer.close()

    async def once() -> None:
        await asyncio.gather(*map(one, servers))

    return once


async def cost(once: Callable[[], Awaitable[None]]) -> tuple[float, float]:
    """Milliseconds of this process's CPU, and of wall time, of one call."""
    await once()
    cpu, began = time.process_time(), time.perf_counter()
    for _ in range(LOOKS):
        await once()
    return (
        (time.process_time() - cpu) / LOOKS * 1000,
        (time.perf_counter() - began) / LOOKS * 1000,
    )


async def measured(plain: list[Server], secured: list[Server], trust: Trust) -> dict[str, Any]:
    kinds = {
        "looks at valkey": await looks(instances(plain, None)),
        "looks at redis over tls": await looks(instances(secured, trust)),
        "connections with one ping": pings(plain),
    }
    rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
    for _ in range(ROUNDS):
        for name, once in kinds.items():
            rounds[name].append(await cost(once))
    return {name: spread(found) for name, found in rounds.items()}


def spread(found: list[tuple[float, float]]) -> dict[str, list[float]]:
    """Lowest, median and highest of the rounds."""
    cpu, wall = ([pair[index] for pair in found] for index in (0, 1))
    three = {"cpu_ms": cpu, "wall_ms": wall}
    return {
        name: [round(f(values), 2) for f in (min, statistics.median, max)]
        for name, values in three.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", type=int, default=8)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        root = Path(folder)
        certificates = Certificates(root / "pki", NAME)
        plain = [stack.enter_context(Server(root / f"v{n}")) for n in range(chosen.instances)]
        secured = [
            stack.enter_context(tls_server(root / f"r{n}", certificates))
            for n in range(chosen.instances)
        ]
        trust = Trust(name=NAME, authority=certificates.authority.read_text())
        figures = asyncio.run(measured(plain, secured, trust))
    found = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": f"{os.cpu_count()} CPUs, {platform.machine()}, load {os.getloadavg()[0]:.0f}",
        "versions": {
            "python": platform.python_version(),
            "valkey (client)": metadata.version("valkey"),
            "valkey-server": "9.1.2",
            "redis-server": "7.0.15, Debian's",
        },
        "instances": chosen.instances,
        "rounds": ROUNDS,
        "looks a round": LOOKS,
        "lowest, median, highest": figures,
    }
    print(json.dumps(found, indent=1))
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
