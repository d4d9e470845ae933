"""The alert rules in Prometheus' own rule engine, and what they ask for against the code."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import debian
from kvserving_operator.observe.tier import Tiers
from kvserving_operator.runtime import metrics
from kvserving_operator.runtime.tier_metrics import TierCollector

from . import helm

RULES = helm.CHART / "files" / "alerts.yaml"
CASES = Path(__file__).with_name("alerts") / "cases.yaml"
SCRAPED = {"pod"}
"""Labels that a Prometheus adds."""


@cache
def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    binary = debian.ensure(debian.PROMETHEUS) / "usr/bin/promtool"
    return subprocess.run(
        [str(binary), *arguments], capture_output=True, text=True, check=False, timeout=60
    )


def test_the_rules_are_rules() -> None:
    done = promtool("check", "rules", str(RULES))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules())} rules found" in done.stdout


def test_alerts_fire_when_they_should_and_at_no_other_time() -> None:
    done = promtool("test", "rules", str(CASES))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("alert", [rule["alert"] for rule in rules()])
def test_every_alert_has_a_case_that_fires_and_one_that_does_not(alert: str) -> None:
    tests = yaml.safe_load(CASES.read_text())["tests"]
    cases = [case for test in tests for case in test["alert_rule_test"]]
    fires = {bool(case["exp_alerts"]) for case in cases if case["alertname"] == alert}
    assert fires == {True, False}


def labels_of_the_operator() -> dict[str, set[str]]:
    """By name of a metric the labels that the code gives it."""
    given = [*vars(metrics).values(), *TierCollector(Tiers()).collect()]
    found = {}
    for family in given:
        names = getattr(family, "_labelnames", None)
        if names is not None:
            name = getattr(family, "_name", None) or family.name
            kind = getattr(family, "_type", None) or family.type
            found[name + ("_total" if kind == "counter" else "")] = set(names)
    return found


def test_rules_and_cases_know_the_labels_that_the_operator_gives() -> None:
    known = labels_of_the_operator()
    text = RULES.read_text() + CASES.read_text()
    asked = re.findall(r"(kvserving_operator_\w+)(?:\{([^}]*)\})?", text)
    assert asked
    for name, matchers in asked:
        labels = set(re.findall(r"(\w+)\s*=", matchers))
        assert labels - SCRAPED <= known[name], name


def test_the_chart_makes_a_prometheus_rule_of_the_file_itself() -> None:
    """Byte for byte: what Prometheus fills in is not for Helm."""
    assert helm.of_kind("default", "PrometheusRule") == []
    made = helm.only("two-replicas", "PrometheusRule")
    assert made["spec"] == yaml.safe_load(RULES.read_text())
    assert made["metadata"]["labels"]["release"] == "prometheus"
