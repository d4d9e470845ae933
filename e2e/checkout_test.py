"""The operator that these tests look at is the one of this checkout, file by file."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from stack.install import RELEASE, REPO, SYSTEM_NAMESPACE, Testbed
from stack.kubectl import eventually
from stack.pods import is_ending

PACKAGES = ("kvserving_operator", "kvserving_agent")
# Prints a digest of each Python file of the packages, by its path.
DIGESTS = """
import hashlib, importlib.util, json, pathlib, sys
digests = {}
for name in sys.argv[1:]:
    folder = pathlib.Path(importlib.util.find_spec(name).origin).parent
    for path in folder.rglob("*.py"):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        digests[str(path.relative_to(folder.parent))] = digest
print(json.dumps(digests))
"""


def here() -> dict[str, str]:
    root = REPO / "operator"
    paths = [path for name in PACKAGES for path in Path(root, name).rglob("*.py")]
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths
    }


def test_the_image_holds_the_code_of_this_checkout(testbed: Testbed) -> None:
    system = testbed.kubectl.within(SYSTEM_NAMESPACE)

    def only() -> str:
        """The one that is left: of the build before there may still be a pod."""
        operators = system.list("pods", f"app.kubernetes.io/instance={RELEASE}")
        names = [pod["metadata"]["name"] for pod in operators if not is_ending(pod)]
        assert len(names) == 1, names
        return str(names[0])

    name = eventually("one operator", only, timeout=120)
    there = json.loads(system.exec(name, "python3", "-c", DIGESTS, *PACKAGES))
    assert len(there) > 100
    assert there == here()
