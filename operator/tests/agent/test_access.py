"""The token: nothing but /readyz and /metrics without it."""

from __future__ import annotations

import pytest

from .processes import TOKEN, Agent, VllmPages

GUARDED = ["/v1/facts", "/v1/tuning", "/v1/drain", "/v1", "/", "/readyz/", "/metrics/x", "/nothing"]
WRONG = [
    {},
    {"Authorization": ""},
    {"Authorization": "Bearer"},
    {"Authorization": "Bearer "},
    {"Authorization": "Bearer wrong"},
    {"Authorization": f"Bearer {TOKEN}x"},
    {"Authorization": f"Bearer {TOKEN[:-1]}"},
    {"Authorization": f"Basic {TOKEN}"},
    {"Authorization": TOKEN},
    {"Authorization": "Bearer " + "x" * 7000},
    {"Authorization": "Bearer \u00e9"},
]


@pytest.fixture
def started(pages: VllmPages, agent: Agent) -> Agent:
    pages.start()
    agent.start()
    agent.await_scrape()
    return agent


def test_without_the_token_every_path_answers_the_same_nothing(started: Agent) -> None:
    answers = set()
    for path in GUARDED:
        for method in ("GET", "PUT", "POST", "DELETE"):
            for headers in WRONG:
                status, body, sent = started.ask(path, method=method, **headers)
                answers.add((status, body, sent["WWW-Authenticate"], sent["Server"]))
    assert answers == {(401, '{"error": "unauthorised"}', "Bearer", "kvserving-agent")}
    refused = started.metric("kvserving_agent_unauthorised_requests_total")
    assert refused == len(GUARDED) * 4 * len(WRONG)


def test_with_the_token_facts_are_there_and_other_paths_are_not(started: Agent) -> None:
    authorised = {"Authorization": f"bearer {TOKEN}"}
    assert started.ask("/v1/facts", **authorised)[0] == 200
    assert started.ask("/v1/facts", method="PUT", **authorised)[0] == 405
    assert started.ask("/v1/nothing", **authorised)[0] == 404


def test_a_rotated_token_counts_without_a_restart(started: Agent) -> None:
    def status(token: str) -> int:
        return started.ask("/v1/facts", Authorization=f"Bearer {token}")[0]

    def replace(content: str) -> None:
        fresh = started.token_file.with_name("fresh")
        fresh.write_text(content)
        fresh.rename(started.token_file)

    replace(f"{TOKEN}\nnext-token\n")
    assert (status(TOKEN), status("next-token")) == (200, 200)
    replace("next-token\n")
    assert (status(TOKEN), status("next-token")) == (401, 200)
    started.token_file.unlink()
    assert (status(TOKEN), status("next-token")) == (401, 401)
    assert "next-token" not in started.log.read_text()
