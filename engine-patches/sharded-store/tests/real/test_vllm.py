"""Real vLLM on CPU with the package active through its plugin: what is stored, loaded, answered.

Needs an environment with vLLM's CPU build in which this package is installed, and the models that
``images/engine-cpu/build/mkmodel.py`` makes, in KVSERVING_TEST_MODELS (folders gqa and mla).
"""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvserving_sharded_store.resp.connection import Connection
from kvserving_sharded_store.settings import Settings

from .group import instances
from .removal import Removal
from .results import record
from .servers import Deaf, Server
from .serving import (
    PACKAGE,
    Answer,
    Vllm,
    control,
    installed,
    lasting_port,
    lmcache_file,
    prompt,
    scraped,
    serving,
    store_transfer,
    transfer,
    until,
    with_nixl,
)

MODELS = os.environ.get("KVSERVING_TEST_MODELS", "")
pytestmark = pytest.mark.skipif(
    not MODELS or importlib.util.find_spec("vllm") is None, reason="no vLLM, or no models"
)
CHUNK, TOKENS = 64, 1000
HIT = TOKENS // CHUNK * CHUNK
TRIES = int(os.environ.get("KVSERVING_TEST_DELETES", "10"))
"""Of chunks that go between lookup and load; `make soak` has 50."""
GQA_CHUNK = 2 * 2 * CHUNK * 1 * 64 * 4
"""Bytes of a chunk of one rank: layers, K and V, tokens, heads, head size, float32."""


@pytest.fixture
def tier() -> Iterator[list[Server]]:
    with instances(2) as servers:
        yield servers


Make = Callable[..., Vllm]


@pytest.fixture
def make(tmp_path: Path, tier: list[Server]) -> Make:
    url = f"resp://127.0.0.1:{tier[0].port // 10}{{ordinal}}"
    count = iter(range(100))

    def vllm(kind: str, *, policy: str = "recompute", nixl: bool = False, **settings: Any) -> Vllm:
        number = next(count)
        port = settings.pop("control_port", 0)
        drain = settings.pop("drain", 0)
        package = settings.pop("package", PACKAGE)
        file = lmcache_file(tmp_path / f"{number}.yaml", url, CHUNK, control_port=port, **settings)
        child = store_transfer()
        config = with_nixl("cpu", child, policy) if nixl else child
        config["kv_load_failure_policy"] = policy
        flags = ["--tensor-parallel-size", "2", "--block-size", "16" if kind == "mla" else "32"]
        flags += ["--shutdown-timeout", str(drain)]
        return Vllm(
            f"{kind}{number}",
            Path(MODELS) / f"tiny-{kind}",
            tmp_path,
            *flags,
            transfer=config,
            lmcache=file,
            env=installed(tmp_path / "site", package),
        )

    return vllm


def keys(server: Server) -> int:
    return int(server.ask(b"DBSIZE")[1:-2])


def talk(server: Server) -> Connection:
    by = time.monotonic() + 10.0
    return Connection.open(server.address, credentials=None, context=None, deadline=by)


def contents(server: Server) -> dict[bytes, bytearray]:
    """Everything an instance holds."""
    names = [line for line in server.ask(b"KEYS", b"*").split(b"\r\n")[2::2] if line]
    sizes = [int(server.ask(b"STRLEN", name)[1:-2]) for name in names]
    found = {name: bytearray(size) for name, size in zip(names, sizes, strict=True)}
    with closing(talk(server)) as connection:
        views = [memoryview(value) for value in found.values()]
        connection.get(names, views, time.monotonic() + 10.0, lambda _index, _there: None)
    return found


def refill(server: Server, values: dict[bytes, bytearray]) -> None:
    """Give an instance what it held before."""
    with closing(talk(server)) as connection:
        views = [memoryview(value) for value in values.values()]
        by = time.monotonic() + 10.0
        connection.set([*values], views, by, lambda _index, _stored: None)


