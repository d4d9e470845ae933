"""Words that stand for tokens: the same everywhere, shared where the trace says so."""

from itertools import takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvserving_operator.simulation.text import WORDS, Measure, prompt, words
from kvserving_operator.simulation.trace import Request, Segment


def request(*pieces: tuple[str, int], text: str | None = None) -> Request:
    segments = tuple(Segment(name, tokens) for name, tokens in pieces)
    return Request(offset=0, output_tokens=1, segments=segments, text=text)


def test_the_words_are_those_that_every_machine_draws() -> None:
    assert words("system", 6) == ["bird", "fast", "here", "late", "boat", "fast"]
    assert len(set(WORDS)) == 128


def test_pieces_of_one_name_are_the_beginning_of_one_text() -> None:
    assert words("a", 1000)[:70] == words("a", 70)
    assert words("a", 70) != words("b", 70)


def test_prompts_are_equal_as_far_as_they_share_pieces() -> None:
    one = prompt(request(("a", 500), ("b", 300)), Measure()).split()
    two = prompt(request(("a", 500), ("c", 300)), Measure()).split()
    same = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(one, two, strict=True))))
    assert 500 <= same < 510


def test_a_text_is_sent_as_it_is() -> None:
    assert prompt(request(("t1", 3), text="Once  upon a"), Measure()) == "Once  upon a"


def test_a_measure_is_the_line_through_two_prompts() -> None:
    assert Measure.of((16, 80), (528, 2640)) == Measure(each=5.0, fixed=0.0)
    assert Measure.of((10, 12), (110, 142)).words(142) == 110
    with pytest.raises(ValueError, match="528 words are 5 tokens, 16 words 5"):
        Measure.of((16, 5), (528, 5))


@given(st.floats(0.3, 6), st.floats(-5, 20), st.lists(st.integers(1, 3000), min_size=1, max_size=5))
def test_a_prompt_has_the_tokens_that_it_should(
    each: float, fixed: float, pieces: list[int]
) -> None:
    measure = Measure(each=each, fixed=fixed)
    asked = request(*((f"p{number}", tokens) for number, tokens in enumerate(pieces)))
    got = len(prompt(asked, measure).split())
    # To the next whole word; no prompt is empty.
    assert abs(fixed + each * got - sum(pieces)) <= each / 2 + 1e-6 or got == 1
