"""The prefix cache as SGLang 0.5.23 asks for it: one `checkpoint`, slots read off the path.

A match says how many tokens it covers and where it ends; the engine reads the slots when it
allocates, so nothing of the engine holds slot numbers between two steps but its slot table.
"""

from typing import Any

import torch
from sglang.srt.mem_cache.base_prefix_cache import MatchPrefixParams, MatchResult

from granikv.radix import Node
from granikv.sglang.prefix import GraniCache


class CheckpointCache(GraniCache):
    """`GraniCache` with the later contract; a request's record of its row is `req.kv`."""

    def match_prefix(self, params: MatchPrefixParams) -> MatchResult:
        """Longest cached prefix; splits the node in which it ends."""
        key = params.key
        if self.disable or not len(key):
            return self._result(self.root_node)
        tokens = self._tokens(key.raw_token_ids(), _namespace(key.extra_key, key.cache_salt))
        return self._result(self.core.match(tokens)[0])

    def checkpoint(self, req: Any, *, up_to: int, **_: Any) -> None:
        """A request's first `up_to` tokens have their KV: index them and go on with the tree's.

        Slots of tokens that the tree knew already are given back here; everything else of the
        row stays the request's until the engine frees it.
        """
        if self.disable:
            return
        kv = req.kv
        held, row = kv.cache_protected_len, kv.req_pool_idx
        ids = req.full_untruncated_fill_ids[:up_to]
        table = self.req_to_token_pool.req_to_token
        own = table[row, held : max(held, up_to)].cpu().numpy().astype("int64") - 1
        tokens = self._tokens(ids, _namespace(req.extra_key, req.cache_salt))
        node = self.core.add(tokens, held, own, first=not kv.cache_inserted_len)
        indices = self._indices(node)
        self.req_to_token_pool.write((row, slice(held, len(indices))), indices[held:])
        kv.cache_protected_len = kv.cache_inserted_len = len(indices)
        lock = self.lock(node)
        self.unlock(req.lock)
        req.lock, req.last_node = lock, node

    def path_device_indices(self, node: Node) -> torch.Tensor:
        """Engine slots from the root to `node`."""
        return self._indices(node)

    def full_protected_size(self) -> int:
        """The same as `protected_size`: there is one kind of KV."""
        return self.protected_size()

    def _result(self, node: Node) -> MatchResult:
        return MatchResult(
            device_prefix_len=sum(part.length for part in node.path()),
            last_device_node=node,
            last_host_node=node,
            best_match_node=node,
        )


def _namespace(extra_key: str | None, salt: str | None) -> str | None:
    """One name for an adapter and a salt; None without either."""
    return None if extra_key is None and not salt else f"{extra_key!r} {salt!r}"
