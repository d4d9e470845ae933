"""The trace format: what is read, what is refused and with which line."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvserving_operator.simulation.trace import Request, Segment, TraceError, parse, record


def line(**keys: object) -> str:
    return json.dumps({"offset": 0, "promptTokens": 1000, **keys})


def test_requests_come_by_offset_and_blank_lines_are_nothing() -> None:
    first, second = parse(["", line(offset=2.5, outputTokens=7), "  ", line(offset=1)])
    assert (first.offset, second.offset, second.output_tokens) == (1, 2.5, 7)


def test_what_is_not_named_is_the_requests_own() -> None:
    one, two = parse([line(prefix=[{"id": "a", "tokens": 600}]), line()])
    assert one.segments == (Segment("a", 600), Segment("#1", 400))
    assert two.segments == (Segment("#2", 1000),)


def test_hash_ids_are_blocks_and_the_last_one_may_be_partly_used() -> None:
    (request,) = parse([line(hashIds=[7, "x", 9], hashTokens=400)])
    assert request.segments == (Segment("h7", 400), Segment("hx", 400), Segment("h9", 200))


def test_texts_share_their_equal_beginning() -> None:
    common = " ".join(f"w{number}" for number in range(128))
    one, two = parse([json.dumps({"offset": 0, "text": f"{common} {end}"}) for end in ("a", "b c")])
    assert one.segments[:2] == two.segments[:2]
    assert one.segments[2] != two.segments[2]
    assert (one.prompt_tokens, two.prompt_tokens) == (129, 130)


def test_a_texts_words_are_tokens_unless_told() -> None:
    content = {"offset": 0, "text": "word " * 640, "promptTokens": 960}
    (request,) = parse([json.dumps(content)])
    assert request.prompt_tokens == 960
    assert request.segments[0].tokens == 96


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("{", "line 2: no JSON"),
        ("[1]", "line 2: is no JSON object"),
        ('{"promptTokens": 5}', "line 2: offset is missing"),
        ('{"offset": -1, "promptTokens": 5}', "line 2: offset -1 is not between"),
        ('{"offset": NaN, "promptTokens": 5}', "line 2: offset nan is not between"),
        ('{"offset": true, "promptTokens": 5}', "line 2: offset is missing or no number"),
        ('{"offset": 0}', "line 2: promptTokens is missing"),
        ('{"offset": 0, "promptTokens": 0}', "line 2: promptTokens 0 is no whole number"),
        ('{"offset": 0, "promptTokens": 1.5}', "line 2: promptTokens 1.5 is no whole number"),
        (line(outputTokens="3"), "line 2: outputTokens '3' is no whole number"),
        (line(output=3), "line 2: 'output' is not known; there are hashIds"),
        (line(prefix=[{"id": "a", "tokens": 1001}]), "line 2: prefix has 1001 tokens"),
        (line(prefix=[{"id": "#a", "tokens": 1}]), "line 2: an id in prefix"),
        (line(prefix="a"), "line 2: prefix is no list"),
        (line(hashIds=[1.5]), "line 2: hashIds is no list"),
        (line(text="a", hashIds=[1]), "line 2: hashIds and text exclude each other"),
        (line(text="  "), "line 2: text is no text, or has no words"),
        ("[" * 100_000, "line 2: nested too deeply"),
    ],
)
def test_a_fault_names_its_line(bad: str, message: str) -> None:
    with pytest.raises(TraceError) as caught:
        parse([line(), bad, line()])
    assert str(caught.value).startswith(message)


def test_an_empty_trace_is_a_fault() -> None:
    with pytest.raises(TraceError, match="no request"):
        parse(["", " "])


@given(
    st.lists(
        st.tuples(
            st.floats(0, 1000),
            st.integers(1, 500),
            st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 999)), max_size=3),
            st.integers(0, 999),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_a_written_trace_is_read_back(
    drawn: list[tuple[float, int, list[tuple[str, int]], int]],
) -> None:
    requests = []
    for number, (offset, output, named, own) in enumerate(sorted(drawn), start=1):
        segments = [Segment(name, tokens) for name, tokens in named]
        if own or not segments:
            segments.append(Segment(f"#{number}", own or 1))
        requests.append(
            Request(offset=round(offset, 6), output_tokens=output, segments=tuple(segments))
        )
    assert parse(json.dumps(record(request)) for request in requests) == requests
