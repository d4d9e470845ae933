"""The generated CRD as a whole."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvserving_operator.api import crdgen, duration, quantity
from kvserving_operator.api.crdgen import custom_resource_definition, root_schema
from kvserving_operator.api.reference import markdown
from tests.unit.api.schema_tools import with_defaults

ROOT = Path(__file__).parents[4]
SCHEMA = root_schema()
SPEC, STATUS = SCHEMA["properties"]["spec"], SCHEMA["properties"]["status"]
TEXT = crdgen.generated_files()[crdgen.CRD_FILE]
VERSION = custom_resource_definition()["spec"]["versions"][0]


def levels(path: str, schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema below this one, with its path."""
    yield path, schema
    for name, prop in schema.get("properties", {}).items():
        yield from levels(f"{path}.{name}", prop)
    for key, suffix in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(schema.get(key), dict):
            yield from levels(f"{path}{suffix}", schema[key])


LEVELS = [*levels("spec", SPEC), *levels("status", STATUS)]


def at(path: str) -> dict[str, Any]:
    found = dict(LEVELS).get(path)
    assert found is not None, f"the schema has no {path}"
    return found


def test_the_committed_files_are_what_the_models_give() -> None:
    for path, text in crdgen.generated_files().items():
        assert (ROOT / path).read_text() == text, f"{path}: run `{crdgen.COMMAND}`"


def test_it_fits_client_side_apply() -> None:
    assert len(TEXT.encode()) < crdgen.MAX_BYTES


@pytest.mark.thorough
def test_it_is_plain_yaml_without_aliases() -> None:
    assert yaml.safe_load(TEXT) == custom_resource_definition()
    assert not re.search(r"[:-] [&*]\w", TEXT)


@pytest.mark.thorough
def test_output_is_equal_under_another_hash_seed() -> None:
    code = "from kvserving_operator.api.crdgen import *; print(*generated_files().values(), sep='')"
    other = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONHASHSEED": "4242", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        check=True,
    )
    assert other.stdout.decode() == "".join(crdgen.generated_files().values()) + "\n"


