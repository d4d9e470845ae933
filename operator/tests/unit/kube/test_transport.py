"""Requests: retries, Retry-After, 401, timeouts, permissions, and a fence for every attempt."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio.client.configuration import Configuration

from kvserving_operator.kube import errors, paths
from kvserving_operator.kube.client import ApiClient
from kvserving_operator.kube.credentials import Credentials
from kvserving_operator.kube.permissions import UndeclaredCallError
from kvserving_operator.kube.transport import Call

Answer = Callable[[web.Request], web.Response]


class Server:
    """Answers requests from a list, then with 200; remembers what came."""

    def __init__(self) -> None:
        self.answers: list[Answer | float | asyncio.Event] = []
        self.seen: list[tuple[str, str, dict[str, str], Any]] = []
        self.url = ""
        self.held = self.most_held = 0
        self.arrived = asyncio.Semaphore(0)

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.json() if request.can_read_body else None
        self.seen.append((request.method, request.path_qs, dict(request.headers), body))
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, asyncio.Event):
            self.held += 1
            self.most_held = max(self.held, self.most_held)
            self.arrived.release()
            await answer.wait()
            self.held -= 1
            answer = None
        if isinstance(answer, float):
            await asyncio.sleep(answer)
            answer = None
        return answer(request) if answer else web.json_response({"kind": "X", "items": []})


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", made.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


class Reloading(Credentials):
    """Credentials that count how often they were read again."""

    reloads = 0

    async def reload(self) -> None:
        type(self).reloads += 1


def credentials(server: Server) -> Credentials:
    configuration = Configuration()
    configuration.host = server.url
    configuration.api_key["BearerToken"] = "bearer t0ken"
    return Reloading(kubeconfig=None, configuration=configuration)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvserving_operator.kube.transport._BACKOFF", 0.001)


def status(code: int, **headers: str) -> Answer:
    body = {"kind": "Status", "reason": "R", "message": "told " * 200, "code": code}
    return lambda _: web.json_response(body, status=code, headers=headers)


CM = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "n", "name": "a b"}}


async def test_apply_is_forced_server_side_apply_under_our_manager(server: Server) -> None:
    async with ApiClient(credentials(server)) as client:
        await client.apply(CM)
        await client.apply(CM, force=False, dry_run=True)
    (method, path, headers, body), (_, second, _, _) = server.seen
    assert method == "PATCH"
    assert path == (
        "/api/v1/namespaces/n/configmaps/a%20b?fieldManager=kvserving-operator&force=true"
    )
    assert second.endswith("?fieldManager=kvserving-operator&dryRun=All")
    assert headers["Content-Type"] == "application/apply-patch+yaml"
    assert headers["Authorization"] == "bearer t0ken"
    assert headers["User-Agent"] == "kvserving-operator"
    assert body == CM


async def test_status_is_applied_to_its_subresource(server: Server) -> None:
    async with ApiClient(credentials(server)) as client:
        await client.apply_status(
            {
                "apiVersion": "kvserving.io/v1alpha1",
                "kind": "KVServing",
                "metadata": {"namespace": "n", "name": "x"},
                "status": {},
            }
        )
    assert server.seen[0][1].startswith(
        "/apis/kvserving.io/v1alpha1/namespaces/n/kvservings/x/status?"
    )


async def test_lists_come_from_the_cache_unless_they_must_be_fresh(server: Server) -> None:
    items = [{"metadata": {"name": "p"}}]
    server.answers = [lambda _: web.json_response({"items": items})]
    async with ApiClient(credentials(server)) as client:
        found = await client.list(paths.PODS, "n", selector="a=b")
        await client.list(paths.PODS, None, fresh=True)
    assert server.seen[0][1] == "/api/v1/namespaces/n/pods?resourceVersion=0&labelSelector=a%3Db"
    assert server.seen[1][1] == "/api/v1/pods"
    assert found == [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}]


async def test_absent_is_none_and_not_an_error(server: Server) -> None:
    server.answers = [status(404), status(404), status(409)]
    async with ApiClient(credentials(server)) as client:
        assert await client.get(paths.SECRETS, "n", "x") is None
        assert not await client.delete(paths.CONFIGMAPS, "n", "x", uid="u")
        assert not await client.delete(paths.CONFIGMAPS, "n", "x", uid="u")
    assert server.seen[1][3]["preconditions"] == {"uid": "u"}


@pytest.mark.parametrize("code", [429, 500, 502, 503, 504])
async def test_transient_failures_are_tried_again(server: Server, code: int) -> None:
    server.answers = [status(code), status(code)]
    async with ApiClient(credentials(server)) as client:
        await client.apply(CM)
    assert len(server.seen) == 3


async def test_it_gives_up_after_four_attempts(server: Server) -> None:
    server.answers = [status(503)] * 9
    async with ApiClient(credentials(server)) as client:
        with pytest.raises(errors.ApiError) as caught:
            await client.apply(CM)
    assert len(server.seen) == 4
    assert caught.value.retryable
    assert len(caught.value.message) <= 400


async def test_retry_after_is_obeyed_and_a_long_one_is_left_to_the_queue(server: Server) -> None:
    server.answers = [status(429, **{"Retry-After": "0.2"}), status(429, **{"Retry-After": "60"})]
    loop = asyncio.get_running_loop()
    async with ApiClient(credentials(server)) as client:
        started = loop.time()
        with pytest.raises(errors.ApiError):
            await client.get(paths.PODS, "n", "p")
    assert loop.time() - started >= 0.2
    assert len(server.seen) == 2


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (400, errors.InvalidError),
        (403, errors.ForbiddenError),
        (409, errors.ConflictError),
        (422, errors.InvalidError),
    ],
)
async def test_what_no_retry_can_cure_is_told_at_once(
    server: Server, code: int, kind: type[errors.ApiError]
) -> None:
    server.answers = [status(code)]
    async with ApiClient(credentials(server)) as client:
        with pytest.raises(kind):
            await client.apply(CM)
    assert len(server.seen) == 1


async def test_an_unknown_field_in_apply_is_invalid_although_the_status_is_500(
    server: Server,
) -> None:
    told = "failed to create typed patch object (n/x; apps/v1): .spec.x: field not declared"
    server.answers = [lambda _: web.json_response({"message": told}, status=500)]
    async with ApiClient(credentials(server)) as client:
        with pytest.raises(errors.InvalidError):
            await client.apply(CM)
    assert len(server.seen) == 1


async def test_unauthorised_reads_the_credentials_again_and_retries_once(server: Server) -> None:
    Reloading.reloads = 0
    server.answers = [status(401), status(401)]
    async with ApiClient(credentials(server)) as client:
        with pytest.raises(errors.ApiError):
            await client.get(paths.PODS, "n", "p")
    assert len(server.seen) == 2
    assert Reloading.reloads == 2


async def test_a_write_that_hangs_ends_at_its_limit(server: Server) -> None:
    server.answers = [5.0]
    async with ApiClient(credentials(server), write_timeout=0.1, attempts=1) as client:
        with pytest.raises(errors.UnreachableError) as caught:
            await client.apply(CM)
    assert caught.value.retryable


async def test_nobody_listening_is_unreachable() -> None:
    server = Server()
    server.url = "http://127.0.0.1:9"
    async with ApiClient(credentials(server), attempts=2) as client:
        with pytest.raises(errors.UnreachableError):
            await client.get(paths.PODS, "n", "p")


async def test_every_write_attempt_passes_the_fence_and_no_read_does(server: Server) -> None:
    closed = False
    passed = 0

    def fence() -> None:
        nonlocal passed, closed
        if closed:
            raise errors.FencedError
        passed += 1
        closed = True

    server.answers = [status(503)]
    async with ApiClient(credentials(server), fence=fence) as client:
        with pytest.raises(errors.FencedError):
            await client.apply(CM)
        await client.get(paths.PODS, "n", "p")
        for write in (
            client.create(CM),
            client.replace(CM | {"kind": "Lease", "apiVersion": "coordination.k8s.io/v1"}),
            client.delete(paths.PODS, "n", "p", uid="u"),
            client.merge(paths.EVENTS, "n", "e", {}),
        ):
            with pytest.raises((errors.FencedError, UndeclaredCallError)):
                await write
    assert passed == 1
    assert [method for method, *_ in server.seen] == ["PATCH", "GET"]


async def test_the_fence_is_asked_after_the_wait_for_a_slot(server: Server) -> None:
    closed = False

    def fence() -> None:
        if closed:
            raise errors.FencedError

    server.answers = [0.2]
    async with ApiClient(credentials(server), fence=fence, concurrency=1) as client:
        reading = asyncio.create_task(client.get(paths.PODS, "n", "p"))
        await asyncio.sleep(0.05)
        writing = asyncio.create_task(client.apply(CM))
        await asyncio.sleep(0.05)
        closed = True
        await reading
        with pytest.raises(errors.FencedError):
            await writing


async def test_requests_in_flight_are_bounded(server: Server) -> None:
    release = asyncio.Event()
    server.answers = [release] * 6
    async with (
        ApiClient(credentials(server), concurrency=2) as client,
        ApiClient(credentials(server)) as other,
    ):
        reads = [asyncio.create_task(client.get(paths.PODS, "n", "p")) for _ in range(6)]
        async with asyncio.timeout(10):
            await server.arrived.acquire()
            await server.arrived.acquire()
        # Whatever else was sent with these is with the server before a later answer is back.
        server.answers.clear()
        await other.get(paths.PODS, "n", "later")
        release.set()
        await asyncio.gather(*reads)
    assert server.most_held == 2


async def test_undeclared_calls_never_leave_the_process(server: Server) -> None:
    async with ApiClient(credentials(server)) as client:
        with pytest.raises(UndeclaredCallError, match="list secrets"):
            await client.list(paths.SECRETS, "n")
        with pytest.raises(UndeclaredCallError, match="update configmaps"):
            await client.replace(CM)
    assert server.seen == []


async def test_errors_about_secrets_quote_nothing(server: Server) -> None:
    server.answers = [status(422)]
    async with ApiClient(credentials(server)) as client:
        with pytest.raises(errors.InvalidError) as caught:
            await client.apply(CM | {"kind": "Secret"})
    assert "told" not in str(caught.value)


async def test_plain_text_answers_are_errors_too(server: Server) -> None:
    server.answers = [lambda _: web.Response(status=403, text="proxy says no")]
    async with ApiClient(credentials(server)) as client:
        with pytest.raises(errors.ForbiddenError, match="proxy says no"):
            await client.get(paths.PODS, "n", "p")


async def test_deep_nesting_is_read_like_anything_else(server: Server) -> None:
    """The API server stores up to 10,000 levels; the process has a limit for it (main)."""
    limit = sys.getrecursionlimit()
    deep = '{"items": [' + '{"x":' * 9_000 + "1" + "}" * 9_000 + "]}"
    server.answers = [lambda _: web.Response(text=deep)]
    sys.setrecursionlimit(25_000)
    try:
        async with ApiClient(credentials(server)) as client:
            found = await client.list(paths.PODS, "n")
    finally:
        sys.setrecursionlimit(limit)
    assert len(found) == 1


async def test_an_answer_that_is_no_object_is_not_an_empty_one(server: Server) -> None:
    server.answers = [lambda _: web.Response(text="<html>login</html>")] * 4
    async with ApiClient(credentials(server)) as client:
        with pytest.raises(errors.UnreachableError, match="no JSON object"):
            await client.list(paths.PODS, "n")


async def test_attempts_are_observed(server: Server) -> None:
    calls: list[Call] = []
    server.answers = [status(503)]
    async with ApiClient(credentials(server), observe=calls.append) as client:
        await client.apply(CM)
    assert [(c.verb, str(c.resource), c.status) for c in calls] == [
        ("patch", "configmaps", 503),
        ("patch", "configmaps", 200),
    ]


class Log:
    """A WriteLog that notes what it is told and which requests had come by then."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.lines: list[str] = []

    def applying(self, manifest: dict[str, Any]) -> None:
        self._note(f"applying {manifest['metadata']['name']}")

    def applied(self, stored: dict[str, Any]) -> None:
        self._note(f"applied {stored['kind']}")

    def failed(self, manifest: dict[str, Any]) -> None:
        self._note(f"failed {manifest['metadata']['name']}")

    def deleting(self, resource: paths.Resource, namespace: str, name: str, uid: str) -> None:
        self._note(f"deleting {resource} {namespace} {name} {uid}")

    def deleted(self, resource: paths.Resource, namespace: str, name: str, uid: str) -> None:
        self._note(f"deleted {resource} {namespace} {name} {uid}")

    def _note(self, line: str) -> None:
        # A set: on a machine without time to spare a request may be sent twice.
        came = sorted({method for method, *_ in self._server.seen})
        self.lines.append(f"{line} after {' '.join(came) or 'nothing'}")


