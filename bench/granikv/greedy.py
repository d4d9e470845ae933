"""Greedy answers of two engines, and what every place where they part says.

A divergence is explained by numbers alone: how far apart the two tokens were in the stock engine,
in ours, and in float32 without any cache (`tiny_model.Reference`); how our step computed it; and,
after the stock engine's token is forced, whether the rest of the answer is the same.
"""

import json
import threading
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from granikv.measure.server import Server
from tiny_model import Reference

TIE = 0.1  # two tokens nearer than this in log-probability may swap: bf16 logits step by 0.06
FAR = 0.2  # from float32; the stock engine's own log-probabilities are off by as much
TOP = 6


@dataclass(frozen=True, slots=True)
class Answer:
    """Tokens of one request, and the best few log-probabilities at each of them."""

    rid: str
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    top: tuple[dict[int, float], ...]

    def gap(self, at: int, other: int) -> float | None:
        """Log-probability of the chosen token at `at` minus that of `other`, if it was near."""
        near = self.top[at].get(other)
        return None if near is None else self.top[at][self.tokens[at]] - near


def ask(server: Server, prompt: Sequence[int], output: int, rid: str) -> Answer:
    """One greedy request; an aborted one comes back short."""
    sampling = {"max_new_tokens": output, "temperature": 0, "ignore_eos": True}
    body = {
        "input_ids": list(prompt), "sampling_params": sampling, "return_logprob": True,
        "top_logprobs_num": TOP, "rid": rid,
    }  # fmt: skip
    meta = server.post("/generate", json.dumps(body).encode())["meta_info"]
    found, top = meta["output_token_logprobs"], meta["output_top_logprobs"]
    return Answer(
        rid, tuple(prompt), tuple(t[1] for t in found),
        tuple(
            {one[1]: one[0] for one in best} | {t[1]: t[0]}
            for best, t in zip(top, found, strict=True)
        ),
    )  # fmt: skip


def together(
    server: Server, prompts: Sequence[Sequence[int]], output: int | Sequence[int], label: str
) -> list[Answer]:
    """All prompts at once."""
    lengths = [output] * len(prompts) if isinstance(output, int) else list(output)
    found: dict[int, Answer] = {}

    def one(i: int) -> None:
        found[i] = ask(server, prompts[i], lengths[i], f"{label}/{i}")

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[i] for i in range(len(prompts))]


def parting(a: Sequence[int], b: Sequence[int]) -> int | None:
    """First index at which two equally long answers differ."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), None)


class Errors:
    """How far an engine's log-probability of its own token was from float32, over all tokens."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        self._seen: dict[tuple[tuple[int, ...], tuple[int, ...]], Any] = {}
        self.by_engine: dict[str, list[float]] = {}
        self.worst: dict[str, tuple[float, str, int]] = {}

    def logprobs(self, answer: Answer) -> Any:
        """Float32 log-probabilities [tokens, vocabulary] along an answer."""
        key = (answer.prompt, answer.tokens)
        if key not in self._seen:
            ids = (*answer.prompt, *answer.tokens[:-1])
            self._seen[key] = self._reference.logprobs(ids, len(answer.tokens)).cpu().numpy()
        return self._seen[key]

    def add(self, engine: str, answers: Iterable[Answer]) -> None:
        """Take in every token of these answers."""
        for answer in answers:
            true = self.logprobs(answer)
            for i, token in enumerate(answer.tokens):
                error = abs(answer.top[i][token] - float(true[i, token]))
                self.by_engine.setdefault(engine, []).append(error)
                if error > self.worst.get(engine, (-1.0, "", 0))[0]:
                    self.worst[engine] = (error, answer.rid, i)

    def summary(self) -> dict[str, dict[str, Any]]:
        """By engine: tokens seen, root mean square, 99.9th percentile, and the worst with where."""
        return {
            engine: {
                "tokens": len(errors), "rms": round(float(np.sqrt(np.mean(np.square(errors)))), 5),
                "p999": round(float(np.quantile(errors, 0.999)), 4),
                "max": round(self.worst[engine][0], 4), "maxAt": self.worst[engine][1:],
            }
            for engine, errors in self.by_engine.items()
        }  # fmt: skip


