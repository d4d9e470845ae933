"""Pure modules import neither vLLM nor LMCache nor torch, and no other third party either."""

import subprocess
import sys
from pathlib import Path

MODULES = [
    "address",
    "apart",
    "bypass",
    "contract",
    "control",
    "control_http",
    "exchange",
    "grouping",
    "inquiry",
    "judge",
    "keys",
    "leave",
    "lookup",
    "marker",
    "modes",
    "ownership",
    "policy",
    "prefetch",
    "resp.instance",
    "store",
    "versions",
]


def test_pure_modules_import_the_standard_library_alone() -> None:
    code = (
        "import sys\n"
        + "".join(f"import kvserving_sharded_store.{name}\n" for name in MODULES)
        + "known = set(sys.stdlib_module_names) | {'kvserving_sharded_store', '__mp_main__'}\n"
        "print(sorted({m.partition('.')[0] for m in sys.modules} - known - {'__main__'}))"
    )
    # -S: no site-packages, hence no start-up imports of other distributions.
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
