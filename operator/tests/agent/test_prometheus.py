"""The operator's Prometheus source against a real server that scrapes real agents and odd pages."""

from __future__ import annotations

import asyncio
import re
import signal
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster.pki import Pki
from kvserving_operator.measure import EngineFacts, parse
from kvserving_operator.observe import promql
from kvserving_operator.observe.prometheus import Fault, Prometheus, Reading
from kvserving_operator.observe.prometheus import Server as Asked

from .ports import Store
from .processes import QUICK, Agent, VllmPages, eventually
from .prometheus import NAMESPACE, PASSWORD, UID, USER, Scraped, Server, basic_auth
from .vllm_pages import PAGE

POD = "glm-prefill-0"
PODS = {POD: UID}
HISTOGRAM = """\
# TYPE vllm:e2e_request_latency_seconds histogram
vllm:e2e_request_latency_seconds_bucket{le="0.3"} 0.0
vllm:e2e_request_latency_seconds_bucket{le="0.5"} 4.0
vllm:e2e_request_latency_seconds_bucket{le="0.8"} 4.0
vllm:e2e_request_latency_seconds_bucket{le="1.0"} 5.0
vllm:e2e_request_latency_seconds_bucket{le="+Inf"} 7.0
vllm:e2e_request_latency_seconds_sum 9.25
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server, not started."""
    process = Server(tmp_path)
    yield process
    process.end()


@pytest.fixture
def beside(tmp_path: Path, pages: VllmPages, store: Store) -> Iterator[Agent]:
    """An agent beside pages and a store's port."""
    agent = Agent(tmp_path, pages.port, **QUICK, KVSERVING_AGENT_STORE_URL=store.url)
    pages.start(metrics=None)
    agent.start()
    store.close("")
    yield agent
    agent.end()


@pytest.fixture
async def source() -> AsyncIterator[Prometheus]:
    async with Prometheus() as asking:
        yield asking


async def read(source: Prometheus, asked: Asked | Server, pods: dict[str, str] = PODS) -> Reading:
    if isinstance(asked, Server):
        asked = Asked(url=asked.url)
    server = asked

    async def connect() -> Asked:
        return server

    return await source.read(
        connect, target=server, owner="uid", namespace=NAMESPACE, pods=pods, anew=True
    )


async def when(source: Prometheus, server: Server, what: str, true: Any) -> EngineFacts:
    """The facts as soon as something is true of them."""
    deadline = time.monotonic() + 20
    while True:
        facts = (await read(source, server)).facts.get(POD)
        if facts is not None and true(facts):
            return facts
        assert time.monotonic() < deadline, f"not within 20 s: {what}; last {facts}"
        await asyncio.sleep(0.1)


def without_ages(facts: EngineFacts) -> EngineFacts:
    """What both sources must agree on: all but ages, and the records of loads and steps."""
    numbers = {name: replace(n, age_seconds=0.0) for name, n in facts.numbers.items()}
    latencies = {name: replace(each, age_seconds=0.0) for name, each in facts.latencies.items()}
    store = facts.store and replace(facts.store, age_seconds=0.0, recent=None)
    return replace(facts, numbers=numbers, latencies=latencies, scrape_age_seconds=0.0, store=store)


async def test_the_same_facts_by_either_way(
    beside: Agent, pages: VllmPages, store: Store, server: Server, source: Prometheus
) -> None:
    pages.behave(metrics=PAGE + HISTOGRAM)
    model = {"R": 52200.0, "s": 48400.0, "B": 1.076e10, "te": 0.182, "tw": 0.148}
    assert beside.tune({"mode": "Async", "minTokens": 512, "model": model})[0] == 200
    beside.await_scrape()
    server.start(Scraped(beside.port, POD))
    facts = await when(
        source, server, "open and scraped", lambda f: f.store.closed is None and f.latencies
    )
    asked = parse(POD, beside.facts())
    assert asked is not None
    assert without_ages(facts) == without_ages(asked)
    assert facts.latencies["request"].buckets == ((0.3, 0.5, 4), (0.8, 1.0, 1), (1.0, None, 2))
    assert facts.store is not None
    assert facts.store.settings is not None
    assert facts.store.settings.model == (52200.0, 48400.0, 1.076e10, 0.182, 0.148)
    assert 0 <= facts.numbers["running"].age_seconds < 5


async def test_lives_of_an_agent_that_ended_by_two_causes(
    beside: Agent, server: Server, source: Prometheus
) -> None:
    for number in (signal.SIGKILL, signal.SIGKILL, signal.SIGABRT):
        beside.another_life(beside.signal_life(number))
    server.start(Scraped(beside.port, POD))
    await when(source, server, "four lives", lambda f: f.lives == 4)
    assert beside.facts()["agent"]["lives"] == 4


