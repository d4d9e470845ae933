"""SGLang's prefix cache on our tree: the engine's calls, translated; slots stay on both sides.

Node handles of the engine are our tree's nodes.  A node's slots as a device tensor are kept on the
node and are valid as long as `Core.place_of(node)` is the same.
"""

from typing import Any

import torch
from sglang.srt.mem_cache.base_prefix_cache import (
    BasePrefixCache,
    DecLockRefResult,
    EvictParams,
    EvictResult,
    IncLockRefResult,
    MatchPrefixParams,
    MatchResult,
)

from granikv.radix import Node
from granikv.sglang.allocator import GraniAllocator, to_device
from granikv.sglang.core import Core


class GraniCache(BasePrefixCache):  # type: ignore[misc]
    """Requests hold paths by node; new tokens come in with their COLD slots."""

    def __init__(self, params: Any) -> None:
        self.disable = params.disable
        self.req_to_token_pool = params.req_to_token_pool
        self.token_to_kv_pool_allocator: GraniAllocator = params.token_to_kv_pool_allocator
        self.page_size = params.page_size
        self.disable_finished_insert = params.disable_finished_insert
        self.device = self.token_to_kv_pool_allocator.device
        self.core: Core = self.token_to_kv_pool_allocator.core
        self._empty = torch.empty(0, dtype=torch.int64, device=self.device)
        if params.enable_metrics:
            self.init_metrics_collector()

    @property
    def root_node(self) -> Node:
        """What a request that matches nothing hangs on."""
        return self.core.cache.tree.root

    def reset(self) -> None:
        """Forget every prefix."""
        self.core.restart()

    def match_prefix(self, params: MatchPrefixParams) -> MatchResult:
        """Longest cached prefix; splits the node in which it ends."""
        key = params.key
        if self.disable or not len(key):
            return self._result(self.root_node)
        return self._result(self.core.match(self._tokens(key.raw_token_ids(), key.extra_key))[0])

    def cache_unfinished_req(self, req: Any, chunked: bool = False, **_: Any) -> None:
        """A request's prompt, or a chunk of it, has its KV: index it and go on with the tree's."""
        if self.disable:
            return
        ids = req.get_fill_ids()
        held, row = req.cache_protected_len, req.req_pool_idx
        node = self._add(req, ids, len(ids), first=not chunked)
        indices = self._indices(node)
        self.req_to_token_pool.write((row, slice(held, len(indices))), indices[held:])
        req.cache_protected_len = len(indices)
        self.core.hold(node)
        if req.last_node is not None:
            self.core.unhold(req.last_node)
        req.prefix_indices, req.last_node = indices, node

    def cache_finished_req(
        self, req: Any, is_insert: bool = True, *, kv_len_to_handle: int, **_: Any
    ) -> None:
        """A request is over: its KV stays as an idle prefix, or goes."""
        ids = (req.origin_input_ids + req.output_ids)[:kv_len_to_handle]
        if is_insert and not self.disable and not self.disable_finished_insert:
            self._add(req, ids, len(ids), first=False)
        else:
            own = self._own(req, len(ids))
            self.core.free(own)
        if req.last_node is not None and not self.disable:
            self.core.unhold(req.last_node)

    def evict(self, params: EvictParams) -> EvictResult:
        """Drop idle prefixes until so many more slots can be allocated."""
        if self.disable or params.num_tokens <= 0:
            return EvictResult()
        return EvictResult(num_tokens_evicted=max(0, self.core.evict(params.num_tokens)))

    def inc_lock_ref(self, node: Node) -> IncLockRefResult:
        """Keep a path."""
        if not self.disable:
            self.core.hold(node)
        return IncLockRefResult(delta=0)

    def dec_lock_ref(self, node: Node, params: Any = None) -> DecLockRefResult:
        """Let a path go."""
        if not self.disable:
            self.core.unhold(node)
        return DecLockRefResult(delta=0)

    def evictable_size(self) -> int:
        """Slots that `evict` can free."""
        return 0 if self.disable else self.core.evictable()

    def full_evictable_size(self) -> int:
        """The same: there is one kind of KV."""
        return self.evictable_size()

    def protected_size(self) -> int:
        """What is neither available nor evictable, so that the engine's check adds up."""
        return self.core.protected()

    def total_size(self) -> int:
        """Cached tokens."""
        tree = self.core.cache.tree
        return sum(tree.count(hot=h, held=r) for h in (False, True) for r in (False, True))

    def pretty_print(self) -> None:
        """One line a node, for the engine's out-of-memory report."""
        lines = [
            f"{'HOT ' if n.hot else 'COLD'} {n.length} tokens, {n.refs} holders"
            for n in self.core.cache.tree.nodes()
        ]
        print("\n".join([*lines[:100], f"{len(lines)} nodes"]))  # noqa: T201  its caller expects it

    def _tokens(self, ids: Any, extra_key: str | None) -> Any:
        return self.core.tokens(ids, extra_key)

    def _own(self, req: Any, end: int) -> Any:
        """Our numbers of the slots that a request has behind its held prefix."""
        begin = req.cache_protected_len
        row = self.req_to_token_pool.req_to_token[req.req_pool_idx, begin : max(begin, end)]
        return row.cpu().numpy().astype("int64") - 1

    def _add(self, req: Any, ids: Any, end: int, *, first: bool) -> Node:
        tokens = self._tokens(ids, req.extra_key)
        return self.core.add(tokens, req.cache_protected_len, self._own(req, end), first=first)

    def _indices(self, node: Node) -> torch.Tensor:
        parts = [self._slots(part) for part in node.path()]
        return torch.cat(parts) if parts else self._empty

    def _slots(self, node: Node) -> torch.Tensor:
        place = self.core.place_of(node)
        kept = node.engine
        if not isinstance(kept, tuple) or not _same(kept[0], place):
            kept = node.engine = (place, to_device(self.core.slots(node) + 1, self.device))
        slots: torch.Tensor = kept[1]
        return slots

    def _result(self, node: Node) -> MatchResult:
        return MatchResult(
            device_indices=self._indices(node),
            last_device_node=node,
            last_host_node=node,
            best_match_node=node,
        )


def _same(kept: object, place: object) -> bool:
    """COLD segments hold arrays and are compared by identity, HOT places by value."""
    return kept is place or (isinstance(kept, tuple) and kept == place)
