"""The gate takes seconds; `hack/test.sh thorough` looks again, at everything and more often."""

import gc
import os

from hypothesis import settings

settings.register_profile("gate", max_examples=15, deadline=None)
settings.register_profile("thorough", max_examples=100, deadline=None)
settings.load_profile("thorough" if os.environ.get("KVSERVING_TEST_THOROUGH") else "gate")


def pytest_collection_finish() -> None:
    """All modules and tests stay to the end: each collection would go through them again."""
    gc.collect()
    gc.freeze()