async def test_writes_are_told_before_and_after(server: Server) -> None:
    log = Log(server)
    async with ApiClient(credentials(server)) as client:
        client.tell(log)
        await client.apply(CM)
        await client.delete(paths.PODS, "n", "p", uid="u")
        await client.apply(CM, dry_run=True)
    assert log.lines == [
        "applying a b after nothing",
        "applied X after PATCH",
        "deleting pods n p u after PATCH",
        "deleted pods n p u after DELETE PATCH",
    ]


async def test_what_became_of_a_write_without_an_answer_is_left_open(server: Server) -> None:
    log = Log(server)
    server.answers = [status(503), status(503)]
    async with ApiClient(credentials(server), attempts=1) as client:
        client.tell(log)
        with pytest.raises(errors.ApiError):
            await client.apply(CM)
        with pytest.raises(errors.ApiError):
            await client.delete(paths.PODS, "n", "p", uid="u")
    assert log.lines == [
        "applying a b after nothing",
        "failed a b after PATCH",
        "deleting pods n p u after PATCH",
        "deleted pods n p u after DELETE PATCH",
    ]


@pytest.mark.parametrize("value", [10**30, -(10**30), "\U0001f600", {"a": [10**30]}, 0.1, None])
async def test_a_body_may_hold_whatever_a_person_wrote(server: Server, value: Any) -> None:
    async with ApiClient(credentials(server)) as client:
        await client.apply(CM | {"data": value})
    assert server.seen[0][3]["data"] == value
