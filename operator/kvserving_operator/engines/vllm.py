"""vLLM: how a role's command line, environment and ports follow from the spec. Pure.

Flags and environment: vLLM 0.32.0 and 0.33.0 (``vllm/engine/arg_utils.py``, ``vllm/envs.py``).
"""

from collections.abc import Iterable, Sequence
from typing import Final

from kvserving_operator.api import duration
from kvserving_operator.api.types import EnvVar
from kvserving_operator.api.v1alpha1 import (
    Attention,
    KVDtype,
    KVServingSpec,
    ModelSpec,
    Parallelism,
)
from kvserving_operator.engines import (
    granikv,
    hub,
    lmcache,
    owned,
    paths,
    ports,
    process,
    vllm_kv,
    vllm_rules,
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

SHUTDOWN_SECONDS: Final = 20
"""Longest --shutdown-timeout: what is left of a drain when the engine gets SIGTERM."""
KEEP_ALIVE_SECONDS: Final = 120
"""Longer than the router keeps idle connections; else a reused one is closed under a request."""

SMG_CONNECTOR: Final = "smg.ai/kv-connector"
"""By this annotation the SMG router knows that a pair hands its KV over by NIXL; without it, it
sends the prefill engine no request for KV."""

_KV_DTYPES: Final = {
    KVDtype.FP8: "fp8",
    KVDtype.BF16: "bfloat16",
    KVDtype.FP16: "float16",
}


class VLLM:
    """vLLM, as an ``Engine``."""

    def rules(self, proposal: Proposal) -> Iterable[Fault]:
        """Everything about ``proposal`` that vLLM or its connectors cannot do."""
        for rule in vllm_rules.RULES:
            yield from rule(proposal)

    def environment_remedy(self, name: str, value: str | None) -> str | None:
        """The remedy when the operator owns an environment variable; None when it is free."""
        return owned.env_remedy(name, value)

    def kv_arguments(self, arguments: Sequence[str]) -> tuple[str, ...]:
        """The flags on which the roles must agree, with the values that follow them."""
        return owned.ENGINE_ONLY_FLAGS.with_values(arguments)

    def topology(self, parallelism: Parallelism, attention: Attention) -> Topology:
        """How a replica is spread: rank order is data, pipeline, context, tensor.

        Decode context parallelism lies inside the tensor ranks and needs no accelerators of its
        own. With MLA every context and tensor rank holds the same KV, so all of them can share
        the tier's work; otherwise each tensor rank has its own heads.
        """
        shared = parallelism.prefill_context if attention is Attention.MLA else 1
        world = parallelism.prefill_context * parallelism.tensor * parallelism.pipeline
        return Topology(
            world_size=world,
            workers=world * parallelism.data,
            accelerators=world * parallelism.data,
            kv_ranks=shared * parallelism.tensor,
            data_ranks=parallelism.data,
        )

    def launch(self, proposal: Proposal, role: Role, wiring: Wiring) -> Launch:
        """The command line of ``role``. The proposal has no fault."""
        spec = proposal.spec
        role_spec = dict(proposal.roles)[role]
        producer = wiring.transfers and role is Role.PREFILL
        peer_ports = [ports.side_channel(role_spec.parallelism.data)] if producer else []
        if producer and not role_spec.rdma.resources:
            peer_ports.append(ports.UCX)
        return Launch(
            executable=("vllm", "serve"),
            arguments=tuple(_arguments(spec, role, role_spec, wiring)),
            environment=_environment(spec, role, role_spec, wiring),
            scratch=(paths.PROMETHEUS, paths.SHARED_MEMORY),
            http=ports.ENGINE_HTTP,
            peers=(Role.DECODE,) if producer else (),
            peer_ports=tuple(peer_ports),
            health_path="/health",
            annotations={SMG_CONNECTOR: "NixlConnector"} if wiring.transfers else {},
            cache_file=lmcache.cache_file(wiring.cache) if wiring.cache else None,
            store=ports.STORE_CONTROL
            if wiring.cache and lmcache.knows_ranks(wiring.cache)
            else None,
            hot=granikv.control(spec.kv_cache.hot) if role is Role.DECODE else None,
        )


def shutdown_seconds(role_spec: EngineRoleSpec) -> int:
    """The --shutdown-timeout: running requests may end within it after SIGTERM."""
    return min(SHUTDOWN_SECONDS, max(1, duration.whole_seconds(role_spec.drain.timeout)))


def _arguments(
    spec: KVServingSpec, role: Role, role_spec: EngineRoleSpec, wiring: Wiring
) -> Iterable[str]:
    """The operator's own flags first, then the user's."""
    yield from _model_arguments(spec.model)
    yield from ("--host", "0.0.0.0", "--port", str(ports.ENGINE_HTTP.number))  # noqa: S104
    if dtype := _KV_DTYPES.get(spec.kv_cache.dtype):
        yield from ("--kv-cache-dtype", dtype)
    yield from _parallel_arguments(role_spec.parallelism)
    if wiring.transfers and wiring.stack_carries_cache:
        # LMCache's connector turns the hybrid manager off on its own engine only; the NIXL
        # handshake then refuses every request of the other role.
        yield "--disable-hybrid-kv-cache-manager"
    if config := vllm_kv.transfer_config(role, wiring, spec.transfer.nixl):
        yield from ("--kv-transfer-config", config)
    yield from ("--shutdown-timeout", str(shutdown_seconds(role_spec)))
    yield from spec.engine.extra_args
    yield from role_spec.extra_args


def _model_arguments(model: ModelSpec) -> Iterable[str]:
    yield model.name if model.volume is None else model.volume.path
    yield from ("--served-model-name", *(model.served_names or (model.name,)))
    if model.revision and model.volume is None:
        yield from ("--revision", model.revision)
    if model.max_model_len is not None:
        yield from ("--max-model-len", str(model.max_model_len))


def _parallel_arguments(parallelism: Parallelism) -> Iterable[str]:
    sizes = {
        "--prefill-context-parallel-size": parallelism.prefill_context,
        "--tensor-parallel-size": parallelism.tensor,
        "--pipeline-parallel-size": parallelism.pipeline,
        "--data-parallel-size": parallelism.data,
        "--decode-context-parallel-size": parallelism.decode_context,
    }
    for flag, size in sizes.items():
        if size > 1:
            yield from (flag, str(size))
    if parallelism.expert:
        yield "--enable-expert-parallel"


def _environment(
    spec: KVServingSpec, role: Role, role_spec: EngineRoleSpec, wiring: Wiring
) -> tuple[EnvVar, ...]:
    """The operator's variables, then the user's; the same name later wins."""
    return process.merged(
        *_process_environment(),
        *hub.environment(spec.model),
        *(_transfer_environment(role_spec) if wiring.transfers else ()),
        *(lmcache.environment(wiring.cache) if wiring.cache else ()),
        *(granikv.environment(spec.kv_cache.hot) if role is Role.DECODE else ()),
        *spec.engine.env,
        *role_spec.env,
    )


def _process_environment() -> tuple[EnvVar, ...]:
    values = {
        **process.HOME,
        "PYTHONHASHSEED": "0",
        "PROMETHEUS_MULTIPROC_DIR": paths.PROMETHEUS,
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": str(KEEP_ALIVE_SECONDS),
        "VLLM_CACHE_ROOT": f"{paths.COMPILE_CACHE}/vllm",
        **process.CACHES,
    }
    return tuple(EnvVar(name=name, value=value) for name, value in values.items())


def _transfer_environment(role_spec: EngineRoleSpec) -> Iterable[EnvVar]:
    """Where the other role finds this engine's KV; the default host is localhost."""
    yield EnvVar(
        name="VLLM_NIXL_SIDE_CHANNEL_HOST",
        value_from={"fieldRef": {"fieldPath": "status.podIP"}},
    )
    yield EnvVar(name="VLLM_NIXL_SIDE_CHANNEL_PORT", value=str(ports.NIXL_SIDE_CHANNEL.number))
    if not role_spec.rdma.resources:
        yield EnvVar(name="UCX_TCP_PORT_RANGE", value=ports.port_range(ports.UCX))
