"""Makes the CUDA build of torch loadable where there is no CUDA: `cuda_stub.py TORCH_LIB_FOLDER`.

Torch's libraries import some 700 symbols of CUDA libraries that are 3 GB to install and never
called on a CPU.  One small shared object defines them all, each returning 100 ("no device"), and
is linked under every library name that torch asks for.  Needs readelf and gcc.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

LIBRARY = re.compile(r"lib(cu(?!rl)\w*|nccl|nvrtc|nvshmem\w*|nvJitLink)\.so|NVSHMEM")
SYMBOL = re.compile(r"^_{0,2}(cu|nccl|nvrtc|nvshmem|nvJit)")
STUB = "libcudastub.so"


def readelf(flag: str, path: Path) -> list[str]:
    done = subprocess.run(
        ["readelf", "-W", flag, str(path)], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def scan(libraries: list[Path]) -> tuple[set[str], dict[str, set[str]]]:
    """Names of the missing libraries, and their symbols by version ("" is none)."""
    names: set[str] = set()
    wanted: dict[str, set[str]] = {"": set()}
    defined: set[str] = set()
    for library in libraries:
        for line in readelf("-d", library):
            needed = re.search(r"\(NEEDED\).*\[(.+)\]", line)
            if needed and LIBRARY.match(needed[1]):
                names.add(needed[1])
        for line in readelf("--dyn-syms", library):
            fields = line.split()
            if len(fields) < 8 or not fields[0].endswith(":"):
                continue
            name, _, version = fields[7].partition("@")
            version = version.lstrip("@")
            if fields[6] != "UND":
                defined.add(name)
            elif LIBRARY.match(version) or (not version and SYMBOL.match(name)):
                wanted.setdefault(version, set()).add(name)
    wanted[""] -= defined
    return names, wanted


def build(folder: Path, wanted: dict[str, set[str]]) -> None:
    body = ["\t.text"]
    for name in sorted(set().union(*wanted.values())):
        body += [f"\t.globl {name}", f"\t.type {name}, @function", f"{name}:"]
    body += ["\tmovl $100, %eax", "\tret", '\t.section .note.GNU-stack,"",@progbits', ""]
    with tempfile.TemporaryDirectory() as scratch:
        source, versions = Path(scratch, "stub.s"), Path(scratch, "stub.map")
        source.write_text("\n".join(body))
        nodes = [
            f"{version} {{ global: {' '.join(f'{s};' for s in sorted(names))} }};"
            for version, names in sorted(wanted.items())
            if version
        ]
        versions.write_text("\n".join(nodes) + "\n")
        link = ["-shared", "-nostdlib", f"-Wl,--version-script={versions}", f"-Wl,-soname,{STUB}"]
        subprocess.run(["gcc", *link, "-o", str(folder / STUB), str(source)], check=True)


def main() -> None:
    folder = Path(sys.argv[1])
    libraries = [p for p in folder.glob("*.so") if not p.is_symlink() and p.name != STUB]
    names, wanted = scan(libraries)
    build(folder, wanted)
    for name in names:
        if not (folder / name).exists():
            (folder / name).symlink_to(STUB)


if __name__ == "__main__":
    main()
