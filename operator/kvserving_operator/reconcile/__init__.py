"""One pass over one KVServing: read, plan, render, compare, write what differs, report.

Level-triggered: a pass knows only which object it is about, reads everything anew, and is correct
from any starting point. The runtime calls it from its queue and never two at once for one object.
"""

from kvserving_operator.reconcile.passes import PassResult, Reconciler

__all__ = ["PassResult", "Reconciler"]
