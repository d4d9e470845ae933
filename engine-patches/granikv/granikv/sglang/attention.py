"""SGLang's attention backend: decode by step plans over slabs, everything else as the engine does.

Decode of one step: the plan of the running requests is copied into one device buffer, then each
layer launches level 0, the ranges and the suffix with the merge.  In captured graphs the launch
sizes are fixed and the plan says what they do, so one graph a batch size serves every plan; ways
that need another launch (cuDNN, dense) are left out there and outside of graphs alike.
"""

import logging
from pathlib import Path as File
from typing import Any

import torch
from sglang.srt.layers.attention.triton_backend import TritonAttnBackend
from sglang.srt.mem_cache.memory_pool import KVWriteLoc

from granikv.backends import Fixed, Mode, Workspace
from granikv.dispatch import load_table
from granikv.errors import OutOfSlotsError
from granikv.kernels import launch
from granikv.kernels.launch import Heads
from granikv.plan import make_plan
from granikv.sglang.allocator import GraniAllocator
from granikv.sglang.journal import Journal
from granikv.sglang.settings import SMALL
from granikv.sglang.steps import Now
from granikv.shapes import Class, Grain, Path, PlanShape, Running, StepPlan

log = logging.getLogger("sglang.granikv")
LARGEST = 512  # larger decode batches are left to the parent
REPLAN = 64  # steps after which a plan is made anew, because tails have grown


