"""The numbers that ``kvserving plan`` is given: flags, units, model cards."""

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from kvserving_operator.cli.errors import UsageError
from kvserving_operator.cli.output import note
from kvserving_operator.cli.plan_stack import Sized, readable
from kvserving_operator.cost import ONE, Model, Pool
from kvserving_operator.sizing import units
from kvserving_operator.sizing.cards import card, similar
from kvserving_operator.sizing.question import Question, Traffic
from kvserving_operator.sizing.shape import ConfigError, KvDtype, Shape, bytes_per_token, shape_of

_MOST_DRAFTS: Final = 16
_MOST_VARIED: Final = 10
_LARGEST: Final = 1 << 22
"""Bytes of a config.json that are read: real ones have some thousand."""
_Flag = tuple[str, str, Callable[[str], float], str]

_ENGINE: Final[tuple[_Flag, ...]] = (
    ("--tokens-per-second", "R", units.count, "tokens that a prefill replica computes: 52.2k"),
    ("--bytes-per-token", "s", units.bare(units.size), "KV of a token over all ranks: 48.4KB"),
    ("--bandwidth", "B", units.rate, "what all instances deliver: 10.76GB/s, 86Gbit/s"),
    (
        "--fixed-seconds",
        "T0",
        units.bare(units.seconds),
        "time of a load whatever its length: 330ms",
    ),
    (
        "--engine-fixed-seconds",
        "Te",
        units.seconds,
        "part of it that holds the engine; default: T0",
    ),
)
_TRAFFIC: Final[tuple[_Flag, ...]] = (
    ("--arrival-rate", "λ", units.count, "prompts a second"),
    ("--prompt-tokens", "n", units.count, "tokens of a prompt: 16390 or 16.4k"),
    ("--hit-fraction", "h", units.share, "share of a prompt that the tier holds; default: 1"),
    ("--utilization", "u", units.share, "busy share of an engine; default: as without a tier"),
    (
        "--prompt-variation",
        "CV",
        units.count,
        "standard deviation of their lengths by the mean, 0: all alike; default: 1, as by chance",
    ),
    ("--answer-tokens", "a", units.count, "tokens of an answer, where kept too; default: 0"),
)
_MEMORY: Final[tuple[_Flag, ...]] = (
    ("--retention", "T", units.seconds, "how long KV is to be kept: 10m"),
    (
        "--unique-prefixes",
        "k",
        units.count,
        "prefixes that prompts share, and HOT pages are to hold",
    ),
    ("--prefix-tokens", "Lp", units.count, "tokens of such a prefix; default: the hit's"),
)


def add_options(parser: argparse.ArgumentParser, other: Mapping[str, str] | None = None) -> None:
    """The flags of all numbers; ``other`` help for some of them, as another command takes them."""
    other = other or {}
    engine = parser.add_argument_group("the engine and its tier")
    _add(engine, _ENGINE, other)
    engine.add_argument(
        "--model-card",
        metavar="NAME|FILE",
        help="take s from a public model's card (--list-model-cards) or a local config.json; "
        "default: the card of the manifest's model, if there is one",
    )
    engine.add_argument(
        "--kv-dtype",
        type=str.upper,
        choices=[str(dtype) for dtype in KvDtype],
        help="type of the KV cache; default: the card's",
    )
    engine.add_argument(
        "--draft-layers",
        type=int,
        metavar="N",
        help="layers for multi-token prediction whose KV is kept too; default: the model's if the "
        "manifest's engines speculate, else 0",
    )
    _add(parser.add_argument_group("the traffic, all engines together"), _TRAFFIC, other)
    _add(parser.add_argument_group("memory"), _MEMORY, other)


def _add(group: Any, flags: tuple[_Flag, ...], other: Mapping[str, str]) -> None:
    for flag, letter, parse, text in flags:
        told = other.get(flag, text)
        group.add_argument(flag, metavar=letter, type=parser_of(parse), help=told)


def parser_of(parse: Callable[[str], float]) -> Callable[[str], float]:
    """``parse`` as argparse's ``type``."""

    def parsed(text: str) -> float:
        try:
            return parse(text)
        except units.UnitError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parsed


def question(options: argparse.Namespace, sized: Sized) -> Question:
    """What is asked, as far as it was said.

    Raises:
        UsageError: With the flag that is wrong or missing, and its remedy.
    """
    size = _size(options, sized)
    traffic = _traffic(options)
    _positive(options, "tokens_per_second", "bandwidth", "retention", "prefix_tokens")
    prefixes = options.unique_prefixes
    if prefixes is not None and prefixes != int(prefixes):
        raise UsageError("--unique-prefixes: give a whole number")
    made = Question(
        stack=sized.stack,
        model=_model(options, size),
        bytes_per_token=size,
        tokens_per_second=options.tokens_per_second,
        traffic=traffic,
        pool=_pool(options, sized),
        retention_seconds=options.retention,
        unique_prefixes=None if prefixes is None else int(prefixes),
        prefix_tokens=options.prefix_tokens,
    )
    chunk = sized.chunk_tokens
    return made if chunk is None else replace(made, chunk_tokens=chunk)