@dataclass(slots=True)
class Divergence:
    """One place where two answers part.  Gaps: stock's token over ours, log-probabilities."""

    stage: str
    rid: str
    at: int
    stock_gap: float
    our_gap: float | None  # how far ours preferred its own; None: stock's token was not near
    true_gap: float  # float32; negative: float32 prefers our token
    how: dict[str, Any] = field(default_factory=dict)  # of our step, from the journal

    @property
    def verdict(self) -> str:
        """`tie` in both; `rounding`: wider, but ours within FAR of float32; else `different`."""
        if self.our_gap is None or self.our_gap < 0.0:  # not near, or ours did not take its best
            return "different"
        if self.stock_gap < TIE and self.our_gap < TIE:
            return "tie"
        return "rounding" if self.our_error < FAR else "different"

    @property
    def stock_error(self) -> float:
        """How far the stock engine's gap was from float32."""
        return abs(self.stock_gap - self.true_gap)

    @property
    def our_error(self) -> float:
        """How far ours was."""
        return abs(-(self.our_gap or 0.0) - self.true_gap)

    def row(self) -> dict[str, Any]:
        """For the report."""
        row = asdict(self) | {
            "verdict": self.verdict, "stock_error": self.stock_error, "our_error": self.our_error,
        }  # fmt: skip
        return {k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}


@dataclass
class Comparison:
    """Stock against one of our servers, over all stages."""

    stock: Server
    ours: Server
    errors: Errors
    journal: Path
    divergences: list[Divergence] = field(default_factory=list)

    def stage(self, name: str, want: Sequence[Answer], got: Sequence[Answer]) -> dict[str, int]:
        """Count equal answers and verdicts; force stock's token where they part, and go on."""
        self.errors.add(self.ours.name, got)
        count = {"equal": 0, "tie": 0, "rounding": 0, "different": 0, "forced equal": 0}
        open_ends: list[tuple[Answer, int]] = []
        for a, b in zip(want, got, strict=True):
            if len(a.tokens) != len(b.tokens):
                count["different"] += 1
            elif (at := parting(a.tokens, b.tokens)) is None:
                count["equal"] += 1
            else:
                count[self._note(name, a, b, at)] += 1
                open_ends.append((a, at + 1))
        self._force(name, open_ends, count)
        return count

    def _force(self, name: str, ends: list[tuple[Answer, int]], count: dict[str, int]) -> None:
        """Continue behind stock's token; each round begins where the last one parted."""
        for round_ in range(8):
            ends = [(a, i) for a, i in ends if i < len(a.tokens)]
            if not ends:
                return
            got = together(
                self.ours, [(*a.prompt, *a.tokens[:i]) for a, i in ends],
                [len(a.tokens) - i for a, i in ends], f"{name}/forced {round_}",
            )  # fmt: skip
            self.errors.add(self.ours.name, got)
            further = []
            for (a, i), b in zip(ends, got, strict=True):
                rest = Answer(a.rid, (*a.prompt, *a.tokens[:i]), a.tokens[i:], a.top[i:])
                at = parting(rest.tokens, b.tokens)
                if at is None:
                    count["forced equal"] += 1
                elif self._note(name, rest, b, at) == "different":
                    count["different"] += 1
                else:
                    further.append((a, i + at + 1))
            ends = further

    def _note(self, stage: str, want: Answer, got: Answer, at: int) -> str:
        ours, theirs = got.tokens[at], want.tokens[at]
        true = self.errors.logprobs(want)[at]
        stock_gap = want.gap(at, ours)
        found = Divergence(
            stage, got.rid, at, 99.0 if stock_gap is None else stock_gap, got.gap(at, theirs),
            float(true[theirs] - true[ours]),
        )  # fmt: skip
        self.divergences.append(found)
        return found.verdict

    def explain(self) -> None:
        """Add to each divergence how our step computed it."""
        if not self.journal.is_file():
            return
        wanted = {d.rid: d for d in self.divergences}
        seen: dict[str, int] = {}
        epochs: dict[str, int] = {}
        for text in self.journal.read_text().splitlines():
            line = json.loads(text)
            for rid, way in zip(line["rids"], line["ways"], strict=True):
                if rid not in wanted:
                    continue
                seen[rid] = seen.get(rid, 0) + 1
                found = wanted[rid]
                if seen[rid] == found.at:
                    keys = ("planned", "graph", "percent", "moving", "epoch")
                    found.how = {k: line[k] for k in keys} | {
                        "way": way,
                        "batch": len(line["rids"]),
                    }
                    found.how["epochsSinceStart"] = line["epoch"] - epochs.get(rid, line["epoch"])
                epochs.setdefault(rid, line["epoch"])
        for found in self.divergences:
            if found.at == 0:
                found.how = {"way": "prefill (the engine's own kernel)"}
