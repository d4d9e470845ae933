"""Access to the model hub, the same for every engine. Pure."""

from collections.abc import Iterable

from kvserving_operator.api.types import EnvVar
from kvserving_operator.api.v1alpha1 import ModelSpec


def environment(model: ModelSpec) -> Iterable[EnvVar]:
    """Where downloads are kept, and the token for them."""
    yield EnvVar(name="HF_HOME", value=model.cache.mount_path)
    if model.hugging_face.offline:
        yield EnvVar(name="HF_HUB_OFFLINE", value="1")
    if (token := model.hugging_face.token_secret_ref) is not None:
        reference = {"name": token.name, "key": token.key}
        yield EnvVar(name="HF_TOKEN", value_from={"secretKeyRef": reference})