def _pool(options: argparse.Namespace, sized: Sized) -> Pool:
    """The engines behind the router; one without a manifest."""
    pool = ONE if sized.stack is None else sized.stack.pool
    varied = options.prompt_variation
    if varied is None:
        return pool
    if not 0 <= varied <= _MOST_VARIED:
        raise UsageError(f"--prompt-variation: must be from 0 to {_MOST_VARIED}")
    return replace(pool, work_variation=varied**2)


def _positive(options: argparse.Namespace, *names: str) -> None:
    for name in names:
        value = getattr(options, name)
        if value is not None and value <= 0:
            raise UsageError(f"--{name.replace('_', '-')}: must be more than 0")


def _model(options: argparse.Namespace, size: float | None) -> Model | None:
    rate, bandwidth, fixed = options.tokens_per_second, options.bandwidth, options.fixed_seconds
    engine = options.engine_fixed_seconds
    if engine is not None and (fixed is None or engine > fixed):
        raise UsageError(
            "--engine-fixed-seconds: is the part of --fixed-seconds that holds the engine; "
            "give --fixed-seconds, at least as much"
        )
    if size is None or rate is None or bandwidth is None or fixed is None:
        return None
    held = fixed if engine is None else engine
    try:
        return Model(
            tokens_per_second=rate,
            bytes_per_token=size,
            bandwidth=bandwidth,
            engine_fixed_seconds=held,
            request_fixed_seconds=fixed - held,
        )
    except ValueError as error:
        raise UsageError(str(error)) from error


def _traffic(options: argparse.Namespace) -> Traffic | None:
    rate, tokens = options.arrival_rate, options.prompt_tokens
    if rate is None and tokens is None:
        return None
    if rate is None or tokens is None:
        missing = "--arrival-rate" if rate is None else "--prompt-tokens"
        raise UsageError(f"{missing}: is needed with the other of the two; traffic is λ and n")
    hit = 1.0 if options.hit_fraction is None else options.hit_fraction
    if hit <= 0:
        raise UsageError("--hit-fraction: must be more than 0; without hits no tier is needed")
    _positive(options, "prompt_tokens")
    return Traffic(
        arrivals=rate,
        prompt_tokens=tokens,
        hit_fraction=hit,
        busy=options.utilization,
        answer_tokens=options.answer_tokens or 0.0,
    )


def _size(options: argparse.Namespace, sized: Sized) -> float | None:
    """s: what is written, else from the card that is named, else from that of the manifest."""
    if options.bytes_per_token is not None:
        if options.model_card is not None:
            raise UsageError("--bytes-per-token and --model-card: give one of the two")
        _positive(options, "bytes_per_token")
        return float(options.bytes_per_token)
    shape = card(sized.model_name) if options.model_card is None else _shape(options.model_card)
    if shape is None:
        return None
    drafts = options.draft_layers
    if drafts is None:
        drafts = shape.draft_layers if sized.speculates else 0
    if not 0 <= drafts <= _MOST_DRAFTS:
        raise UsageError(f"--draft-layers: must be from 0 to {_MOST_DRAFTS}")
    named = options.kv_dtype or sized.kv_dtype
    dtype = KvDtype(named) if named else None
    ranks = sized.kv_ranks
    if 0 < shape.kv_heads < ranks:
        note(f"{shape.kv_heads} KV heads on {ranks} tensor ranks: ranks hold, and store, copies")
    return float(bytes_per_token(shape, dtype, draft_layers=drafts, ranks=ranks))


def _shape(name: str) -> Shape:
    if readable(name) or Path(name).is_file():
        return _from_file(Path(name).expanduser())
    found = card(name)
    if found is None:
        close = similar(name)
        meant = f"did you mean {', '.join(close)}? " if close else ""
        raise UsageError(
            f"--model-card {name}: no such card; {meant}--list-model-cards prints all of them, a "
            "path to a config.json or --bytes-per-token will do as well"
        )
    return found


def _from_file(path: Path) -> Shape:
    try:
        if path.is_dir():
            path = path / "config.json"
        with path.open("rb") as file:
            text = file.read(_LARGEST + 1)
        if len(text) > _LARGEST:
            raise UsageError(f"--model-card {path}: is too large for a config.json")
        return shape_of(json.loads(text))
    except OSError as error:
        raise UsageError(f"--model-card {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        what = str(error) if isinstance(error, ConfigError) else "is no JSON"
        raise UsageError(
            f"--model-card {path}: {what}; give a model's config.json, or --bytes-per-token"
        ) from error
