"""What follows from two pages of metrics, and what stays unknown."""

import pytest

from kvserving_operator.cli.scrapes import Engine, Seen, endpoint, read, seen

LABELS = 'engine="0",model_name="m"'


def vllm(prompt: float, computed: float, cached: float, external: float = 0) -> str:
    return f"""\
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{{{LABELS}}} {prompt}
vllm:prompt_tokens_by_source_total{{{LABELS},source="local_compute"}} {computed}
vllm:prompt_tokens_by_source_total{{{LABELS},source="external_kv_transfer"}} {external}
vllm:prompt_tokens_cached_total{{{LABELS}}} {cached}
vllm:external_prefix_cache_hits_total{{{LABELS}}} {external}
"""


def store(done: float, probed: float, *, late: float | None = None, busy: float = 0.5) -> str:
    page = f"""\
kvserving_store_patched{{rank="0",vllm="0.33.0",lmcache="0.5.6",closed=""}} 1
kvserving_store_busy_share{{rank="scheduler"}} {busy}
kvserving_store_requests_total{{rank="0",verb="get",outcome="done"}} {done}
kvserving_store_requests_total{{rank="1",verb="get",outcome="done"}} {done}
kvserving_store_requests_total{{rank="1",verb="exists",outcome="done"}} 999
kvserving_store_probed_chunks_total{{rank="0"}} {probed}
"""
    return (
        page if late is None else f'{page}kvserving_store_lookups_late_total{{rank="s"}} {late}\n'
    )


def lmcache(read_bytes: float, written: float, stored: float) -> str:
    return f"""\
lmcache:num_remote_read_bytes_total{{worker_id="0"}} {read_bytes}
lmcache:num_remote_write_bytes_total{{worker_id="0"}} {written}
lmcache:num_stored_tokens_total{{worker_id="0"}} {stored}
"""


def engine(before: str, after: str, *sampled: str) -> Engine:
    made = Engine(read(before), read(after))
    for page in sampled:
        made.sample(read(page))
    return made


def told(*engines: Engine, rate: float | None = None) -> Seen:
    return seen(engines, 10.0, chunk_tokens=100, rate=rate)


def test_without_pages_nothing_is_known() -> None:
    assert told() == Seen()


def test_a_plain_engine_tells_prompts_and_hits_and_with_its_rate_its_work() -> None:
    one = engine(vllm(100, 100, 0), vllm(1100, 600, 500))
    assert told(one) == Seen(prompt_tokens=1000, cached_tokens=500)
    assert told(one, rate=100).gpu_utilization == pytest.approx(0.5)
    assert told(one, one, rate=100).gpu_utilization == pytest.approx(0.5)


def test_the_sharded_store_counts_chunks_and_late_lookups() -> None:
    one = engine(vllm(0, 0, 0), vllm(1000, 100, 900, 900) + store(4, 2, late=3), store(0, 0))
    assert told(one).remote_share == pytest.approx((8 - 2) * 100 / 1000)
    assert told(one).late_lookups == 3
    assert told(one).gpu_utilization == pytest.approx(0.5)


def test_a_store_shows_itself_by_any_of_its_names() -> None:
    """engine-sim has the store without the connector, which alone tells of versions."""
    pages = [vllm(p, p, 0, p) + store(c, 0) for p, c in ((0, 0), (1000, 4))]
    bare = [page.replace("kvserving_store_patched", "kvserving_store_held_bytes") for page in pages]
    assert told(engine(*bare)).remote_share == pytest.approx(0.8)


def test_chunks_that_came_too_late_are_no_hits() -> None:
    in_vain = engine(vllm(0, 0, 0) + store(0, 0), vllm(1000, 900, 100, 100) + store(4, 0))
    assert told(in_vain).remote_share == pytest.approx(0.1)


def test_a_store_without_late_lookups_has_none_of_them() -> None:
    assert told(engine(vllm(0, 0, 0), vllm(1000, 1000, 0) + store(0, 0))).late_lookups == 0


def test_lmcaches_bytes_are_tokens_by_what_it_wrote() -> None:
    one = engine(vllm(0, 0, 0) + lmcache(0, 0, 0), vllm(1000, 500, 500, 500) + lmcache(8, 40, 2000))
    assert told(one).remote_share == pytest.approx(0.4)
    in_vain = engine(vllm(0, 0, 0), vllm(1000, 900, 100, 100) + lmcache(8, 40, 2000))
    assert told(in_vain).remote_share == pytest.approx(0.1)


def test_bytes_of_unknown_size_are_no_tokens_but_no_bytes_are_none() -> None:
    unknown = engine(vllm(0, 0, 0), vllm(1000, 500, 500, 500) + lmcache(8, 0, 0))
    assert told(unknown).remote_share is None
    assert told(engine(vllm(0, 0, 0), vllm(9, 9, 0) + lmcache(0, 0, 0))).remote_share == 0


def test_what_one_engine_does_not_tell_is_unknown_of_all() -> None:
    full = engine(vllm(0, 0, 0), vllm(1000, 100, 900) + store(4, 0))
    bare = engine(vllm(0, 0, 0), vllm(1000, 1000, 0))
    assert told(full, bare).prompt_tokens == 2000
    assert (told(full, bare).remote_share, told(full, bare).late_lookups) == (None, None)


def test_an_engine_that_began_anew_or_is_gone_tells_nothing() -> None:
    assert told(engine(vllm(500, 500, 0), vllm(100, 100, 0))).prompt_tokens is None
    assert told(engine(vllm(500, 500, 0), "")) == Seen()


def test_accelerators_that_tell_of_themselves_are_believed_first() -> None:
    gauge = 'DCGM_FI_DEV_GPU_UTIL{gpu="0"} 30\nDCGM_FI_DEV_GPU_UTIL{gpu="1"} 50\n'
    one = engine(vllm(0, 0, 0), vllm(10, 10, 0), gauge + store(0, 0, busy=0.9), gauge)
    assert told(one, rate=1).gpu_utilization == pytest.approx(0.4)


def test_an_address_may_have_its_path_or_not() -> None:
    assert endpoint("http://a:8000") == endpoint("http://a:8000/metrics") == "http://a:8000/metrics"


def test_another_page_is_refused() -> None:
    with pytest.raises(ValueError, match=r"."):
        read("<html><body>no</body></html>")
