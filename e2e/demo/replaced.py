"""A prompt that outlives the engine that computed it: asked again after that was replaced."""

from __future__ import annotations

from collections.abc import Callable

from demo import narrate
from stack import pods, valkey
from stack.client import Answer, engine_metrics
from stack.kubectl import Kubectl, wait_for

HITS = "vllm:external_prefix_cache_hits_total"


def show(
    kubectl: Kubectl, name: str, first: Answer, ask: Callable[[], Answer], ready: Callable[[], None]
) -> tuple[Answer, float]:
    """Replace the prefill pod, ask again, tell who served how much; the answer and the hit tokens.

    Raises RuntimeError when nothing came from the tier or the text is another.
    """
    pod = f"{name}-prefill-0"
    pods.replace(kubectl, pod, progress=narrate.progress(kubectl, name))
    ready()
    served = valkey.instances(kubectl, name)
    before = engine_metrics(kubectl, pod).get(HITS, 0.0)
    again = wait_for("an answer after the replacement", lambda: _served(ask()), timeout=60)
    hit = engine_metrics(kubectl, pod).get(HITS, 0.0) - before
    same = again.text == first.text
    tokens = again.usage.get("prompt_tokens")
    narrate.say(f"{pod}: {hit:.0f} of {tokens} prompt tokens came from Valkey")
    narrate.say("the same text as before" if same else "not the text of before")
    for line in valkey.table(valkey.since(kubectl, name, served)):
        narrate.say(line)
    if hit <= 0 or not same:
        raise RuntimeError(
            "the second answer did not come from the remote tier, or its text differs"
        )
    return again, hit


def _served(answer: Answer) -> Answer | None:
    """The answer, or None while the router has not taken the new pod in yet."""
    return answer if answer.status == 200 else None
