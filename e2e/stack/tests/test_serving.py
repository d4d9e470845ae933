from __future__ import annotations

from typing import Any

import pytest

from stack.serving import NeverReadyError, refusal, require_hope, summary, tier


def serving(**more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "quickstart", "generation": 2},
        "spec": {"prefill": {"replicas": 2}, "decode": {}},
        **more,
    }


def refused(generation: int = 2) -> dict[str, Any]:
    condition = {
        "type": "SpecValid",
        "status": "False",
        "observedGeneration": generation,
        "message": "spec.model: is wrong",
    }
    return serving(status={"phase": "Invalid", "conditions": [condition]})


def test_a_line_says_what_is_ready_or_why_nothing_is() -> None:
    assert summary(None) == "there is no such KVServing"
    assert summary(serving()) == "no status yet"
    counts = {"prefill": {"summary": "1/2"}, "decode": {"summary": "1/1"}, "tier": {"ready": 0}}
    status = {"phase": "Progressing", **counts}
    assert summary(serving(status=status)) == "Progressing, prefill 1/2, decode 1/1"
    assert summary(refused()) == "Invalid, spec.model: is wrong"
    leaving = serving()
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert summary(leaving) == "no status yet, being deleted"


def test_a_refusal_counts_for_its_generation_only() -> None:
    assert refusal(refused()) == "spec.model: is wrong"
    assert not refusal(refused(generation=1))  # edited again: the operator has not looked yet
    require_hope(refused(generation=1), "quickstart", "")
    require_hope(serving(), "quickstart", "")


def test_an_edited_object_and_a_deleted_one_end_the_wait_with_the_remedy() -> None:
    with pytest.raises(NeverReadyError) as error:
        require_hope(refused(), "quickstart", "kubectl delete kvs quickstart")
    assert str(error.value) == (
        "KVServing quickstart was edited and is Invalid now (spec.model: is wrong): "
        "kubectl delete kvs quickstart, then run again"
    )
    with pytest.raises(NeverReadyError, match="somebody deleted it"):
        require_hope(None, "quickstart", "")


def test_the_tier_in_words() -> None:
    assert tier({"tier": {"instances": 4, "ready": 3, "epoch": "a"}}) == (
        "3 of 4 Valkeys of the tier ready"
    )
    assert tier({}) == "no remote tier"
