from __future__ import annotations

import pytest

from stack import valkey
from stack.tests.standin import Standin

INFO = """# Stats\r
total_net_input_bytes:1000\r
total_net_output_bytes:{sent}\r
# Commandstats\r
cmdstat_get:calls={gets},usec=9,usec_per_call=3.00,rejected_calls=0,failed_calls=0\r
# Keyspace\r
db0:keys=3,expires=0,avg_ttl=0\r
db7:keys=1,expires=0,avg_ttl=0\r
"""


def test_an_instance_is_read_from_its_info() -> None:
    found = valkey.read("x-valkey-0", INFO.format(sent=2000, gets=3))
    assert found == valkey.Instance("x-valkey-0", keys=4, gets=3, received=1000, sent=2000)


def test_one_that_counted_nothing_yet_has_zeros() -> None:
    found = valkey.read("x", "total_net_input_bytes:1\r\ntotal_net_output_bytes:2\r\n")
    assert (found.keys, found.gets) == (0, 0)


def test_an_error_is_no_instance() -> None:
    with pytest.raises(RuntimeError, match=r"x-valkey-0 does not say.*NOPERM"):
        valkey.read("x-valkey-0", "NOPERM no permissions")


def test_instances_come_by_ordinal_with_what_happened_since(standin: Standin) -> None:
    pods = [{"metadata": {"name": f"x-valkey-{n}"}} for n in (10, 2)]
    standin.answer(
        get_pods=[{"items": pods}],
        exec=[INFO.format(sent=100, gets=1), INFO.format(sent=200, gets=2)] * 2
        + [INFO.format(sent=5100, gets=9)],
    )
    before = valkey.instances(standin.kubectl, "x")
    assert [one.pod for one in before] == ["x-valkey-2", "x-valkey-10"]
    later = valkey.since(standin.kubectl, "x", before)
    assert [(one.gets, one.sent) for one in later] == [(0, 0), (0, 0)]
    assert "x-valkey-10" in valkey.table(later)[2]


def test_what_an_instance_may_hold(standin: Standin) -> None:
    standin.answer(exec=["# Memory\r\nused_memory:5\r\nmaxmemory:1000\r\nmaxmemory_policy:x\r\n"])
    assert valkey.maxmemory(standin.kubectl, "x-valkey-0") == 1000
