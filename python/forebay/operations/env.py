"""The operations as functions: `await env.crm.get({"id": 7})` is an envelope.

env = build_env(registry)
envelope = await env.crm.get({"id": 7})
envelope = await env["my.crm"]["class"]({"id": 7}, timeout=2.0)
"""

import dataclasses
from typing import TYPE_CHECKING, Any, Protocol

from forebay.operations.deadlines import deadline_after, earliest_deadline
from forebay.operations.envelope import ResponseEnvelope
from forebay.operations.errors import CallError

if TYPE_CHECKING:
    # A context has an env: it is imported there.
    from forebay.operations.spec import CallContext

__all__ = ["UNBOUND_ENV", "OperationCaller", "OperationEnv", "OperationFunction", "build_env"]


class OperationCaller(Protocol):
    """What calls operations for a handler: a registry, directly, or a `PendingRequestMap`, by asking for them."""

    async def call_nested(self, parent: "CallContext", operation_id: str, given: Any, /) -> ResponseEnvelope[Any]:
        """Calls an operation as a part of answering another call: with its identity, and by its deadline."""
        ...


class OperationFunction:
    """An operation to call. Where a namespace has dots, it is also the way to those that are further down."""

    __slots__ = ("_caller", "_context", "_id")

    # By `[]` alone it could be gone through for ever.
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
        """Calls it. A deadline, by `time.monotonic()`, is never later than that of the call that this is a part of."""
        by = earliest_deadline(self._context.deadline, deadline, deadline_after(timeout))
        context = self._context if by == self._context.deadline else dataclasses.replace(self._context, deadline=by)
        return await self._caller.call_nested(context, self._id, input)

    def __getitem__(self, name: str) -> "OperationFunction":
        return OperationFunction(self._caller, self._context, f"{self._id}.{name}")

    def __getattr__(self, name: str) -> "OperationFunction":
        _reject_dunder(name)
        return self[name]

    def __repr__(self) -> str:
        return f"<operation {self._id}>"


class OperationEnv:
    """All operations by namespace and name: as attributes, or by `[]` where the name is none for an attribute.

    Nothing is looked up before it is called.
    """

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
    """The operations as functions, called for whomever the context tells of.

    With a registry they are called directly: nobody's access is checked. With a `PendingRequestMap` they are asked for.
    """
    if context is None:
        from forebay.operations.spec import CallContext

        context = CallContext()
    return OperationEnv(registry_or_call_map, context)


class _UnboundEnv(OperationEnv):
    """Of a context that nobody bound to a registry or to a map of requests."""

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
    """Copying and inspecting ask for these of anything, and take what they get for an answer."""
    if name.startswith("__") and name.endswith("__"):
        raise AttributeError(f"{name} is no operation; use [{name!r}] if it is one")
