"""The quickstart told: real engines on CPU, a completion, and the same answer from the tier."""

from __future__ import annotations

from demo import narrate, replaced
from stack.client import Answer, Client, prompt
from stack.install import REPO, image
from stack.kubectl import Kubectl, NotInTimeError, is_true, wait_for
from stack.serving import require_hope

NAME = "quickstart"
MANIFEST = REPO / "examples" / "quickstart.yaml"
TOKENS = 1000
NOISE = "random weights: the text is noise; what counts is that it is the same twice"


def pods_by_address(kubectl: Kubectl) -> dict[str, str]:
    """Pod name by pod address."""
    return {pod["status"].get("podIP", ""): pod["metadata"]["name"] for pod in kubectl.list("pods")}


def tell(kubectl: Kubectl, answer: Answer, about_text: str = "") -> None:
    """Print a completion and who served it; a failed one ends the demo."""
    if answer.status != 200:
        raise RuntimeError(f"the completion failed with HTTP {answer.status}: {answer.raw}")
    names = pods_by_address(kubectl)
    served = " -> ".join(names.get(address, address) for address in answer.served_by)
    narrate.say(f"HTTP 200 in {answer.seconds} s, served by {served or 'one pod'}")
    usage = answer.usage
    narrate.say(
        f"{usage.get('prompt_tokens')} prompt + {usage.get('completion_tokens')} new tokens"
    )
    narrate.say(f"text {answer.text!r}")
    if about_text:
        narrate.say(f"({about_text})")


def wait_ready(kubectl: Kubectl, name: str, timeout: float = 400) -> None:
    """Wait for Ready=True of the current generation, with progress.

    Raises at once when the object was deleted or its spec is refused: it was edited by hand.
    """

    def ready() -> bool:
        obj = kubectl.get("kvserving", name)
        require_hope(obj, name, f"{narrate.command(kubectl)} delete kvs {name}")
        return is_true(obj, "Ready")

    try:
        wait_for(
            f"KVServing {name} Ready",
            ready,
            timeout=timeout,
            progress=narrate.progress(kubectl, name),
        )
    except NotInTimeError:
        narrate.status(kubectl)  # which condition and which pod it is that waits
        raise
    narrate.say("Ready=True")


def run(kubectl: Kubectl) -> str:
    """Apply, complete, replace, complete again; raise when an answer is not what it must be.

    Returns what was shown, for the verdict.
    """
    narrate.step("kubectl apply -f examples/quickstart.yaml")
    kubectl.apply_file(str(MANIFEST))
    wait_ready(kubectl, NAME)
    client = Client.create(kubectl, image("operator"))
    url = f"http://{NAME}.{kubectl.namespace}.svc.cluster.local"

    narrate.step("A completion: router -> prefill -> decode (KV over NIXL)")
    question = prompt(7, TOKENS)
    first = client.complete(url, question, model="tiny")
    tell(kubectl, first, NOISE)

    narrate.step("The prefill pod is replaced: its memory is gone, Valkey's is not")
    again, hit = replaced.show(
        kubectl,
        NAME,
        first,
        lambda: client.complete(url, question, model="tiny"),
        lambda: wait_ready(kubectl, NAME),
    )
    tell(kubectl, again)
    return (
        "a completion through router, prefill and decode; after the prefill pod was replaced the "
        f"same text again, {hit:.0f} of {TOKENS} prompt tokens out of Valkey"
    )
