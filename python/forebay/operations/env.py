"""Operations as async functions: `await env.crm.get({"id": 7})` returns an envelope.

env = build_env(registry)
envelope = await env.crm.get({"id": 7})
envelope = await env["my.crm"]["class"]({"id": 7}, timeout=2.0)
"""

import dataclasses
from typing import TYPE_CHECKING, Any, Protocol

from forebay.envelope import ResponseEnvelope
from forebay.operations.deadlines import deadline_after, earliest_deadline
from forebay.operations.errors import CallError

if TYPE_CHECKING:
    # Imported only for types: spec.py imports this module.
    from forebay.operations.spec import CallContext

__all__ = ["UNBOUND_ENV", "OperationCaller", "OperationEnv", "OperationFunction", "build_env"]


class OperationCaller(Protocol):
    """Calls operations for a handler: a registry directly, a `PendingRequestMap` over the bus."""

    async def call_nested(self, parent: "CallContext", operation_id: str, input_data: Any, /) -> ResponseEnvelope[Any]:
        """Call an operation on behalf of another call, with that call's identity and deadline."""
        ...


class OperationFunction:
    """A callable operation. `[]` and attribute access lead to operations of namespaces with dots."""

    __slots__ = ("_caller", "_context", "_id")

    # `__getitem__` alone would make it iterable, without end.
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
        """Call the operation. `deadline` is in seconds of `time.monotonic()`; an enclosing call limits it further."""
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
    """All operations by namespace and name, as attributes or with `[]`. They are looked up when they are called."""

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
    """Return the operations as functions, called with the identity and deadline of `context`.

    With a registry they are called directly and access is not checked. With a `PendingRequestMap` they go over the bus.
    """
    if context is None:
        from forebay.operations.spec import CallContext

        context = CallContext()
    return OperationEnv(registry_or_call_map, context)


class _UnboundEnv(OperationEnv):
    """The env of a context without a registry or a `PendingRequestMap`; every call fails."""

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
