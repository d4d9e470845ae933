"""Records what a real pair of engines counts when clients hang up: vLLM on CPU, NIXL over TCP.

Not collected. ENV is what engine-patches/sharded-store/tests/environment.sh makes, and tests/real
beside it has to be in PYTHONPATH:

    ENV/venv/bin/python record_hang_ups.py ENV OUT

Writes one line a moment, `{"did": what since the last one, "pages": {role: text}}`, with the
families that say how transfers end. A lease is 6 s here, so that it runs out while one waits.
"""

from __future__ import annotations

import gzip
import json
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from serving import Vllm, installed, prompt

LEASE = 6
TOKENS, LONG = 300, 3000
KEPT = (
    "vllm:nixl_num_failed", "vllm:nixl_num_kv", "vllm:nixl_num_notif",
    "vllm:nixl_bytes_transferred_count", "vllm:nixl_bytes_transferred_sum",
    "vllm:request_success_total",
)  # fmt: skip
FIRST_LEG = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    **dict.fromkeys(("remote_engine_id", "remote_block_ids", "remote_host", "remote_port")),
}


def engine(name: str, env: Path, work: Path) -> Vllm:
    transfer = {
        "kv_connector": "NixlConnector",
        "kv_role": "kv_producer" if name == "prefill" else "kv_consumer",
        "kv_buffer_device": "cpu",
        "kv_connector_extra_config": {"kv_lease_duration": LEASE},
    }
    model, found = env / "models" / "tiny-gqa", installed(work / "site")
    return Vllm(name, model, work, "--block-size", "32", transfer=transfer, env=found)


def hang_up(engine: Vllm, seconds: float, text: str, **more: Any) -> None:
    """Ask, and close the connection without having read an answer."""
    asked = {"model": "tiny", "prompt": text, "ignore_eos": True, "stream": True, **more}
    body = json.dumps(asked).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", engine.port)) as connection:
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        time.sleep(seconds)


def main(env: Path, out: Path) -> None:
    work = Path(tempfile.mkdtemp())
    engines = {name: engine(name, env, work) for name in ("prefill", "decode")}
    prefill, decode = engines.values()
    rows: list[str] = []

    def leg(seed: int) -> dict[str, Any]:
        answer = prefill.ask(prompt(seed, TOKENS), 1, kv_transfer_params=FIRST_LEG)
        assert answer.transfer, answer
        return answer.transfer

    def moment(did: str, seconds: float) -> None:
        time.sleep(seconds)
        texts = {role: found.get("/metrics").splitlines() for role, found in engines.items()}
        pages = {
            role: "\n".join(line for line in lines if line.startswith(KEPT))
            for role, lines in texts.items()
        }
        rows.append(json.dumps({"did": did, "pages": pages}))

    try:
        for each in engines.values():
            each.wait()
        for seed in range(3):
            found = decode.ask(prompt(seed, TOKENS), 8, kv_transfer_params=leg(seed))
            assert not found.error, found
        moment("three requests, both legs", 3)
        for seed in range(10, 18):
            text, transfer = prompt(seed, TOKENS), leg(seed)
            seconds = 1.0 if seed < 14 else 0.0
            hang_up(decode, seconds, text, max_tokens=LONG, kv_transfer_params=transfer)
        moment("eight clients hung up at decode", 3)
        moment("12 s later", 2 * LEASE)
        for seed in range(20, 24):
            leg(seed)
        moment("four clients hung up between the legs", 2 * LEASE + 2)
        hang_up(prefill, 0.05, prompt(30, LONG), max_tokens=1, kv_transfer_params=FIRST_LEG)
        moment("a client hung up at prefill", 2 * LEASE)
    finally:
        for each in engines.values():
            each.kill()
    out.write_bytes(gzip.compress(("\n".join(rows) + "\n").encode(), mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