class GraniBackend(TritonAttnBackend):  # type: ignore[misc]
    """See the module.  Extend, and decode with speculation, are the parent's."""

    needs_cpu_seq_lens = False

    def __init__(self, runner: Any) -> None:
        super().__init__(runner)
        allocator = runner.token_to_kv_pool_allocator
        pool = runner.token_to_kv_pool
        if not isinstance(allocator, GraniAllocator):
            raise ValueError("granikv: the engine did not take our allocator; page size must be 1")
        self.core = allocator.core
        self.layers = allocator.kv.pool.layers
        self.first_layer = pool.start_layer
        key = self.layers[0].k
        kv_heads, dim = key.shape[1:]
        self.heads = Heads(kv_heads, self.num_head // kv_heads, dim, dim**-0.5)
        self.grain = Grain(kv_heads, self.heads.group)
        self.capacity = min(runner.req_to_token_pool.size, LARGEST)
        self.space = self._workspace(self.capacity)
        self._planned: tuple[int, int, tuple[Any, ...]] | None = None  # batch, epoch, requests
        self._classes: list[tuple[Path, int, int]] = []
        self._age = 0
        self._graph = False  # whether the launches to come are, or may be, captured
        core = self.core
        journal = core.settings.journal
        self.journal = Journal(File(journal)) if journal else None
        core.use(load_table(_gpu(key), kv_heads, self.heads.group, dim, core.settings.file))
        log.warning(
            "granikv: %d slots, %d %% HOT, %d KV heads, group %d, head dim %d, costs of %s",
            core.total, core.fp.percent, kv_heads, self.heads.group, dim, core.table.key.get("gpu"),
        )  # fmt: skip

    def _workspace(self, batch: int) -> Workspace:
        """Buffers for a batch of this size, however its requests are made up."""
        grain, device = self.grain, self.device
        ranges = batch * (-(-self.max_context_len // grain.max_range) + 2) + grain.range_programs
        shape = PlanShape(batch, grain.workers, ranges=ranges, parts=max(160, ranges // batch + 72))
        rows = (ranges + 24 * batch) * grain.group + 66 * 64
        full = self.core.settings.partials == "float32"
        dtype = torch.float32 if full else self.layers[0].k.dtype
        space = Workspace(shape, self.heads, rows=rows, dtype=dtype, device=device)
        self.lse = torch.empty(batch, self.num_head, dtype=torch.float32, device=device)
        return space

    # Metadata

    def init_forward_metadata(self, forward_batch: Any) -> None:
        """Eager: plan a decode step, or leave it to the parent."""
        if self._ours(forward_batch):
            self._graph = False
            self._plan(forward_batch, capture=False)
        else:
            super().init_forward_metadata(forward_batch)

    def init_forward_metadata_out_graph(self, forward_batch: Any, in_capture: bool = False) -> None:
        """Around a captured graph: the plan goes into the buffer that the graph reads."""
        if self._ours(forward_batch):
            self._graph = True
            self._plan(forward_batch, capture=in_capture)
        else:
            super().init_forward_metadata_out_graph(forward_batch, in_capture)

    def get_cuda_graph_seq_len_fill_value(self) -> int:
        """Length of a padded request."""
        return 1

    def _ours(self, forward_batch: Any) -> bool:
        decode = forward_batch.forward_mode.is_decode_or_idle()
        return bool(
            decode and forward_batch.spec_info is None
            and forward_batch.batch_size <= self.capacity
        )  # fmt: skip

    def _plan(self, forward_batch: Any, *, capture: bool) -> None:
        batch = int(forward_batch.batch_size)
        if not batch:
            return
        wanted = (batch, self.core.epoch, () if capture else Now.reqs)
        self._age += 1
        # Requests compare by identity, and being in the tuple keeps them from being replaced.
        plan = None
        if wanted != self._planned or self._age > REPLAN:
            self.core.ways.batch = batch
            plan = self._make(wanted[2], batch)
            self.space.load(plan)
            self._planned, self._age = wanted, 0
            self._classes = [(c.path, c.members, c.length) for c in plan.classes]
        self.core.count_classes(self._classes)
        if self.journal is not None and not capture:
            self.journal.step(self.core, wanted[2], plan, graph=self._graph)

    def _make(self, reqs: tuple[Any, ...], batch: int) -> StepPlan:
        memo: dict[int, Any] = {}
        running = [Running(self.core.spans(r.last_node, memo), _length(r)) for r in reqs[:batch]]
        running += [Running((), 1)] * (batch - len(running))

        def choose(cls: Class) -> Path:
            return self.core.ways.choose(cls.members, cls.length, cls.base, batch)

        grain = self._mode(batch).grain(self.grain)
        try:
            plan = make_plan(running, grain, self.space.shape, choose)
            if plan.rows <= self.space.po.shape[0]:
                return plan
        except OutOfSlotsError as error:
            log.warning("granikv: %s; this step is paged", error)
        return make_plan(running, grain, self.space.shape, lambda _: Path.PAGED)

    def _mode(self, batch: int) -> Mode:
        return Mode(self.core.settings.mode(batch))

    # Compute

    def forward_decode(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        layer: Any,
        forward_batch: Any,
        save_kv_cache: bool = True,
        **kwargs: Any,
    ) -> torch.Tensor:
        """One layer of a decode step."""
        if not self._ours(forward_batch):
            return super().forward_decode(
                q, k, v, layer, forward_batch, save_kv_cache=save_kv_cache, **kwargs
            )
        if save_kv_cache:
            loc = KVWriteLoc(forward_batch.out_cache_loc, None)
            self._set_kv_buffer(forward_batch, layer, loc, k, v, layer.k_scale, layer.v_scale)
        heads = self.heads
        rows = q.reshape(-1, heads.kv_heads * heads.group, heads.dim)
        batch = rows.shape[0]
        out = torch.empty_like(rows)
        self.space.run(
            rows, self.layers[layer.layer_id - self.first_layer], self.req_to_token,
            forward_batch.seq_lens, out, self.lse, mode=self._mode(batch),
            fixed=_fixed(batch) if self._graph else None, rows=forward_batch.req_pool_indices,
            pages=self.core.settings.storage == "pages",
        )  # fmt: skip
        return out.view(batch, -1)


def _fixed(batch: int) -> Fixed:
    if batch <= SMALL:
        return Fixed(tile=launch.PAGED_SMALL, parts=64)
    return Fixed(tile=launch.PAGED, parts=8)


def _length(req: Any) -> int:
    """Tokens that a request has at least: with overlap its last ones are not known here yet."""
    return max(1, len(req.origin_input_ids) + len(req.output_ids))


def _gpu(key: torch.Tensor) -> str:
    return torch.cuda.get_device_name(key.device) if key.is_cuda else "cpu"


def make(runner: Any) -> GraniBackend:
    """The factory that SGLang calls; refuses what was never run, with the remedy."""
    problem = refusal(runner)
    if problem:
        raise ValueError(f"granikv: {problem}")
    return GraniBackend(runner)


def refusal(runner: Any) -> str | None:
    """Why this model or parallelism cannot be served, or None."""
    args, model = runner.server_args, runner.model_config
    buffers = getattr(runner.token_to_kv_pool, "k_buffer", None)
    key = buffers[0] if buffers else None
    group = model.get_max_num_attention_heads() // max(1, model.get_num_kv_heads(1))
    rules = (
        (args.tp_size > 1 or args.pp_size > 1, "one GPU an engine; use tensor parallel size 1"),
        (args.page_size not in {None, 1}, "page size 1 is needed"),
        (args.speculative_algorithm is not None, "no speculative decoding"),
        (runner.use_mla_backend or key is None, "only models with plain K and V (no MLA)"),
        (runner.sliding_window_size not in {None, -1, 0}, "no sliding windows"),
        (key is not None and key.dtype not in {torch.bfloat16, torch.float16}, "bf16 or fp16 KV"),
        (key is not None and key.dim() != 3, "K and V must be [slots, heads, dim]"),
        (key is not None and key.shape[-1] not in {64, 128}, "head dims 64 and 128 only"),
        (not 1 <= group <= 8, "1 to 8 query heads a KV head"),
    )
    return next((text for broken, text in rules if broken), None)
