from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from kvserving_operator.api import conditions
from kvserving_operator.api.conditions import (
    Condition,
    ConditionStatus,
    ConditionType,
    Reason,
    condition,
    merge_conditions,
    set_condition,
)

T0 = datetime(2026, 11, 30, 9, 0, 0, tzinfo=UTC)
LATER = T0 + timedelta(minutes=5)


def ready(status: ConditionStatus, message: str = "") -> Condition:
    reason = Reason.ALL_READY if status is ConditionStatus.TRUE else Reason.ROLES_NOT_READY
    return condition(ConditionType.READY, status=status, reason=reason, message=message)


def test_a_new_condition_gets_time_and_generation() -> None:
    (made,) = merge_conditions((), [ready(ConditionStatus.FALSE)], generation=3, now=T0)
    assert made.last_transition_time == "2026-11-30T09:00:00Z"
    assert made.observed_generation == 3


def test_time_moves_only_with_the_status() -> None:
    before = merge_conditions((), [ready(ConditionStatus.FALSE, "a")], generation=1, now=T0)
    same = merge_conditions(before, [ready(ConditionStatus.FALSE, "b")], generation=2, now=LATER)
    assert (same[0].last_transition_time, same[0].message) == ("2026-11-30T09:00:00Z", "b")
    turned = merge_conditions(same, [ready(ConditionStatus.TRUE)], generation=2, now=LATER)
    assert turned[0].last_transition_time == "2026-11-30T09:05:00Z"


def test_a_condition_whose_subject_is_off_goes_away() -> None:
    tier = condition(
        ConditionType.REMOTE_TIER_READY,
        status=ConditionStatus.TRUE,
        reason=Reason.REPLICAS_READY,
        message="",
    )
    before = merge_conditions((), [ready(ConditionStatus.TRUE), tier], generation=1, now=T0)
    after = merge_conditions(before, [ready(ConditionStatus.TRUE)], generation=2, now=LATER)
    assert [c.type for c in after] == ["Ready"]


def test_set_leaves_the_others_untouched() -> None:
    foreign = Condition(type="FromElsewhere", status=ConditionStatus.TRUE, reason="X")
    out = set_condition([foreign], ready(ConditionStatus.TRUE), generation=1, now=T0)
    assert [c.type for c in out] == ["Ready", "FromElsewhere"]
    assert out[1] == foreign


def test_find_and_is_true() -> None:
    some = [ready(ConditionStatus.UNKNOWN)]
    assert conditions.find(some, ConditionType.READY) is some[0]
    assert conditions.find(some, ConditionType.STALLED) is None
    assert not conditions.is_true(some, ConditionType.READY)
    assert not conditions.is_true(some, ConditionType.STALLED)
    assert conditions.is_true([ready(ConditionStatus.TRUE)], ConditionType.READY)


def test_timestamps_are_utc_whatever_the_zone() -> None:
    east = datetime(2026, 11, 30, 11, 0, 0, 999999, tzinfo=timezone(timedelta(hours=2)))
    assert conditions.timestamp(east) == "2026-11-30T09:00:00Z"


def test_messages_are_bounded() -> None:
    made = ready(ConditionStatus.FALSE, "x" * 100_000)
    assert len(made.message) == conditions.MAX_MESSAGE


CONDITIONS = st.builds(
    condition,
    st.sampled_from(ConditionType),
    status=st.sampled_from(ConditionStatus),
    reason=st.sampled_from(Reason),
    message=st.text(max_size=10),
)


@given(st.lists(CONDITIONS, max_size=8), st.integers(0, 10_000))
def test_a_settled_object_causes_no_write(desired: list[Condition], seconds: int) -> None:
    first = merge_conditions((), desired, generation=1, now=T0)
    again = merge_conditions(first, first, generation=1, now=T0 + timedelta(seconds=seconds))
    assert again == first
    assert [c.type for c in first] == [t for t in ConditionType if t in {c.type for c in first}]
    assert [c.to_dict() for c in again] == [c.to_dict() for c in first]


def test_reasons_are_one_camel_case_word() -> None:
    for word in (*Reason, *ConditionType):
        assert word.isalnum()
        assert word[0].isupper()
