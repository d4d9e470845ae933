"""The scheduler's side: lookups of LMCache's interface, decisions, control contract. Needs LMCache.

Stands where LMCache's lookup client does. Nothing of it waits for the tier, but for a request whose
mode is Sync, which is what Sync means.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import zmq
from lmcache.v1.rpc_utils import get_zmq_rpc_path_lmcache

from kvserving_sharded_store import messages
from kvserving_sharded_store.control import SYNC_LOADING, Control
from kvserving_sharded_store.control_http import ControlServer
from kvserving_sharded_store.export import Exporter
from kvserving_sharded_store.inquiry import Inquiries, Inquiry, Prompt, Step
from kvserving_sharded_store.judge import Judge, RankReport
from kvserving_sharded_store.keys import prefix_hashes
from kvserving_sharded_store.modes import Requests
from kvserving_sharded_store.policy import Decision, Mode, Rules, Wanted
from kvserving_sharded_store.recent import Arrival, Recent
from kvserving_sharded_store.settings import Settings

_log = logging.getLogger(__name__)

FEATURES: Final = frozenset(
    {"ShardedStore", "RankedRemote", "AsyncLoading", "LoadOrRecompute", SYNC_LOADING}
)
"""Capabilities of a patched engine. Sync is safe here whatever the engine does with failed loads:
it waits until the bytes are in memory, and promises no others."""

_BREATH: Final = 0.002
"""Seconds to wait for an answer when the scheduler asks again, so that it does not spin."""

_TAG: Final = "lmcache.tag."


class StoreClient:
    """What LMCache's connector looks prompts up with.

    Args:
        config: LMCache's configuration.
        metadata: LMCache's description of the engine.
    """

    def __init__(self, config: Any, metadata: Any) -> None:
        self._settings = Settings.of(config)
        self._chunk = int(config.chunk_size)
        self._world = int(metadata.world_size)
        self._requests = Requests()
        self._expected: dict[str, tuple[int, dict[str, str]]] = {}
        self._breath = 0.0
        self._recent = Recent(time.monotonic)
        self._control = Control(
            start_id=uuid.uuid4().hex,
            capabilities=FEATURES,
            counters=self._counters,
            now=time.time,
            rules=Rules(wanted=Wanted(self._settings.mode), min_tokens=self._settings.min_tokens),
            closed=lambda: self._judge.closed,
            recent=self._recent.rings,
        )
        self._judge = Judge(
            world=self._world, rules=lambda: self._control.rules, now=time.monotonic
        )
        self._inquiries = Inquiries(
            ranks=self._world,
            send=self,
            decide=self._decide,
            lookup_seconds=self._settings.lookup_seconds,
            load_seconds=lambda tokens: self._judge.load_seconds(
                tokens, self._judge.load(), self._settings.load_seconds
            ),
            finished=self._finished,
        )
        self._judge.owed_tokens = lambda: self._inquiries.owed_tokens
        self._exporter = Exporter(rank="scheduler")
        self._connect(metadata)
        self._server = _serve(self._control, self._settings.control_port)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="kvs-lookup", daemon=True)
        self._thread.start()

    def _connect(self, metadata: Any) -> None:
        port = (metadata.kv_connector_extra_config or {}).get("lmcache_rpc_port", 0)
        self._context = zmq.Context()
        self._down = []
        for rank in range(self._world):
            path = get_zmq_rpc_path_lmcache(metadata.engine_id, "lookup_worker", port, rank)
            made = self._context.socket(zmq.PUSH)
            made.setsockopt(zmq.LINGER, 0)
            made.connect(f"ipc://{path}")
            self._down.append(made)
        self._up = self._context.socket(zmq.PULL)
        path = get_zmq_rpc_path_lmcache(metadata.engine_id, "lookup_scheduler", port, 0)
        self._up.bind(f"ipc://{path}")
        self._lock = threading.Lock()

    # LMCache's interface; called by the scheduler's thread.

    def lookup_cache(self, lookup_id: str) -> int | None:
        """-1 before the first lookup, none while it is under way, then the tokens."""
        asked = self._inquiries.get(lookup_id)
        if asked is not None and asked.step is not Step.DONE:
            now = time.monotonic()
            if now - self._breath > _BREATH:
                asked = self._inquiries.wait(lookup_id, _BREATH)
                self._breath = time.monotonic()
        if asked is None:
            return -1
        return asked.tokens if asked.step is Step.DONE else None

    def lookup(
        self,
        token_ids: Sequence[int],
        lookup_id: str,
        request_configs: Mapping[str, Any] | None = None,
    ) -> int | None:
        """Begin a lookup; its tokens at once if its mode is Sync or there is nothing to look up."""
        computed, tags = self._expected.pop(lookup_id, (0, {}))
        for name, value in (request_configs or {}).items():
            if name.startswith(_TAG):
                tags[name.removeprefix(_TAG)] = str(value)
        self._requests.forget(lookup_id)
        self._judge.came()
        prompt = Prompt(self._hashes(token_ids), self._chunk, tags, computed)
        asked: Inquiry | None = self._inquiries.begin(lookup_id, prompt)
        if self._control.rules.wanted is Wanted.SYNC:
            seconds = self._settings.lookup_seconds + self._settings.load_seconds + 1.0
            asked = self._inquiries.wait(lookup_id, seconds)
        if asked is None or asked.step is not Step.DONE:
            return None
        return asked.tokens

    def _hashes(self, token_ids: Sequence[int]) -> list[bytes]:
        whole = len(token_ids) // self._chunk * self._chunk
        numbers = np.asarray(list(token_ids[:whole]), dtype="<i8").reshape(-1, self._chunk)
        return list(prefix_hashes(chunk.tobytes() for chunk in numbers))

    def expect(self, name: str, computed: int, tags: Mapping[str, str]) -> None:
        """Before a lookup: what the engine has by itself, and what keeps the request apart."""
        self._expected[name] = (computed, dict(tags))

    def decision(self, name: str) -> Decision | None:
        """What became of a request, none before it is known."""
        return self._requests.get(name)

    def found(self, name: str) -> int:
        """Tokens of the hit, loaded or not."""
        asked = self._inquiries.get(name)
        return 0 if asked is None else asked.found

    def clear_lookup_status(self, lookup_id: str) -> None:
        """The request was scheduled: the next lookup of its name is another one."""
        self._inquiries.taken(lookup_id)
        self._recent.taken(lookup_id)

    def cancel_lookup(self, lookup_id: str) -> None:
        """The request is over: whatever is held or on its way for it is given back."""
        self._expected.pop(lookup_id, None)
        self._requests.forget(lookup_id)
        self._inquiries.drop(lookup_id)
        self._recent.forget(lookup_id)

    def supports_producer_reuse(self) -> bool:
        """A producer looks prompts up as well."""
        return True

    def refuse(self) -> None:
        """Count a request that must not use the tier."""
        self._judge.count("requests_refused")

    def stepped(self, tokens: int) -> None:
        """The engine scheduled a step."""
        self._judge.stepped(tokens=tokens)
        self._recent.stepped(tokens)

    def step_ended(self) -> None:
        """The engine has a step's results."""
        self._judge.step_ended()
        self._recent.ended()

    def close(self) -> None:
        """Stop; returns within three seconds."""
        self._closing.set()
        self._thread.join(timeout=1.5)
        if self._server is not None:
            self._server.close()
        with self._lock:
            for each in (*self._down, self._up):
                each.close(0)
        self._context.destroy(0)

    # The way to the ranks (inquiry.Sender).

    def probe(self, name: str, serial: int, prompt: Prompt, seconds: float) -> None:
        """See ``inquiry.Sender``."""
        self._to_all(messages.Probe(name, serial, list(prompt.hashes), prompt.tags, seconds))

    def fetch(self, name: str, serial: int, tokens: int, seconds: float) -> None:
        """See ``inquiry.Sender``."""
        self._to_all(messages.Fetch(name, serial, tokens, seconds))

    def drop(self, name: str, serial: int) -> None:
        """See ``inquiry.Sender``."""
        self._to_all(messages.Drop(name, serial))

    def _to_all(self, message: messages.Message) -> None:
        data = messages.pack(message)
        with self._lock:
            for each in self._down:
                # A rank that takes nothing any more costs a lookup's deadline, never a wait here.
                with contextlib.suppress(zmq.ZMQError):
                    each.send(data, zmq.NOBLOCK)

    # What the ranks say, and the look at the tier; in a thread of its own.

    def _listen(self) -> None:
        due = 0.0
        while not self._closing.is_set():
            try:
                if self._up.poll(250):
                    self._hear(messages.unpack(self._up.recv()))
                if time.monotonic() >= due:
                    due = time.monotonic() + self._judge.interval
                    self._look()
            except zmq.ZMQError:
                if not self._closing.is_set():
                    _log.exception("no answer of a rank is heard any more")
                return
            except Exception:  # noqa: BLE001 (the thread must go on)
                _log.exception("an answer of a rank could not be used")

    def _hear(self, message: messages.Message) -> None:
        match message:
            case messages.Answer():
                self._inquiries.answered(
                    message.name,
                    message.serial,
                    message.rank,
                    message.tokens,
                    here=message.here,
                    read=message.read,
                )
            case messages.Report():
                self._judge.report(
                    message.rank,
                    RankReport(
                        message.closed, message.instances, message.open_breakers, message.counts
                    ),
                )

    def _look(self) -> None:
        chunks = self._judge.look()
        if chunks:
            self._to_all(messages.Sample(chunks, self._judge.interval))
        self._exporter.update(self._judge.own_counts())

    def _decide(self, name: str, tokens: int) -> Decision:
        return self._requests.fix(name, lambda: self._judge.decide(tokens, self._judge.load()))

    def _finished(self, done: Inquiry) -> None:
        self._judge.count("lookups")
        self._judge.count("lookup_seconds", time.monotonic() - done.began)
        if done.late:
            self._judge.count("lookups_late")
        if done.decision is not None and done.decision.mode is not Mode.BYPASS:
            self._judge.count("promised_tokens", done.tokens)
        if done.decided is not None and 0 < done.tokens == done.found:
            tokens = done.tokens - done.prompt.computed
            arrival = Arrival(tokens, done.read, done.began, done.decided, time.monotonic())
            self._recent.arrived(done.name, arrival)

    def _counters(self) -> dict[str, float]:
        return self._judge.counts()


def _serve(control: Control, port: int) -> ControlServer | None:
    if not port:
        return None
    try:
        return ControlServer(control, port)
    except OSError as error:
        # Serving goes on with what is configured; the operator sees that nobody answers there.
        _log.error("control contract on port %d: %s", port, error)
        return None
