"""Usage: python -m demo up|down."""

from __future__ import annotations

import argparse
import sys

from cluster.settings import cache_dir, cluster_kind
from demo import narrate, story
from stack.install import RELEASE, SYSTEM_NAMESPACE, Testbed, attach, bring_up, cluster
from stack.kubectl import KubectlError, NotInTimeError
from stack.lock import hold
from stack.pods import delete_namespace

NAMESPACE = "kvserving-demo"
NOT_RUNNING = "no demo is running"


def up() -> None:
    narrate.step("A Kubernetes cluster and the images")
    testbed = bring_up()
    narrate.step("The operator, by its Helm chart")
    testbed.install_chart()
    narrate.say("installed in namespace kvserving-system")
    kubectl = testbed.namespace(NAMESPACE)
    shown = story.run(kubectl)
    narrate.status(kubectl)
    narrate.look_further(kubectl, goes())
    narrate.verdict(shown)


def goes() -> str:
    """What `make demo-down` takes away, and what not."""
    if cluster_kind() == "current":
        return "the objects go, your cluster and the operator stay"
    return f"the cluster goes, the cache stays ({cache_dir()})"


def down() -> None:
    """Take the objects away as a user would, telling what still runs, then the cluster."""
    narrate.step(f"Delete namespace {NAMESPACE}")
    if (testbed := find()) is not None:
        delete(testbed)
    narrate.step("Take the cluster away")
    cluster("down")
    if cluster_kind() == "current":
        narrate.say(f"the operator stays: helm uninstall {RELEASE} -n {SYSTEM_NAMESPACE}")
        return
    narrate.say(f"{cache_dir()} stays: programs and images that the next demo need not build")
    narrate.say(
        "to remove it too: .venv/bin/python -m cluster down --purge (the cluster's copy of the "
        f"images, and logs), then rm -r {cache_dir()}"
    )


def find() -> Testbed | None:
    """The cluster, or None, told, when there is none or it cannot be had."""
    try:
        return attach()
    except RuntimeError as error:
        # Programs and kubeconfig of the embedded cluster go with it: there is none.
        narrate.say(NOT_RUNNING if cluster_kind() == "embedded" else f"not deleted: {error}")
        return None


def delete(testbed: Testbed) -> None:
    """Delete the namespace, or say why not: half a cluster must be taken away too."""
    kubectl = testbed.kubectl.within(NAMESPACE)
    thrown_away = cluster_kind() != "current"
    try:
        if kubectl.get("namespace", NAMESPACE) is None:
            narrate.say(f"{NOT_RUNNING} in this cluster")
            return
        delete_namespace(kubectl, narrate.say, only_pods=thrown_away)
    except (KubectlError, NotInTimeError) as error:
        narrate.say(f"not deleted: {error}")
    else:
        narrate.say("its pods are gone, the rest goes with the cluster" if thrown_away else "gone")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument("command", choices=("up", "down"))
    command = parser.parse_args().command
    try:
        with hold(cache_dir() / "demo.lock", "make demo" if command == "up" else "make demo-down"):
            up() if command == "up" else down()
    except RuntimeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
