from itertools import combinations

from kvserving_operator.engines import ports


def test_no_two_ports_of_an_engine_pod_overlap():
    pod = [
        ports.ENGINE_HTTP,
        ports.side_channel(1024),
        ports.UCX,
        ports.AGENT,
        ports.LMCACHE_INTERNAL,
        ports.STORE_CONTROL,
        ports.GRANIKV_CONTROL,
    ]
    for one, other in combinations(pod, 2):
        assert one.last < other.number or other.last < one.number, f"{one} and {other}"


def test_port_names_are_legal_for_services():
    for port in ports.ALL:
        assert 1 <= len(port.name) <= 15
        assert port.name.replace("-", "").isalnum()


def test_side_channel_has_one_port_for_each_data_rank():
    assert (ports.side_channel(1).number, ports.side_channel(1).end) == (5600, None)
    assert (ports.side_channel(8).number, ports.side_channel(8).end) == (5600, 5607)


def test_ucx_range_is_written_as_ucx_reads_it():
    assert ports.port_range(ports.UCX) == "15600-15699"
