"""Usage: python -m demo up|down."""

from __future__ import annotations

import argparse
import os
import sys

from demo import narrate, pcp, quickstart
from stack.install import RELEASE, SYSTEM_NAMESPACE, attach, bring_up, cluster
from stack.kubectl import KubectlError, NotInTimeError
from stack.pods import delete_namespace

NAMESPACE = "kvserving-demo"


def up() -> None:
    narrate.step("A Kubernetes cluster and the images")
    testbed = bring_up()
    narrate.step("The operator, by its Helm chart")
    testbed.install_chart()
    narrate.say("installed in namespace kvserving-system")
    kubectl = testbed.namespace(NAMESPACE)
    quickstart.run(kubectl)
    pcp.run(kubectl)
    narrate.status(kubectl)
    narrate.look_further(kubectl)


def down() -> None:
    """Take the objects away as a user would, telling what still runs, then the cluster."""
    narrate.step(f"Delete namespace {NAMESPACE}")
    try:
        delete_namespace(attach().kubectl.within(NAMESPACE), narrate.say)
    except (KubectlError, NotInTimeError, RuntimeError) as error:
        # A cluster that is half there, or none, must still be taken away.
        narrate.say(f"not deleted: {error}")
    else:
        narrate.say("deleted")
    narrate.step("Take the cluster away")
    cluster("down")
    if os.environ.get("CLUSTER") == "current":
        narrate.say(f"the operator stays: helm uninstall {RELEASE} -n {SYSTEM_NAMESPACE}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument("command", choices=("up", "down"))
    command = parser.parse_args().command
    try:
        up() if command == "up" else down()
    except (KubectlError, NotInTimeError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
