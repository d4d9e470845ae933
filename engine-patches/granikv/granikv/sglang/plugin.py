"""Entry point of `sglang.srt.plugins`: `--attention-backend granikv` (or the decode one alone).

SGLang loads plugins in every process before it reads its arguments.  Without that argument the
hooks below leave everything as it is.  A version in `UNSERVED` has an adapter that was checked
against its wheel but never served: it is hooked only if GRANIKV_TRY names that version.  Otherwise,
and of any version that is unknown, nothing is hooked: the name is there, it stands for the engine's
own Triton backend, and a warning says so.
"""

import logging
import os
from importlib.metadata import PackageNotFoundError, version
from typing import Any

NAME = "granikv"
STOCK = "triton"
# What is known of each version: see docs/granikv.md for what exactly ran.
KNOWN = {"0.5.17": "served on one H200"}
UNSERVED = {"0.5.23": "adapter checked against its wheel on CPU"}
CHECKPOINT = frozenset({"0.5.23"})  # versions whose prefix cache has `checkpoint`
log = logging.getLogger("sglang.granikv")


def load() -> None:
    """Register the name and, of a version that we know, the hooks."""
    found = engine_version()
    if supported(found, os.environ.get("GRANIKV_TRY", "")):
        _register(_make_ours)
        _hook(found)
        return
    hint = f"; GRANIKV_TRY={found} tries it ({UNSERVED[found]})" if found in UNSERVED else ""
    log.warning(
        "granikv: SGLang %s never served with it (%s did)%s; nothing is hooked, '%s' means the "
        "stock %s backend", found, ", ".join(KNOWN), hint, NAME, STOCK,
    )  # fmt: skip
    _register(_make_stock)


def supported(found: str, tried: str) -> bool:
    """Whether to hook this version; `tried` names one that has an adapter and never served."""
    return found in KNOWN or (found in UNSERVED and found == tried)


def engine_version() -> str:
    """Version of the SGLang that is installed, without a local part."""
    try:
        return version("sglang").partition("+")[0]
    except PackageNotFoundError:
        return "none"


def wanted() -> bool:
    """Whether this server was started with our backend for decode."""
    from sglang.srt.server_args import get_global_server_args  # noqa: PLC0415  engine only

    args = get_global_server_args()
    return NAME in {args.decode_attention_backend or args.attention_backend}


def _register(factory: Any) -> None:
    from sglang.srt.layers.attention.attention_registry import (  # noqa: PLC0415
        ATTENTION_BACKENDS,
        register_attention_backend,
    )
    from sglang.srt.server_args import (  # noqa: PLC0415
        ATTENTION_BACKEND_CHOICES,
        add_attention_backend_choices,
    )

    if NAME not in ATTENTION_BACKEND_CHOICES:
        add_attention_backend_choices([NAME])
    if NAME not in ATTENTION_BACKENDS:
        register_attention_backend(NAME)(factory)


def _make_ours(runner: Any) -> Any:
    from granikv.sglang.attention import make  # noqa: PLC0415

    return make(runner)


def _make_stock(runner: Any) -> Any:
    from sglang.srt.layers.attention.attention_registry import (  # noqa: PLC0415
        ATTENTION_BACKENDS,
    )

    log.warning("granikv: not hooked, serving with its own %s backend", STOCK)
    return ATTENTION_BACKENDS[STOCK](runner)


def _hook(found: str) -> None:
    from sglang.srt.mem_cache.allocator import TokenToKVPoolAllocator  # noqa: PLC0415
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType  # noqa: PLC0415

    from granikv.sglang import steps  # noqa: PLC0415
    from granikv.sglang.allocator import GraniAllocator  # noqa: PLC0415

    class Allocator(TokenToKVPoolAllocator):  # type: ignore[misc]
        """Ours where our backend was asked for, else the engine's."""

        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            return GraniAllocator(*args, **kwargs) if wanted() else super().__new__(cls)

    def tree(original: Any, ctx: Any) -> Any:
        ours = isinstance(ctx.params.token_to_kv_pool_allocator, GraniAllocator)
        if not ours or ctx.disable_radix_cache:
            return original(ctx)
        return _cache_class(found)(ctx.params)

    for target, hook, kind in (
        (HOOKS["allocator"], Allocator, HookType.REPLACE),
        (HOOKS["tree"], tree, HookType.AROUND),
        (HOOKS["schedule"], steps.before_schedule, HookType.BEFORE),
        (HOOKS["run"], steps.before_run, HookType.BEFORE),
        (HOOKS["retract"], steps.after_retract, HookType.AFTER),
    ):
        HookRegistry.register(target, hook, kind)


def _cache_class(found: str) -> Any:
    """The prefix cache with the contract of this version."""
    if found in CHECKPOINT:
        from granikv.sglang.prefix_0523 import CheckpointCache  # noqa: PLC0415

        return CheckpointCache
    from granikv.sglang.prefix import GraniCache  # noqa: PLC0415

    return GraniCache


# Where we hook: the name as its user sees it, or the method.
HOOKS = {
    "allocator": "sglang.srt.mem_cache.kv_cache_configurator.TokenToKVPoolAllocator",
    "tree": "sglang.srt.mem_cache.kv_cache_builder.create_tree_cache",
    "schedule": "sglang.srt.managers.scheduler.Scheduler.get_next_batch_to_run",
    "run": "sglang.srt.managers.scheduler.Scheduler.run_batch",
    "retract": "sglang.srt.managers.schedule_batch.ScheduleBatch.retract_decode",
}
