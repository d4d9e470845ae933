"""Rules that every engine has, on tables of its own, and the shape of a rule. Pure."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from kvserving_operator.api.types import EnvVar
from kvserving_operator.engines.base import Proposal
from kvserving_operator.engines.faults import Fault, invalid
from kvserving_operator.engines.flags import FlagTable, malformed

Rule = Callable[[Proposal], Iterator[Fault]]


def arguments_are_readable(proposal: Proposal) -> Iterator[Fault]:
    """Each element of extraArgs is one word of the command line."""
    for field, arguments in argument_lists(proposal):
        for index, what, remedy in malformed(arguments):
            yield invalid(f"{field}[{index}]", what, remedy)


def refuse_everywhere(table: FlagTable, proposal: Proposal, why: str) -> Iterator[Fault]:
    """A fault for each flag of ``table``, in the arguments of the engine and of the roles."""
    for field, arguments in argument_lists(proposal):
        yield from refuse(table, field, arguments, why)


def refuse_in_roles(table: FlagTable, proposal: Proposal, why: str) -> Iterator[Fault]:
    """A fault for each flag of ``table`` in the arguments of a role; the engine may have them."""
    for role, role_spec in proposal.roles:
        yield from refuse(table, f"spec.{role}.extraArgs", role_spec.extra_args, why)


def refuse(table: FlagTable, field: str, arguments: Sequence[str], why: str) -> Iterator[Fault]:
    """A fault for each flag of ``table`` in one list of arguments."""
    for index, argument in enumerate(arguments):
        if flag := table.find(argument):
            what = f"{flag.told(argument)} {why}"
            yield invalid(f"{field}[{index}]", what, flag.remedy)


def refuse_variables(
    proposal: Proposal, remedy_of: Callable[[EnvVar], str | None]
) -> Iterator[Fault]:
    """A fault for each variable of the engine or of a role that has a remedy."""
    for field, variables in _environments(proposal):
        for index, variable in enumerate(variables):
            if remedy := remedy_of(variable):
                yield invalid(f"{field}[{index}]", f"{variable.name} is the operator's", remedy)


def argument_lists(proposal: Proposal) -> Iterable[tuple[str, tuple[str, ...]]]:
    """Field and elements of every extraArgs."""
    yield "spec.engine.extraArgs", proposal.spec.engine.extra_args
    for role, role_spec in proposal.roles:
        yield f"spec.{role}.extraArgs", role_spec.extra_args


def _environments(proposal: Proposal) -> Iterable[tuple[str, tuple[EnvVar, ...]]]:
    yield "spec.engine.env", proposal.spec.engine.env
    for role, role_spec in proposal.roles:
        yield f"spec.{role}.env", role_spec.env
