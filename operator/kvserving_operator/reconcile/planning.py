"""From a stored object to its plan. Pure."""

from pydantic import ValidationError

from kvserving_operator.api.v1alpha1 import KVServing
from kvserving_operator.engines.faults import invalid
from kvserving_operator.plan import build
from kvserving_operator.plan.model import Defaults, Manifest, Plan, Refusal
from kvserving_operator.reconcile.decisions import decision_of


def planned_of(live: Manifest, defaults: Defaults) -> Plan | Refusal:
    """The plan of a stored object, or why it has none.

    Of name and spec alone, with the decision that goes along with it: a status that another version
    wrote is no reason to refuse a spec.
    """
    metadata = live["metadata"]
    identity = {field: metadata[field] for field in ("namespace", "name") if field in metadata}
    try:
        kvserving = KVServing.parse({"metadata": identity, "spec": live["spec"]})
        return build(kvserving, defaults, decided=decision_of(live["spec"]))
    except ValidationError as error:
        # The CRD's schema lets nothing through that the models refuse, except objects that were
        # stored under an older schema.
        faults = tuple(
            invalid(".".join(str(part) for part in item["loc"]), item["msg"], "correct the field")
            for item in error.errors()
        )
        return Refusal(faults=faults)