async def test_what_the_page_lacks_or_shows_as_no_number_is_missing(
    beside: Agent, pages: VllmPages, server: Server, source: Prometheus
) -> None:
    server.start(Scraped(beside.port, POD))
    facts = await when(source, server, "scraped", lambda f: "running" in f.numbers)
    assert "generationTokens" not in facts.numbers, "missing is not zero"
    pages.behave(metrics="vllm:num_requests_running NaN\nvllm:num_requests_waiting 7\n")
    facts = await when(source, server, "NaN", lambda f: f.number("waiting") == 7)
    assert set(facts.numbers) == {"waiting"}
    pages.end()
    facts = await when(source, server, "down", lambda f: not f.up)
    assert (facts.up, facts.start_id, dict(facts.numbers)) == (False, None, {})


async def test_loads_and_steps_are_means_of_what_came_between_two_scrapes(
    beside: Agent, store: Store, server: Server, source: Prometheus
) -> None:
    server.start(Scraped(beside.port, POD))
    await when(source, server, "scraped", lambda f: f.store.start_id == "s1")
    store.tell("run 40")

    def arrived(facts: EngineFacts) -> bool:
        assert facts.store is not None
        recent = facts.store.recent
        return bool(recent and recent.loads and recent.steps)

    facts = await when(source, server, "loads", arrived)
    assert facts.store is not None
    assert facts.store.recent is not None
    assert facts.store.recent.dropped == 0
    [load], [step] = facts.store.recent.loads, facts.store.recent.steps
    direct = beside.facts()["store"]["recent"]["loads"]["rows"]
    assert (load.serial, load.tokens, load.bytes_read) == (39, 16_390, 793_276_000)
    assert (load.step_seconds, load.step_loads) == (pytest.approx(direct[-1][7]), 1)
    assert (step.serial, step.tokens) == (39, 8192)
    assert step.seconds == pytest.approx(beside.facts()["store"]["recent"]["steps"]["rows"][-1][2])


async def test_an_agent_that_restarts_makes_no_loads(
    beside: Agent, store: Store, server: Server, source: Prometheus
) -> None:
    server.start(Scraped(beside.port, POD))
    store.tell("run 12")
    await when(source, server, "scraped", lambda f: f.store.start_id == "s1")
    total = "kvserving_agent_loads_total"
    eventually(
        "summed up and scraped", lambda: [r for r in server.ask(total) if r["value"][1] == "7"]
    )
    beside.end()
    beside.start()
    eventually("summed up again", lambda: beside.metric(total) == 7)
    store.tell("run 3")
    eventually("three more", lambda: [r for r in server.ask(total) if r["value"][1] == "10"])
    facts = await when(source, server, "three", lambda f: f.store.recent.loads)
    assert facts.store is not None
    assert facts.store.recent is not None
    assert {load.serial for load in facts.store.recent.loads} <= {11, 14}


