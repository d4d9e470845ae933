"""Starts an engine's processes as copies of the first instead of from nothing.

vLLM's CPU platform insists on `spawn`: front end, engine core and each worker import all of vLLM,
14 s of CPU each on a small machine. Nothing that forbids a fork has happened when they start: there
is no accelerator, and with one OpenMP thread (OMP_NUM_THREADS=1 in this image) no thread pool to
lose. A fork takes under a second and shares the memory of what was imported.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

from kvserving_engine_cpu.versions import made_for

logger = logging.getLogger("vllm.kvserving_engine_cpu")

METHOD = "VLLM_WORKER_MULTIPROC_METHOD"


def rebind() -> None:
    """Rebinds two methods of vLLM's CPU platform, once, for 0.32.0 and one OpenMP thread only."""
    if not made_for("vllm", "0.32.0", "starting processes by fork"):
        return
    if os.environ.get("OMP_NUM_THREADS") != "1":
        logger.info("more than one OpenMP thread: processes are spawned, as vLLM does")
        return
    from vllm.platforms.cpu import CpuPlatform  # noqa: PLC0415

    by_fork(CpuPlatform)


def by_fork(platform: Any) -> None:
    """Makes a platform class choose `fork`, unless this was done before."""
    if getattr(platform, "kvserving_fork", False):
        return
    stock_check = platform.check_and_update_config.__func__
    stock_register = platform.register_triton_kernel_overrides.__func__

    def check_and_update_config(cls: Any, vllm_config: Any) -> None:
        stock_check(cls, vllm_config)
        os.environ[METHOD] = "fork"

    def register_triton_kernel_overrides(cls: Any) -> None:
        # It looks at every attribute of every module. The front end has imported llvmlite, whose
        # lazy function wrappers do not stand that.
        hidden = {
            name: sys.modules.pop(name)
            for name in list(sys.modules)
            if name.partition(".")[0] == "llvmlite"
        }
        try:
            stock_register(cls)
        finally:
            sys.modules.update(hidden)

    platform.check_and_update_config = classmethod(check_and_update_config)
    platform.register_triton_kernel_overrides = classmethod(register_triton_kernel_overrides)
    platform.kvserving_fork = True
