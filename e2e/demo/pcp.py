"""The shape of context-parallel prefill, told with engine-sim (a simulation) and W = 4 ranks."""

from __future__ import annotations

from demo import narrate, replaced
from demo.quickstart import tell, wait_ready
from stack.client import Client, prompt
from stack.install import REPO, image
from stack.kubectl import Kubectl
from stack.serving import tier

NAME = "quickstart-pcp"
MANIFEST = REPO / "examples" / "quickstart-pcp.yaml"
SIMULATED = "no weights at all: the text is computed from the KV that was loaded or computed"


def run(kubectl: Kubectl) -> str:
    """Apply and complete once; returns what was shown, for the verdict."""
    narrate.step(
        "kubectl apply -f examples/quickstart-pcp.yaml  "
        "(engine-sim, a simulation; W = 4: four ranks share one prompt)"
    )
    kubectl.apply_file(str(MANIFEST))
    wait_ready(kubectl, NAME)
    client = Client.create(kubectl, image("operator"))
    url = f"http://{NAME}.{kubectl.namespace}.svc.cluster.local"
    question = prompt(11, 1000)
    first = client.complete(url, question, model="sim")
    tell(kubectl, first, SIMULATED)
    status = (kubectl.get("kvserving", NAME) or {}).get("status") or {}
    if status.get("kvShards") == 1:
        narrate.say("the KV of a prompt is one part (1 shard): every rank holds all of it")
    else:
        narrate.say(f"the KV of a prompt is split into {status.get('kvShards')} shards")
    narrate.say(tier(status))

    narrate.step("Its prefill pod is replaced: each rank finds its share on a Valkey of its own")
    _, hit = replaced.show(
        kubectl,
        NAME,
        first,
        lambda: client.complete(url, question, model="sim"),
        lambda: wait_ready(kubectl, NAME),
    )
    return (
        "a completion with four ranks on one prompt (simulated), and again after its prefill pod "
        f"was replaced: {hit:.0f} prompt tokens out of four Valkeys"
    )
