"""Resync: everything comes by now and then, spread out, whatever fails meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from kvserving_operator.kube import errors
from kvserving_operator.kube.client import ApiClient
from kvserving_operator.kube.paths import Key, Resource
from kvserving_operator.runtime.resync import list_keys, resync_forever

pytestmark = pytest.mark.looptime


class Lists:
    """Answers lists of KVServings; fails the first `failures` times."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.namespaces: list[str | None] = []

    async def list(self, resource: Resource, namespace: str | None) -> list[Any]:
        self.namespaces.append(namespace)
        if self.failures:
            self.failures -= 1
            raise errors.UnreachableError(call="list", cause=TimeoutError())
        where = namespace or "all"
        return [{"metadata": {"namespace": where, "name": f"kvs-{i}"}} for i in range(3)]


async def test_namespaces_are_listed_one_by_one_and_none_means_all() -> None:
    lists = Lists()
    client = cast(ApiClient, lists)
    assert len(await list_keys(client, ["a", "b"])) == 6
    assert await list_keys(client, []) == [Key("all", f"kvs-{i}") for i in range(3)]
    assert lists.namespaces == ["a", "b", None]


class OneForbidden(Lists):
    """May not read namespace `a`."""

    async def list(self, resource: Resource, namespace: str | None) -> list[Any]:
        if namespace == "a":
            raise errors.ForbiddenError(
                status=403, reason="Forbidden", message="cannot list", call="list kvservings"
            )
        return await super().list(resource, namespace)


async def test_a_namespace_that_may_not_be_read_does_not_hide_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = cast(ApiClient, OneForbidden())
    assert {key.namespace for key in await list_keys(client, ["a", "b"])} == {"b"}
    assert "namespace a is left out: list kvservings: 403 Forbidden: cannot list" in caplog.text


async def test_it_comes_round_with_jitter_and_spreads_the_passes() -> None:
    asked: list[tuple[float, Key, float]] = []
    lists = Lists(failures=1)
    task = asyncio.create_task(
        resync_forever(
            client=cast(ApiClient, lists),
            namespaces=[],
            interval=300,
            enqueue=lambda key, delay: asked.append(
                (asyncio.get_running_loop().time(), key, delay)
            ),
        )
    )
    await asyncio.sleep(680)
    task.cancel()
    times = sorted({when for when, _, _ in asked})
    assert len(times) == 2
    assert 280 <= times[0] <= 341, "270 to 330, and ten seconds after the failure"
    assert all(0 <= delay <= 30 for _, _, delay in asked)
