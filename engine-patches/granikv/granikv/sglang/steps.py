"""Hooks into SGLang's scheduler: upkeep between two steps, and who runs in the next one.

Upkeep runs before the next batch is put together: whatever holds a slot then has had its KV
written, in the order of the forward stream.  Copies and the change of the slot table go to that
stream too, behind the step that is under way and before the next.
"""

import logging
from typing import Any

import torch

from granikv.control import serve
from granikv.sglang.allocator import GraniAllocator
from granikv.sglang.core import Core, row_map

log = logging.getLogger("sglang.granikv")
ROWS_AT_ONCE = 1 << 24  # elements of the slot table renumbered by one launch


class Now:
    """The requests of the batch that is being launched; what the attention backend plans for."""

    reqs: tuple[Any, ...] = ()
    ran = False  # whether a batch has been run since the last look at the schedule


def core_of(scheduler: Any) -> Core | None:
    """Our core, if this scheduler runs on our allocator."""
    allocator = scheduler.token_to_kv_pool_allocator
    return allocator.core if isinstance(allocator, GraniAllocator) else None


def before_schedule(scheduler: Any, *args: Any, **kwargs: Any) -> None:
    """BEFORE Scheduler.get_next_batch_to_run."""
    core = core_of(scheduler)
    if core is None:
        return
    if not Now.ran:
        core.pace.interrupt()
    Now.ran = False
    if not hasattr(scheduler, "granikv_server"):
        scheduler.granikv_server = _serve(core)
    stream = _stream(scheduler)
    with torch.cuda.stream(stream):
        moves = core.between()
        if moves.size:
            stream.wait_stream(_schedule_stream(scheduler))
            host = torch.from_numpy(row_map(moves, core.total)).pin_memory()
            mapping = host.to(stream.device, non_blocking=True)
            _renumber(scheduler.req_to_token_pool.req_to_token, mapping)
            _renumber_chunked(scheduler, mapping)
            _schedule_stream(scheduler).wait_stream(stream)


def before_run(scheduler: Any, batch: Any, *args: Any, **kwargs: Any) -> None:
    """BEFORE Scheduler.run_batch."""
    core = core_of(scheduler)
    if core is None:
        return
    Now.reqs, Now.ran = tuple(batch.reqs) if batch is not None else (), True
    if batch is not None and batch.forward_mode.is_decode():
        core.pace.step(moving=core.moved)
    else:
        core.pace.interrupt()


def after_retract(result: Any, *args: Any, **kwargs: Any) -> None:
    """AFTER ScheduleBatch.retract_decode: count what was pushed back."""
    allocator = args[0].token_to_kv_pool_allocator
    if isinstance(allocator, GraniAllocator):
        allocator.core.preempted += len(result[0])


def _stream(scheduler: Any) -> torch.cuda.Stream:
    return scheduler.forward_stream if scheduler.enable_overlap else torch.cuda.current_stream()


def _schedule_stream(scheduler: Any) -> torch.cuda.Stream:
    return scheduler.schedule_stream if scheduler.enable_overlap else torch.cuda.current_stream()


def _renumber(table: torch.Tensor, mapping: torch.Tensor) -> None:
    """Every slot in the engine's table follows; entries of free rows are slots too, or zero."""
    rows = max(1, ROWS_AT_ONCE // table.shape[1])
    for part in table.split(rows):
        part.copy_(mapping[part.long()])


def _renumber_chunked(scheduler: Any, mapping: torch.Tensor) -> None:
    req = getattr(scheduler, "chunked_req", None)
    if req is not None and len(getattr(req, "prefix_indices", ())):  # 0.5.23 keeps none
        req.prefix_indices = mapping[req.prefix_indices.long()].long()


def _serve(core: Core) -> Any:
    port = core.settings.port
    try:
        server = serve(core.mailbox, port=port, metrics=lambda: core.metrics_text)
    except OSError as error:
        log.warning("granikv: no control on 127.0.0.1:%d (%s); serving goes on", port, error)
        return None
    log.info("granikv: control and metrics on 127.0.0.1:%d", port)
    return server
