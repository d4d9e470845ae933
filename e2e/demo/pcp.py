"""The shape of context-parallel prefill, told with engine-sim (a simulation) and W = 4 ranks."""

from __future__ import annotations

from demo import narrate
from demo.quickstart import tell, wait_ready
from stack.client import Client, prompt
from stack.install import REPO, image
from stack.kubectl import Kubectl

NAME = "quickstart-pcp"
MANIFEST = REPO / "examples" / "quickstart-pcp.yaml"


def run(kubectl: Kubectl) -> None:
    """Apply and complete once."""
    narrate.step("kubectl apply -f examples/quickstart-pcp.yaml  (engine-sim: a simulation, W = 4)")
    kubectl.apply_file(str(MANIFEST))
    wait_ready(kubectl, NAME)
    client = Client.create(kubectl, image("operator"))
    url = f"http://{NAME}.{kubectl.namespace}.svc.cluster.local"
    tell(kubectl, client.complete(url, prompt(11, 1000), model="sim"))
    obj = kubectl.get("kvserving", NAME) or {}
    narrate.say(f"KV shards {obj['status'].get('kvShards')}, tier {obj['status'].get('tier')}")
