"""Our images as data: which files a Dockerfile uses, which image it stands on, its content key.

Pure file reading: no buildah, no network. The key covers exactly the files that are then staged as
the build context, so what is hashed is what is built.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os import utime
from pathlib import Path

from cluster.errors import ClusterError

REPO = Path(__file__).resolve().parents[2]
REGISTRY = "localhost/kvserving"
TAG = "dev"
#: Needs an image that must be pulled: built by `docker build` elsewhere, never here.
PULLS = frozenset({"engine"})
IGNORED = frozenset({"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"})
#: Part of every key; raised when this tool builds differently from the same files.
RECIPE = "1"
#: Modification time of every staged file: a fresh clone must hit the layer cache (2000-01-01).
STAGED_TIME = 946684800


@dataclass(frozen=True)
class Dockerfile:
    """What this tool needs to know of a Dockerfile."""

    text: str
    arguments: tuple[str, ...]  # declared before the first FROM
    sources: tuple[str, ...]  # of COPY and ADD from the context, as written


def reference(name: str) -> str:
    """The name under which the embedded cluster knows an image of ours."""
    return f"{REGISTRY}/{name}:{TAG}"


def version() -> str:
    """The version of this checkout, which images carry as a label."""
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    return str(project["version"])


def names() -> list[str]:
    """Every image that can be built here, parents first."""
    found = sorted(p.parent.name for p in (REPO / "images").glob("*/Dockerfile"))
    return ordered([n for n in found if n not in PULLS])


def ordered(wanted: list[str]) -> list[str]:
    """The wanted images and the ones they stand on, each once, parents first."""
    result: list[str] = []

    def add(name: str) -> None:
        if name not in result:
            for parent in parents(name):
                add(parent)
            result.append(name)

    for name in wanted:
        add(name)
    return result


def read(name: str) -> Dockerfile:
    """Parses images/NAME/Dockerfile; raises ClusterError for forms that this tool does not know."""
    path = REPO / "images" / name / "Dockerfile"
    if not path.is_file():
        raise ClusterError(f"there is no image {name!r}: no {path.relative_to(REPO)}")
    text = path.read_text()
    arguments, sources, seen_from = [], [], False
    for word, rest in instructions(text):
        if word == "FROM":
            seen_from = True
        elif word == "ARG" and not seen_from:
            arguments.append(rest.split("=")[0].strip())
        elif word in {"COPY", "ADD"}:
            sources += _context_sources(name, rest)
    return Dockerfile(text, tuple(arguments), tuple(dict.fromkeys(sources)))


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Each instruction of a Dockerfile as (word, rest), continuation lines joined."""
    lines = (line for line in text.splitlines() if not re.match(r"\s*(#|$)", line))
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        word, _, rest = line.strip().partition(" ")
        yield word.upper(), rest.strip()


def _context_sources(name: str, rest: str) -> list[str]:
    words = shlex.split(rest)
    if words[0].startswith("["):
        raise ClusterError(f"images/{name}/Dockerfile: the JSON form of COPY is not supported")
    flags = [w for w in words if w.startswith("--")]
    if any(flag.startswith("--from=") for flag in flags):
        return []
    return words[len(flags) : -1]


def parents(name: str) -> list[str]:
    """Images of ours that this one stands on: a build argument named like one (ENGINE_CPU)."""
    images = REPO / "images"
    as_names = (a.lower().replace("_", "-") for a in read(name).arguments)
    return [n for n in as_names if n != name and (images / n / "Dockerfile").is_file()]


def context_files(name: str) -> list[Path]:
    """The files of the checkout that the Dockerfile copies, sorted, caches left out."""
    found: set[Path] = set()
    for source in read(name).sources:
        matches = sorted(REPO.glob(source.strip("/")))
        if not matches:
            raise ClusterError(f"images/{name}/Dockerfile copies {source}, which is not there")
        for match in matches:
            found.update(p for p in (match.rglob("*") if match.is_dir() else [match]))
    return sorted(p for p in found if p.is_file() and not IGNORED & set(p.relative_to(REPO).parts))


def mode(path: Path) -> int:
    """The mode that a file gets in the context: independent of the user's umask."""
    return 0o755 if path.stat().st_mode & 0o100 else 0o644


def key(name: str, parent_keys: Mapping[str, str]) -> str:
    """Twelve hexadecimal digits that change with anything that goes into the image."""
    digest = hashlib.sha256(f"{RECIPE}\0{version()}\0{read(name).text}".encode())
    for parent in parents(name):
        digest.update(f"\0{parent}={parent_keys[parent]}".encode())
    for path in context_files(name):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"\0{path.relative_to(REPO)} {mode(path):o} {content}".encode())
    return digest.hexdigest()[:12]


def stage(name: str, folder: Path) -> None:
    """Copies the context files, and nothing else, into an empty folder."""
    for path in context_files(name):
        target = folder / path.relative_to(REPO)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        target.chmod(mode(path))
    for path in sorted(folder.rglob("*")):
        utime(path, (STAGED_TIME, STAGED_TIME))
