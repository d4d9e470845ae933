"""SGLang: how a role's command line, environment and ports follow from the spec. Pure.

Flags, environment and ports: SGLang 0.5.23 (``sglang/srt/arg_groups/fields``, ``environ.py``,
``disaggregation/nixl/conn.py``). LMCache there is another program's job (multi-process mode), so
this engine carries no tier.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Final

from kvserving_operator.api.types import EnvVar
from kvserving_operator.api.v1alpha1 import (
    Attention,
    HotMode,
    KVDtype,
    KVServingSpec,
    ModelSpec,
    Nixl,
    Parallelism,
)
from kvserving_operator.engines import (
    granikv,
    hub,
    paths,
    ports,
    process,
    sglang_owned,
    sglang_rules,
)
from kvserving_operator.engines.base import (
    EngineRoleSpec,
    Launch,
    Proposal,
    Role,
    Topology,
    Wiring,
)
from kvserving_operator.engines.faults import Fault

SMG_BOOTSTRAP_PORT: Final = "sglang.ai/bootstrap-port"
"""By this annotation the SMG router tells decode where a prefill engine's bootstrap server is."""

_KV_DTYPES: Final = {KVDtype.FP8: "fp8_e4m3", KVDtype.BF16: "bf16"}
_MODES: Final = {Role.PREFILL: "prefill", Role.DECODE: "decode"}


class SGLang:
    """SGLang, as an ``Engine``."""

    def rules(self, proposal: Proposal) -> Iterable[Fault]:
        """Everything about ``proposal`` that SGLang cannot do."""
        for rule in sglang_rules.RULES:
            yield from rule(proposal)

    def environment_remedy(self, name: str, value: str | None) -> str | None:
        """The remedy when the operator owns an environment variable; None when it is free."""
        del value
        return sglang_owned.env_remedy(name)

    def kv_arguments(self, arguments: Sequence[str]) -> tuple[str, ...]:
        """The flags on which the roles must agree, with the values that follow them."""
        return sglang_owned.ENGINE_ONLY_FLAGS.with_values(arguments)

    def topology(self, parallelism: Parallelism, attention: Attention) -> Topology:
        """How a replica is spread: data-parallel attention lies inside the tensor ranks."""
        del attention
        world = parallelism.tensor * parallelism.pipeline
        return Topology(
            world_size=world,
            workers=world,
            accelerators=world,
            kv_ranks=parallelism.tensor,
            data_ranks=parallelism.data,
        )

    def launch(self, proposal: Proposal, role: Role, wiring: Wiring) -> Launch:
        """The command line of ``role``. The proposal has no fault."""
        spec = proposal.spec
        role_spec = dict(proposal.roles)[role]
        producer = wiring.transfers and role is Role.PREFILL
        bootstrap = (ports.BOOTSTRAP,) if producer else ()
        return Launch(
            executable=("sglang", "serve"),
            arguments=tuple(_arguments(spec, role, role_spec, wiring)),
            environment=_environment(spec, role, role_spec, wiring),
            scratch=(paths.PROMETHEUS, paths.SHARED_MEMORY),
            http=ports.ENGINE_HTTP,
            peers=_peers(role) if wiring.transfers else (),
            peer_ports=(*bootstrap, ports.UNPRIVILEGED) if wiring.transfers else (),
            health_path="/health",
            annotations={SMG_BOOTSTRAP_PORT: str(ports.BOOTSTRAP.number)} if producer else {},
            cache_file=None,
            store=None,
            hot=granikv.control(spec.kv_cache.hot) if role is Role.DECODE else None,
        )


def _peers(role: Role) -> tuple[Role, ...]:
    """The other role: prefill pushes KV, decode asks for it, both listen on ports of chance."""
    return (Role.DECODE,) if role is Role.PREFILL else (Role.PREFILL,)


def _arguments(
    spec: KVServingSpec, role: Role, role_spec: EngineRoleSpec, wiring: Wiring
) -> Iterable[str]:
    """The operator's own flags first, then the user's."""
    yield from _model_arguments(spec.model)
    yield from ("--host", "0.0.0.0", "--port", str(ports.ENGINE_HTTP.number))  # noqa: S104
    yield "--enable-metrics"
    if dtype := _KV_DTYPES.get(spec.kv_cache.dtype):
        yield from ("--kv-cache-dtype", dtype)
    yield from _parallel_arguments(role_spec.parallelism)
    if wiring.transfers:
        yield from ("--disaggregation-mode", _MODES[role])
        yield from ("--disaggregation-transfer-backend", "nixl")
        yield from ("--disaggregation-bootstrap-port", str(ports.BOOTSTRAP.number))
    if role is Role.DECODE and spec.kv_cache.hot.mode is not HotMode.OFF:
        yield from ("--decode-attention-backend", granikv.BACKEND)
    yield from spec.engine.extra_args
    yield from role_spec.extra_args


def _model_arguments(model: ModelSpec) -> Iterable[str]:
    yield from ("--model-path", model.name if model.volume is None else model.volume.path)
    yield from ("--served-model-name", (model.served_names or (model.name,))[0])
    if model.revision and model.volume is None:
        yield from ("--revision", model.revision)
    if model.max_model_len is not None:
        yield from ("--context-length", str(model.max_model_len))


def _parallel_arguments(parallelism: Parallelism) -> Iterable[str]:
    sizes = {
        "--tp-size": parallelism.tensor,
        "--pp-size": parallelism.pipeline,
        "--attn-dp-size": parallelism.data,
        "--dcp-size": parallelism.decode_context,
        "--ep-size": parallelism.tensor if parallelism.expert else 1,
    }
    for flag, size in sizes.items():
        if size > 1:
            yield from (flag, str(size))


def _environment(
    spec: KVServingSpec, role: Role, role_spec: EngineRoleSpec, wiring: Wiring
) -> tuple[EnvVar, ...]:
    """The operator's variables, then the user's; the same name later wins."""
    fixed = {
        **process.HOME,
        "PROMETHEUS_MULTIPROC_DIR": paths.PROMETHEUS,
        # A probe that generates would call an engine sick that only computes a long prompt.
        "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0",
        **process.CACHES,
        **(_transfer_environment(spec.transfer.nixl) if wiring.transfers else {}),
    }
    return process.merged(
        *(EnvVar(name=name, value=value) for name, value in fixed.items()),
        *hub.environment(spec.model),
        *(granikv.environment(spec.kv_cache.hot) if role is Role.DECODE else ()),
        *spec.engine.env,
        *role_spec.env,
    )


def _transfer_environment(nixl: Nixl) -> dict[str, str]:
    """SGLang takes one backend, and its parameters as text."""
    parameters = {
        **{key: str(value) for key, value in nixl.extra_config.items()},
        "num_threads": str(nixl.num_threads),
    }
    return {
        "SGLANG_DISAGGREGATION_NIXL_BACKEND": nixl.backends[0],
        "SGLANG_DISAGGREGATION_NIXL_BACKEND_PARAMS": json.dumps(
            parameters, sort_keys=True, separators=(",", ":")
        ),
    }
