"""Whether engines that were started with HOT pages have them, from their agents' facts. Pure.

GraniKV leaves an engine whose version it does not know as it is, and then nobody answers on its
port: the engine serves without HOT, which is said and nothing more. Messages hold no counts.
"""

from collections.abc import Collection, Mapping
from typing import Final

from kvserving_operator.api.conditions import Reason
from kvserving_operator.api.v1alpha1 import EngineFeature
from kvserving_operator.engines import ports
from kvserving_operator.measure import EngineFacts
from kvserving_operator.observe.store import StoreFault, StoreHealth, is_passing

_AFTER: Final = "it serves without HOT pages"


def read_hot(
    answers: Mapping[str, EngineFacts | None], *, outdated: Collection[str] = ()
) -> StoreHealth:
    """What is missing, from the facts of each ready pod that should have it.

    None: its agent is silent, of which nothing follows. Pods that are ``outdated`` were started by
    another spec, which may have asked for no HOT.
    """
    faults: list[StoreFault] = []
    waiting = False
    for pod, facts in sorted(answers.items()):
        if facts is None or facts.hot is None or pod in outdated:
            continue
        if is_passing(facts.hot):
            waiting = True
        elif why := _missing(facts):
            message = f"pod {pod} {why}: {_AFTER}"
            faults.append(StoreFault(reason=Reason.FEATURE_MISSING, message=message))
    return StoreHealth(faults=tuple(faults), waiting=waiting)


def _missing(facts: EngineFacts) -> str:
    if facts.hot is None or facts.hot.start_id is None:
        port = ports.GRANIKV_CONTROL.number
        return f"has no GraniKV (nobody answers as one on port {port}, see its log)"
    if EngineFeature.GRANIKV.value not in facts.capabilities:
        return "does not report GraniKV, which spec.engine.features promises"
    return ""
