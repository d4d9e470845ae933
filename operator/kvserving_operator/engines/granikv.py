"""The environment of GraniKV (``granikv/sglang/settings.py``), for every engine with it. Pure.

The share of the HOT pool at the start, its bounds, and where the control contract listens
(loopback); while the engine runs the share is changed through that contract.
"""

from collections.abc import Iterable
from typing import Final

from kvserving_operator.api.types import EnvVar
from kvserving_operator.api.v1alpha1 import HotMode, HotSpec
from kvserving_operator.engines import ports
from kvserving_operator.engines.ports import Port

BACKEND: Final = "granikv"
"""Name of the attention backend that it registers."""


def control(hot: HotSpec) -> Port | None:
    """Where an engine that decodes answers for GraniKV; None when HOT is off."""
    return None if hot.mode is HotMode.OFF else ports.GRANIKV_CONTROL


def environment(hot: HotSpec) -> Iterable[EnvVar]:
    """The variables of an engine that decodes; none when HOT is off."""
    if hot.mode is HotMode.OFF:
        return
    values = {
        "GRANIKV_HOT_PERCENT": hot.percent,
        "GRANIKV_MIN_PERCENT": hot.min_percent,
        "GRANIKV_MAX_PERCENT": hot.max_percent,
        "GRANIKV_PORT": ports.GRANIKV_CONTROL.number,
    }
    yield from (EnvVar(name=name, value=str(value)) for name, value in values.items())
