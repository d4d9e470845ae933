"""Where manifests come from: files, folders and standard input, and which objects are in them."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kvserving_operator.api import meta
from kvserving_operator.cli.errors import UsageError
from kvserving_operator.cli.yamltext import TextError, documents

MAX_BYTES: Final = 3 * 1024 * 1024
"""The longest request that an API server reads."""
_ENDINGS: Final = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A KVServing as it was written, or why a file could not be read as manifests."""

    source: str
    """File, and the number of the document where there are several."""
    content: Mapping[str, Any]
    broken: str = ""
    """What is wrong with the text; the content is empty then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifests:
    """Everything that was found in the sources."""

    documents: tuple[Document, ...]
    skipped: tuple[str, ...]
    """Objects of other kinds, one text each."""


def read(sources: Sequence[str], *, recursive: bool) -> Manifests:
    """The KVServing objects of ``sources``; UsageError when one of them cannot be opened."""
    found: list[Document] = []
    skipped: list[str] = []
    for source in sources:
        for name, text in _texts(source, recursive=recursive):
            for document in _documents(name, text):
                if document.broken or _is_ours(document.content):
                    found.append(document)
                else:
                    kind = document.content.get("kind")
                    skipped.append(f"{document.source}: {kind if isinstance(kind, str) else '?'}")
    return Manifests(documents=tuple(found), skipped=tuple(skipped))


def _texts(source: str, *, recursive: bool) -> Iterator[tuple[str, bytes]]:
    if source == "-":
        yield "standard input", sys.stdin.buffer.read(MAX_BYTES + 1)
        return
    path = Path(source)
    try:
        if not path.is_dir():
            yield source, _content(path)
            return
        files = [p for p in sorted(_listed(path, recursive=recursive)) if p.suffix in _ENDINGS]
        if not files:
            raise UsageError(f"{source}: holds no file that ends in {', '.join(_ENDINGS)}")
        for file in files:
            yield str(file), _content(file)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(f"{source}: {reason}") from error


def _listed(folder: Path, *, recursive: bool) -> Iterable[Path]:
    found = folder.rglob("*") if recursive else folder.iterdir()
    return (path for path in found if path.is_file())


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1)


def _documents(name: str, text: bytes) -> Iterator[Document]:
    if len(text) > MAX_BYTES:
        limit = MAX_BYTES // 1024 // 1024
        yield Document(source=name, content={}, broken=f"is larger than {limit} MiB; split it")
        return
    read_so_far: list[Any] = []
    broken = ""
    try:
        read_so_far.extend(documents(text.decode("utf-8-sig")))
    except UnicodeDecodeError as error:
        broken = f"is not UTF-8 at byte {error.start}"
    except TextError as error:
        broken = str(error)
    if broken:
        yield Document(source=name, content={}, broken=broken)
        return
    objects = [item for document in read_so_far for item in _items(document)]
    for number, item in enumerate(objects, start=1):
        source = f"{name}#{number}" if len(objects) > 1 else name
        if isinstance(item, Mapping):
            yield Document(source=source, content=item)
        else:
            yield Document(source=source, content={}, broken="is no object")


def _items(document: Any) -> Iterable[Any]:
    """The elements of a List, as kubectl takes them."""
    if isinstance(document, Mapping) and document.get("kind") == "List":
        items = document.get("items")
        return items if isinstance(items, list) else []
    return [document]


def _is_ours(content: Mapping[str, Any]) -> bool:
    """Whether it is, or is likely to be meant as, a KVServing."""
    group = str(content.get("apiVersion", "")).partition("/")[0]
    return group == meta.GROUP or content.get("kind") == meta.KIND or "kind" not in content
