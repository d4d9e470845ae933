"""What runbooks have people type: kubectl takes it, on a real API server."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from kvserving_operator.kube import paths

from .harness import Cluster, Kubelet, OperatorProcess, example

PAGES = sorted((Path(__file__).resolve().parents[3] / "docs" / "runbooks").glob("*.md"))
OPERATOR = "kubectl -n kvserving-system logs deployment/kvserving --tail=50"
"""Of a release, which is not here."""
POD = "x-decode-0"


def commands() -> list[str]:
    """All of them; those that watch look once."""
    text = "\n".join(page.read_text() for page in PAGES)
    found = re.findall(r"^(kubectl .+)$|`(kubectl [^`]+ [^`]+)`", text, re.MULTILINE)
    typed = dict.fromkeys((block or inline).removesuffix(" -w") for block, inline in found)
    return [command for command in typed if command != OPERATOR]


def typed(cluster: Cluster, command: str) -> list[str]:
    words = [
        re.sub(
            r"\bNS\b", cluster.namespace, re.sub(r"\bNAME\b", "x", re.sub(r"\bPOD\b", POD, word))
        )
        for word in shlex.split(command)
    ]
    program = str(cluster.plane.program("kubectl"))
    here = () if "-n" in words or "-A" in words else ("-n", cluster.namespace)
    return [program, "--kubeconfig", str(cluster.plane.kubeconfig), *words[1:], *here]


def run(cluster: Cluster, command: str) -> str:
    done = subprocess.run(
        typed(cluster, command), capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, f"{command}\n{done.stderr}"
    return done.stdout


def has_what_is_read(cluster: Cluster, command: str) -> None:
    """Logs need a kubelet: the pods of the workload have the container, under that name."""
    words = shlex.split(command)
    whose = words[words.index("logs") + 1]
    kind, _, name = whose.rpartition("/")
    resource, name = (paths.DEPLOYMENTS, name) if kind else (paths.PODS, name)
    found = cluster.must_get(resource, name.replace("NAME", "x").replace("POD", POD))
    spec = found["spec"]["template"]["spec"] if kind else found["spec"]
    names = {c["name"] for c in [*spec["containers"], *spec.get("initContainers", [])]}
    assert "-c" not in words or words[words.index("-c") + 1] in names, command


@pytest.mark.takes(30)
def test_every_command_is_one_and_says_what_it_is_told_to_say(
    cluster: Cluster, tmp_path: Path
) -> None:
    with OperatorProcess(cluster, tmp_path).start(), Kubelet(cluster):
        cluster.create(example("x"))
        cluster.settled("x")
        reads = [each for each in commands() if " get " in each or " describe " in each]
        logs = [each for each in commands() if " logs " in each]
        acts = [each for each in commands() if each not in {*reads, *logs}]
        assert len(reads) >= 8
        assert len(logs) >= 6
        said = {each: run(cluster, each) for each in reads}
        for each in logs:
            has_what_is_read(cluster, each)
        assert len(acts) >= 4
        for each in acts:
            assert {"annotate", "delete"} & set(shlex.split(each)), each
            run(cluster, f"{each} --dry-run=server")
    first, second, third = (
        next(text for command, text in said.items() if part in command)
        for part in ("kvs -A", "range .status", "get pods -l")
    )
    assert first.split("\n")[0].split()[:3] == ["NAMESPACE", "NAME", "PHASE"]
    assert "REASON" in first
    assert "Ready=True AllReady: all roles are ready to serve\n" in second
    assert POD in third
