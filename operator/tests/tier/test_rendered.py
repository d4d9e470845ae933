"""A real Valkey 9.1 that reads what its pod would: who may do what, and what a disk is for."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
import valkey
from valkey.exceptions import AuthenticationError, NoPermissionError

from kvserving_operator.engines.base import TIER_USER
from kvserving_operator.plan.model import SparePasswords, SpareUse
from kvserving_operator.render.secret import OPERATOR_USER
from tests.tier.rendered import Rendered, tier
from tests.tier_servers import AUTH, Server, until

ENGINE_MAY = {
    *("auth", "client|id", "client|setinfo", "client|setname", "del", "exists", "get", "hello"),
    *("ping", "select", "set", "unlink"),
}
OPERATOR_MAY = {
    *("acl|load", "acl|whoami", "auth", "client|setinfo", "config|get", "config|set", "hello"),
    *("info", "memory|stats", "memory|usage", "ping", "select", "slowlog|get"),
}
ALWAYS = {"auth", "hello", "quit", "reset"}
"""What no rule takes from anybody: logging in and hanging up."""
ON_DISK = {"persistence": {"volumeClaim": {"size": "1Gi"}}}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Rendered]:
    with Rendered(tmp_path / "valkey", tier()) as started:
        yield started


def engine(server: Server, password: str = AUTH.engine_password, db: int = 0) -> valkey.Valkey:
    return client(server, TIER_USER, password, db)


def client(server: Server, user: str, password: str, db: int = 0) -> valkey.Valkey:
    return valkey.Valkey(
        host=server.address, port=server.port, username=user, password=password, db=db
    )


def operator(server: Server, password: str = AUTH.operator_password) -> valkey.Valkey:
    return client(server, OPERATOR_USER, password)


@pytest.mark.parametrize(("user", "may"), [(TIER_USER, ENGINE_MAY), (OPERATOR_USER, OPERATOR_MAY)])
def test_each_user_may_do_what_is_listed_and_nothing_else(
    tmp_path: Path, user: str, may: set[str]
) -> None:
    """Of all commands that the server knows, by its own judgement (ACL DRYRUN)."""
    server = Rendered(tmp_path / "valkey", tier())
    with (server.folder / "users.acl").open("a") as acl:
        acl.write("user judge on nopass ~* &* +@all\n")
    with server, client(server, "judge", "any") as judge:
        allowed = set()
        for name, arity in commands(judge):
            words = [*name.split("|"), *["1"] * (abs(arity) - 1 - name.count("|"))]
            verdict = judge.execute_command("ACL", "DRYRUN", user, *words)
            if verdict == b"OK":
                allowed.add(name)
            else:
                assert b"has no permissions" in verdict, (name, verdict)
        assert allowed - ALWAYS == may - ALWAYS


def commands(judge: valkey.Valkey) -> Iterator[tuple[str, int]]:
    """Every command and subcommand, with its arity."""
    found = judge.execute_command("COMMAND")
    listed = found.values() if isinstance(found, dict) else found
    assert len(listed) > 200
    for each in listed:
        subcommands = each["subcommands"]
        if not subcommands:
            yield each["name"], each["arity"]
        for sub in subcommands:
            yield sub[0].decode(), sub[1]


@pytest.mark.parametrize(
    "command",
    [
        "FLUSHALL",
        "FLUSHDB",
        "CONFIG SET maxmemory 1",
        "CONFIG GET *",
        "KEYS *",
        "SCAN 0",
        "EVAL return(1) 0",
        "CLIENT KILL ID 1",
        "ACL LIST",
        "SHUTDOWN",
        "REPLICAOF NO ONE",
    ],
)
def test_an_engine_is_refused(server: Rendered, command: str) -> None:
    with engine(server) as connection, pytest.raises(NoPermissionError):
        connection.execute_command(*command.split())


def test_nobody_else_is_let_in(server: Rendered) -> None:
    for user, password in (("default", ""), (TIER_USER, "wrong"), ("judge", "any")):
        refused = pytest.raises((AuthenticationError, valkey.ResponseError))
        with client(server, user, password) as connection, refused:
            connection.ping()


def test_the_operator_reads_no_value(server: Rendered) -> None:
    with engine(server) as connection:
        connection.set("k", "secret")
    with operator(server) as connection:
        assert connection.memory_usage("k") > 0
        with pytest.raises(NoPermissionError):
            connection.get("k")


def test_connections_outlive_a_password_that_comes_and_one_that_goes(server: Rendered) -> None:
    """What an engine has open stays open: a rotation costs it nothing but its own restart."""
    with engine(server) as old:
        old.set("k", "v")
        ident = old.client_id()
        new = SparePasswords(
            use=SpareUse.NEXT, engine_password="new-0123456789", operator_password="o-0123456789"
        )
        alone = dataclasses.replace(
            AUTH,
            engine_password=new.engine_password,
            operator_password=new.operator_password,
        )
        for auth in (dataclasses.replace(AUTH, spare=new), alone):
            server.write_acl(auth)
            with operator(server) as telling:
                assert telling.acl_load()
            assert (old.get("k"), old.client_id()) == (b"v", ident)
    with engine(server) as late, pytest.raises(AuthenticationError):
        late.ping()
    with engine(server, new.engine_password) as connection:
        assert connection.get("k") == b"v"


def test_in_memory_a_restarted_instance_is_empty(server: Rendered) -> None:
    with engine(server) as connection:
        connection.set("k", "v")
    assert server.end() == 0
    server.start()
    with engine(server) as connection:
        assert connection.get("k") is None
    assert list(server.data.iterdir()) == []


def test_on_disk_it_keeps_what_it_held_when_it_was_asked_to_end(tmp_path: Path) -> None:
    server = Rendered(tmp_path / "valkey", tier(**ON_DISK))
    values = {f"epoch-{n}": bytes([n]) * 100_000 for n in range(50)}
    with server:
        with engine(server, db=3) as connection:
            for key, value in values.items():
                connection.set(key, value)
        assert server.end() == 0
        server.start()
        with engine(server, db=3) as connection:
            until(lambda: loaded(server), "the file is read")
            assert {key: connection.get(key) for key in values} == values


def test_on_disk_a_kill_costs_what_came_after_the_last_end(tmp_path: Path) -> None:
    server = Rendered(tmp_path / "valkey", tier(**ON_DISK))
    with server:
        with engine(server) as connection:
            connection.set("early", "v")
        server.end()
        server.start()
        with engine(server) as connection:
            connection.set("late", "v")
        server.kill()
        server.start()
        with engine(server) as connection:
            assert (connection.get("early"), connection.get("late")) == (b"v", None)


def loaded(server: Server) -> bool:
    with operator(server) as connection:
        return connection.info("persistence")["loading"] == 0
