"""Running buildah and mmdebstrap: storage, caches and logs all under `$KVSERVING_CACHE`.

Nothing in /var/lib is touched. The machine's CA bundle and package-index settings reach the build,
so it works behind a registry mirror with a certificate of its own.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from cluster import imagefiles, packages, progress, settings
from cluster.errors import ClusterError

PROGRAMS = ("buildah", "mmdebstrap")
#: At low priority, since builds must not starve a node; and in a mount namespace of their own:
#: mmdebstrap binds the machine's /dev/shm into its folder, and buildah mounts its layers. Mounts
#: seen outside would survive a killed build, and deleting the cache would reach through them.
APART = ("nice", "-n", "10", "unshare", "--mount", "--propagation", "private")
CERTIFICATES = Path("/etc/ssl/certs")
#: Build arguments taken from the environment when set there.
INDEX_SETTINGS = ("PIP_INDEX_URL", "UV_DEFAULT_INDEX")
#: What signs the packages of the base image, which is Debian on every machine.
DEBIAN_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
#: Left out of the root file system: nobody reads them in a container. Licences stay.
EXCLUDED = ("man", "info", "locale", "lintian", "doc")
LOG_TAIL = 25


def folder() -> Path:
    """buildah's storage, its temporary files and its cache mounts."""
    return settings.cache_dir() / "buildah"


def require(*, install: bool) -> None:
    """Checks for the programs and for root; installs the Debian packages when asked to."""
    if os.geteuid() != 0:
        raise ClusterError("images are built as root (buildah with chroot isolation): use sudo")
    missing = [p for p in PROGRAMS if shutil.which(p) is None]
    if not DEBIAN_KEYRING.exists():  # on Ubuntu; mmdebstrap does not depend on it
        missing.append("debian-archive-keyring")
    if not missing:
        return
    if not (install and packages.can_install()):
        raise ClusterError(
            f"{' and '.join(missing)} missing: apt-get install {' '.join(missing)}, "
            "or build with --install"
        )
    packages.install(missing)


def environment() -> dict[str, str]:
    """The environment of every buildah call; its TMPDIR also holds the cache mounts."""
    temporary = folder() / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    return os.environ | {"TMPDIR": str(temporary), "BUILDAH_ISOLATION": "chroot"}


def command(*args: str) -> list[str]:
    """A buildah command line on our own storage."""
    storage = ["--root", str(folder() / "root"), "--runroot", str(folder() / "run")]
    return [*APART, "buildah", *storage, "--storage-driver", "overlay", *args]


def output(*args: str) -> str:
    """What a short buildah command prints; raises ClusterError with its last words."""
    done = subprocess.run(
        command(*args), env=environment(), capture_output=True, text=True, check=False
    )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ClusterError(f"buildah {args[0]}: {reason}")
    return done.stdout.strip()


def build(name: str, arguments: Mapping[str, str]) -> None:
    """Builds images/NAME/Dockerfile from a staged context, with one progress line a step."""
    given = dict(arguments) | {k: os.environ[k] for k in INDEX_SETTINGS if os.environ.get(k)}
    flags = [f"--build-arg={key}={value}" for key, value in given.items()]
    if (CERTIFICATES / "ca-certificates.crt").is_file():
        flags.append(f"--volume={CERTIFICATES}:{CERTIFICATES}:ro")
    environment()
    with tempfile.TemporaryDirectory(prefix="context-", dir=folder() / "tmp") as context:
        imagefiles.stage(name, Path(context))
        dockerfile = str(imagefiles.REPO / "images" / name / "Dockerfile")
        target = ["--tag", imagefiles.reference(name), "--file", dockerfile, context]
        build_flags = ["--isolation=chroot", "--network=host", "--layers", "--format=oci", *flags]
        _logged(name, command("build", *build_flags, *target))


def _logged(name: str, line: Sequence[str]) -> None:
    """Runs a build with its output in a log file, announcing each step of the Dockerfile."""
    log = settings.cache_dir() / "log" / f"build-{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    tail: list[str] = []
    process = subprocess.Popen(
        line,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",  # what tools print is not always text
    )
    with log.open("w", buffering=1) as file:
        for out in process.stdout or ():
            file.write(out)
            tail = [*tail[-LOG_TAIL:], out]
            if re.match(r"(\[\d+/\d+\] )?STEP \d+/\d+: (RUN|FROM|COPY)", out):
                elapsed = progress.duration(time.monotonic() - start)
                progress.say(f"  {name} {elapsed}: {' '.join(out.split())[:100]}")
    if process.wait():
        progress.say("".join(tail))
        raise ClusterError(f"building {name} failed: the end of {log} is above")


def make_rootfs() -> str:
    """The Debian that our base image stands on, by mmdebstrap, once; returns its image name."""
    options = [f"--include={','.join(rootfs_packages())}"]
    options += [f"--dpkgopt=path-exclude=/usr/share/{what}/*" for what in EXCLUDED]
    options.append("--dpkgopt=path-include=/usr/share/doc/*/copyright")
    key = hashlib.sha256("\0".join(options).encode()).hexdigest()[:12]
    image = f"{imagefiles.REGISTRY}/rootfs:{key}"
    if image in output("images", "--format={{.Name}}:{{.Tag}}").split():
        return image
    progress.say("  base: Debian 12 by mmdebstrap")
    environment()
    with tempfile.TemporaryDirectory(prefix="rootfs-", dir=folder() / "tmp") as context:
        target = f"{context}/rootfs.tar"
        _logged("rootfs", [*APART, "mmdebstrap", "--variant=minbase", *options, "bookworm", target])
        Path(context, "Dockerfile").write_text("FROM scratch\nADD rootfs.tar /\n")
        _logged("rootfs-image", command("build", "--format=oci", "--tag", image, context))
    return image


def rootfs_packages() -> list[str]:
    """The packages of the base image: those that its Dockerfile asks for."""
    found = re.search(r"kvserving-setup ([a-z][a-z0-9 .+-]*)$", imagefiles.read("base").text, re.M)
    if found is None:
        raise ClusterError("images/base/Dockerfile no longer calls kvserving-setup with packages")
    return found[1].split()


def inspect(image: str) -> dict[str, object]:
    """What buildah knows of an image, its manifest and config as exact text among it."""
    known: dict[str, object] = json.loads(output("inspect", "--type", "image", image))
    return known


def prune() -> None:
    """Removes layers that no image of ours uses, and what killed builds left behind."""
    output("rm", "--all")
    output("rmi", "--prune")
