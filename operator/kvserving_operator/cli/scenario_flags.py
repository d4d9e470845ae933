"""What ``simulate`` takes from the flags of ``plan`` and a KVServing, as changes of a scenario.

Flags win over the manifest, the manifest over the workload.
"""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kvserving_operator.api import quantity
from kvserving_operator.api.v1alpha1 import EngineFeature, KVServing
from kvserving_operator.cli import plan_options
from kvserving_operator.cli.errors import UsageError
from kvserving_operator.cli.plan_stack import Planned, Sized
from kvserving_operator.simulation.shipped import merge

_REQUESTS: Final = 2000
"""Of a workload that flags make."""
_OUTCOMES: Final = ("utilization", "retention", "answer_tokens", "prompt_variation")
HELP: Final[Mapping[str, str]] = {
    "--utilization": argparse.SUPPRESS,
    "--retention": argparse.SUPPRESS,
    "--answer-tokens": argparse.SUPPRESS,
    "--prompt-variation": argparse.SUPPRESS,
    "--hit-fraction": "so much of each prompt is in the tier at the start; default: nothing",
    "--unique-prefixes": "prefixes that prompts begin with; default: each prompt is its own",
    "--prefix-tokens": "tokens of such a prefix; default: so much as --hit-fraction says",
}
"""Help of ``plan``'s flags where a simulation takes them in another way, or not at all."""
_TOKEN_SECONDS: Final = 0.02
"""Of a step of engines that decode what they computed; --set engines.interTokenSeconds=… is better
known."""
_STEP_TOKENS: Final = "--max-num-batched-tokens"
_SEATS: Final = "--max-num-seqs"


def of_flags(options: argparse.Namespace, sized: Sized) -> dict[str, Any]:
    """The numbers that were given; UsageError for one that a simulation cannot be given."""
    for name in _OUTCOMES:
        if getattr(options, name) is not None:
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"{flag}: is an answer of a simulation or plays no part; leave it out")
    question = plan_options.question(
        argparse.Namespace(**{**vars(options), "arrival_rate": None, "prompt_tokens": None}), sized
    )
    engines: dict[str, Any] = {}
    _put(engines, "tokensPerSecond", options.tokens_per_second)
    remote: dict[str, Any] = {}
    _put(remote, "bandwidth", options.bandwidth)
    if options.fixed_seconds is not None:
        held = options.engine_fixed_seconds
        held = options.fixed_seconds if held is None else held
        remote |= {
            "engineFixedSeconds": held,
            "requestFixedSeconds": options.fixed_seconds - held,
        }
        # The exchange and the step over the tail are the same for KV that the engine has itself.
        engines["local"] = {"engineFixedSeconds": held}
    if remote:
        engines["remote"] = remote
    changes: dict[str, Any] = {"engines": engines} if engines else {}
    _put(changes, "bytesPerToken", question.bytes_per_token)
    if options.hit_fraction is not None:
        changes["primed"] = {"remote": 1.0, "tokens": options.hit_fraction}
    return merge(changes, _workload(options))


def _workload(options: argparse.Namespace) -> dict[str, Any]:
    workload: dict[str, Any] = {}
    rate, tokens = options.arrival_rate, options.prompt_tokens
    _put(workload, "requests", options.requests)
    if tokens is not None:
        workload["promptTokens"] = round(tokens)
    if rate is not None:
        workload["arrivals"] = {"rate": rate, "concurrency": None}
    if rate is not None and tokens is not None and options.workload is None:
        workload.setdefault("requests", _REQUESTS)
    if options.unique_prefixes is not None:
        length = options.prefix_tokens
        if length is None:
            if tokens is None:
                raise UsageError("--unique-prefixes: give --prefix-tokens as well")
            length = tokens * (1.0 if options.hit_fraction is None else options.hit_fraction)
        workload["prefixes"] = {"count": int(options.unique_prefixes), "tokens": round(length)}
    return {"workload": workload} if workload else {}


def of_manifest(planned: Planned) -> dict[str, Any]:
    """What a KVServing says of engines, tiers, router and decode."""
    spec, plan = planned.kvserving.spec, planned.plan
    cache, first = spec.kv_cache, plan.roles[0]
    local = cache.local.size_per_replica
    engines: dict[str, Any] = {
        "count": first.replicas,
        "ranks": first.topology.kv_ranks,
        "local": {"bytes": 0 if local is None else quantity.to_bytes(local)},
        "remote": _remote(planned),
    }
    arguments = _arguments(planned.kvserving)
    _put(engines, "stepTokens", _number(arguments, _STEP_TOKENS))
    _put(engines, "maxRequests", _number(arguments, _SEATS))
    changes: dict[str, Any] = {"chunkTokens": cache.chunk_tokens, "engines": engines}
    router = spec.router
    changes["policy"] = str(router.prefill_policy or router.policy)
    if len(plan.roles) > 1:
        changes["decode"] = {"count": plan.roles[1].replicas}
    else:
        engines["interTokenSeconds"] = _TOKEN_SECONDS
    return changes


def _remote(planned: Planned) -> dict[str, Any] | None:
    plan, spec = planned.plan, planned.kvserving.spec
    if plan.tier is None and not plan.external_instances:
        return None
    sharded = EngineFeature.SHARDED_STORE in spec.engine.features
    return {
        "instances": plan.tier.instances if plan.tier else plan.external_instances,
        "bytesPerInstance": plan.tier.maxmemory_bytes if plan.tier else None,
        "loading": str(spec.kv_cache.remote.loading.mode),
        "minTokens": spec.kv_cache.remote.loading.min_tokens or 0,
        "cancelLate": sharded,
        "deadlineByRecompute": sharded,
    }


def _arguments(kvserving: KVServing) -> Sequence[str]:
    spec = kvserving.spec
    role = spec.prefill or spec.decode
    return [*spec.engine.extra_args, *role.extra_args]


def _number(arguments: Sequence[str], flag: str) -> int | None:
    """The last value of a flag, written as ``--flag=N`` or in two pieces."""
    found = None
    for place, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == flag:
            text = value if equals else "".join(arguments[place + 1 : place + 2])
            found = int(text) if text.isdigit() else found
    return found


def _put(target: dict[str, Any], key: str, value: object) -> None:
    if value is not None:
        target[key] = value


def remedy(missing: Sequence[str]) -> str:
    """The flags that give the fields which are missing; empty where there are none."""
    flags = [_FLAGS[field] for field in missing if field in _FLAGS]
    return f"give {', '.join(flags)}" if flags else ""


_FLAGS: Final[Mapping[str, str]] = {
    "bytesPerToken": "--bytes-per-token or --model-card",
    "engines": "--workload NAME (`kvserving simulate --help` lists them), or a manifest by -f",
    "engines.tokensPerSecond": "--tokens-per-second",
    "engines.remote.bandwidth": "--bandwidth",
    "engines.remote.engineFixedSeconds": "--fixed-seconds",
    "workload.promptTokens": "--prompt-tokens",
    "workload.arrivals": "--arrival-rate",
    "workload.requests": "--requests",
}
