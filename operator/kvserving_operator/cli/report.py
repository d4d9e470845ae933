"""How faults are shown: one line each, whatever is in them."""

import sys
from collections.abc import Iterator, Sequence
from typing import TextIO

from kvserving_operator.admission.texts import printable
from kvserving_operator.cli.inputs import Result
from kvserving_operator.cli.output import Colour, coloured


def lines(checked: Sequence[Result], stream: TextIO | None = None) -> Iterator[str]:
    """One line for each fault: source, field, what, remedy; coloured for ``stream``."""
    stream = stream or sys.stdout
    for result in checked:
        for finding in result.findings:
            fault = finding.fault
            field = coloured(printable(fault.field), Colour.BOLD, stream)
            what = coloured(printable(fault.what), Colour.RED, stream)
            yield f"{printable(result.source)}: {field}: {what}; {printable(fault.remedy)}"
