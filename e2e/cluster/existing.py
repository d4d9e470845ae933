"""Clusters that the user has already: `CLUSTER=kind` and `CLUSTER=current`.

Nothing is built for them. `current` only checks that kubectl's context answers; images must be
where that cluster can pull them. `kind` makes a kind cluster if there is none and loads images.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from cluster import progress, settings
from cluster.errors import ClusterError
from cluster.processes import write_atomically

KIND_NAME = "kvserving"
KINDS = ("kind", "current")


def up(kind: str) -> int:
    """Make sure that the cluster answers."""
    _require_known(kind)
    if kind == "kind":
        _ensure_kind_cluster()
    context = _run(program("kubectl"), *_context(kind), "config", "current-context").strip()
    if kind == "kind":
        context = f"kind-{KIND_NAME}"
    _run(program("kubectl"), *_context(kind), "--request-timeout=10s", "get", "--raw", "/readyz")
    progress.say(f"cluster of context {context} answers")
    if kind == "current":
        progress.say("images: this cluster must be able to pull them, or have them on its nodes")
    return 0


def down(kind: str) -> int:
    """Delete the kind cluster that `up` made; a cluster of the user's is left alone."""
    _require_known(kind)
    if kind == "current":
        progress.say("CLUSTER=current: the cluster is yours, it is left as it is")
        return 0
    if KIND_NAME in _kind_clusters():
        _run(program("kind"), "delete", "cluster", "--name", KIND_NAME)
    progress.say(f"kind cluster {KIND_NAME} deleted")
    return 0


def status(kind: str) -> int:
    """Print the nodes; exit code 0 when the cluster answers."""
    _require_known(kind)
    print(_run(program("kubectl"), *_context(kind), "get", "nodes", "-o", "wide"), end="")
    return 0


def require_loadable(kind: str) -> None:
    """Raise ClusterError unless images can be loaded into a cluster of this kind."""
    if kind == "embedded":
        return
    _require_known(kind)
    if kind == "current":
        raise ClusterError(
            "CLUSTER=current: push images to a registry that the cluster pulls from, or load the "
            "files of `python -m cluster build --archives DIR` into its nodes"
        )


def load(kind: str, archives: list[str]) -> int:
    """Load images into the kind cluster; refuse for a cluster of the user's."""
    require_loadable(kind)
    for archive in archives:
        if not Path(archive).is_file():
            raise ClusterError(f"{archive}: kind takes archive files only")
        _run(program("kind"), "load", "image-archive", "--name", KIND_NAME, archive)
        progress.say(f"{archive}: loaded into kind cluster {KIND_NAME}")
    return 0


def kubeconfig(kind: str) -> Path:
    """The kubeconfig of the cluster of this kind.

    That of a kind cluster is written anew to the cache: in the user's own file another cluster may
    be the current one, and everything here goes by the current one.
    """
    if kind == "kind":
        path = settings.cache_dir() / "kind.kubeconfig"
        text = _run(program("kind"), "get", "kubeconfig", "--name", KIND_NAME)
        write_atomically(path, text, mode=0o600)
        return path
    return _users_kubeconfig()


def _users_kubeconfig() -> Path:
    """The kubeconfig that kubectl uses: the first of $KUBECONFIG, or the default one."""
    configured = os.environ.get("KUBECONFIG", "").split(":")[0]
    path = Path(configured) if configured else Path.home() / ".kube" / "config"
    if not path.exists():
        raise ClusterError(f"{path} does not exist: set KUBECONFIG")
    return path


def program(name: str) -> Path:
    """The user's own kubectl, helm or kind."""
    found = shutil.which(name)
    if found is None:
        raise ClusterError(f"{name} is not on the PATH; CLUSTER=kind and current need it")
    return Path(found)


def _ensure_kind_cluster() -> None:
    if KIND_NAME in _kind_clusters():
        return
    with progress.step(f"kind create cluster --name {KIND_NAME}", expected_seconds=60):
        _run(program("kind"), "create", "cluster", "--name", KIND_NAME, "--wait", "120s")


def _kind_clusters() -> list[str]:
    return _run(program("kind"), "get", "clusters").split()


def _context(kind: str) -> list[str]:
    return ["--context", f"kind-{KIND_NAME}"] if kind == "kind" else []


def _require_known(kind: str) -> None:
    if kind not in KINDS:
        raise ClusterError(f"CLUSTER={kind}: must be embedded, {' or '.join(KINDS)}")


def _run(command: Path, *args: str) -> str:
    done = subprocess.run([command, *args], capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["failed"])[-1]
        raise ClusterError(f"{command.name} {' '.join(args[:3])}: {reason}")
    return done.stdout
