"""``kvserving replay``: a trace against a live server, with the keys of ``simulate``."""

import argparse
import asyncio
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from kvserving_operator.cli import outcomes
from kvserving_operator.cli.errors import UsageError
from kvserving_operator.cli.openai import Answer
from kvserving_operator.cli.output import note, say
from kvserving_operator.cli.plan_options import parser_of
from kvserving_operator.cli.progress import Bar
from kvserving_operator.cli.replaying import Replay, Target, replay
from kvserving_operator.cli.scrapes import Seen, seen
from kvserving_operator.cli.traces import read_trace, write_lines
from kvserving_operator.simulation.results import Outcome, document
from kvserving_operator.simulation.trace import Request
from kvserving_operator.sizing import units

NAME = "replay"
SUMMARY = "send a trace to a live server and say what its requests saw"
DESCRIPTION = """\
Open loop: each request of the trace is sent at its offset, however slowly others are answered.
Completions are streamed (OpenAI API). Where the trace has no text, words stand for its tokens; how
many tokens the server makes of them is measured first. What came from which cache is read from the
prefill engines' /metrics; without --metrics it is unknown. The exit status is 1 when a request
failed. Ctrl-C ends the sending: what was sent until then is waited for and reported.
"""
EXAMPLES = """\
examples:
  kvserving replay --trace t.jsonl --url http://glm.serving
  kvserving replay --trace t.jsonl --url http://host:8000 --metrics http://host:8000 -o json
"""
_LATE = 0.05
"""Seconds behind its time from which a request says that this machine was too slow."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of this command."""
    parser.add_argument("--trace", required=True, metavar="FILE", help="requests, one a line")
    parser.add_argument("--url", required=True, help="the server: http://HOST:PORT, without /v1")
    parser.add_argument(
        "--metrics",
        action="append",
        default=[],
        metavar="URL",
        help="a prefill engine, with or without /metrics; once for each",
    )
    parser.add_argument("--model", help="default: the first that the server names")
    parser.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="default: text"
    )
    parser.add_argument("--requests-out", metavar="FILE", help="write one line for each request")
    parser.add_argument(
        "--timeout", type=float, default=600.0, metavar="SECONDS", help="of a request; default: 600"
    )
    parser.add_argument(
        "--tokens-per-second",
        type=parser_of(units.count),
        metavar="R",
        help="of a prefill engine, 52.2k: tells gpuUtilization where no page has a gauge of it",
    )
    parser.add_argument(
        "--chunk-tokens", type=int, default=256, metavar="N", help="of the tier; default: 256"
    )
    parser.add_argument(
        "--api-key-env", metavar="VARIABLE", help="variable that holds a bearer token to send"
    )
    parser.add_argument(
        "--plain",
        action="store_true",
        help="leave out ignore_eos, which not every server knows: answers may be shorter",
    )


def run(options: argparse.Namespace) -> int:
    """Replay once; the exit status."""
    for flag, url in (("--url", options.url), *(("--metrics", url) for url in options.metrics)):
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"{flag} {url}: write it with its scheme: http://{url}")
    requests = read_trace(options.trace)
    target = Target(
        url=options.url,
        metrics=options.metrics,
        model=options.model,
        headers=_authorization(options.api_key_env),
        extra={} if options.plain else {"ignore_eos": True},
        timeout=options.timeout,
    )
    with Bar("replaying") as bar:
        done = asyncio.run(replay(requests, target, bar))
    told = seen(
        done.engines,
        done.seconds,
        chunk_tokens=options.chunk_tokens,
        rate=options.tokens_per_second,
    )
    if options.requests_out:
        write_lines(options.requests_out, [answer.record() for answer in done.answers])
    result = document(_outcome(done, told))
    _notes(requests, done, told)
    if options.output == "json":
        say(json.dumps(result, indent=2))
    else:
        for line in outcomes.text(result):
            say(line)
    return 1 if result["errors"] else 0


def _outcome(done: Replay, told: Seen) -> Outcome:
    good = [answer for answer in done.answers if answer.error is None]
    return Outcome(
        ttft=[answer.ttft for answer in good if answer.ttft is not None],
        from_remote_share=told.remote_share,
        gpu_utilization=told.gpu_utilization,
        timeouts=told.late_lookups,
        errors=len(done.answers) - len(good),
        tokens=sum((a.prompt_tokens or 0) + (a.output_tokens or 0) for a in good),
        seconds=done.seconds,
    )


def _notes(requests: Sequence[Request], done: Replay, told: Seen) -> None:
    """What a reader of the numbers should know, on standard error."""
    if len(done.answers) < len(requests):
        note(f"interrupted: {len(done.answers):,} of {len(requests):,} requests were sent")
    sent = zip(requests, done.answers, strict=False)
    good = [(r, a) for r, a in sent if a.prompt_tokens]
    if good:
        wanted = sum(request.prompt_tokens for request, _ in good)
        got = sum(answer.prompt_tokens or 0 for _, answer in good)
        note(
            f"prompts: {got:,} tokens, the trace has {wanted:,} ({got / wanted - 1:+.1%}); "
            f"{done.measure.each:.3f} tokens a word"
        )
    if told.cached_tokens is not None and told.prompt_tokens:
        share = told.cached_tokens / told.prompt_tokens
        note(f"cached: {told.cached_tokens:,.0f} of {told.prompt_tokens:,.0f} tokens ({share:.1%})")
    if done.late > _LATE:
        note(f"a request was sent {done.late:.3f} s late: this machine was too busy for the trace")
    for error, count in _errors(done.answers).most_common(3):
        note(f"{count} times: {error}")


def _errors(answers: Sequence[Answer]) -> Counter[str]:
    return Counter(answer.error for answer in answers if answer.error)


def _authorization(variable: str | None) -> Mapping[str, str]:
    if variable is None:
        return {}
    token: Any = os.environ.get(variable)
    if not token:
        raise UsageError(f"--api-key-env {variable}: the variable is not set")
    return {"authorization": f"Bearer {token}"}
