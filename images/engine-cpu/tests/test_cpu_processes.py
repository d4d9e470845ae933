"""How engine processes start and end, on objects of the shape that vLLM and LMCache have."""

import asyncio
import logging
import os
import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from kvserving_engine_cpu import leave, processes


def platform_of(seen: list[str]) -> Any:
    class Platform:
        @classmethod
        def check_and_update_config(cls, vllm_config: object) -> None:
            os.environ[processes.METHOD] = "spawn"

        @classmethod
        def register_triton_kernel_overrides(cls) -> None:
            seen.extend(name for name in sys.modules if name.startswith("llvmlite"))
            raise RuntimeError("stock")

    return Platform


def test_processes_are_forked_whatever_the_platform_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(processes.METHOD, "spawn")
    platform = platform_of([])
    processes.by_fork(platform)
    platform.check_and_update_config(None)
    assert os.environ[processes.METHOD] == "fork"


def test_llvmlite_is_out_of_sight_of_the_scan_only(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = ModuleType("llvmlite.binding")
    monkeypatch.setitem(sys.modules, "llvmlite.binding", stand_in)
    seen: list[str] = []
    platform = platform_of(seen)
    processes.by_fork(platform)
    processes.by_fork(platform)
    with pytest.raises(RuntimeError, match="stock"):
        platform.register_triton_kernel_overrides()
    assert seen == []
    assert sys.modules["llvmlite.binding"] is stand_in


@pytest.mark.parametrize("threads", ["2", None])
def test_with_a_thread_pool_nothing_is_rebound(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, threads: str | None
) -> None:
    monkeypatch.setattr(processes, "made_for", lambda *_: True)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if threads:
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
    with caplog.at_level(logging.INFO):
        processes.rebind()  # would import vLLM, which is not installed here
    assert "processes are spawned" in caplog.text


class Storage:
    """A storage manager: an event loop in a thread that is no daemon, and a remote backend."""

    def __init__(self, pending: set[str]) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.backend = SimpleNamespace(put_tasks=pending)
        self.storage_backends = {"LocalCPUBackend": object(), "RemoteBackend": self.backend}


def test_pending_writes_are_waited_for() -> None:
    storage = Storage({"a", "b"})
    storage.loop.call_soon_threadsafe(storage.backend.put_tasks.clear)
    assert leave.leave(storage)
    assert not storage.thread.is_alive()


def test_a_dead_tier_does_not_hold_the_engine(caplog: pytest.LogCaptureFixture) -> None:
    storage = Storage({"a"})
    clock = iter([0.0, leave.BOUND, leave.BOUND, leave.BOUND])
    assert not leave.leave(storage, now=lambda: next(clock))
    storage.thread.join(5)
    assert not storage.thread.is_alive()
    assert "1 chunks did not reach the remote tier" in caplog.text


def test_a_process_without_a_storage_manager_has_nothing_to_end() -> None:
    leave.shutdown(SimpleNamespace(_lmcache_engine=SimpleNamespace(lmcache_engine=None)))
    storage = Storage(set())
    engine = SimpleNamespace(storage_manager=storage)
    leave.shutdown(SimpleNamespace(_lmcache_engine=SimpleNamespace(lmcache_engine=engine)))
    assert not storage.thread.is_alive()
