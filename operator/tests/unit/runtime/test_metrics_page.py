"""docs/metrics.md names every metric of the operator, and none that there is not."""

import re
from pathlib import Path

from prometheus_client import Metric

from kvserving_operator.observe.tier import Tiers
from kvserving_operator.runtime import metrics
from kvserving_operator.runtime.tier_metrics import TierCollector

PAGE = Path(__file__).resolve().parents[4] / "docs" / "metrics.md"
SUFFIX = {"counter": "_total", "info": "_info"}


def exported() -> set[str]:
    """As a Prometheus has them; of a histogram the name without `_bucket`, `_sum`, `_count`."""
    families: list[Metric] = [*metrics.REGISTRY.collect(), *TierCollector(Tiers()).collect()]
    names = {family.name + SUFFIX.get(family.type, "") for family in families}
    return {name for name in names if not name.startswith("process_")}


def test_the_page_has_every_metric_of_the_operator_and_no_other() -> None:
    named = set(re.findall(r"\bkvserving_operator_\w+", PAGE.read_text()))
    assert named == exported()
