"""forebay in an agent whose tools are Python functions, without MCP: large results become handles.

outputs = AgentOutputs()
tools = [outputs.wrap(list_orders), *outputs.tools]  # each in the tool class of your framework
"""

import dataclasses
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, ParamSpec, Self, TypeVar, cast, overload

from forebay.errors import InvalidArgument
from forebay.outputs.policy import OutputPolicy
from forebay.outputs.result import BodyResult, Result, ResultPayload, text_result
from forebay.outputs.tool_call import ToolCall
from forebay.outputs.tools import Caller
from forebay.store import Store, open_store
from forebay.store.payload import encode
from forebay.store.threads import run_in_pool

__all__ = ["AgentOutputs", "AgentTool"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, slots=True)
class AgentTool:
    """A tool that reads stored outputs, for an agent."""

    name: str
    description: str
    """What the tool does, for the model."""
    input_schema: dict[str, Any]
    """JSON Schema of the arguments."""
    run: Callable[[Mapping[str, Any]], str]
    """Does the same as `call`, but takes the arguments as one mapping."""

    def call(self, **arguments: Any) -> str:
        """Return JSON text for the model: a page, matches, rows, or an error that names the next step."""
        return self.run(arguments)


class AgentOutputs:
    """Handles for an agent's large tool results, and the tools that read them.

    Takes a store, or its address and options: `AgentOutputs("file:///path", ttl=3600)`. Handles belong to `principal`:
    make one object for each user of an application, all on the same store. Results of more than
    `output_inline_limit_bytes` become handles; pages have at most `page_limit_bytes`. `prefix` is put before the names
    of the tools.
    """

    def __init__(
        self,
        store: Store | str | None = None,
        *,
        principal: str | None = None,
        output_inline_limit_bytes: int = 32768,
        page_limit_bytes: int | None = None,
        prefix: str = "",
        **options: Any,
    ) -> None:
        if isinstance(store, Store) and options:
            raise InvalidArgument(f"this store is open already; give {', '.join(options)} to open_store")
        self._owns_store = not isinstance(store, Store)
        self.store = store if isinstance(store, Store) else open_store(store, **options)
        try:
            self._policy = OutputPolicy(
                self.store,
                output_mode="auto",
                output_inline_limit_bytes=output_inline_limit_bytes,
                page_limit_bytes=page_limit_bytes,
                prefix=prefix,
            )
        except BaseException:
            self.close()
            raise
        self._principal = principal
        self._caller = Caller(principal=principal, max_page_bytes=self._policy.get_max_page_bytes(None))

    @property
    def instructions(self) -> str:
        """A text for the instructions of the agent, which explains handles to the model."""
        return self._policy.reading_note

    @property
    def tools(self) -> list[AgentTool]:
        """`output_fetch` and `output_search`, and `output_query` with the extra `sql`."""
        return [
            AgentTool(
                definition["name"],
                definition["description"],
                definition["inputSchema"],
                functools.partial(self._call, definition["name"]),
            )
            for definition in self._policy.tools.list_definitions()
        ]

    def limit(self, output: object, source_tool: str = "tool") -> object:
        """Return an output unchanged if it fits inline; otherwise store it, and return its descriptor as JSON text.

        An output is text, bytes, or an object that can be encoded as JSON, such as a pydantic model. Other objects are
        returned unchanged.
        """
        self._policy.count_call(source_tool, self._principal)
        result = _make_result(output)
        mode, _ = self._policy.resolve_mode(source_tool, {})
        call = ToolCall(source_tool, self._principal)
        if result is None or self._policy.pipeline.is_inline(result, mode, call):
            return output
        (block,) = self._policy.pipeline.store_result(result, call)["content"]
        return block.get("text", output)

    @overload
    def wrap(self, function: Callable[_P, Coroutine[Any, Any, _T]]) -> Callable[_P, Coroutine[Any, Any, _T | str]]: ...
    @overload
    def wrap(self, function: Callable[_P, _T]) -> Callable[_P, _T | str]: ...

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function with the same name, signature and docstring, whose results go through `limit`."""
        name = getattr(function, "__name__", type(function).__name__)

        async def limit_awaitable(awaitable: Awaitable[object]) -> object:
            output = await awaitable
            return await run_in_pool(lambda: self.limit(output, name))

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def limit_awaited(*args: Any, **kwargs: Any) -> Any:
                return await limit_awaitable(function(*args, **kwargs))

            return limit_awaited

        @functools.wraps(function)
        def limit_returned(*args: Any, **kwargs: Any) -> Any:
            output = function(*args, **kwargs)
            # A decorated coroutine function, or an object with an async `__call__`, looks like any other function.
            return limit_awaitable(output) if inspect.isawaitable(output) else self.limit(output, name)

        return limit_returned

    def close(self) -> None:
        """Close the store, unless it was passed in by the caller."""
        if self._owns_store:
            self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, name: str, arguments: Mapping[str, Any]) -> str:
        return cast("str", self._policy.tools.call(name, arguments, self._caller)["content"][0]["text"])


def _make_result(output: object) -> Result | BodyResult | None:
    """Return an output as a tool result of the protocol, or `None` if it cannot be encoded as JSON."""
    if isinstance(output, str):
        return text_result(output)
    if isinstance(output, bytes):
        resource = {"type": "resource", "resource": {"uri": "", "blob": ""}}
        return BodyResult(ResultPayload(output), {"content": [resource], "isError": False})
    try:
        data = encode(output)
    except Exception:
        # Objects run code of their own here, which may raise anything. The tool has succeeded all the same.
        return None
    return BodyResult(ResultPayload(data, "application/json"), text_result(""))
