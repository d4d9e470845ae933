from __future__ import annotations

from typing import Any

import pytest

from kvserving_engine_sim.transfer.leases import Leases, RefusedError
from kvserving_engine_sim.transfer.params import (
    ParamsError,
    parse_remote_prefill,
    wants_decode_elsewhere,
    wants_remote_prefill,
)
from kvserving_engine_sim.transfer_config import (
    ConfigError,
    Kind,
    LoadFailurePolicy,
    Role,
    parse_transfer_config,
)

PARAMS: dict[str, Any] = {
    "do_remote_prefill": True,
    "do_remote_decode": False,
    "remote_block_ids": [3, 1, 2],
    "remote_engine_id": "e",
    "remote_request_id": "r",
    "remote_host": "10.0.0.7",
    "remote_port": 5600,
    "tp_size": 1,
}


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_params_of_a_prefill_are_read() -> None:
    remote = parse_remote_prefill(PARAMS)
    assert (remote.host, remote.port, remote.blocks) == ("10.0.0.7", 5600, (3, 1, 2))
    # As real vLLM sends them: one list for each KV cache group.
    assert parse_remote_prefill({**PARAMS, "remote_block_ids": [[3, 1]]}).blocks == (3, 1)
    assert wants_remote_prefill(PARAMS)
    assert not wants_decode_elsewhere(PARAMS)
    assert not wants_remote_prefill(None)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("remote_block_ids", None),
        ("remote_block_ids", []),
        ("remote_block_ids", "3"),
        ("remote_block_ids", [1, True]),
        ("remote_block_ids", [[1], [2]]),
        ("remote_block_ids", [1.5]),
        ("remote_engine_id", 7),
        ("remote_request_id", ""),
        ("remote_host", None),
        ("remote_host", "x" * 1000),
        ("remote_port", 0),
        ("remote_port", 70_000),
        ("remote_port", "5600"),
        ("remote_port", True),
        ("tp_size", 0),
        ("tp_size", "8"),
    ],
)
def test_malformed_params_are_refused(field: str, value: Any) -> None:
    with pytest.raises(ParamsError, match=field):
        parse_remote_prefill({**PARAMS, field: value})


def test_lease_is_read_only_by_who_knows_request_blocks_and_prompt() -> None:
    leases = Leases(30, Clock())
    leases.add("r", [4, 5], 20, "digest")
    for name, blocks, digest in (
        ("x", (4,), "digest"),
        ("r", (4, 6), "digest"),
        ("r", (4,), "other"),
    ):
        with pytest.raises(RefusedError):
            leases.begin_read(name, blocks, digest)
    assert leases.begin_read("r", (5,), "digest").tokens == 20


def test_lease_expires_unless_it_is_read_or_renewed() -> None:
    clock = Clock()
    leases = Leases(30, clock)
    leases.add("r", [4], 10, "d")
    clock.now += 20
    leases.renew(["r", "unknown"])
    clock.now += 20
    assert leases.collect() == ([], [])
    lease = leases.begin_read("r", (4,), "d")
    clock.now += 60
    assert leases.collect() == ([], [])
    leases.end_read(lease)
    assert leases.collect() == ([], [lease])
    assert leases.next_expiry() is None
    leases.finish("r")
    assert leases.take_late_notices() == 1
    assert leases.take_late_notices() == 0


def test_finished_lease_is_collected_once() -> None:
    leases = Leases(30, Clock())
    leases.add("r", [4], 10, "d")
    assert leases.next_expiry() == 30
    leases.finish("r")
    leases.finish("r")
    finished, expired = leases.collect()
    assert [lease.blocks for lease in finished] == [(4,)]
    assert expired == []
    assert leases.collect() == ([], [])


def test_multi_connector_keeps_order_roles_and_options() -> None:
    config = parse_transfer_config(
        '{"kv_connector":"MultiConnector","kv_role":"kv_producer","engine_id":"me",'
        '"kv_load_failure_policy":"recompute","kv_connector_extra_config":{"connectors":['
        '{"kv_connector":"NixlConnector","kv_role":"kv_producer",'
        '"kv_connector_extra_config":{"kv_lease_duration":9}},'
        '{"kv_connector":"LMCacheConnectorV1","kv_role":"kv_both"}]}}',
        context_parallel=8,
    )
    assert [c.kind for c in config.connectors] == [Kind.NIXL, Kind.LMCACHE]
    assert config.policy is LoadFailurePolicy.RECOMPUTE
    assert config.engine_id == "me"
    nixl = config.of(Kind.NIXL)
    assert nixl is not None
    assert (nixl.role, nixl.extra["kv_lease_duration"]) == (Role.PRODUCER, 9)


def test_defaults_are_those_of_vllm() -> None:
    config = parse_transfer_config('{"kv_connector":"NixlConnector","kv_role":"kv_consumer"}')
    assert config.policy is LoadFailurePolicy.FAIL
    assert config.engine_id
    assert parse_transfer_config(None).connectors == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"kv_connector":"NixlConnector"}', "kv_role"),
        ('{"kv_connector":"NixlConnector","kv_role":"both"}', "kv_role"),
        ('{"kv_connector":"P2pNcclConnector","kv_role":"kv_both"}', "P2pNcclConnector"),
        ('{"kv_connector":"MultiConnector","kv_role":"kv_both"}', "connectors"),
        (
            '{"kv_connector":"NixlConnector","kv_role":"kv_both","kv_load_failure_policy":"x"}',
            "kv_load_failure_policy",
        ),
    ],
)
def test_config_that_cannot_be_served(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_transfer_config(text)


@pytest.mark.parametrize("role", ["kv_consumer", "kv_both"])
def test_context_parallel_nixl_only_produces(role: str) -> None:
    text = f'{{"kv_connector":"NixlConnector","kv_role":"{role}"}}'
    parse_transfer_config(text, context_parallel=1)
    with pytest.raises(ConfigError, match="kv_producer"):
        parse_transfer_config(text, context_parallel=2)
