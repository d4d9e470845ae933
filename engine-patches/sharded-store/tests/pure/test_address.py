"""URL templates: what every rank and slot gets, and what is refused."""

import pytest

from kvserving_sharded_store.address import Address, instances, parse


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("resp://h", Address("h", 6379)),
        ("resp://h:7000/3", Address("h", 7000, database=3)),
        ("valkeys://h:7000", Address("h", 7000, tls=True)),
        ("rediss://[::1]:1", Address("::1", 1, tls=True)),
        ("redis://h/", Address("h", 6379)),
    ],
)
def test_urls(url: str, address: Address) -> None:
    assert parse(url) == address


def test_addresses_print_without_surprises() -> None:
    assert [str(parse(url)) for url in ("resp://h:1", "resp://[::1]:1")] == ["h:1", "[::1]:1"]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://h", "scheme"),
        ("h:6379", "scheme"),
        ("resp://", "HOST"),
        ("resp://h?x=1", "HOST"),
        ("resp://h/db", "database"),
        ("resp://u:secret@h", "environment"),
        ("resp://h:99999", "[Pp]ort"),
    ],
)
def test_wrong_urls_are_refused(url: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        parse(url)
    assert "secret" not in str(refused.value)


def test_ordinals_ranks_and_slots() -> None:
    template = "resp://x-valkey-{ordinal}.x-valkey.ns.svc:6379"
    hosts = [
        address.host.split(".")[0]
        for rank in range(4)
        for address in instances(template, rank=rank, world=4, slots=2)
    ]
    assert hosts == [f"x-valkey-{number}" for number in (0, 4, 1, 5, 2, 6, 3, 7)]
    assert instances("resp://h-{rank}-{slot}", rank=1, world=2, slots=2) == (
        Address("h-1-0", 6379),
        Address("h-1-1", 6379),
    )


def test_one_instance_for_all_ranks_needs_no_placeholder() -> None:
    assert instances("resp://h", rank=3, world=4, slots=1) == (Address("h", 6379),)


@pytest.mark.parametrize(
    ("template", "slots"), [("resp://h-{rank}", 2), ("resp://h-{pod}", 1), ("resp://h-{}", 1)]
)
def test_templates_that_cannot_work_are_refused(template: str, slots: int) -> None:
    with pytest.raises(ValueError, match=r"placeholder|several"):
        instances(template, rank=0, world=2, slots=slots)
