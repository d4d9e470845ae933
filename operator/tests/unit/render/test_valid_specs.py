"""Random specs that are served: rendering them is total, and the same every time."""

from __future__ import annotations

import json

import pytest

from kvserving_operator.cli.check import check
from kvserving_operator.kube.diff import differences
from kvserving_operator.render import render
from tests.unit.api.builders import make
from tests.unit.api.valid_specs import drawn
from tests.unit.stack import AUTH, DEFAULTS, owner

COUNT = 30


@pytest.mark.thorough
def test_what_is_served_is_rendered_and_twice_the_same() -> None:
    for spec in drawn(COUNT, start=1_000):
        obj = make() | {"spec": spec}
        plans = [check(json.loads(json.dumps(obj)), DEFAULTS).plan for _ in range(2)]
        first, second = (render(plan, AUTH, owner()) for plan in plans if plan is not None)
        assert json.dumps(first) == json.dumps(second)
        for manifest in first:
            assert list(differences(manifest, manifest)) == []
