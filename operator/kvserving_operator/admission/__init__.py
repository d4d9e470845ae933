"""What the API server says to an object, without one: schema, defaults, CEL rules. Pure.

The CRD is made from the models, so the same schema answers here. A component test sends every row
of the admission table to a real API server and to this package and compares the verdicts.
"""

from kvserving_operator.admission.verdict import Verdict, admit

__all__ = ["Verdict", "admit"]
