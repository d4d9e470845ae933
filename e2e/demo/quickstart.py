"""The quickstart told: real engines on CPU, a completion, and the same answer from the tier."""

from __future__ import annotations

from demo import narrate
from stack import pods
from stack.client import Answer, Client, engine_metrics, prompt
from stack.install import REPO, image
from stack.kubectl import Kubectl, NotInTimeError, is_true, wait_for

NAME = "quickstart"
MANIFEST = REPO / "examples" / "quickstart.yaml"
HITS = "vllm:external_prefix_cache_hits_total"
TOKENS = 1000


def pods_by_address(kubectl: Kubectl) -> dict[str, str]:
    """Pod name by pod address."""
    return {pod["status"].get("podIP", ""): pod["metadata"]["name"] for pod in kubectl.list("pods")}


def tell(kubectl: Kubectl, answer: Answer) -> None:
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


def wait_ready(kubectl: Kubectl, name: str, timeout: float = 400) -> None:
    """Wait for Ready=True of the current generation, with progress."""
    try:
        wait_for(
            f"KVServing {name} Ready",
            lambda: is_true(kubectl.get("kvserving", name), "Ready"),
            timeout=timeout,
            progress=narrate.progress(kubectl, name),
        )
    except NotInTimeError:
        narrate.status(kubectl)  # which condition and which pod it is that waits
        raise
    narrate.say("Ready=True")


def run(kubectl: Kubectl) -> None:
    """Apply, complete, replace, complete again; raise when an answer is not what it must be."""
    narrate.step("kubectl apply -f examples/quickstart.yaml")
    kubectl.apply_file(str(MANIFEST))
    wait_ready(kubectl, NAME)
    client = Client.create(kubectl, image("operator"))
    url = f"http://{NAME}.{kubectl.namespace}.svc.cluster.local"

    narrate.step("A completion: router -> prefill -> decode (KV over NIXL)")
    question = prompt(7, TOKENS)
    first = client.complete(url, question, model="tiny")
    tell(kubectl, first)

    narrate.step("The prefill pod is replaced: its memory is gone, Valkey's is not")
    pod = f"{NAME}-prefill-0"
    pods.replace(kubectl, pod, progress=narrate.progress(kubectl, NAME))
    wait_ready(kubectl, NAME)
    before = engine_metrics(kubectl, pod).get(HITS, 0.0)
    again = wait_for(
        "an answer after the replacement", lambda: served(client, url, question), timeout=60
    )
    tell(kubectl, again)
    hit = engine_metrics(kubectl, pod).get(HITS, 0.0) - before
    same = again.text == first.text
    narrate.say(f"{pod}: {hit:.0f} of {TOKENS} prompt tokens came from Valkey; same text: {same}")
    if hit <= 0 or not same:
        raise RuntimeError(
            "the second answer did not come from the remote tier, or its text differs"
        )


def served(client: Client, url: str, question: str) -> Answer | None:
    """The answer, or None while the router has not taken the new pod in yet."""
    answer = client.complete(url, question, model="tiny")
    return answer if answer.status == 200 else None
