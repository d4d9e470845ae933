"""NIXL's scheduler side, simulated: when to fetch KV, when to keep it for a decode engine."""

from __future__ import annotations

import time

from kvserving_engine_sim.scheduler.external import Hold, Match
from kvserving_engine_sim.scheduler.request import Finish, Request
from kvserving_engine_sim.settings import Settings
from kvserving_engine_sim.transfer.client import Reader, Transfer
from kvserving_engine_sim.transfer.leases import Leases
from kvserving_engine_sim.transfer.params import RemotePrefill
from kvserving_engine_sim.transfer.wire import prompt_digest
from kvserving_engine_sim.transfer_config import Kind
from kvserving_engine_sim.workers import messages


class NixlSource:
    """`leases` on engines that may produce, `reader` on engines that may consume."""

    kind = Kind.NIXL

    def __init__(
        self, settings: Settings, leases: Leases | None, reader: Reader | None, renewal: float
    ) -> None:
        self._settings = settings
        self._leases = leases
        self._reader = reader
        self._renewal = renewal
        self._renewed = 0.0

    def match(self, request: Request, local: int) -> Match:
        """All of the prompt that is not here, read between steps, once in a request's life."""
        count = len(request.prompt) - local
        if request.remote is None or self._reader is None or count <= 0:
            return Match()
        return Match(count, background=True, source=Kind.NIXL)

    def admitted(self, request: Request, match: Match) -> None:
        """Start reading, or let the prefill's blocks go when nothing of them is needed."""
        remote, request.remote = request.remote, None
        if remote is None or self._reader is None:
            return
        if not match.tokens:
            self._reader.release(remote)
            return
        kept = request.local_cached // self._settings.layout.block_size
        self._reader.start(
            Transfer(
                request_id=request.request_id,
                remote=remote,
                local=tuple(request.blocks[kept:]),
                digest=prompt_digest(request.prompt),
            )
        )

    def attach(self, request: Request, sequence: messages.Sequence) -> None:
        """The workers take no part."""

    def rolled_back(self, request: Request) -> None:
        """Nothing to take back: a read is not repeated."""

    def stepped(self, tokens: int) -> None:
        """Of no interest."""

    def stale_lookups(self) -> list[str]:
        """There are none."""
        return []

    def finished(self, request: Request, finish: Finish) -> Hold | None:
        """Lease the blocks of a completed prefill leg; give up what was never fetched."""
        if request.remote is not None and self._reader is not None:
            self._reader.release(request.remote)
            request.remote = None
        if (
            not request.hold_for_decode
            or self._leases is None
            or finish not in (Finish.STOP, Finish.LENGTH)
        ):
            return None
        tokens = len(request.prompt)
        blocks = request.blocks[: -(-tokens // self._settings.layout.block_size)]
        digest = prompt_digest(request.prompt)
        self._leases.add(request.request_id, blocks, tokens, digest)
        return Hold(self._params(request, blocks), tuple(blocks))

    def renew(self, waiting: list[RemotePrefill]) -> None:
        """Prolong the leases of requests in the queue, a few times in each duration."""
        now = time.monotonic()
        if self._reader is not None and waiting and now - self._renewed > self._renewal:
            self._renewed = now
            self._reader.renew(waiting)

    def _params(self, request: Request, blocks: list[int]) -> dict[str, object]:
        """The fields of vLLM's NIXL connector."""
        settings = self._settings
        return {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_block_ids": blocks,
            "remote_engine_id": settings.transfer.engine_id,
            "remote_request_id": request.request_id,
            "remote_host": settings.side_channel_host,
            "remote_port": settings.side_channel_port,
            "tp_size": settings.tensor_parallel,
            "dcp_size": 1,
            "pp_size": 1,
            "remote_num_tokens": len(request.prompt),
            "remote_blocks_expiry_time": None,
            "remote_registration_generation": 0,
            "transfer_mode": "pull",
        }
