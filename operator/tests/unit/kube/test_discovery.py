"""Optional APIs: asked for now and then; absence is no error, a mute server changes nothing."""

from typing import Any

from kvserving_operator.kube import errors, paths
from kvserving_operator.kube.discovery import REFRESH, Discovery
from kvserving_operator.kube.transport import Request

EVERYTHING = {str(kind): [kind.plural, "others"] for kind in paths.OPTIONAL_CHILDREN}


class Server:
    """Answers for the groups it has; a number instead of a list is an error status."""

    def __init__(self) -> None:
        self.has: dict[str, list[str] | int] = {}
        self.asked: list[str] = []

    async def send(self, request: Request) -> dict[str, Any]:
        self.asked.append(request.url)
        answer = self.has.get(str(request.resource), 404)
        if isinstance(answer, int):
            raise errors.from_response(status=answer, body={}, call=str(request))
        return {"resources": [{"name": name} for name in answer]}


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def discovery() -> tuple[Discovery, Server, Clock]:
    server, clock = Server(), Clock()
    return Discovery(server, clock=clock), server, clock  # type: ignore[arg-type]


async def test_the_version_of_each_group_is_asked_once_for_a_while():
    found, server, clock = discovery()
    for _ in range(3):
        assert await found.served() == frozenset()
    assert sorted(server.asked) == [
        "/apis/cert-manager.io/v1",
        "/apis/gateway.networking.k8s.io/v1",
        "/apis/monitoring.coreos.com/v1",
    ]
    clock.now += REFRESH
    await found.served()
    assert len(server.asked) == 6


async def test_a_slow_server_is_not_asked_by_one_worker_after_the_other():
    found, server, clock = discovery()
    answer = server.send

    async def slowly(request: Request) -> dict[str, Any]:
        clock.now += REFRESH
        return await answer(request)

    server.send = slowly  # type: ignore[method-assign]
    for _ in range(3):
        await found.served()
    assert len(server.asked) == 3


async def test_an_api_that_comes_is_taken_up_and_one_that_goes_is_let_go():
    found, server, clock = discovery()
    await found.served()
    server.has = dict(EVERYTHING)
    assert await found.served() == frozenset()
    clock.now += REFRESH
    assert await found.served() == frozenset(paths.OPTIONAL_CHILDREN)
    del server.has[str(paths.HTTP_ROUTES)]
    clock.now += REFRESH
    assert await found.served() == {paths.CERTIFICATES, paths.POD_MONITORS}


async def test_a_group_without_the_kind_is_not_enough():
    found, server, _ = discovery()
    server.has = {str(paths.POD_MONITORS): ["servicemonitors", "podmonitors/status"]}
    assert await found.served() == frozenset()


async def test_what_was_known_holds_while_the_server_cannot_tell():
    found, server, clock = discovery()
    server.has = dict(EVERYTHING)
    known = await found.served()
    server.has = dict.fromkeys(EVERYTHING, 503)
    clock.now += REFRESH
    assert await found.served() == known
