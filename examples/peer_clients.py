"""Read servers with the SDK's client and with the Inspector, to compare them with and without the gateway."""

from collections.abc import Sequence
from typing import Any

import anyio
from conformance import Node
from mcp import Client, StdioServerParameters
from mcp_types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestParams,
    ElicitResult,
    ListRootsResult,
    Root,
    TextContent,
)
from pydantic import FileUrl

__all__ = ["MODES", "read_with_inspector", "read_with_sdk"]

MODES = ("legacy", "auto", "2026-07-28")
"""Modes of the SDK's client. These servers do not support 2026-07-28, so that mode compares their errors."""

TIMEOUT_SECONDS = 60
OUR_PREFIXES = ("output_", "forebay://")


async def _answer_sampling(context: Any, params: CreateMessageRequestParams) -> CreateMessageResult:  # noqa: ARG001
    return CreateMessageResult(role="assistant", content=TextContent(type="text", text="sampled"), model="made up")


async def _answer_elicitation(context: Any, params: ElicitRequestParams) -> ElicitResult:  # noqa: ARG001
    return ElicitResult(action="accept", content={"name": "Jo"})


async def _list_roots(context: Any) -> ListRootsResult:  # noqa: ARG001
    return ListRootsResult(roots=[Root(uri=FileUrl("file:///data"))])


def read_with_sdk(command: Sequence[str], mode: str, calls: Sequence[tuple[str, dict[str, Any]]]) -> list[Any]:
    """Return everything that the SDK's client reads from a server, without what forebay adds."""
    found: list[Any] = []

    async def read_all(client: Client) -> None:
        steps: list[float] = []

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:  # noqa: ARG001
            steps.append(progress)

        found.append(client.server_info)
        found.append([tool for tool in (await client.list_tools()).tools if not tool.name.startswith(OUR_PREFIXES)])
        found.extend(
            [await client.call_tool(name, arguments, progress_callback=on_progress) for name, arguments in calls]
        )
        found.append(steps)
        if client.server_capabilities.resources is not None:
            # The gateway adds an empty list of resources to a server without any.
            found.extend((await client.list_resources()).resources)
        if client.server_capabilities.prompts is not None:
            found.append((await client.list_prompts()).prompts)

    async def run() -> None:
        with anyio.fail_after(TIMEOUT_SECONDS):
            server = StdioServerParameters(command=command[0], args=list(command[1:]))
            async with Client(
                server,
                mode=mode,
                sampling_callback=_answer_sampling,
                elicitation_callback=_answer_elicitation,
                list_roots_callback=_list_roots,
            ) as client:
                try:
                    await read_all(client)
                except Exception as error:
                    # Errors are compared, too. The part in brackets is an excerpt of the message and may differ.
                    found.append(f"{type(error).__name__}: {str(error).split('[')[0]}")

    anyio.run(run)
    return found


def read_with_inspector(node: Node, command: Sequence[str], *arguments: str) -> Any:
    """Return the output of the Inspector's command, without what forebay adds."""
    output = node.inspect(command, "--method", *arguments)
    for kind, key in (("tools", "name"), ("resourceTemplates", "uriTemplate")):
        if kind in output:
            output[kind] = [item for item in output[kind] if not item[key].startswith(OUR_PREFIXES)]
    return output
