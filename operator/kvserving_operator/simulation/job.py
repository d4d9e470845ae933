"""One request on its way. Plain data."""

from enum import Enum, auto

from kvserving_operator.simulation.trace import Request


class Phase(Enum):
    """Where a request is in its prefill engine."""

    WAITING = auto()
    LOADING = auto()
    READY = auto()


class Job:
    """Mutable, with slots: a hundred thousand of them live at a time."""

    __slots__ = (
        "computed_left",
        "decode_left",
        "end",
        "engine",
        "engine_seconds",
        "first_token",
        "found",
        "index",
        "keys",
        "local_tokens",
        "output_tokens",
        "phase",
        "prompt_tokens",
        "ready_at",
        "remote_tokens",
        "request",
        "sent",
        "sync_chunks",
        "timed_out",
        "user",
    )

    def __init__(self, index: int, request: Request, keys: list[int], sent: float) -> None:
        self.index = index
        self.request = request
        self.keys = keys
        self.sent = sent
        self.prompt_tokens = request.prompt_tokens
        self.output_tokens = request.output_tokens
        self.user = -1
        self.engine = -1
        self.phase = Phase.WAITING
        self.ready_at = sent
        self.found = 0
        """Chunks that are not computed."""
        self.local_tokens = 0
        """Of them from the engine's own memory and L1."""
        self.remote_tokens = 0
        """Of them from L2."""
        self.computed_left = 0
        self.decode_left = 0
        self.engine_seconds = 0.0
        """Fixed seconds of its first step."""
        self.sync_chunks: list[int] = []
        """Chunk indexes that its first step loads while the engine waits."""
        self.timed_out = False
        self.first_token = 0.0
        self.end = 0.0
