"""GET bandwidth of the remote tier: rows 1, 2, 3, 8 and 10 of the speed table.

    python bandwidth.py --server 9.1=PATH --server 8.1=PATH [--native SO] [--device] > result.json

Every configuration is measured ``--repeat`` times, in turns, so that a slow phase of the machine
touches all of them. Ratios are of medians of the same run of this program.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parents[1] / "engine-patches" / "sharded-store"


@dataclass(frozen=True)
class Case:
    """One configuration.

    Attributes:
        row: Row of the speed table.
        name: What differs within the row.
        server: Version of the server, as named on the command line.
        ranks: Client processes.
        instances: Servers; ranks are dealt to them in turn.
        io_threads: The servers' setting.
        client: ours, native or asyncio.
        threads: Connections of a client.
        into: host or device memory.
        spin: Whether the client's main thread holds the interpreter lock.
        low_water: See ``resp.work.Options``.
    """

    row: int
    name: str
    server: str
    ranks: int = 1
    instances: int = 1
    io_threads: int = 1
    client: str = "ours"
    threads: int = 4
    into: str = "host"
    spin: bool = False
    low_water: int = 1 << 20


def cases(servers: list[str], ranks: int, *, native: bool, device: bool) -> list[Case]:
    """The rows' configurations."""
    found = []
    for server in servers:
        found += [
            Case(1, "all ranks, an instance each", server, ranks, ranks),
            Case(1, "all ranks, an instance each, 2 threads", server, ranks, ranks, threads=2),
            Case(1, "one rank, one instance", server),
            Case(1, "all ranks, one instance", server, ranks),
            Case(1, "all ranks, one instance, io-threads 8", server, ranks, io_threads=8),
        ]
        if device:
            found.append(
                Case(2, "all ranks, into device memory", server, ranks, ranks, into="device")
            )
    newest = servers[0]
    for engines in (1, 2, 4, 6):
        name = f"{engines} engines on the same instances"
        found.append(Case(8, name, newest, engines * ranks, ranks, threads=2))
    for threads, low in ((2, 0), (4, 0), (4, 1 << 20)):
        name = f"ours beside a busy main thread, {threads} threads, low water {low >> 20} MiB"
        found.append(Case(3, name, newest, threads=threads, spin=True, low_water=low))
    found.append(Case(3, "asyncio beside a busy main thread", newest, client="asyncio", spin=True))
    found += [
        Case(10, f"ours, {n} threads, low water {low >> 20} MiB", newest, threads=n, low_water=low)
        for n in (2, 4)
        for low in (0, 1 << 20)
    ]
    if native:
        found += [
            Case(10, f"native, {n} threads", newest, client="native", threads=n) for n in (2, 4)
        ]
    return found


