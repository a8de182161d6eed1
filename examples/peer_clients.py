"""What other clients see of a server, to be compared with what they see of it behind the gateway."""

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

__all__ = ["MODES", "inspected", "seen"]

MODES = ("legacy", "auto", "2026-07-28")
"""How the SDK's client begins: these servers have no newest version, and whoever insists on it is told so."""

PATIENCE = 60
OURS = ("output_", "forebay://")


async def _sampled(context: Any, params: CreateMessageRequestParams) -> CreateMessageResult:  # noqa: ARG001
    return CreateMessageResult(role="assistant", content=TextContent(type="text", text="sampled"), model="made up")


async def _elicited(context: Any, params: ElicitRequestParams) -> ElicitResult:  # noqa: ARG001
    return ElicitResult(action="accept", content={"name": "Jo"})


async def _rooted(context: Any) -> ListRootsResult:  # noqa: ARG001
    return ListRootsResult(roots=[Root(uri=FileUrl("file:///data"))])


def seen(command: Sequence[str], mode: str, calls: Sequence[tuple[str, dict[str, Any]]]) -> list[Any]:
    """All that the SDK's client makes of a server's lists and answers; of ours nothing."""
    found: list[Any] = []

    async def look(client: Client) -> None:
        steps: list[float] = []

        async def report(progress: float, total: float | None, message: str | None) -> None:  # noqa: ARG001
            steps.append(progress)

        found.append(client.server_info)
        found.append([tool for tool in (await client.list_tools()).tools if not tool.name.startswith(OURS)])
        found.extend([await client.call_tool(name, told, progress_callback=report) for name, told in calls])
        found.append(steps)
        if client.server_capabilities.resources is not None:
            # Behind the gateway a server without any has a list of none.
            found.extend((await client.list_resources()).resources)
        if client.server_capabilities.prompts is not None:
            found.append((await client.list_prompts()).prompts)

    async def run() -> None:
        with anyio.fail_after(PATIENCE):
            server = StdioServerParameters(command=command[0], args=list(command[1:]))
            async with Client(
                server,
                mode=mode,
                sampling_callback=_sampled,
                elicitation_callback=_elicited,
                list_roots_callback=_rooted,
            ) as client:
                try:
                    await look(client)
                except Exception as error:
                    # Whatever it is, it is to be the same. Behind the bracket stands an excerpt of what came.
                    found.append(f"{type(error).__name__}: {str(error).split('[')[0]}")

    anyio.run(run)
    return found


def inspected(node: Node, command: Sequence[str], *arguments: str) -> Any:
    """What the Inspector's command prints; of ours nothing."""
    said = node.inspected(command, "--method", *arguments)
    for kind, key in (("tools", "name"), ("resourceTemplates", "uriTemplate")):
        if kind in said:
            said[kind] = [one for one in said[kind] if not one[key].startswith(OURS)]
    return said
