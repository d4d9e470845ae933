"""The base model, the constrained scalar types and the CEL rule holder of the API models.

Patterns are RE2-safe (the apiserver), valid for Rust's ``regex`` (pydantic) and for Python's
``re``: no lookaround, no backreference. Every string and list has a bound, because the apiserver
charges CEL rules for the longest value that the schema allows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    Strict,
    StringConstraints,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel
from pydantic.annotated_handlers import GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from kvserving_operator.api import duration, quantity

VALIDATIONS: Final = "x-kubernetes-validations"
PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
LIST_TYPE: Final = "x-kubernetes-list-type"
LIST_MAP_KEYS: Final = "x-kubernetes-list-map-keys"

JSONValue: TypeAlias = Any
"""A value of JSON that the API does not look into."""

_M = TypeVar("_M", bound="APIModel")


@dataclass(frozen=True, kw_only=True)
class CELRule:
    """One CEL rule of the schema: what must hold, and the field and remedy when it does not.

    ``field`` is the path relative to the model that carries the rule, as the apiserver's
    ``fieldPath`` wants it; empty means the model itself. It must not pass through a list.
    """

    rule: str
    message: str
    field: str = ""

    def as_schema(self) -> dict[str, str]:
        """The entry of ``x-kubernetes-validations``."""
        entry = {"rule": self.rule, "message": self.message}
        if self.field:
            entry["fieldPath"] = self.field
        return entry


class APIModel(BaseModel):
    """A frozen object of the API: camelCase outside, snake_case inside, unknown keys ignored."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True
    )

    cel_rules: ClassVar[tuple[CELRule, ...]] = ()

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Add the class's CEL rules to its schema."""
        schema = handler(core_schema)
        if cls.cel_rules:
            handler.resolve_ref_schema(schema)[VALIDATIONS] = [r.as_schema() for r in cls.cel_rules]
        return schema

    def to_dict(self) -> dict[str, Any]:
        """The object as the apiserver takes it: camelCase, absent fields left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def validated_by(*rules: CELRule) -> Callable[[type[_M]], type[_M]]:
    """Class decorator: the apiserver checks ``rules`` on every object of this model."""

    def decorate(model: type[_M]) -> type[_M]:
        model.cel_rules = (*model.cel_rules, *rules)
        return model

    return decorate


# pydantic would turn "8" and true into integers; the apiserver does not, so neither do we.
Int = Annotated[int, Strict()]
Bool = Annotated[bool, Strict()]


_IMAGE = r"[A-Za-z0-9][A-Za-z0-9._:/@-]*"
_LABEL_VALUE = r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?"
_QUALIFIED = r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
NO_CONTROL: Final = r"^[^\x00-\x1f\x7f]*$"

ByteQuantity = Annotated[
    str,
    StringConstraints(pattern=quantity.BYTES_PATTERN, max_length=quantity.MAX_LENGTH, min_length=1),
]
Duration = Annotated[
    str, StringConstraints(pattern=duration.PATTERN, max_length=duration.MAX_LENGTH, min_length=2)
]
Image = Annotated[str, StringConstraints(pattern=f"^{_IMAGE}$", max_length=512)]
OptionalImage = Annotated[str, StringConstraints(pattern=f"^({_IMAGE})?$", max_length=512)]
ObjectName = Annotated[
    str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)
]
AbsolutePath = Annotated[
    str, StringConstraints(pattern=r"^/[A-Za-z0-9._/@:+-]*$", max_length=512, min_length=2)
]
Argument = Annotated[str, StringConstraints(pattern=NO_CONTROL, max_length=4096, min_length=1)]
LabelValue = Annotated[str, StringConstraints(pattern=f"^{_LABEL_VALUE}$", max_length=63)]
AnnotationValue = Annotated[str, StringConstraints(max_length=4096)]
ResourceName = Annotated[str, StringConstraints(pattern=f"^({_QUALIFIED})?$", max_length=253)]
ResourceCount = (
    Annotated[int, Strict(), Field(ge=0)]
    | Annotated[str, StringConstraints(pattern=r"^[0-9]{1,9}$", max_length=9)]
)
IntOrPercent = (
    Annotated[int, Strict(), Field(ge=1)]
    | Annotated[str, StringConstraints(pattern=r"^([1-9][0-9]?|100)%$", max_length=4)]
)

# Parts of core/v1 that are handed on as they are. The apiserver checks them when the child that
# holds them is applied (server-side dry-run first); a full PodTemplateSpec in the schema would
# make the CRD larger than `kubectl apply` can take.
PassThrough = Annotated[Mapping[str, JSONValue], WithJsonSchema({"type": "object", PRESERVE: True})]
Labels = Annotated[Mapping[str, LabelValue], Field(max_length=32)]
Annotations = Annotated[Mapping[str, AnnotationValue], Field(max_length=32)]


def _without_duplicates(items: tuple[Any, ...]) -> tuple[Any, ...]:
    keys = [getattr(item, "name", item) for item in items]
    twice = sorted({str(key) for key in keys if keys.count(key) > 1})
    if twice:
        raise ValueError(f"duplicate value: {', '.join(twice)}")
    return items


# What the apiserver does for list-type set, and for list-type map keyed by name.
Unique: Final = AfterValidator(_without_duplicates)
SET: Final = Field(json_schema_extra={LIST_TYPE: "set"})
MAP_BY_NAME: Final = Field(json_schema_extra={LIST_TYPE: "map", LIST_MAP_KEYS: ["name"]})
ATOMIC: Final = Field(json_schema_extra={LIST_TYPE: "atomic"})


class LocalObjectReference(APIModel):
    """The name of an object in the KVServing's own namespace."""

    name: ObjectName = Field(description="Name of the object, in the namespace of the KVServing.")


class SecretKeySelector(APIModel):
    """One key of a Secret in the KVServing's own namespace."""

    name: ObjectName = Field(description="Name of the Secret, in the namespace of the KVServing.")
    key: Annotated[str, StringConstraints(pattern=r"^[-._a-zA-Z0-9]+$", max_length=253)] = Field(
        description="Key of the Secret whose value is used."
    )


@validated_by(
    CELRule(
        rule="!has(self.value) || !has(self.valueFrom)",
        message="a variable of env has both value and valueFrom: remove one of them",
    )
)
class EnvVar(APIModel):
    """A core/v1 environment variable."""

    name: Annotated[
        str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$", max_length=253)
    ] = Field(
        description="Name of the variable. Variables that the operator owns are refused: see the "
        "condition SpecValid."
    )
    value: Annotated[str, StringConstraints(pattern=r"^[^\x00]*$", max_length=32768)] | None = (
        Field(
            default=None,
            description="Literal value: any text without a zero byte, which no process can be "
            "given. Leave it out when valueFrom is given.",
        )
    )
    value_from: PassThrough | None = Field(
        default=None,
        description="A core/v1 EnvVarSource, for example a secretKeyRef; handed on as it is.",
    )


EnvList = Annotated[
    tuple[EnvVar, ...],
    Field(max_length=128),
    MAP_BY_NAME,
    Unique,
]
ExtraArgs = Annotated[tuple[Argument, ...], Field(max_length=128), ATOMIC]
