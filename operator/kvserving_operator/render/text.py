"""Text that ends inside an object: the jinja2 environment, strict and without side doors. Pure.

Objects themselves are never text. A value that a template forgets, or asks for in vain, is an
error; whatever a user wrote reaches a shell script through the ``quote`` filter only.
"""

import shlex
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined

_ENVIRONMENT: Final = Environment(
    loader=PackageLoader("kvserving_operator.render"),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    autoescape=False,  # noqa: S701 - none of it is HTML
)
_ENVIRONMENT.filters["quote"] = shlex.quote


def template(name: str, **values: object) -> str:
    """The text of ``templates/NAME`` with ``values`` filled in."""
    return _ENVIRONMENT.get_template(name).render(**values)
