"""Which code speaks for which engine. Pure."""

from typing import Final

from kvserving_operator.api.v1alpha1 import EngineType
from kvserving_operator.engines.base import Engine
from kvserving_operator.engines.sglang import SGLang
from kvserving_operator.engines.vllm import VLLM

ENGINES: Final[dict[EngineType, Engine]] = {
    EngineType.VLLM: VLLM(),
    EngineType.SGLANG: SGLang(),
}
