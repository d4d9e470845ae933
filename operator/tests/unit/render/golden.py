"""The golden cases: one folder each with a KVServing and the objects that it becomes."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from kvserving_operator import plan
from kvserving_operator.api.v1alpha1 import KVServing
from kvserving_operator.plan import Manifest, Plan
from kvserving_operator.render import render
from tests.unit.stack import AUTH, DEFAULTS, owner

FOLDER = Path(__file__).parents[2] / "golden"
CASES = sorted(case.name for case in FOLDER.iterdir() if case.is_dir())


class _Dumper(yaml.CSafeDumper):
    """Text of several lines as a block, and no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.CSafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


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
    return yaml.dump_all(manifests, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