class Servers:
    """Servers of one version, filled with the chunks of all ranks."""

    def __init__(self, binary: str, case: Case, chunks: int, size: int) -> None:
        self.ports = [free_port() for _ in range(case.instances)]
        self._processes = [
            subprocess.Popen(
                [binary, "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
                + ["--appendonly", "no", "--io-threads", str(case.io_threads)],
                stdout=subprocess.DEVNULL,
            )
            for port in self.ports
        ]
        value = os.urandom(size)
        for rank in range(case.ranks):
            port = self.port_of(rank)
            wait_for(port)
            with socket.create_connection(("127.0.0.1", port), 30) as connection:
                for number in range(chunks):
                    key = f"r{rank}-{number}".encode()
                    connection.sendall(
                        b"*3\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$%d\r\n" % (len(key), key, size)
                        + value
                        + b"\r\n"
                    )
                    assert connection.recv(100) == b"+OK\r\n"

    def port_of(self, rank: int) -> int:
        return self.ports[rank % len(self.ports)]

    def cpu(self) -> float:
        """CPU seconds of all servers so far."""
        ticks = 0
        for process in self._processes:
            stat = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            ticks += int(stat[11]) + int(stat[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(port: int) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def measure(case: Case, binary: str, given: argparse.Namespace) -> dict[str, float]:
    """One measurement of one configuration."""
    servers = Servers(binary, case, given.chunks, given.size)
    environment = os.environ | {"PYTHONPATH": f"{PACKAGE}:{os.environ.get('PYTHONPATH', '')}"}
    ranks = []
    try:
        for rank in range(case.ranks):
            command = [sys.executable, str(HERE / "rank.py"), "--port", str(servers.port_of(rank))]
            command += ["--prefix", f"r{rank}", "--chunks", str(given.chunks)]
            command += ["--size", str(given.size), "--seconds", str(given.seconds)]
            command += ["--threads", str(case.threads), "--client", case.client]
            command += ["--into", case.into, "--native-module", given.native or ""]
            command += ["--spin"] if case.spin else []
            command += ["--low-water", str(case.low_water)]
            ranks.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env=environment,
                )
            )
        for process in ranks:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        server_cpu = servers.cpu()
        for process in ranks:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        results = [json.loads(process.communicate(timeout=120)[0]) for process in ranks]
        return _summary(results, servers.cpu() - server_cpu, given)
    finally:
        for process in ranks:
            process.kill()
        servers.close()


def _summary(
    results: list[dict[str, Any]], server_cpu: float, given: argparse.Namespace
) -> dict[str, float]:
    """Bytes of all ranks over the window in which all of them were reading."""
    began = max(result["began"] for result in results)
    ended = min(result["ended"] for result in results)
    total = 0.0
    for result in results:
        at = result["began"]
        for seconds in result["batches"]:
            overlap = max(0.0, min(at + seconds, ended) - max(at, began))
            total += given.chunks * given.size * overlap / seconds
            at += seconds
    everything = sum(len(result["batches"]) for result in results) * given.chunks * given.size
    return {
        "gigabytes_per_second": total / (ended - began) / 1e9,
        "batch_p50_ms": 1e3 * median(s for result in results for s in result["batches"]),
        "batch_p99_ms": 1e3 * quantile([s for r in results for s in r["batches"]], 0.99),
        "client_cpu_per_gigabyte": sum(result["cpu"] for result in results) / (everything / 1e9),
        "server_cpu_per_gigabyte": server_cpu / (everything / 1e9),
        "window_seconds": ended - began,
    }


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", action="append", required=True, metavar="VERSION=PATH")
    parser.add_argument("--native", help="LMCache's lmcache_redis extension module")
    parser.add_argument("--device", action="store_true", help="measure into device memory as well")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--chunks", type=int, default=8)
    parser.add_argument("--size", type=int, default=12_400_000)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--rows", default="", help="only these, separated by commas")
    parser.add_argument("--until", type=float, default=1e9, help="seconds after which to stop")
    given = parser.parse_args()
    binaries = dict(server.split("=", 1) for server in given.server)
    todo = cases(list(binaries), given.ranks, native=bool(given.native), device=given.device)
    rows = set(filter(None, given.rows.split(",")))
    todo = [case for case in todo if not rows or str(case.row) in rows]
    runs: dict[Case, list[dict[str, float]]] = {case: [] for case in todo}
    began = time.monotonic()
    for _ in range(given.repeat):
        for case in todo:
            if time.monotonic() - began > given.until:
                break
            result = measure(case, binaries[case.server], given)
            runs[case].append(result)
            shown = {name: round(value, 3) for name, value in result.items()}
            print(case.row, case.server, case.name, shown, file=sys.stderr, flush=True)
    print(
        json.dumps(
            {
                "machine": f"{os.cpu_count()} CPUs, {platform.platform()}",
                "python": platform.python_version(),
                "chunk_bytes": given.size,
                "chunks_per_batch": given.chunks,
                "cases": [asdict(case) | {"runs": results} for case, results in runs.items()],
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
