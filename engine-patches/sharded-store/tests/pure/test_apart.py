"""Requests with the same tokens and other KV never share a key."""

from types import SimpleNamespace
from typing import Any

from kvserving_sharded_store.apart import refused, tags_of
from kvserving_sharded_store.keys import realm


def request(**attributes: Any) -> Any:
    return SimpleNamespace(**attributes)


def adapter(name: str, path: str) -> Any:
    return SimpleNamespace(lora_name=name, lora_path=path, lora_int_id=7)


def test_salt_and_adapter_are_part_of_the_key() -> None:
    requests = [
        request(),
        request(cache_salt="a"),
        request(cache_salt="b"),
        request(lora_request=adapter("x", "/m/x")),
        request(lora_request=adapter("x", "/m/y")),
        request(lora_request=adapter("y", "/m/x")),
        request(cache_salt="a", lora_request=adapter("x", "/m/x")),
        request(cache_salt="x|/m/x"),
    ]
    realms = [realm(tags_of(each)) for each in requests]
    assert len(set(realms)) == len(requests)
    assert realms[0] == realm(tags_of(request(cache_salt=None, lora_request=None)))


def test_the_number_an_engine_gives_an_adapter_is_not() -> None:
    one, other = adapter("x", "/m/x"), adapter("x", "/m/x")
    other.lora_int_id = 8
    assert tags_of(request(lora_request=one)) == tags_of(request(lora_request=other))


def test_prompts_given_as_embeddings_are_refused() -> None:
    assert refused(request(prompt_embeds=object()))
    assert not refused(request(prompt_embeds=None))
    assert not refused(request())
