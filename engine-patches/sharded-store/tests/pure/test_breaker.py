"""The breaker opens on proof, waits longer each time, with jitter, and closes with an answer."""

from kvserving_sharded_store.resp.breaker import Breaker


def waits(jitter: float, count: int) -> list[float]:
    breaker = Breaker(jitter=lambda: jitter)
    found = []
    for _ in range(count):
        breaker.failed(100.0)
        found.append(round(breaker.retry_at - 100.0, 6))
    return found


def test_one_failure_opens_and_an_answer_closes() -> None:
    breaker = Breaker(jitter=lambda: 0.0)
    breaker.failed(0.0)
    assert breaker.is_open
    breaker.succeeded()
    assert not breaker.is_open


def test_waits_double_to_the_longest_and_spread_over_their_upper_half() -> None:
    assert waits(0.0, 7) == [0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 1.5]
    assert waits(1.0, 7) == [0.1, 0.2, 0.4, 0.8, 1.6, 3.0, 3.0]


def test_an_answer_starts_the_waits_over() -> None:
    breaker = Breaker(jitter=lambda: 1.0)
    for _ in range(5):
        breaker.failed(0.0)
    breaker.succeeded()
    breaker.failed(0.0)
    assert breaker.retry_at == 0.1


def test_three_doubts_in_a_row_open_and_an_answer_between_them_does_not() -> None:
    breaker = Breaker(jitter=lambda: 0.0)
    for _ in range(4):
        breaker.doubted(0.0)
        breaker.doubted(0.0)
        assert not breaker.is_open
        breaker.succeeded()
    for _ in range(3):
        breaker.doubted(0.0)
    assert breaker.is_open


def test_silence_counts_from_what_was_asked_first_and_ends_with_any_word() -> None:
    breaker = Breaker(jitter=lambda: 0.0)
    breaker.heard(0.0)
    breaker.asked(100.0)
    assert not breaker.is_silent(100.4), "nothing was asked of it before"
    # Many short deadlines against an instance that is gone are one long silence.
    breaker.asked(100.3)
    assert breaker.is_silent(100.5)
    breaker.heard(100.6)
    assert not breaker.is_silent(101.0)
    assert breaker.is_silent(101.2), "what was asked before the last word is still owed"
    breaker.asked(101.2)
    assert not breaker.is_silent(101.3)
