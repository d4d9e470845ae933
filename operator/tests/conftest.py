"""Options that all tests of the operator share."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write what is rendered now into operator/tests/golden instead of comparing",
    )