def zero(server: Server) -> None:
    """Overwrite every value with zeros of its length."""
    script = (
        b"for _, key in ipairs(redis.call('KEYS', '*')) do "
        b"redis.call('SET', key, string.rep(string.char(0), redis.call('STRLEN', key))) end"
    )
    assert server.ask(b"EVAL", script, b"0")[:1] != b"-"


def stored(tier: list[Server], chunks: list[int]) -> None:
    until(lambda: [keys(server) for server in tier] == chunks, 20, f"{chunks} chunks stored")


def test_gqa_each_rank_has_its_heads_and_a_fresh_engine_loads_them(
    make: Make, tier: list[Server], tmp_path: Path
) -> None:
    text = prompt(1, TOKENS)
    with serving(Vllm("plain", Path(MODELS) / "tiny-gqa", tmp_path, "--block-size", "32")) as one:
        want = one[0].ask(text)
        one[0].terminate()
    with serving(make("gqa", attention="GQA")) as (first,):
        assert "round-trip self-test: passed" in first.log
        assert first.ask(text).equals(want)
        others = {
            text: first.ask(text, 4) for text in (prompt(100 + n, TOKENS) for n in range(TRIES))
        }
        stored(tier, [(TRIES + 1) * HIT // CHUNK] * 2)
        assert first.terminate() < 20
    # A hit is asked for, not how fast this machine is.
    with serving(make("gqa", attention="GQA", patience=60)) as (fresh,):
        got, hit = fresh.asked(text)
        assert got.equals(want)
        assert hit == HIT
        for rank in ("0", "1"):
            until(
                lambda rank=rank: (  # type: ignore[misc]
                    fresh.metric("kvserving_store_read_bytes_total", rank=rank)
                    >= HIT // CHUNK * GQA_CHUNK
                ),
                10,
                f"rank {rank} has read its heads",
            )
        for other, (got, _, _) in deleted_meanwhile(fresh, tier, others).items():
            assert got.equals(others[other])
        for server in tier:
            server.ask(b"FLUSHALL")
        fresh.forget()
        last = prompt(200, TOKENS)
        wanted = fresh.ask(last)
        stored(tier, [HIT // CHUNK] * 2)
        fresh.terminate()
    for server in tier:
        zero(server)
    with serving(make("gqa", attention="GQA", patience=60)) as (spoiled,):
        got, hit = spoiled.asked(last)
        assert not got.equals(wanted), "the bytes of the instances are not used"
        assert hit == HIT
        spoiled.terminate()


def deleted_meanwhile(
    engine: Vllm, tier: list[Server], others: dict[str, Answer]
) -> dict[str, tuple[Answer, int, bytes]]:
    """A chunk of each prompt goes between its lookup and its load: answer, tokens hit, the chunk.

    No memory of this engine holds any of them.
    """
    chance, found = random.Random(5), {}
    for text in others:
        with Removal(chance.choice(tier), chance) as removal:
            got, hit = engine.asked(text, 4)
        assert got.error is None
        assert removal.removed is not None, "nothing was looked up"
        found[text] = (got, hit, removal.removed)
    # Else the chunks went before the lookup or after the load.
    until(
        lambda: engine.metric("kvserving_store_absent_after_exists_total") >= len(others) / 5,
        10,
        "chunks gone between EXISTS and GET",
    )
    assert any(0 < hit < HIT for _, hit, _ in found.values())
    hits = Counter(hit for _, hit, _ in found.values())
    gone = engine.metric("kvserving_store_absent_after_exists_total")
    figures = {"tries": len(others), "gone_between_exists_and_get": gone, "tokens_hit": hits}
    record("soak-store", f"vLLM, removed between lookup and load, {engine.name}", figures)
    return found


def test_mla_each_rank_stores_half_and_valkey_may_come_and_go(
    make: Make, tier: list[Server]
) -> None:
    text, port = prompt(2, TOKENS), lasting_port()
    other = prompt(3, TOKENS)
    with serving(make("mla", attention="MLA")) as (first,):
        first.ask(other, 4)
        stored(tier, [8, 7])
        lost = contents(tier[1])
        cold = first.ask(text)
        stored(tier, [16, 14])
        first.forget()
        local, hit = first.asked(text)
        assert hit == HIT
        first.terminate()
    with serving(make("mla", attention="MLA", control_port=port)) as (fresh,):
        remote, hit = fresh.asked(text)
        assert hit == HIT
        assert remote.tokens == local.tokens
        assert remote.logprobs == local.logprobs
        assert cold.error is None
        assert "ShardedStore" in control(port)["capabilities"]
        # Ranks report once a second.
        until(
            lambda: control(port)["counters"].get("loaded_chunks", 0) >= 2 * (HIT // CHUNK),
            10,
            "chunks loaded on both ranks",
        )
        kept = control(port)["recent"]["loads"]
        [load] = [dict(zip(kept["fields"], row, strict=True)) for row in kept["rows"]]
        assert (load["tokens"], load["stepLoads"]) == (HIT, 1)
        assert 0 < load["stepTokens"] <= TOKENS - HIT
        # Whole chunks, all of them from instances: this engine's memory was empty.
        assert load["bytes"] > 0
        assert load["bytes"] % (HIT // CHUNK) == 0
        assert 0 < load["servedSeconds"] == load["fetchSeconds"]
        assert min(load["probeSeconds"], load["stepSeconds"]) > 0
        # Bypass is heeded from the next request on.
        control(port, {"mode": "Bypass"})
        fresh.forget()
        bypassed, hit = fresh.asked(text, 4)
        assert bypassed.error is None
        assert hit == 0
        control(port, {"mode": "Sync"})
        fresh.forget()
        waited_for, hit = fresh.asked(text, 4)
        assert waited_for.tokens == local.tokens[:4]
        assert hit == HIT
        control(port, {"mode": "Auto"})
        # One instance is killed and comes back empty: no request is slow, and it is used again.
        tier[1].kill()
        slowest = max(fresh.ask(prompt(10 + n, TOKENS), 4).seconds for n in range(3))
        assert slowest < 6.0
        tier[1].start()

        fresh_prompts = iter(range(60, 1000))

        def again() -> bool:
            fresh.ask(prompt(next(fresh_prompts), TOKENS), 4)
            return keys(tier[1]) >= 7

        began = time.monotonic()
        until(again, 10, "stored again")
        # What it has now and this engine's memory has not, is read from it.
        read = fresh.metric("kvserving_store_read_bytes_total", rank="1")
        refill(tier[1], lost)
        _, hit = fresh.asked(other, 4)
        assert hit == HIT
        assert time.monotonic() - began < 5.0
        until(
            lambda: fresh.metric("kvserving_store_read_bytes_total", rank="1") > read,
            10,
            "the chunks came from the instance that was gone",
        )


@contextmanager
def silent(tier: list[Server], how: str) -> Iterator[None]:
    """Instances that say nothing any more."""
    with ExitStack() as stack:
        for server in tier if how == "all frozen" else tier[:1]:
            if how == "one unreachable":
                server.kill()
                stack.enter_context(closing(Deaf(server.port)))
            else:
                server.freeze()
                stack.callback(server.thaw)
        yield


@pytest.mark.parametrize(
    ("how", "drain"), [("one frozen", 0), ("all frozen", 15), ("one unreachable", 15)]
)
def test_sigterm_under_load_ends_beside_instances_that_say_nothing(
    make: Make, tier: list[Server], how: str, drain: int
) -> None:
    # Without a drain requests are broken off; with one these end before the engine does.
    length = 24 if drain else 400
    with serving(make("mla", attention="MLA", drain=drain)) as (engine,), ExitStack() as stack:
        engine.ask(prompt(2, TOKENS), 4)
        stored(tier, [8, 7])
        answers: list[Answer] = []

        def client(number: int) -> None:
            answers.append(engine.ask(prompt(2000 + number, TOKENS), length))

        clients = [threading.Thread(target=client, args=(number,)) for number in range(8)]
        for each in clients:
            each.start()
        until(lambda: engine.metric("vllm:num_requests_running") > 0, 20, "requests run")
        stack.enter_context(silent(tier, how))
        stack.enter_context(scraped(engine))
        assert engine.terminate() < 20
        for each in clients:
            each.join(30)
            assert not each.is_alive(), "a client is left without an answer"
        if not drain:
            assert any(answer.error for answer in answers), "nothing was under way"
            return
        assert not any(answer.error for answer in answers)
        # Two ranks and the scheduler closed the store by themselves, and left nothing behind.
        assert engine.log.count("services stopped successfully") == 3
        assert "did not end in time" not in engine.log


def test_a_rank_killed_under_load_ends_the_engine_and_the_tier_stays_whole(
    make: Make, tier: list[Server]
) -> None:
    texts = [prompt(400 + number, TOKENS) for number in range(4)]
    with serving(make("mla", attention="MLA")) as (engine,):
        want = {text: engine.ask(text, 4) for text in texts}
        stored(tier, [len(texts) * 8, len(texts) * 7])
        for text in texts:
            engine.forget()
            want[text] = engine.ask(text, 4)
        ended = threading.Event()

        def client(number: int) -> None:
            while not ended.is_set() and engine.ask(texts[number], 4).error is None:
                pass

        clients = [threading.Thread(target=client, args=(number,)) for number in range(len(texts))]
        for each in clients:
            each.start()
        # Not from the clients: vLLM never answers this once an engine is dead, and waits for it.
        loads = engine.metric("kvserving_store_loads_total")
        for _ in range(4):
            engine.forget()
            loads += 2
            until(
                lambda least=loads: engine.metric("kvserving_store_loads_total") >= least,  # type: ignore[misc]
                60,
                "hits are loaded",
            )
        engine.forget()
        os.kill(engine.worker(1), signal.SIGKILL)
        try:
            until(lambda: not engine.pids(), 30, "the engine ended by itself")
        finally:
            ended.set()
        for each in clients:
            each.join(30)
            assert not each.is_alive(), "a client is left without an answer"
    with serving(make("mla", attention="MLA", patience=60)) as (fresh,):
        for text in texts:
            got, hit = fresh.asked(text, 4)
            assert hit == HIT
            assert (got.tokens, got.logprobs) == (want[text].tokens, want[text].logprobs)
        fresh.terminate()


def test_mla_chunks_that_go_between_lookup_and_load_leave_a_hit_of_that_length(
    make: Make, tier: list[Server]
) -> None:
    # Every hit is compared with one of exactly its length, so none may be cut by a deadline.
    with serving(make("mla", attention="MLA", patience=60)) as (first,):
        others = {
            text: first.ask(text, 4) for text in (prompt(300 + n, TOKENS) for n in range(TRIES))
        }
        until(lambda: sum(map(keys, tier)) == TRIES * HIT // CHUNK, 20, "stored")
        first.terminate()
    with serving(make("mla", attention="MLA", patience=60)) as (fresh,):
        found = deleted_meanwhile(fresh, tier, others)
        fresh.terminate()
    with serving(make("mla", attention="MLA", patience=60)) as (other,):
        for text, (got, hit, removed) in found.items():
            # Now the chunk is not there from the start. (The hit of the whole length is compared to
            # one in local memory elsewhere. On CPU, KV that MLA computed in another prompt with
            # this prefix would not do: log probabilities are 0.7 apart.)
            assert hit % CHUNK == 0
            if hit == HIT:
                continue  # it went after it had been read
            for server in tier:
                server.ask(b"UNLINK", removed)
            clean, again = other.asked(text, 4)
            assert again == hit
            assert got.tokens == clean.tokens
            assert got.logprobs == clean.logprobs
        other.terminate()


def test_a_model_that_is_pushed_bypasses_probes_and_loads_again_and_weighs_who_waits(
    make: Make, tier: list[Server]
) -> None:
    text, port = prompt(6, TOKENS), lasting_port()
    with serving(make("mla", attention="MLA", control_port=port, patience=60)) as (engine,):

        def push(**model: float) -> None:
            numbers = {"R": 100.0, "s": 1.0, "B": 1e12, "te": 0.0, "tw": 0.0, **model}
            control(port, {"mode": "Auto", "model": numbers})

        def count(name: str) -> float:
            return float(control(port)["counters"].get(name, 0))

        def hit() -> int:
            engine.forget()
            answer, tokens = engine.asked(text, 4)
            assert answer.error is None
            return tokens

        engine.ask(text, 4)
        stored(tier, [8, 7])
        assert hit() == HIT
        # By these numbers no tier is worth reading: hits are recomputed, which is found out of the
        # probes to be so for all of them; then it is probed without anybody coming.
        push(s=1e9, B=1e9)
        assert hit() == 0
        until(lambda: hit() == 0 and count("bypassed") == 1, 60, "the tier is bypassed")
        assert count("decision_bypass_recomputecheaper") > 0
        assert hit() == 0
        assert count("decision_bypass_bypassed") > 0
        # Three samples of the bandwidth make a bypass; the first load can be one of them.
        probed = count("probed_chunks")
        assert probed > 0
        until(lambda: count("probed_chunks") >= probed + 2, 20, "probed on both ranks")
        push()
        until(lambda: hit() == HIT, 20, "loaded again")
        assert count("bypassed") == 0
        # To its own request a load is dearer by these. On the engine it takes nothing, so it is
        # cheaper as soon as there are others that would wait behind a computation.
        push(tw=1.3 * HIT / 100)
        assert hit() == 0
        cheaper, ended = count("decision_async_loadcheaper"), threading.Event()

        def others(number: int) -> None:
            while not ended.is_set():
                engine.ask(prompt(3000 + number, TOKENS), 100)

        clients = [threading.Thread(target=others, args=(number,)) for number in range(3)]
        for each in clients:
            each.start()
        try:
            until(lambda: engine.metric("vllm:num_requests_running") > 0, 20, "requests run")

            def loaded() -> bool:
                assert engine.ask(text, 4).error is None
                return count("decision_async_loadcheaper") > cheaper

            until(loaded, 60, "loaded because of those behind it")
        finally:
            ended.set()
            for each in clients:
                each.join()
        engine.terminate()


def test_prefill_and_decode_over_nixl_beside_the_store(
    make: Make, tier: list[Server], tmp_path: Path
) -> None:
    text = prompt(4, TOKENS)
    decode = Vllm(
        "decode",
        Path(MODELS) / "tiny-gqa",
        tmp_path,
        "--block-size",
        "32",
        "--tensor-parallel-size",
        "2",
        transfer={
            "kv_connector": "NixlConnector",
            "kv_role": "kv_consumer",
            "kv_buffer_device": "cpu",
        },
    )
    with serving(make("gqa", nixl=True), decode) as (prefill, _):
        want = decode.ask(text)
        decode.forget()
        assert transfer(prefill, decode, text).equals(want)
        stored(tier, [HIT // CHUNK] * 2)
        prefill.forget()
        decode.forget()
        moved = decode.metric("vllm:nixl_bytes_transferred_sum")
        assert transfer(prefill, decode, text).equals(want)
        until(lambda: prefill.hits() == HIT, 10, f"{HIT} tokens hit")
        until(
            lambda: decode.metric("vllm:nixl_bytes_transferred_sum") > moved, 10, "bytes over NIXL"
        )


@pytest.mark.parametrize("name", ["auto", "fp8_e4m3", "fp8_e5m2"])
def test_what_the_engine_calls_its_kv_is_part_of_the_key(name: str) -> None:
    from lmcache.v1.config import LMCacheEngineConfig  # noqa: PLC0415

    from kvserving_sharded_store.adapter import ShardedAdapter  # noqa: PLC0415

    config = LMCacheEngineConfig.from_dict({"extra_config": {"kvserving.revision": "r"}})
    engine = SimpleNamespace(
        cache_config=SimpleNamespace(cache_dtype=name),
        kv_transfer_config=SimpleNamespace(kv_connector_extra_config={}),
        parallel_config=SimpleNamespace(world_size=2),
    )
    ShardedAdapter._apply_extra_config(ShardedAdapter.__new__(ShardedAdapter), config, engine)
    settings = Settings.of(config)
    assert settings.revision == "r"
    assert settings.element == ("" if name == "auto" else name)


def test_a_mismatch_of_attention_leaves_the_tier_alone(make: Make, tier: list[Server]) -> None:
    text, port = prompt(5, TOKENS), lasting_port()
    with serving(make("gqa", attention="MLA", control_port=port)) as (server,):
        assert server.ask(text).error is None
        server.forget()
        got, hit = server.asked(text)
        assert got.error is None
        assert hit == 0
        assert control(port)["closed"] == "AttentionMismatch"
        assert [keys(each) for each in tier] == [0, 0]


@pytest.mark.parametrize(("closed", "kind"), [("Stock", "gqa"), ("UnknownVersions", "mla")])
def test_a_pair_of_versions_that_nobody_has_read_is_not_patched_and_serves(
    make: Make, tier: list[Server], tmp_path: Path, closed: str, kind: str
) -> None:
    package = copied(tmp_path / "copy")
    changed(package / "versions.py", '("0.32.0", "0.5.6")', '("0.32.99", "0.5.6")')
    if closed == "UnknownVersions":
        # As on an accelerator with another attention, where stock LMCache is wrong.
        changed(package / "connector.py", "if current_platform.is_cpu():", "if False:")
        changed(package / "connector.py", "return bool(config", "return False and bool(config")
    text, port = prompt(7, TOKENS), lasting_port()
    with serving(make(kind, control_port=port, package=package.parent)) as (engine,):
        first = engine.ask(text)
        engine.forget()
        got, hit = engine.asked(text)
        assert got.error is None
        if closed == "UnknownVersions":
            assert hit == 0
            assert got.equals(first)
            assert [keys(each) for each in tier] == [0, 0]
        state = control(port)
        assert (state["capabilities"], state["closed"]) == ([], closed)
        labels = {"vllm": "0.32.0", "lmcache": "0.5.6", "closed": closed}
        assert "kvserving_store_patched{" in engine.get("/metrics")
        assert engine.metric("kvserving_store_patched", **labels) == 0
        lines = [line for line in engine.log.splitlines() if "is not a supported pair" in line]
        assert len(lines) <= 3, "one of each process that builds a connector"
        assert lines
        assert engine.terminate() < 30


def test_copies_that_are_not_exact_close_the_tier_before_the_first_request(
    make: Make, tier: list[Server], tmp_path: Path
) -> None:
    package = copied(tmp_path / "copy")
    changed(package / "blocks.py", "chunk.copy_(source, non", "chunk.copy_(source ^ 1, non")
    text, port = prompt(8, TOKENS), lasting_port()
    with serving(make("gqa", control_port=port, package=package.parent)) as (engine,):
        first = engine.ask(text)
        engine.forget()
        got, hit = engine.asked(text)
        assert hit == 0
        assert got.equals(first)
        assert control(port)["closed"] == "KVRoundTripMismatch"
        assert "round-trip self-test: passed" not in engine.log
        assert [keys(each) for each in tier] == [0, 0]


def copied(folder: Path) -> Path:
    """The package in a folder of its own, to be changed."""
    target = folder / "kvserving_sharded_store"
    shutil.copytree(Path(__file__).parents[2] / "kvserving_sharded_store", target)
    return target


def changed(file: Path, before: str, after: str) -> None:
    text = file.read_text()
    assert text.count(before) == 1
    file.write_text(text.replace(before, after))
