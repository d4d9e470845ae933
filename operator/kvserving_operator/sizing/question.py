"""What is asked of ``kvserving plan``: a stack, its model's numbers and its traffic. Pure."""

from dataclasses import dataclass

from kvserving_operator.cost import ONE, Model, Pool


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSize:
    """The pods of one role."""

    role: str
    replicas: int
    accelerators: int
    """Of one replica."""
    memory_bytes: int | None
    """What one pod asks for; None when its spec leaves it open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """What a KVServing comes to."""

    roles: tuple[RoleSize, ...]
    gpus: int
    pool: Pool
    """Replicas that compute prompts: prefill's, without such a role those that decode."""
    tier_instances: int
    tier_memory_per_instance: int | None
    """Memory limit of one instance; None without a managed tier."""
    tier_kv_bytes: int | None
    """What all instances together may hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What comes in, all engines together."""

    arrivals: float
    """λ: prompts a second."""
    prompt_tokens: float
    hit_fraction: float = 1.0
    """h: share of a prompt's tokens that the tier holds, > 0 and ≤ 1."""
    busy: float | None = None
    """u of an engine; None: what it would be if it recomputed everything."""
    answer_tokens: float = 0.0
    """Tokens of an answer that are kept too."""

    @property
    def hit_tokens(self) -> float:
        """Tokens of a prompt that the tier holds."""
        return self.prompt_tokens * self.hit_fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Everything that is asked; what is None was not said, and what needs it is not answered."""

    stack: Stack | None = None
    model: Model | None = None
    bytes_per_token: float | None = None
    """s, also where the rest of the model is not known."""
    tokens_per_second: float | None = None
    """R, likewise."""
    traffic: Traffic | None = None
    pool: Pool = ONE
    """Engines that the traffic is spread over."""
    chunk_tokens: int = 256
    retention_seconds: float | None = None
    unique_prefixes: int | None = None
    """k."""
    prefix_tokens: float | None = None
    """Lp; None: the hit's tokens."""
