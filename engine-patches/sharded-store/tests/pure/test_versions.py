"""An unknown pair is never patched, and is used as it is only where that is right."""

import pytest

from kvserving_sharded_store.versions import SUPPORTED, judge, public


@pytest.mark.parametrize("pair", SUPPORTED)
def test_known_pairs_are_patched(pair: tuple[str | None, str]) -> None:
    verdict = judge(*pair, stock_is_right=False)
    assert verdict.patch
    assert "patched" in verdict.message


@pytest.mark.parametrize("vllm", ["0.0.1", None])
def test_unknown_pairs_are_stock_only_where_stock_is_right(vllm: str | None) -> None:
    right = judge(vllm, "0.5.99", stock_is_right=True)
    assert (right.patch, right.stock) == (False, True)
    wrong = judge(vllm, "0.5.99", stock_is_right=False)
    assert (wrong.patch, wrong.stock) == (False, False)
    assert "no load, no store" in wrong.message


def test_without_lmcache_there_is_no_tier() -> None:
    verdict = judge("0.32.0", None, stock_is_right=True)
    assert (verdict.patch, verdict.stock) == (False, False)


def test_local_parts_do_not_count() -> None:
    assert public("0.32.0+cpu") == "0.32.0"
