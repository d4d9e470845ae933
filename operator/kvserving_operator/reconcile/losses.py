"""What a pass is about to cost the tier, as events that are written before it does so. Pure."""

from collections.abc import Iterator

from kvserving_operator.api.conditions import Reason
from kvserving_operator.kube import paths
from kvserving_operator.kube.paths import resource_of
from kvserving_operator.plan.losses import expected_loss
from kvserving_operator.plan.model import Manifest, Plan
from kvserving_operator.reconcile.changes import Applied, Comparison
from kvserving_operator.render.metadata import label
from kvserving_operator.status import Event


def losses_of(
    live: Manifest, plan: Plan, comparison: Comparison, previews: Applied
) -> Iterator[Event]:
    """The events of these changes; `previews`: what the server's dry run made of them."""
    before = ((live.get("status") or {}).get("tier") or {}).get("epoch")
    if comparison.changes and before and plan.tier_epoch and before != plan.tier_epoch:
        yield _event(
            "what keys rest on has changed (a new tier epoch): nothing that is in the tier now is "
            "read any more"
        )
        return
    stored = {label(each): each for each in previews.written}
    for change in comparison.changes:
        tier = plan.tier is not None and change.rendered["metadata"]["name"] == plan.tier.name
        if not tier or resource_of(change.rendered) is not paths.STATEFULSETS:
            continue
        preview = stored.get(change.label)
        if change.live is None or preview is None:
            continue
        restarts = preview["spec"]["template"] != change.live["spec"]["template"]
        if told := expected_loss(change.live, change.rendered, restarts=restarts):
            yield _event(told)


def _event(message: str) -> Event:
    return Event(type="Normal", reason=Reason.HIT_LOSS_EXPECTED, message=message)
