"""Operations: their names, schemas, handlers and access control, and how code calls them.

env = build_env(registry)
envelope = await env.crm.get({"id": 7})
envelope = await env["my.crm"]["class"]({"id": 7}, timeout=2.0)
"""

import dataclasses
import functools
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from typing import Any, Literal, Protocol, TypeAlias, get_args

from forebay.arguments import short_repr
from forebay.envelope import ResponseEnvelope
from forebay.errors import InvalidArgument
from forebay.operations.cast import Caster
from forebay.operations.deadlines import deadline_after, earliest_deadline
from forebay.operations.errors import CallError
from forebay.operations.validation import Schema, Validator

__all__ = [
    "UNBOUND_ENV",
    "AccessControl",
    "CallContext",
    "Handler",
    "Identity",
    "Operation",
    "OperationCaller",
    "OperationEnv",
    "OperationFunction",
    "OperationSpec",
    "OperationType",
    "build_env",
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
    """The scopes a caller needs: all of `required_scopes`, and one of `required_scopes_any` unless that is empty."""

    required_scopes: Collection[str] = ()
    required_scopes_any: Collection[str] = ()

    def __post_init__(self) -> None:
        _check_scopes("required_scopes", self.required_scopes)
        _check_scopes("required_scopes_any", self.required_scopes_any)

    def allows(self, identity: Identity | None) -> bool:
        """Return whether a caller has the scopes; `None` is a caller without scopes."""
        scopes = set(identity.scopes) if identity is not None else set()
        any_of = set(self.required_scopes_any)
        return scopes.issuperset(self.required_scopes) and (not any_of or not scopes.isdisjoint(any_of))


@dataclasses.dataclass(frozen=True, kw_only=True)
class OperationSpec:
    """The name, schemas and access control of an operation. Its id is `namespace.name`."""

    namespace: str
    name: str
    type: OperationType = "query"
    description: str = ""
    input_schema: Schema | None = None
    """JSON Schema of the input; `None` means the input is not checked."""
    output_schema: Schema | None = None
    """JSON Schema of the data that the operation returns; `None` if unknown."""
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
        """Whether the input has to be an object. Then a missing input means an empty object."""
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
        """Caster to the output schema."""
        return Caster(self.output_schema)


class OperationCaller(Protocol):
    """Something that calls operations: a registry in this process, or a `PendingRequestMap` over the bus."""

    async def call_nested(self, parent: "CallContext", operation_id: str, input_data: Any, /) -> ResponseEnvelope[Any]:
        """Call an operation on behalf of the `parent` call, with the identity and deadline of `parent`."""
        ...


class OperationFunction:
    """An operation as an async function. `[name]` and `.name` append to its id, for namespaces that contain dots."""

    __slots__ = ("_caller", "_context", "_id")

    # An object with `__getitem__` but no `__iter__` is iterable in Python; here, the iteration would never end.
    __iter__ = None
    __contains__ = None

    def __init__(self, caller: OperationCaller, context: "CallContext", operation_id: str) -> None:
        self._caller = caller
        self._context = context
        self._id = operation_id

    async def __call__(
        self,
        input: Any = None,  # noqa: A002
        *,
        timeout: float | None = None,
        deadline: float | None = None,
    ) -> ResponseEnvelope[Any]:
        """Call the operation. `deadline` is in seconds of `time.monotonic()`; an earlier one of the context wins."""
        context = self._context
        earliest = earliest_deadline(context.deadline, deadline, deadline_after(timeout))
        if earliest != context.deadline:
            context = dataclasses.replace(context, deadline=earliest)
        return await self._caller.call_nested(context, self._id, input)

    def __getitem__(self, name: str) -> "OperationFunction":
        return OperationFunction(self._caller, self._context, f"{self._id}.{name}")

    def __getattr__(self, name: str) -> "OperationFunction":
        _reject_dunder(name)
        return self[name]

    def __repr__(self) -> str:
        return f"<operation {self._id}>"


class OperationEnv:
    """All operations by namespace and name, as attributes or with `[]`. An unknown operation fails only when called."""

    __slots__ = ("_caller", "_context")

    __iter__ = None
    __contains__ = None

    def __init__(self, caller: OperationCaller, context: "CallContext") -> None:
        self._caller = caller
        self._context = context

    def __getitem__(self, namespace: str) -> OperationFunction:
        return OperationFunction(self._caller, self._context, namespace)

    def __getattr__(self, namespace: str) -> OperationFunction:
        _reject_dunder(namespace)
        return self[namespace]


def build_env(registry_or_call_map: OperationCaller, *, context: "CallContext | None" = None) -> OperationEnv:
    """Return all operations as functions, which call with the identity and deadline of `context`.

    With a registry, calls run directly and access is not checked. With a `PendingRequestMap`, calls go over the bus.
    """
    return OperationEnv(registry_or_call_map, CallContext() if context is None else context)


class _UnboundEnv(OperationEnv):
    """The env of a context that has neither a registry nor a `PendingRequestMap`. Every call fails."""

    __slots__ = ()

    def __init__(self) -> None:
        pass

    def __getitem__(self, namespace: str) -> OperationFunction:
        raise CallError(
            "OPERATION_NOT_FOUND",
            f"{namespace!r:.128} cannot be called: this context has no operations; give it build_env(registry)",
        )


UNBOUND_ENV: OperationEnv = _UnboundEnv()


def _reject_dunder(name: str) -> None:
    """Raise `AttributeError` for names like `__deepcopy__`, which Python looks up on any object."""
    if name.startswith("__") and name.endswith("__"):
        raise AttributeError(f"{name} is no operation; use [{name!r}] if it is one")


@dataclasses.dataclass(frozen=True, slots=True)
class CallContext:
    """The id, caller and deadline of the call that a handler runs for."""

    request_id: str | None = None
    """`None` for calls made with `execute()` in this process."""
    parent_request_id: str | None = None
    identity: Identity | None = None
    deadline: float | None = None
    """In seconds of `time.monotonic()`."""
    env: OperationEnv = dataclasses.field(default=UNBOUND_ENV, compare=False, repr=False)
    """All operations, for nested calls."""


Handler: TypeAlias = Callable[[Any, CallContext], Any | Awaitable[Any] | AsyncIterator[Any]]
"""Function of the input and the context that returns data or an envelope; for a subscription, a generator of them."""


@dataclasses.dataclass(frozen=True, slots=True)
class Operation:
    """An operation and its handler."""

    spec: OperationSpec
    handler: Handler
