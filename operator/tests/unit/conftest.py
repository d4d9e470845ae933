"""The gate takes seconds; `hack/test.sh thorough` looks again, at everything and more often."""

import os

from hypothesis import settings

settings.register_profile("gate", max_examples=15, deadline=None)
settings.register_profile("thorough", max_examples=100, deadline=None)
settings.load_profile("thorough" if os.environ.get("KVSERVING_TEST_THOROUGH") else "gate")
