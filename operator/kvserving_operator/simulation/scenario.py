"""What is simulated: engines, tiers, router, decode and the requests they are given. Pure.

The model of the parameter file (``workloads.yaml``) and of a user's ``spec.yaml``. Units are in the
names: tokens, seconds, bytes, and bytes a second; byte counts may be texts such as ``160Gi``.
"""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    model_validator,
)
from pydantic.alias_generators import to_camel

from kvserving_operator.api import quantity


def _bytes(value: object) -> object:
    if isinstance(value, str):
        try:
            return float(quantity.parse(value))
        except quantity.QuantityError as error:
            raise ValueError(str(error)) from None
    return value


ByteCount = Annotated[float, BeforeValidator(_bytes), Field(ge=0, allow_inf_nan=False)]
Rate = Annotated[float, BeforeValidator(_bytes), Field(gt=0, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]


class Spec(BaseModel):
    """Strict: a misspelt key is a fault, not a default."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True
    )


class Loading(StrEnum):
    """How a hit in the remote tier is loaded."""

    SYNC = "Sync"
    ASYNC = "Async"
    BYPASS = "Bypass"
    AUTO = "Auto"


class Policy(StrEnum):
    """How the router picks a prefill engine; the names are those of ``spec.router.policy``."""

    RANDOM = "Random"
    ROUND_ROBIN = "RoundRobin"
    CACHE_AWARE = "CacheAware"
    POWER_OF_TWO = "PowerOfTwo"
    CONSISTENT_HASH = "ConsistentHash"
    STICKY_LEAST_LOADED = "StickyLeastLoaded"


class Local(Spec):
    """L1: the host memory of an engine."""

    bytes: ByteCount | None = Field(default=0)
    """Of all ranks together; null is endless."""
    bandwidth: Rate = 100e9
    engine_fixed_seconds: Seconds = 0.0
    request_fixed_seconds: Seconds = 0.0


class Remote(Spec):
    """L2: the tier, shared by all engines."""

    instances: PositiveInt = 8
    bytes_per_instance: ByteCount | None = None
    """Null is endless."""
    bandwidth: Rate
    """B: of all instances together."""
    engine_fixed_seconds: Seconds
    """Te: a hit holds the engine so long."""
    request_fixed_seconds: Seconds = 0.0
    """Tw: a hit waits so long for itself alone."""
    loading: Loading = Loading.AUTO
    min_tokens: Annotated[int, Field(ge=0)] = 0
    """Shorter hits are recomputed, whatever ``loading`` says."""
    lookup_timeout_seconds: PositiveFloat = 3.0
    deadline_by_recompute: bool = False
    """Whether a load is given up, too, once recomputing would have been quicker (as predicted)."""
    cancel_late: bool = False
    """Whether a lookup that timed out gives its transfers up (the sharded store does)."""


class Engines(Spec):
    """The prefill engines."""

    count: PositiveInt = 1
    ranks: PositiveInt = 8
    """W, in lockstep: L1 has so many parts."""
    tokens_per_second: PositiveFloat
    """R of one engine, all ranks together."""
    step_tokens: PositiveInt = 8192
    """Most tokens of a step (``--max-num-batched-tokens``)."""
    step_seconds: Seconds = 0.0
    """What a step costs beside its tokens."""
    max_requests: PositiveInt = 1024
    """Most requests that run at a time (``--max-num-seqs``)."""
    request_seconds: Seconds = 0.0
    """What a request waits outside of the engine: router, front, tokenizer, network."""
    inter_token_seconds: Seconds | None = None
    """Given: the engine decodes as well, one token of each stream a step, and no decode is used."""
    device_tokens: Annotated[int, Field(ge=0)] = 0
    """Tokens that the engine's own prefix cache holds beside what runs."""
    local: Local = Local()
    remote: Remote | None = None


class Decode(Spec):
    """The decode engines: a step of a batch of b streams takes alpha + beta·b seconds."""

    count: PositiveInt = 1
    alpha_seconds: Seconds = 0.02
    beta_seconds: Seconds = 0.0002
    max_streams: PositiveInt = 256
    transfer_bandwidth: Rate = 50e9
    """Bytes a second at which a prompt's KV goes from prefill to decode."""

    @model_validator(mode="after")
    def _takes_time(self) -> Self:
        if self.alpha_seconds + self.beta_seconds <= 0:
            raise ValueError("alphaSeconds and betaSeconds are both 0: a step takes time")
        return self


class Lengths(Spec):
    """Tokens of a prompt: half of them between min and median, half between median and max."""

    median: PositiveInt
    min: PositiveInt
    max: PositiveInt

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.min <= self.median <= self.max:
            raise ValueError("min ≤ median ≤ max does not hold")
        return self


class Stretch(Spec):
    """A part of the requests with a rate of its own."""

    requests: Share
    rate: PositiveFloat
    """As a multiple of the others'; the mean over all stays the one that is asked for."""


class Arrivals(Spec):
    """Open loop with ``rate``, or closed loop with ``concurrency``."""

    rate: PositiveFloat | None = None
    variation: Annotated[float, Field(ge=0, le=10)] = 1.0
    """Coefficient of variation of the gaps: 0 a clock, 1 Poisson, more is burstier (gamma)."""
    burst: PositiveInt = 1
    """Requests that come at once."""
    profile: tuple[Stretch, ...] = ()
    concurrency: PositiveInt | None = None
    """Users, each of which sends its next request when it has the last answer."""
    think_seconds: Seconds = 0.0
    ramp_seconds: Seconds = 0.0
    """Over which the users begin."""

    @model_validator(mode="after")
    def _one_loop(self) -> Self:
        if (self.rate is None) == (self.concurrency is None):
            raise ValueError("give either rate (open loop) or concurrency (closed loop)")
        if self.profile and abs(sum(part.requests for part in self.profile) - 1) > 1e-6:
            raise ValueError("the requests of profile do not add up to 1")
        return self


class Prefixes(Spec):
    """Prompts begin with one of ``count`` prefixes, each as likely as the others."""

    count: PositiveInt
    tokens: PositiveInt


class Primed(Spec):
    """What the caches hold at the start."""

    local: Share = 0.0
    """Share of the requests whose whole prompt lies in L1."""
    remote: Share = 0.0
    """Share of the requests whose prompt lies in L2."""
    tokens: Share = 1.0
    """So much of each of them, from its beginning."""


class Workload(Spec):
    """The requests, where no trace is given."""

    requests: PositiveInt
    prompt_tokens: PositiveInt | Lengths
    output_tokens: PositiveInt | Lengths = 1
    arrivals: Arrivals
    prefixes: Prefixes | None = None


class Scenario(Spec):
    """All of it."""

    description: str = ""
    bytes_per_token: Rate
    """s: of all ranks together."""
    chunk_tokens: PositiveInt = 256
    engines: Engines
    decode: Decode | None = None
    """None: the latency is the prefill leg's."""
    policy: Policy = Policy.CACHE_AWARE
    primed: Primed = Primed()
    workload: Workload | None = None
    """None: the requests come from a trace."""
