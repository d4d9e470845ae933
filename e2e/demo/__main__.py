"""Usage: python -m demo up|down."""

from __future__ import annotations

import argparse
import sys

from demo import narrate, pcp, quickstart
from stack.install import attach, bring_up, cluster
from stack.kubectl import KubectlError, NotInTimeError

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
    try:
        attach().namespace(NAMESPACE).run(
            "delete", "namespace", NAMESPACE, "--ignore-not-found", timeout=120
        )
    except Exception as error:  # noqa: BLE001  a cluster that is half there must still be taken away
        narrate.say(f"(namespace {NAMESPACE} was not deleted first: {error})")
    cluster("down")


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


sys.exit(main())
