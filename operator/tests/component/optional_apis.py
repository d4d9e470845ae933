"""APIs of other projects on the control plane: as much of them as the operator writes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from .apiserver import APPLY, CRDS, Object, Server
from .harness import wait_for

FILES = tuple(sorted((Path(__file__).parents[1] / "crds").glob("*.yaml")))


@contextmanager
def optional_apis(server: Server) -> Iterator[None]:
    """They are served for the time of the block, and gone after it."""
    definitions = [yaml.safe_load(path.read_text()) for path in FILES]
    try:
        for definition in definitions:
            install(server, definition)
        yield
    finally:
        for definition in definitions:
            remove(server, definition)


def install(server: Server, definition: Object) -> None:
    path = f"{CRDS}/{definition['metadata']['name']}"
    done = server.send(
        "PATCH", path, definition, content_type=APPLY, fieldManager="test", force="true"
    )
    assert done.ok, done.message
    wait_for(lambda: server.send("GET", collection(definition)).ok, what=path)


def remove(server: Server, definition: Object) -> None:
    path = f"{CRDS}/{definition['metadata']['name']}"
    server.send("DELETE", path)
    wait_for(lambda: server.send("GET", collection(definition)).status == 404, what=f"{path} gone")


def collection(definition: Object) -> str:
    """Path of all objects of a definition's kind."""
    spec = definition["spec"]
    return f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
