"""The golden cases: one folder each with a KVServing and the objects that it becomes."""

from functools import cache
from pathlib import Path

import yaml

from kvserving_operator import plan
from kvserving_operator.api.v1alpha1 import KVServing
from kvserving_operator.cli.output import as_yaml
from kvserving_operator.plan import Manifest, Plan
from kvserving_operator.render import render
from tests.unit.stack import AUTH, DEFAULTS, owner

FOLDER = Path(__file__).parents[2] / "golden"
CASES = sorted(case.name for case in FOLDER.iterdir() if case.is_dir())


def load(case: str) -> KVServing:
    return KVServing.parse(yaml.safe_load((FOLDER / case / "kvserving.yaml").read_text()))


def planned(kvserving: KVServing) -> Plan:
    """The plan, with what is not available yet: it has its golden objects all the same."""
    built = plan.build(kvserving, DEFAULTS, preview=True)
    assert isinstance(built, Plan), [str(fault) for fault in built.faults]
    return built


@cache
def objects(case: str) -> tuple[Manifest, ...]:
    kvserving = load(case)
    return render(planned(kvserving), AUTH, owner(kvserving.metadata.name))


def dump(manifests: tuple[Manifest, ...]) -> str:
    return "---\n".join(as_yaml(manifest) for manifest in manifests)
