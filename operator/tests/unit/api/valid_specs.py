"""Random specs that are served: values of the schema, with what the verdict refuses taken out.

Nothing here repeats a rule. What the schema cannot describe (pod templates, volume sources, peers)
is drawn from samples that Kubernetes knows, and sizes are kept small, because each replica becomes
a pod. Whatever else the rules refuse is removed field by field until they are satisfied.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from kvserving_operator.admission.schema import object_schema
from kvserving_operator.cli.check import check
from tests.unit.api.builders import make
from tests.unit.api.schema_tools import values
from tests.unit.stack import DEFAULTS

Object = dict[str, Any]

_DRAWS = 6
"""Of so many draws the largest is taken: the first ones of a run are nearly empty."""
_REMOVALS = 80


def _one_of(*samples: Any) -> st.SearchStrategy[Any]:
    """A copy of one of the samples."""
    return st.sampled_from([json.dumps(sample) for sample in samples]).map(json.loads)


VOLUMES = (
    {"emptyDir": {}},
    {"emptyDir": {"medium": "Memory", "sizeLimit": "0.5Gi"}},
    {"persistentVolumeClaim": {"claimName": "models"}},
    {"hostPath": {"path": "/srv/models", "type": "Directory"}},
    {"configMap": {"name": "settings", "optional": True}},
    {"nfs": {"server": "nfs.example", "path": "/models"}},
    {"csi": {"driver": "csi.example.com", "volumeAttributes": {"share": "models"}}},
)
RESOURCES = (
    {},
    {"requests": {"cpu": "0.2", "memory": "1.5Gi"}},
    {"requests": {"cpu": 1}, "limits": {"cpu": "2000m"}},
    {"requests": {}, "limits": {"ephemeral-storage": "10G"}},
)
TEMPLATES = (
    {},
    {"metadata": {"labels": {"team": "a"}, "annotations": {"example.com/b": ""}}, "spec": {}},
    {"spec": {"tolerations": [{"operator": "Exists"}], "nodeSelector": {}, "volumes": []}},
    {"spec": {"priorityClassName": "", "affinity": {}, "imagePullSecrets": [{"name": "s"}]}},
    {
        "spec": {
            "containers": [
                {
                    "name": "shipper",
                    "image": "shipper:1",
                    "args": ["--a b", '{"c": 1}'],
                    "ports": [{"containerPort": 3000}],
                    "resources": {"limits": {"cpu": "0.1"}},
                }
            ],
            "initContainers": [{"name": "warm", "image": "warm:1", "command": []}],
        }
    },
    {
        "spec": {
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "kubernetes.io/hostname",
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": {"a": "b"}},
                }
            ],
            "securityContext": {"fsGroupChangePolicy": "OnRootMismatch"},
            "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a.example"]}],
        }
    },
)
PEERS = (
    {"podSelector": {}},
    {"namespaceSelector": {"matchLabels": {"a": "b"}}},
    {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}},
)
PARENTS = ({"name": "edge"}, {"name": "edge", "namespace": "infra", "sectionName": "https"})
ENV = st.one_of(
    st.fixed_dictionaries(
        {"name": st.from_regex(r"X_[A-Z0-9_]{1,20}", fullmatch=True)},
        optional={"value": st.text(st.characters(exclude_characters="\0"), max_size=20)},
    ),
    _one_of(
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    ),
)
FLAGS = _one_of("--seed=1", "--enforce-eager", "--x-y", '{"a": 1}', "text with spaces", "é")


@cache
def _overrides() -> dict[str, st.SearchStrategy[Any]]:
    made: dict[str, st.SearchStrategy[Any]] = {
        "model.attention": st.sampled_from(["MLA", "MLA", "GQA", "MHA", "Auto"]),
        "model.cache": _placed("/models/cache"),
        "model.volume": _placed("/models/weights"),
        "engine.cacheVolume": _one_of(*VOLUMES),
        "kvCache.remote.resources": _one_of({}, {"requests": {"cpu": "0.5"}, "limits": {}}),
        "kvCache.remote.podTemplate": _one_of(*TEMPLATES),
        "kvCache.remote.type": st.sampled_from(["Managed", "Managed", "External", "None"]),
        "kvCache.remote.memoryPerInstance": _one_of("1Gi", "1.5Gi", "2G", "1073741824"),
        "kvCache.local.sizePerReplica": _one_of("0", "512Mi", "1.5Gi", "3G"),
        "transfer.nixl.extraConfig": _one_of({}, {"a": "b"}, {"n": {"m": [1, True, None]}}),
        "router.replicas": st.integers(0, 2),
        "router.gateway.parentRefs[]": _one_of(*PARENTS),
        "networkPolicy.clients[]": _one_of(*PEERS),
        "networkPolicy.metricsFrom[]": _one_of(*PEERS),
    }
    for part in ("prefill", "decode"):
        made[f"{part}.replicas"] = st.integers(0, 3)
        made[f"{part}.rdma.resources"] = _one_of({}, {"rdma/ib": 2}, {"rdma/ib": "1"})
        made[f"{part}.accelerator.resourceName"] = _one_of("", "nvidia.com/gpu", "gpu.example/a")
        for axis in ("prefillContext", "tensor", "pipeline", "data", "decodeContext"):
            made[f"{part}.parallelism.{axis}"] = st.sampled_from([1, 1, 2, 4])
    for part in ("engine", "prefill", "decode", "router"):
        made[f"{part}.env[]"] = ENV
        made[f"{part}.podTemplate"] = _one_of(*TEMPLATES)
        made[f"{part}.resources"] = _one_of(*RESOURCES)
        made[f"{part}.extraArgs[]"] = FLAGS
    return made


def _placed(path: str) -> st.SearchStrategy[Object]:
    key = "path" if path.endswith("weights") else "mountPath"
    return _one_of(*VOLUMES).map(lambda source: {key: path, **source})


@cache
def specs() -> st.SearchStrategy[Object]:
    """Specs of the schema, most of which some rule refuses."""
    any_spec = values(object_schema()["properties"]["spec"], _overrides())
    return st.builds(_with_tier, any_spec, wanted=st.booleans())


def _with_tier(spec: Object, *, wanted: bool) -> Object:
    """Half of them with a tier of ours: chance makes few, and removing cannot make any."""
    spec["model"].setdefault("attention", "MLA")
    remote = spec.setdefault("kvCache", {}).setdefault("remote", {})
    if wanted:
        remote["type"], spec["engine"]["type"] = "Managed", "VLLM"
    if remote.get("type") == "Managed":
        remote.setdefault("memoryPerInstance", "1Gi")
    return spec


def served(spec: Object) -> Object | None:
    """The spec without what the rules refuse; None when that was not to be had by removing."""
    left: Object = json.loads(json.dumps(spec))
    for _ in range(_REMOVALS):
        findings = check(make() | {"spec": left}, DEFAULTS).findings
        if not findings:
            return left
        removed = [_remove(left, finding.fault.field.removeprefix("spec.")) for finding in findings]
        if not any(removed):
            return None
    return None


def _remove(spec: Object, field: str) -> bool:
    """Take out what is at the path, or the last of its parents that there is."""
    steps: list[str | int] = [
        int(index) if index else name for name, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", field)
    ]
    holder: Any = spec
    place: tuple[Any, str | int] | None = None
    for step in steps:
        there = (
            step in holder
            if isinstance(holder, dict)
            else isinstance(holder, list) and isinstance(step, int) and step < len(holder)
        )
        if not there:
            break
        place = (holder, step)
        holder = holder[step]
    if place is None:
        return False
    del place[0][place[1]]  # type: ignore[arg-type]
    return True


def drawn(count: int, *, start: int = 0) -> list[Object]:
    """So many specs that are served, all different, the same ones for the same ``start``."""
    found: dict[str, Object] = {}
    number = start
    while len(found) < count:
        spec = _largest(number)
        found[json.dumps(spec, sort_keys=True)] = spec
        number += 1
    return list(found.values())


def _largest(number: int) -> Object:
    drawn_specs: list[Object] = []

    @seed(number)
    @settings(
        max_examples=_DRAWS,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(specs())
    def draw(spec: Object) -> None:
        drawn_specs.append(spec)

    draw()
    legal = [spec for spec in map(served, drawn_specs) if spec is not None]
    return max(legal, key=lambda spec: len(json.dumps(spec)))