def test_check_tells_how_to_regenerate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert crdgen.main(["--check", "--root", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert crdgen.COMMAND in error
    assert not any(tmp_path.iterdir())
    assert crdgen.main(["--root", str(tmp_path)]) == 0
    assert crdgen.main(["--check", "--root", str(tmp_path)]) == 0
    (tmp_path / crdgen.CRD_FILE).write_text("edited")
    assert crdgen.main(["--check", "--root", str(tmp_path)]) == 1


def test_every_field_is_described() -> None:
    for path, schema in LEVELS:
        if path.endswith(("[]", "{}")) and "properties" not in schema:
            continue  # a plain item: its list describes it
        description = schema.get("description", "")
        assert len(description) > 8, f"{path} has no description"
        assert description[0].isupper() or description[0].isdigit(), f"{path}: {description!r}"
        assert description.endswith("."), f"{path}: {description!r} is not a sentence"
        if "default" in schema and not isinstance(schema["default"], dict):
            assert "Default" in description, f"{path}: the description does not tell the default"


def test_scalar_defaults_are_told_as_they_are() -> None:
    for path, schema in LEVELS:
        default = schema.get("default")
        if not isinstance(default, str | int) or default == "":
            continue
        spelled = str(default).lower() if isinstance(default, bool) else str(default)
        told = re.findall(r"Default:? ([^ ]+?)[.:,]?(?: |$)", schema["description"])
        assert spelled in told, f"{path}: default {spelled}, description tells {told}"


SPEC_FIELDS = """
    suspend model.name model.servedNames model.revision model.digest model.attention
    model.maxModelLen model.huggingFace.tokenSecretRef.name model.huggingFace.tokenSecretRef.key
    model.huggingFace.offline model.cache.mountPath model.volume.path model.volume.readOnly
    engine.type engine.image engine.version engine.features engine.extraArgs engine.env
    engine.podTemplate engine.cacheVolume engine.imagePullSecrets
    kvCache.dtype kvCache.chunkTokens kvCache.local.sizePerReplica kvCache.remote.type
    kvCache.remote.instancesPerRank kvCache.remote.memoryPerInstance kvCache.remote.image
    kvCache.remote.resources kvCache.remote.podTemplate kvCache.remote.tls.mode
    kvCache.remote.tls.issuerRef kvCache.remote.tls.secretRef kvCache.remote.persistence
    kvCache.remote.external.urlTemplate kvCache.remote.external.authSecretRef
    kvCache.remote.external.caSecretRef kvCache.remote.loading.mode
    kvCache.remote.loading.minTokens kvCache.hot.mode kvCache.hot.percent
    kvCache.hot.minPercent kvCache.hot.maxPercent
    transfer.connector transfer.nixl.backends transfer.nixl.numThreads
    transfer.nixl.bufferDevice transfer.nixl.extraConfig transfer.loadFailurePolicy
    transfer.peerRestart router.type router.replicas router.policy router.prefillPolicy
    router.decodePolicy router.image router.extraArgs router.env router.resources
    router.podTemplate router.service.type router.service.annotations
    router.gateway.parentRefs router.gateway.hostnames rollout.strategy rollout.paused
    rollout.maxUnavailable sla.ttft.p90 sla.ttft.p50 sla.ttft.mean sla.itl.p90
    autoscaling.mode autoscaling.prefill.minReplicas autoscaling.prefill.maxReplicas
    autoscaling.decode.minReplicas autoscaling.decode.maxReplicas autoscaling.gpuBudget
    autoscaling.ratio.min autoscaling.ratio.max tuning.mode tuning.interval metrics.source
    metrics.prometheus.url metrics.prometheus.secretRef metrics.podMonitor.labels
    metrics.podMonitor.interval networkPolicy.mode networkPolicy.clients
    networkPolicy.metricsFrom
"""
ROLE_FIELDS = """
    replicas parallelism.prefillContext parallelism.tensor parallelism.pipeline
    parallelism.data parallelism.decodeContext parallelism.expert nodesPerReplica image
    extraArgs env resources accelerator.resourceName rdma.resources podTemplate
    workloadLabels workloadAnnotations startupTimeout drain.timeout drain.lease
"""
STATUS_FIELDS = """
    observedGeneration phase kvShards tier.instances tier.ready tier.epoch prefill.replicas
    prefill.ready prefill.updated prefill.draining prefill.revision decode.replicas
    model.recomputeTokensPerSecond model.bytesPerToken model.bandwidthBytesPerSecond
    model.engineFixedMilliseconds model.requestFixedMilliseconds model.breakEvenTokensIdle
    model.breakEvenTokensNow tuning.loading tuning.hotPercent tuning.reason tuning.lastChange
    tuning.history scaling.desiredPrefill scaling.desiredDecode scaling.reason gpus.requested
    gpus.budget conditions
"""


@pytest.mark.parametrize(
    ("parent", "fields"),
    [
        ("spec", SPEC_FIELDS),
        ("spec.prefill", ROLE_FIELDS),
        ("spec.decode", ROLE_FIELDS),
        ("status", STATUS_FIELDS),
    ],
)
def test_every_field_of_the_design_is_there(parent: str, fields: str) -> None:
    for path in fields.split():
        at(f"{parent}.{path}")


def test_only_three_things_must_be_written() -> None:
    assert SPEC["required"] == ["model", "engine", "decode"]
    assert at("spec.model")["required"] == ["name"]
    assert at("spec.engine")["required"] == ["image"]
    assert at("spec.decode")["required"] == ["parallelism"]
    assert "required" not in at("spec.prefill")


def test_replicas_of_the_roles_have_no_default() -> None:
    """A default would undo what an autoscaler or `kubectl scale` set, at the next apply."""
    for role in ("prefill", "decode"):
        assert "default" not in at(f"spec.{role}.replicas")
        assert at(f"spec.{role}.replicas")["minimum"] == 0
    assert "default" not in at("spec.prefill")


def test_nothing_is_a_float_and_everything_is_typed() -> None:
    for path, schema in [*LEVELS, ("", SCHEMA)]:
        if schema.get("x-kubernetes-int-or-string"):
            assert "type" not in schema, path
        else:
            assert schema["type"] in {"object", "array", "string", "integer", "boolean"}, path


def test_everything_that_rules_may_read_is_bounded() -> None:
    for path, schema in levels("spec", SPEC):
        match schema.get("type"):
            case "string":
                assert "enum" in schema or schema["maxLength"] <= 32768, path
            case "array":
                assert schema["maxItems"] <= 128, path
                assert schema["x-kubernetes-list-type"] in {"atomic", "set", "map"}, path
            case "object" if "additionalProperties" in schema:
                assert schema["maxProperties"] <= 128, path
            case "integer":
                assert "minimum" in schema, path
                assert "maximum" in schema, path


def test_list_map_keys_are_required() -> None:
    for path, schema in LEVELS:
        for key in schema.get("x-kubernetes-list-map-keys", ()):
            assert key in schema["items"]["required"], path


def test_patterns_are_anchored_and_need_no_lookaround() -> None:
    for path, schema in LEVELS:
        pattern = schema.get("pattern")
        if pattern is None:
            continue
        assert pattern.startswith("^"), path
        assert pattern.endswith("$"), path
        assert not re.search(r"\(\?[=!<]|\\[1-9]", pattern), path


def test_defaults_satisfy_their_own_schema_and_parsers() -> None:
    for path, schema in LEVELS:
        default = schema.get("default")
        if isinstance(default, str):
            assert re.search(schema.get("pattern", ""), default), path
            if schema.get("pattern") == duration.PATTERN:
                assert duration.milliseconds(default) >= 0
            assert schema.get("pattern") != quantity.BYTES_PATTERN, f"{path}: sizes have no default"
        if isinstance(default, dict):
            assert with_defaults(schema, default) == with_defaults(schema, {}), path


def test_no_list_item_has_defaults() -> None:
    """Tools that compare lists as a whole would see drift in every defaulted item."""
    for path, schema in LEVELS:
        if "[]" in path:
            assert "default" not in schema, path


def rules() -> Iterator[tuple[str, dict[str, Any], dict[str, str]]]:
    for path, schema in [("", SCHEMA), *LEVELS]:
        for rule in schema.get("x-kubernetes-validations", ()):
            yield path, schema, rule


def test_every_rule_names_a_field_that_exists_and_a_remedy() -> None:
    found = list(rules())
    assert len(found) > 50
    for path, schema, rule in found:
        message = rule["message"]
        assert len(message) <= 2048
        assert re.search(r"[:,] ", message), f"{path}: no remedy in {message!r}"
        assert not message.endswith("."), message
        target = schema
        for part in rule.get("fieldPath", "").split(".")[1:]:
            assert part in target["properties"], f"{path}: {rule['fieldPath']}"
            target = target["properties"][part]


def test_spec_rules_name_the_whole_path() -> None:
    for path, _, rule in rules():
        if path == "spec":
            assert rule["message"].startswith(f"spec{rule['fieldPath']}"), rule


def test_names_columns_and_subresources() -> None:
    names = custom_resource_definition()["spec"]["names"]
    assert (names["plural"], names["shortNames"]) == ("kvservings", ["kvs"])
    columns = [column["name"] for column in VERSION["additionalPrinterColumns"]]
    assert columns == [
        *("Phase", "Prefill", "Decode", "Tier", "Loading", "GPUs", "Reason", "Age"),
    ]
    scale = VERSION["subresources"]["scale"]
    for path in (scale["statusReplicasPath"], scale["labelSelectorPath"]):
        at(path.removeprefix("."))
    assert scale["specReplicasPath"] == ".spec.prefill.replicas"
    assert VERSION["subresources"]["status"] == {}
    for column in VERSION["additionalPrinterColumns"][:-2]:
        at(column["jsonPath"].removeprefix("."))


def test_status_is_never_defaulted() -> None:
    assert not [path for path, schema in levels("status", STATUS) if "default" in schema]


def test_the_reference_lists_every_field_with_its_rules() -> None:
    page = markdown(SCHEMA, command="x")
    anchors = set(re.findall(r"\]\(#([^)]+)\)", page))
    heads = {
        "".join(c for c in line[3:].lower() if c.isalnum() or c in "-_")
        for line in page.splitlines()
        if line.startswith("## ")
    }
    assert anchors <= heads
    for path, schema in LEVELS:
        if "properties" in schema:
            assert f"\n## {path}\n" in page, path
            for name in schema["properties"]:
                assert re.search(rf"\| \[?`{name}`", page), f"{path}.{name}"
    for _, _, rule in rules():
        assert rule["message"] in page
