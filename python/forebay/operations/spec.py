"""Operations: their name, their schemas and who may call them."""

import dataclasses
import functools
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from typing import Any, Literal, TypeAlias, get_args

from forebay.arguments import short_repr
from forebay.errors import InvalidArgument
from forebay.operations.cast import Caster
from forebay.operations.env import UNBOUND_ENV, OperationEnv
from forebay.operations.validation import Schema, Validator

__all__ = [
    "AccessControl",
    "CallContext",
    "Handler",
    "Identity",
    "Operation",
    "OperationSpec",
    "OperationType",
]

OperationType: TypeAlias = Literal["query", "mutation", "subscription"]

_NAMESPACE_PATTERN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_./-]{0,127}")


@dataclasses.dataclass(frozen=True, slots=True)
class Identity:
    """A caller and its scopes."""

    id: str
    scopes: Collection[str] = frozenset()

    def __post_init__(self) -> None:
        _check_scopes("scopes", self.scopes)


def _check_scopes(name: str, scopes: object) -> None:
    # A string is a collection too: each of its letters would become a scope.
    if isinstance(scopes, str) or not isinstance(scopes, Collection):
        raise InvalidArgument(f'{name} are a list of scopes, such as ["crm:read"], not {short_repr(scopes)}')


@dataclasses.dataclass(frozen=True, slots=True)
class AccessControl:
    """The scopes a caller needs: all of `required_scopes`, and at least one of `required_scopes_any` if it has any."""

    required_scopes: Collection[str] = ()
    required_scopes_any: Collection[str] = ()

    def __post_init__(self) -> None:
        _check_scopes("required_scopes", self.required_scopes)
        _check_scopes("required_scopes_any", self.required_scopes_any)

    def allows(self, identity: Identity | None) -> bool:
        """Return whether `identity` may call; `None` is a caller without scopes."""
        scopes = set(identity.scopes) if identity is not None else set()
        any_of = set(self.required_scopes_any)
        return scopes.issuperset(self.required_scopes) and (not any_of or not scopes.isdisjoint(any_of))


@dataclasses.dataclass(frozen=True, kw_only=True)
class OperationSpec:
    """The description of an operation. Its id is `namespace.name`."""

    namespace: str
    name: str
    type: OperationType = "query"
    description: str = ""
    input_schema: Schema | None = None
    """JSON Schema of the input; `None` means the input is not checked."""
    output_schema: Schema | None = None
    """JSON Schema of `data` in its envelopes; `None` if unknown."""
    access_control: AccessControl = AccessControl()

    def __post_init__(self) -> None:
        if not isinstance(self.namespace, str) or not _NAMESPACE_PATTERN.fullmatch(self.namespace):
            raise InvalidArgument(f"a namespace is letters, digits, and any of _-./, not {short_repr(self.namespace)}")
        if not isinstance(self.name, str) or not 0 < len(self.name) <= 256:
            raise InvalidArgument(f"the name of an operation is 1 to 256 characters, not {short_repr(self.name)}")
        if self.type not in get_args(OperationType):
            choices = ", ".join(get_args(OperationType))
            raise InvalidArgument(f"the type of an operation is one of {choices}, not {short_repr(self.type)}")
        for name, schema in (("input_schema", self.input_schema), ("output_schema", self.output_schema)):
            if schema is not None and not isinstance(schema, Mapping | bool):
                examples = "such as {'type': 'object'}, or what Model.model_json_schema() returns"
                raise InvalidArgument(f"{name} is a JSON Schema as a dict, {examples}; not {short_repr(schema)}")
        if not isinstance(self.access_control, AccessControl):
            raise InvalidArgument(f"access_control is an AccessControl(scopes), not {short_repr(self.access_control)}")

    @functools.cached_property
    def id(self) -> str:
        """The id by which the operation is called: `namespace.name`."""
        return f"{self.namespace}.{self.name}"

    @functools.cached_property
    def takes_object(self) -> bool:
        """Whether the input is an object, so that no input means an empty object."""
        return isinstance(self.input_schema, Mapping) and self.input_schema.get("type") == "object"

    @functools.cached_property
    def input(self) -> Validator:
        """Validator of the input schema."""
        return Validator(self.input_schema, f"the input of {self.id}")

    @functools.cached_property
    def output(self) -> Validator:
        """Validator of the output schema."""
        return Validator(self.output_schema, f"the output of {self.id}")

    @functools.cached_property
    def caster(self) -> Caster:
        """Casts data to the output schema."""
        return Caster(self.output_schema)


@dataclasses.dataclass(frozen=True, slots=True)
class CallContext:
    """The call that a handler answers."""

    request_id: str | None = None
    """`None` for calls made with `execute()` in this process."""
    parent_request_id: str | None = None
    identity: Identity | None = None
    deadline: float | None = None
    """In seconds of `time.monotonic()`."""
    env: OperationEnv = dataclasses.field(default=UNBOUND_ENV, compare=False, repr=False)
    """The other operations, for nested calls."""


Handler: TypeAlias = Callable[[Any, CallContext], Any | Awaitable[Any] | AsyncIterator[Any]]
"""Takes the input and the context, and returns data or an envelope. The handler of a subscription yields them."""


@dataclasses.dataclass(frozen=True, slots=True)
class Operation:
    """An operation and its handler."""

    spec: OperationSpec
    handler: Handler
