"""The story of the demo: two stacks, a completion of each, and the same again from their tiers.

Both start, and both prefill pods are replaced, at the same time: two cores wait less that way.
"""

from __future__ import annotations

from demo import narrate
from demo.shown import PCP, QUICKSTART, TOKENS, Shown, wait_ready
from stack import pods
from stack.client import Client
from stack.install import image
from stack.kubectl import Kubectl

STACKS: tuple[Shown, ...] = (QUICKSTART, PCP)


def run(kubectl: Kubectl) -> str:
    """Apply, complete, replace, complete again; raise when an answer is not what it must be.

    Returns what was shown, for the verdict.
    """
    narrate.step("kubectl apply -f examples/quickstart.yaml -f examples/quickstart-pcp.yaml")
    narrate.say("quickstart: real vLLM on CPU; one prefill rank, so one Valkey")
    narrate.say("quickstart-pcp: engine-sim, a simulation; four ranks share one prompt, W = 4")
    for stack in STACKS:
        kubectl.apply_file(str(stack.manifest))
    client = Client.create(kubectl, image("operator"))
    for stack in STACKS:
        wait_ready(kubectl, stack.name)

    narrate.step("A completion of each: router -> prefill -> decode (KV over NIXL)")
    first = {stack.name: stack.complete(client) for stack in STACKS}

    narrate.step("The prefill pods are replaced: their memory is gone, the Valkeys' is not")
    old = {stack.name: pods.remove(kubectl, stack.prefill) for stack in STACKS}
    for stack in STACKS:
        stack.await_successor(kubectl, old[stack.name])

    narrate.step("The same prompts again: each rank finds its share on a Valkey of its own")
    hits = {stack.name: stack.complete_again(client, first[stack.name]) for stack in STACKS}
    return (
        "completions through router, prefill and decode, of real engines and of four simulated "
        "ranks; after the prefill pods were replaced the same texts again, "
        f"{hits[QUICKSTART.name]:.0f} and {hits[PCP.name]:.0f} of {TOKENS} prompt tokens out of "
        "one and four Valkeys"
    )
