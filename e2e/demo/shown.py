"""One object of the demo: applied, asked, its prefill pod replaced, and asked the same again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from demo import narrate
from stack import pods, valkey
from stack.client import Answer, Client, engine_metrics, prompt
from stack.install import REPO
from stack.kubectl import Kubectl, NotInTimeError, Object, is_true, wait_for
from stack.serving import require_hope

HITS = "vllm:external_prefix_cache_hits_total"
TOKENS = 1000


@dataclass(frozen=True)
class Shown:
    """An object of examples/ with the model it serves, and what its text is worth."""

    name: str
    model: str
    seed: int
    about_text: str

    @property
    def manifest(self) -> Path:
        """Its file."""
        return REPO / "examples" / f"{self.name}.yaml"

    @property
    def prefill(self) -> str:
        """Name of its prefill pod."""
        return f"{self.name}-prefill-0"

    def ask(self, client: Client) -> Answer:
        """One completion of the prompt, which is the same each time."""
        url = f"http://{self.name}.{client.kubectl.namespace}.svc.cluster.local"
        return client.complete(url, prompt(self.seed, TOKENS), model=self.model)

    def complete(self, client: Client) -> Answer:
        """A completion, told; raises RuntimeError when it fails."""
        answer = self.ask(client)
        tell(client.kubectl, answer, self.about_text)
        return answer

    def await_successor(self, kubectl: Kubectl, old: Object) -> None:
        """Wait for another prefill pod than the one that was removed."""
        progress = narrate.progress(kubectl, self.name)
        pods.await_successor(kubectl, old, progress=progress)
        wait_ready(kubectl, self.name)

    def complete_again(self, client: Client, first: Answer) -> float:
        """The same completion out of the tier, told; the tokens that came from there.

        Raises RuntimeError when nothing came from the tier or the text is another.
        """
        kubectl = client.kubectl
        served = valkey.instances(kubectl, self.name)
        before = engine_metrics(kubectl, self.prefill).get(HITS, 0.0)
        again = wait_for(
            f"an answer of {self.name} after the replacement",
            # The router has perhaps not taken the new pod in yet.
            lambda: answer if (answer := self.ask(client)).status == 200 else None,
            timeout=60,
        )
        tell(kubectl, again)
        hit = engine_metrics(kubectl, self.prefill).get(HITS, 0.0) - before
        same = again.text == first.text
        narrate.say(f"{self.prefill}: {hit:.0f} of {TOKENS} prompt tokens came from Valkey")
        narrate.say("the same text as before" if same else "not the text of before")
        for line in valkey.table(valkey.since(kubectl, self.name, served)):
            narrate.say(line)
        if hit <= 0 or not same:
            raise RuntimeError(
                f"the second answer of {self.name} did not come from the remote tier, or its text "
                "differs"
            )
        return hit


QUICKSTART = Shown(
    name="quickstart",
    model="tiny",
    seed=7,
    about_text="random weights: the text is noise; what counts is that it is the same twice",
)
PCP = Shown(
    name="quickstart-pcp",
    model="sim",
    seed=11,
    about_text="no weights at all: the text is computed from the KV that was loaded or computed",
)


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
    narrate.say(f"{name}: Ready=True")
