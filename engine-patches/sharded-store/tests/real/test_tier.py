"""Which engines share a tier, what more instances cost, and instances that go away under load."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from .engines import CHUNK, Engine
from .group import COUNT, instances, options, whole
from .servers import Server, until
from .serving import free_port


def stored(world: int, given: dict[str, object]) -> None:
    """An engine that stores the prompt and ends."""
    engine = Engine(world, **given)
    try:
        engine.all("store", 1, COUNT)
        engine.all("stored")
    finally:
        engine.kill()


@pytest.mark.parametrize("world", [2])
def test_another_identity_never_hits(world: int, servers: list[Server]) -> None:
    base = options(servers)
    stored(world, base)
    for change in (
        {"model": "n"},
        {"chunk": 2 * CHUNK},
        {"dtype": "float16"},
        options(servers, **{"kvserving.revision": "r2"}),
        options(servers, **{"kvserving.digest": "d2"}),
        options(servers, **{"kvserving.tier_epoch": "e2"}),
        options(servers, **{"kvserving.element": "fp8_e5m2"}),
    ):
        other = Engine(world, **(base | change))
        try:
            assert min(other.all("lookup", 1, COUNT)) == 0, change
            assert min(other.all("prefetch", "a", 1, COUNT)) == 0, change
        finally:
            other.kill()
    same = Engine(world, **base)
    try:
        assert min(same.all("lookup", 1, COUNT, tags={"salt": "s"})) == 0
        assert min(same.all("lookup", 1, COUNT)) == whole(COUNT)
    finally:
        same.kill()


def test_another_number_of_ranks_on_the_same_servers_loads_right_kv_or_none() -> None:
    with instances(4) as servers:
        stored(2, options(servers[:2]))
        wider = Engine(4, **options(servers))
        try:
            # Chunks 0 and 1 lie where four ranks look for them, chunk 2 does not. Latent attention:
            # every rank holds the same, so what is found is right, which `prefix` compares.
            assert min(wider.all("prefetch", "a", 1, COUNT)) == 2 * CHUNK
            assert wider.prefix(wider.all("retrieve", "a", 1, COUNT)) == 2 * CHUNK
        finally:
            wider.kill()


def test_ranks_that_split_the_heads_otherwise_never_hit() -> None:
    with instances(4) as servers:
        stored(2, options(servers[:2]) | {"mla": False})
        wider = Engine(4, **(options(servers) | {"mla": False}))
        try:
            assert wider.all("lookup", 1, COUNT) == [0] * 4
            assert wider.prefix(wider.all("retrieve", None, 1, COUNT)) == 0
        finally:
            wider.kill()


def test_processes_without_a_common_hash_seed_make_the_same_keys() -> None:
    code = (
        "import sys, tests.real.preload; from tests.real.engines import Rank;"
        "made = Rank(0, 1, int(sys.argv[1]), {'url': 'resp://127.0.0.1:1'});"
        "print('KEY', made.key(1, 7).hex(), hash('x')); sys.stdout.flush();"
        "import os; os._exit(0)"
    )
    said = set()
    for seed in ("1", "random"):
        done = subprocess.run(
            [sys.executable, "-c", code, str(free_port())],
            env=os.environ | {"PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        said.add(next(line for line in done.stdout.splitlines() if line.startswith("KEY")))
    assert len({line.split()[1] for line in said}) == 1
    assert len({line.split()[2] for line in said}) == 2, "the seeds did not differ"


def test_a_second_instance_per_rank_keeps_the_hits_of_a_warm_tier() -> None:
    with instances(4) as servers:
        stored(2, options(servers))
        more = Engine(2, **options(servers, **{"kvserving.instances_per_rank": 2}))
        try:
            found = more.prefix(more.all("retrieve", None, 1, COUNT))
            assert found >= 0.45 * whole(COUNT)
            assert found == whole(COUNT), "the former places are asked too"
            # What is new goes to all of them.
            before = [size(server) for server in servers]
            for prompt in range(2, 8):
                more.all("store", prompt, COUNT)
            more.all("stored")
            assert all(size(s) > old for s, old in zip(servers, before, strict=True))
        finally:
            more.kill()


def size(server: Server) -> int:
    """Keys of a server."""
    return int(server.ask(b"DBSIZE")[1:-2])


@pytest.mark.parametrize("world", [2])
def test_an_instance_killed_in_mid_load_is_an_agreed_prefix_and_comes_back(
    world: int, servers: list[Server]
) -> None:
    engine = Engine(world, **options(servers))
    try:
        shorter = 0
        for number in range(12):
            engine.all("store", 1, COUNT)
            engine.all("stored")
            engine.all("forget_local")
            kill = threading.Timer(0.001 * number, servers[1].kill)
            kill.start()
            began = time.monotonic()
            found = engine.prefix(engine.all("retrieve", None, 1, COUNT))
            assert time.monotonic() - began < 5.0
            shorter += found < whole(COUNT)
            kill.join()
            assert engine.all("held") == [0] * world
            servers[1].start()

            def healed() -> bool:
                engine.all("store", 1, COUNT)
                engine.all("stored")
                engine.all("forget_local")
                return min(engine.all("lookup", 1, COUNT)) == whole(COUNT)

            until(healed, 10.0)
        assert shorter, "no instance was killed before its chunks had come"
    finally:
        engine.kill()


@pytest.mark.parametrize("world", [2])
def test_a_rank_killed_in_mid_load_leaves_nobody_waiting_and_the_tier_whole(
    world: int, servers: list[Server]
) -> None:
    # Two ranks: of more, those that do not talk to the dead one learn it from the engine, which
    # ends all of them (tests/real/test_vllm.py).
    stored(world, options(servers))
    chance, ended = random.Random(world), 0
    for _ in range(3):
        engine = Engine(world, **options(servers))
        try:
            # One rank comes half a second late: the others wait for it, in a collective.
            victim = chance.randrange(world)
            engine.one(victim, "fault", "slow")
            began = time.monotonic()
            after = chance.choice([0.1, 0.3, 0.5, 0.51, 0.52])
            for kind, value in engine.killed_meanwhile(victim, after, "retrieve", None, 1, COUNT):
                # The engine ends with an error then; what is said to be loaded is right.
                ended += kind == "error"
                assert kind == "error" or engine.prefix([value]) >= 0
            assert time.monotonic() - began < 10.0
        finally:
            engine.kill()
    assert ended, "no rank was killed before the others had loaded"
    fresh = Engine(world, **options(servers))
    try:
        assert fresh.prefix(fresh.all("retrieve", None, 1, COUNT)) == whole(COUNT)
    finally:
        fresh.kill()


def test_a_password_changed_at_a_restart_costs_hits_until_the_ranks_have_it() -> None:
    rules = "engine on >{} -@all +get +set +exists +unlink +ping +auth +select resetchannels ~*"
    closed = ("--user", "default", "off")
    with instances(2, "--user", *rules.format("one").split(), *closed) as servers:
        engine = Engine(2, **options(servers), password="one")
        try:
            engine.all("store", 1, COUNT)
            engine.all("stored")
            engine.all("forget_local")
            assert engine.prefix(engine.all("retrieve", None, 1, COUNT)) == whole(COUNT)
            for server in servers:
                server.kill()
                server.options = ("--user", *rules.format("two").split(), *closed)
                server.start()
            engine.all("forget_local")
            began = time.monotonic()
            assert engine.prefix(engine.all("retrieve", None, 1, COUNT)) == 0
            assert time.monotonic() - began < 5.0
            engine.all("password", "two")

            def hits_again() -> bool:
                engine.all("store", 1, COUNT)
                engine.all("stored")
                engine.all("forget_local")
                return engine.prefix(engine.all("retrieve", None, 1, COUNT)) == whole(COUNT)

            until(hits_again, 10.0)
        finally:
            engine.kill()
