"""SGLang: the seam for the second engine. Until it is there every spec that asks for it is refused.

The refusal itself stands with the others in ``plan.availability``; nothing here is reached by a
spec without a fault.
"""

from collections.abc import Iterable, Sequence
from typing import NoReturn

from kvserving_operator.api.v1alpha1 import Attention, Parallelism
from kvserving_operator.engines.base import Launch, Proposal, Role, Topology, Wiring
from kvserving_operator.engines.faults import Fault


class NotAvailableYetError(Exception):
    """Something was asked of an engine whose support is not built yet."""


class SGLang:
    """SGLang, as an ``Engine``."""

    def rules(self, proposal: Proposal) -> Iterable[Fault]:
        """Nothing beyond what ``plan.availability`` says."""
        del proposal
        return ()

    def environment_remedy(self, name: str, value: str | None) -> str | None:
        """No variable is owned yet."""
        del name, value
        return None

    def kv_arguments(self, arguments: Sequence[str]) -> tuple[str, ...]:
        """All of them: which ones shape the KV is not known yet."""
        return tuple(arguments)

    def topology(self, parallelism: Parallelism, attention: Attention) -> Topology:
        """Not there yet."""
        _refuse(parallelism, attention)

    def launch(self, proposal: Proposal, role: Role, wiring: Wiring) -> Launch:
        """Not there yet."""
        _refuse(proposal, role, wiring)


def _refuse(*arguments: object) -> NoReturn:
    del arguments
    raise NotAvailableYetError("SGLang engines are not available yet")
