"""Bring up what a user would: a cluster, the images in it, the operator's chart. Idempotent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

from cluster import containerd
from stack.kubectl import Kubectl

REPO = Path(__file__).resolve().parents[2]
CHART = REPO / "charts" / "kvserving-operator"
SYSTEM_NAMESPACE = "kvserving-system"
RELEASE = "kvserving"
REGISTRY = "localhost/kvserving"
IMAGES = ("operator", "router", "valkey", "engine-cpu", "engine-sim")


def image(name: str, tag: str = "dev") -> str:
    """The name under which the embedded cluster knows an image of ours."""
    return f"{REGISTRY}/{name}:{tag}"


def name_image(name: str, tag: str) -> None:
    """Give an image of ours on the embedded cluster's node one more tag."""
    containerd.ctr("images", "tag", "--force", image(name), image(name, tag))


@dataclass(frozen=True)
class Testbed:
    """A running cluster with the images loaded: where its programs and its kubeconfig are."""

    __test__ = False  # for pytest: no test class

    kubectl: Kubectl
    helm: str
    #: What the operator's image was built from, "" when that was not looked at.
    operator_build: str = ""
    #: The namespaces that were made for tests, in order.
    made: list[str] = field(default_factory=list, compare=False)

    def namespace(self, name: str) -> Kubectl:
        """A kubectl for a namespace under Pod Security `restricted`, created when absent."""
        self.kubectl.apply(
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {
                    "name": name,
                    "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
                },
            }
        )
        self.made.append(name)
        return self.kubectl.within(name)

    def run_helm(self, *args: str, timeout: float = 300) -> str:
        """Run helm against this cluster."""
        try:
            done = subprocess.run(
                [self.helm, "--kubeconfig", self.kubectl.kubeconfig, *args],
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(f"helm {' '.join(args)}: no end in {timeout:.0f} s") from error
        if done.returncode:
            raise RuntimeError(f"helm {' '.join(args)}: {done.stderr.strip()}")
        return done.stdout

    def install_chart(self, chart: Path = CHART, **values: str) -> None:
        """Install or upgrade the chart with the images of this checkout and wait for it.

        `values` go before those of this testbed; a list is written `{a,b}`.
        """
        settings = {"image.repository": f"{REGISTRY}/operator", "image.tag": "dev"}
        if self.operator_build:
            # The tag never changes: without this the operator of an older checkout would run on.
            settings[r"podAnnotations.kvserving\.io/build"] = self.operator_build
        settings |= {"defaults.routerImage": image("router")} | values
        flags = [f"--set-string={key}={value}" for key, value in settings.items()]
        self.run_helm(
            "upgrade", "--install", RELEASE, str(chart), "-n", SYSTEM_NAMESPACE,
            "--create-namespace", "--wait", "--timeout", "180s", *flags,
        )  # fmt: skip

    def uninstall_chart(self) -> str:
        """`helm uninstall`, until its objects are gone; returns what helm says that it keeps."""
        flags = ("--wait", "--timeout", "60s")
        return self.run_helm("uninstall", RELEASE, "-n", SYSTEM_NAMESPACE, *flags)


def cluster(*args: str) -> None:
    """Run a `python -m cluster` command on our terminal; end the program when it fails."""
    done = subprocess.run([sys.executable, "-m", "cluster", *args], cwd=REPO, check=False)
    if done.returncode:
        raise SystemExit(done.returncode)


def cluster_output(*args: str, progress: bool = False) -> str:
    """What a `python -m cluster` command prints; RuntimeError with its last words if it fails.

    With `progress` what it says meanwhile, and why it failed, goes to our terminal.
    """
    done = subprocess.run(
        [sys.executable, "-m", "cluster", *args],
        cwd=REPO,
        stdout=subprocess.PIPE,
        stderr=None if progress else subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        said = (done.stderr or "").strip().splitlines()
        raise RuntimeError(
            said[-1].removeprefix("error: ") if said else f"python -m cluster {args[0]} failed"
        )
    return done.stdout.strip()


def bring_up() -> Testbed:
    """The cluster of $CLUSTER (embedded by default) with all images of this checkout in it.

    A cluster of the user's own (`current`) must have them: we cannot load anything there.
    """
    cluster("up", "--install")
    if os.environ.get("CLUSTER") == "current":
        print(f"CLUSTER=current: its nodes must hold {', '.join(map(image, IMAGES))}")
        print("python -m cluster build --archives DIR writes them as files", flush=True)
        return attach()
    lines = cluster_output("build", "--install", "--load", *IMAGES, progress=True)
    print(lines, flush=True)
    built = dict(line.split()[:2] for line in lines.splitlines())
    return replace(attach(), operator_build=built[image("operator")])


def attach() -> Testbed:
    """The cluster that is up already."""
    tools = json.loads(cluster_output("tools", "-o", "json"))
    kubectl = Kubectl(tools["kubectl"], tools["kubeconfig"])
    return Testbed(kubectl=kubectl, helm=os.environ.get("HELM") or tools["helm"])
