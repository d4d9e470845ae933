"""The install step of the engine image, run where the engine image cannot be had.

`pytest -s images/engine/tests/proof_engine_install.py` as root, after `python -m cluster build
engine-cpu`. LMCache and NIXL are taken out of engine-cpu's environment and put back by the very
script that images/engine/Dockerfile runs. It differs from a GPU image in two ways: vLLM is the CPU
build of 0.32.0, and the packages of images/engine-cpu/overrides.txt are kept out.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from cluster import buildah, imagefiles

REMOVE = "lmcache nixl nixl-cu13"
PREPARE = f"""
set -eu
/usr/bin/python3 -m venv /tmp/uv
/tmp/uv/bin/pip install -q uv==0.13.9
/tmp/uv/bin/uv pip uninstall {REMOVE}
"""
INSTALL = "/mnt/images/engine/install.sh /mnt/images/engine/requirements.txt"
VERSIONS = (
    "from importlib.metadata import version as v\n"
    "print(*(f'{n}={v(n)}' for n in ('lmcache', 'nixl', 'nixl-cu13', 'torch', 'vllm')))"
)


@pytest.fixture
def container() -> Iterator[str]:
    name = buildah.output("from", imagefiles.reference("engine-cpu"))
    yield name
    buildah.output("rm", name)


def run(container: str, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs a command as root in the container, with the repository at /mnt."""
    variables = {
        "PATH": "/opt/kvserving/venv/bin:/tmp/uv/bin:/usr/bin:/bin",
        "SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt",
        "PIP_CERT": "/etc/ssl/certs/ca-certificates.crt",
        "UV_OVERRIDE": "/mnt/images/engine-cpu/overrides.txt",
    }
    flags = [f"--env={key}={value}" for key, value in {**variables, **env}.items()]
    flags += ["--user=0:0", "--isolation=chroot", f"--volume={imagefiles.REPO}:/mnt:ro"]
    flags.append(f"--volume={buildah.CERTIFICATES}:{buildah.CERTIFICATES}:ro")
    line = buildah.command("run", *flags, container, "--", *command)
    return subprocess.run(
        line, env=buildah.environment(), capture_output=True, text=True, timeout=900, check=False
    )


def test_the_step_installs_the_pins_and_moves_nothing(container: str) -> None:
    before = run(container, "python", "-c", VERSIONS).stdout
    prepared = run(container, "sh", "-c", PREPARE)
    assert prepared.returncode == 0, prepared.stderr
    assert run(container, "python", "-c", "import lmcache").returncode != 0
    done = run(container, *INSTALL.split())
    print(done.stdout, done.stderr[-1500:])
    assert done.returncode == 0, done.stderr
    assert "with LMCache and NIXL" in done.stdout
    assert run(container, "python", "-c", VERSIONS).stdout == before
    assert "lmcache=0.5.6 nixl=1.5.1 nixl-cu13=1.5.1" in before


def test_a_step_that_would_move_a_package_fails(container: str) -> None:
    # The guard for a vLLM image whose own pins do not go with LMCache's.
    assert run(container, "sh", "-c", PREPARE).returncode == 0
    pins = "printf 'lmcache==0.5.6\\nmsgspec==0.18.6\\n' >/tmp/pins"
    conflict = f"{pins} && /mnt/images/engine/install.sh /tmp/pins"
    done = run(container, "sh", "-c", conflict)
    assert done.returncode != 0
    assert "msgspec" in done.stderr
    assert "with LMCache and NIXL" not in done.stdout
