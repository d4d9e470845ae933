from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from test_scheduler import request

from kvserving_engine_sim.lmcache_tier.resp_race import serialised
from kvserving_engine_sim.lmcache_tier.stand_ins import chunk_hash
from kvserving_engine_sim.scheduler.external import Match
from kvserving_engine_sim.scheduler.request import Finish, Request
from kvserving_engine_sim.transfer_config import Kind, Role
from kvserving_engine_sim.workers import messages


def test_hash_does_not_depend_on_the_process() -> None:
    program = (
        "from kvserving_engine_sim.lmcache_tier.stand_ins import chunk_hash;"
        "print(chunk_hash('sha256_cbor')((0, (1, 2, 3), ())).hex())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(filter(None, sys.path))},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "random")
    }
    assert len(outputs) == 1


def test_unknown_hash_algorithm_is_refused() -> None:
    assert chunk_hash("builtin")((1, 2)) == hash((1, 2))
    with pytest.raises(ValueError, match="md5"):
        chunk_hash("md5")


class OvertakenClient:
    """A native client whose reply is there before its caller has registered a future."""

    def __init__(self) -> None:
        self._client = self
        self.replies: list[int] = []
        self.futures: dict[int, Future[int]] = {}
        self.lost: list[int] = []

    def submit_batch_exists(self, keys: list[str]) -> int:
        self.replies.append(7)
        completion = threading.Thread(target=self._on_ready)
        completion.start()
        completion.join(timeout=0.2)
        return 7

    def _on_ready(self) -> None:
        while self.replies:
            number = self.replies.pop()
            future = self.futures.get(number)
            if future is None:
                self.lost.append(number)
            else:
                future.set_result(number)

    def _register_future_sync(self, operation: str, number: int, kept: Any = ()) -> Future[int]:
        self.futures[number] = Future()
        return self.futures[number]

    def batch_exists_sync(self, keys: list[str]) -> Any:
        number = self.submit_batch_exists(keys)
        return self._register_future_sync("batch_exists", number).result(timeout=5)


def test_reply_cannot_overtake_its_registration() -> None:
    stock = OvertakenClient()
    with pytest.raises(TimeoutError):
        stock.batch_exists_sync(["a"])
    assert stock.lost == [7]
    fixed = serialised(OvertakenClient)
    assert serialised(fixed) is fixed
    began = time.monotonic()
    assert fixed().batch_exists_sync(["a"]) == 7
    assert time.monotonic() - began < 5


class LookupClient:
    """LMCache's lookup client, with answers given by the test."""

    def __init__(self, *answers: int | None) -> None:
        self.answers = list(answers)
        self.lookups = 0
        self.cancelled: list[str] = []

    def lookup_cache(self, lookup_id: str) -> int | None:
        return -1 if self.lookups == 0 else self.answers[0]

    def lookup(self, tokens: list[int], lookup_id: str) -> int | None:
        self.lookups += 1
        return self.answers[0]

    def clear_lookup_status(self, lookup_id: str) -> None:
        self.lookups = 0

    def cancel_lookup(self, lookup_id: str) -> None:
        self.cancelled.append(lookup_id)


def source(client: LookupClient, role: Role = Role.BOTH, **options: Any) -> Any:
    from kvserving_engine_sim.lmcache_tier.source import TierSource  # noqa: PLC0415

    config = {
        "chunk_size": 64,
        "min_retrieve_tokens": 0,
        "save_decode_cache": False,
        "save_unfull_chunk": False,
    }
    return TierSource(SimpleNamespace(**config | options), client, role)


def attached(tier: Any, asked: Request, start: int, count: int) -> messages.Sequence:
    sequence = messages.Sequence("a", start, asked.tokens[start : start + count], [])
    tier.attach(asked, sequence)
    return sequence


def test_whole_chunks_are_stored_once_chunk_by_chunk() -> None:
    tier, asked = source(LookupClient(0)), request("a", 300)
    assert tier.match(asked, 0) == Match()
    tier.admitted(asked, Match())
    saves = [attached(tier, asked, start, 100).save for start in (0, 100, 200)]
    assert saves == [messages.Save(0, 64), messages.Save(64, 192), messages.Save(192, 256)]
    asked.output = [1] * 100
    assert attached(tier, asked, 300, 1).save is None
    assert tier.stale_lookups() == []


def test_found_chunks_are_loaded_and_not_stored_again() -> None:
    tier, asked = source(LookupClient(128)), request("a", 300)
    assert tier.match(asked, 64) == Match(64, source=Kind.LMCACHE)
    asked.local_cached = 64
    tier.admitted(asked, Match(64, source=Kind.LMCACHE))
    sequence = attached(tier, asked, 128, 172)
    assert sequence.load == messages.Load(64, 128)
    assert sequence.save == messages.Save(128, 256)
    assert sequence.prefix is not None
    assert len(sequence.prefix) == 256
    assert attached(tier, asked, 300, 1).load is None


def test_last_token_of_a_full_hit_is_computed() -> None:
    tier, asked = source(LookupClient(128)), request("a", 128)
    assert tier.match(asked, 0).tokens == 127


def test_hits_that_are_not_worth_loading_are_unpinned() -> None:
    tier, asked = source(LookupClient(128), min_retrieve_tokens=200), request("a", 300)
    assert tier.match(asked, 0) == Match()
    tier.admitted(asked, Match())
    assert tier.stale_lookups() == ["a"]
    assert tier.stale_lookups() == []
    assert attached(tier, asked, 0, 300).save == messages.Save(128, 256)


def test_lookup_is_made_once_and_may_take_several_calls() -> None:
    client = LookupClient(None)
    tier, asked = source(client), request("a", 300)
    assert tier.match(asked, 0) is None
    assert tier.match(asked, 0) is None
    client.answers = [64]
    assert tier.match(asked, 0).tokens == 64
    assert tier.match(asked, 0).tokens == 64
    assert client.lookups == 1


def test_request_that_ends_while_it_is_looked_up() -> None:
    client = LookupClient(None)
    tier, asked = source(client), request("a", 300)
    tier.match(asked, 0)
    tier.finished(asked, Finish.ABORT)
    assert client.cancelled == ["a"]
    client = LookupClient(64)
    tier = source(client)
    tier.match(asked, 0)
    tier.finished(asked, Finish.ABORT)
    assert tier.stale_lookups() == ["a"]


def test_consumer_stores_nothing() -> None:
    tier, asked = source(LookupClient(0), Role.CONSUMER), request("a", 300)
    tier.match(asked, 0)
    tier.admitted(asked, Match())
    assert attached(tier, asked, 0, 300).save is None


def test_failed_load_is_stored_again_once_computed() -> None:
    tier, asked = source(LookupClient(256)), request("a", 300)
    tier.match(asked, 0)
    tier.admitted(asked, Match(256, source=Kind.LMCACHE))
    attached(tier, asked, 256, 44)
    asked.computed = 128
    tier.rolled_back(asked)
    assert attached(tier, asked, 128, 172).save == messages.Save(128, 256)