async def test_what_is_not_scraped_any_more_grows_old_and_is_missing_then(
    beside: Agent, server: Server, source: Prometheus, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.start(Scraped(beside.port, POD))
    await when(source, server, "scraped", lambda f: f.up)
    beside.end()
    await when(source, server, "older", lambda f: f.numbers["running"].age_seconds > 3)
    monkeypatch.setattr(promql, "LOOK_BACK", 2)
    monkeypatch.setattr(promql, "SUMS_BACK", 2)
    reading = await read(source, server)
    assert reading == Reading(facts={POD: None})


async def test_a_server_that_is_down_is_no_calm_and_one_that_is_back_goes_on(
    beside: Agent, server: Server, source: Prometheus
) -> None:
    server.start(Scraped(beside.port, POD))
    before = await when(source, server, "scraped", lambda f: f.up)
    server.end()
    assert await read(source, server) == Reading(fault=Fault.UNREACHABLE)
    server.again()
    after = await when(source, server, "scraped", lambda f: f.numbers["running"].age_seconds < 3)
    assert without_ages(after) == without_ages(before)


async def test_of_pods_with_one_name_the_live_one_counts(
    tmp_path: Path, beside: Agent, server: Server, source: Prometheus
) -> None:
    folders = [tmp_path / name for name in ("other", "gone")]
    for folder in folders:
        folder.mkdir()
    others = [VllmPages(folder) for folder in folders]
    try:
        for number, other in enumerate(others):
            other.start(metrics=page(f"uid-{number}", running=90 + number))
        server.start(
            Scraped(others[0].port, POD, namespace="elsewhere"),
            Scraped(others[1].port, POD),
            Scraped(beside.port, POD),
            # The same agent once more, as two PodMonitors that select it do.
            Scraped(beside.port, POD, job="again"),
        )
        eventually("all are scraped", lambda: len(server.ask("kvserving_agent_engine_info")) == 4)
        assert (await when(source, server, "scraped", lambda f: f.up)).number("running") == 3
        gone = (await read(source, server, {POD: "uid-1"})).facts[POD]
        assert gone is not None
        assert gone.number("running") == 91
        assert (await read(source, server, {POD: "uid-0"})).facts == {POD: None}
    finally:
        for other in others:
            other.end()


def page(uid: str, *, running: float) -> str:
    """What an agent's page has at least."""
    return (
        f'kvserving_agent_engine_info{{pod_uid="{uid}",role="prefill",start_id="s"}} 1\n'
        "kvserving_agent_engine_up 1\n"
        "kvserving_agent_scrape_age_seconds 1.5\n"
        f'kvserving_agent_engine_number{{name="running"}} {running}\n'
    )


async def test_labels_that_the_server_has_for_its_own_are_told_apart(
    beside: Agent, server: Server, source: Prometheus
) -> None:
    own = {"role": "canary", "version": "7", "pod_uid": "another", "name": "x", "team": "t"}
    server.start(Scraped(beside.port, POD, labels=own))
    facts = await when(source, server, "scraped", lambda f: f.number("running") == 3)
    assert (facts.role, facts.version) == ("prefill", "0.33.0")


async def test_a_page_cannot_speak_for_another_pod(
    pages: VllmPages, server: Server, source: Prometheus
) -> None:
    foreign = 'kvserving_agent_engine_number{name="waiting",pod="glm-prefill-7"} 2\n'
    pages.start(metrics=foreign + page(UID, running=4))
    server.start(Scraped(pages.port, POD))
    facts = await when(source, server, "scraped", lambda f: f.number("running") == 4)
    assert facts.number("waiting") is None
    assert (await read(source, server, {"glm-prefill-7": UID})).facts == {"glm-prefill-7": None}


async def test_credentials(beside: Agent, server: Server, source: Prometheus) -> None:
    server.start(Scraped(beside.port, POD), web=basic_auth())
    refused = Reading(fault=Fault.UNAUTHORISED)
    right = Asked(url=server.url, basic=(USER, PASSWORD))
    assert await read(source, Asked(url=server.url)) == refused
    assert await read(source, replace(right, basic=(USER, "wrong"))) == refused
    assert await read(source, Asked(url=server.url, token=PASSWORD)) == refused
    assert (await read(source, right)).fault is None
    assert PASSWORD not in repr(right)


async def test_a_certificate_is_checked(
    tmp_path: Path, beside: Agent, server: Server, source: Prometheus
) -> None:
    ours, another = Pki(tmp_path / "ours"), Pki(tmp_path / "another")
    for made in (ours, another):
        made.create(server="https://127.0.0.1", names=["localhost"], addresses=["127.0.0.1"])
    files = {
        f"{kind}_file": str(ours.path(f"apiserver.{suffix}"))
        for kind, suffix in (("cert", "crt"), ("key", "key"))
    }
    server.start(Scraped(beside.port, POD), web={"tls_server_config": files})
    asked = Asked(url=server.url, authority=ours.path("ca.crt").read_text())
    assert (await read(source, asked)).fault is None
    refused = Reading(fault=Fault.CERTIFICATE)
    assert await read(source, Asked(url=server.url)) == refused
    assert (
        await read(source, replace(asked, authority=another.path("ca.crt").read_text())) == refused
    )
    assert await read(source, replace(asked, authority="no certificate")) == refused
    plain = replace(asked, url=server.url.replace("https", "http"))
    assert (await read(source, plain)).fault in {Fault.STATUS, Fault.UNREACHABLE}


async def test_two_hundred_pods_are_five_questions(
    pages: VllmPages, server: Server, source: Prometheus
) -> None:
    pages.start(metrics=page(UID, running=1))
    names = [f"glm-{role}-{n}" for role in ("prefill", "decode") for n in range(100)]
    server.start(*(Scraped(pages.port, name) for name in names), interval="2s")
    eventually("all are scraped", lambda: len(server.ask("kvserving_agent_engine_info")) == 200)
    before = _questions(server)
    pods = dict.fromkeys(names, UID)
    reading = await read(source, server, pods)
    assert [facts.number("running") for facts in reading.facts.values() if facts] == [1] * 200
    assert _questions(server) - before == 5


def _questions(server: Server) -> int:
    with urllib.request.urlopen(f"{server.url}/metrics") as response:  # noqa: S310
        text = response.read().decode()
    found = re.search(
        r'prometheus_http_requests_total\{code="200",handler="/api/v1/query"\} (\d+)', text
    )
    return int(found[1]) if found else 0
