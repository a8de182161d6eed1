"""A server of the mcp SDK with all protocol features: `python speaking_server.py stdio|http NAME [modern]`.

Two servers of different NAME have prompts and tools of the same names, but different resources.
With `modern` it rejects the handshake.
"""

# ruff: noqa: ARG001

import sys
from typing import Any

import anyio
from listening import serve_http
from mcp.server import Server
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import PromptsListChanged, ResourceUpdated, ToolsListChanged
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    CompleteRequestParams,
    CompleteResult,
    Completion,
    ElicitRequest,
    ElicitRequestFormParams,
    EmptyResult,
    GetPromptRequestParams,
    GetPromptResult,
    InputRequests,
    InputRequiredResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    Prompt,
    PromptMessage,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    SetLevelRequestParams,
    SubscribeRequestParams,
    TextContent,
    TextResourceContents,
    Tool,
)

Context = ServerRequestContext[Any, Any]

TOOLS = ["level", "log", "progress", "ask", "meta", "subscribed", "capable", "update", "retell"]


def make_server(name: str) -> Server[Any]:
    state: dict[str, Any] = {"level": None, "subscribed": []}
    bus = InMemorySubscriptionBus()

    async def list_tools(ctx: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name=tool, input_schema={"type": "object"}) for tool in TOOLS])

    async def call_tool(ctx: Context, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
        match params.name:
            case "log":
                await ctx.session.send_log_message("warning", {"of": name}, related_request_id=ctx.request_id)
            case "progress":
                arguments = params.arguments or {}
                for step in range(arguments.get("steps", 3)):
                    await anyio.sleep(arguments.get("every", 0))
                    await ctx.session.report_progress(step, 3)
            case "ask":
                form = ElicitRequestFormParams(message="Who?", requested_schema={"type": "object", "properties": {}})
                if params.input_responses is None:
                    requests: InputRequests = {"who": ElicitRequest(params=form)}
                    return InputRequiredResult(input_requests=requests, request_state="asked")
                answer = params.input_responses["who"]
                return text_result(f"{params.request_state} {answer.model_dump(mode='json').get('content')}")
            case "meta":
                return text_result((ctx.params or {}).get("_meta"))
            case "capable":
                capabilities = ctx.session.client_capabilities
                return text_result(sorted(capabilities.model_dump(exclude_none=True)) if capabilities else None)
            case "update":
                await bus.publish(ResourceUpdated(f"{name}://{(params.arguments or {}).get('of', 1)}"))
                await bus.publish(PromptsListChanged())
            case "retell":
                # Send the notification although the tools are unchanged.
                await bus.publish(ToolsListChanged())
                await ctx.session.send_tool_list_changed()
            case "level" | "subscribed":
                return text_result(state[params.name])
            case _:
                raise MCPError(code=-32099, message="odd", data={"of": name})
        return text_result(name)

    def text_result(value: Any) -> CallToolResult:
        return CallToolResult(content=[TextContent(type="text", text=str(value))])

    async def list_resources(ctx: Context, params: PaginatedRequestParams | None) -> ListResourcesResult:
        # One resource per page.
        at = int((params and params.cursor) or 0)
        resource = Resource(uri=f"{name}://{at}", name=f"{name} {at}")
        return ListResourcesResult(resources=[resource], next_cursor=str(at + 1) if at < 2 else None)

    async def list_templates(ctx: Context, params: PaginatedRequestParams | None) -> ListResourceTemplatesResult:
        return ListResourceTemplatesResult(
            resource_templates=[ResourceTemplate(uri_template=f"{name}://of/{{id}}", name=name)]
        )

    async def read(ctx: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
        return ReadResourceResult(contents=[TextResourceContents(uri=params.uri, text=f"{name} has it")])

    async def list_prompts(ctx: Context, params: PaginatedRequestParams | None) -> ListPromptsResult:
        return ListPromptsResult(prompts=[Prompt(name="greet"), Prompt(name=f"only_{name}")])

    async def get_prompt(ctx: Context, params: GetPromptRequestParams) -> GetPromptResult:
        text = TextContent(type="text", text=f"{params.name} of {name}")
        return GetPromptResult(messages=[PromptMessage(role="user", content=text)])

    async def complete(ctx: Context, params: CompleteRequestParams) -> CompleteResult:
        return CompleteResult(completion=Completion(values=[f"{params.argument.value} of {name}"]))

    async def set_level(ctx: Context, params: SetLevelRequestParams) -> EmptyResult:
        state["level"] = params.level
        return EmptyResult()

    async def subscribe(ctx: Context, params: SubscribeRequestParams) -> EmptyResult:
        state["subscribed"].append(str(params.uri))
        await ctx.session.send_resource_updated(params.uri)
        return EmptyResult()

    return Server(
        name,
        instructions=f"Mind {name}.",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_completion=complete,
        on_set_logging_level=set_level,
        on_subscribe_resource=subscribe,
        on_subscriptions_listen=ListenHandler(bus),
    )


async def refuse_handshake(ctx: Context, call_next: CallNext) -> HandlerResult:
    if ctx.method == "initialize":
        raise MCPError(code=-32601, message="Method not found")
    return await call_next(ctx)


def main() -> None:
    transport, name, *more = sys.argv[1:]
    server = make_server(name)
    if more:
        server.middleware.insert(0, refuse_handshake)
    if transport == "http":
        serve_http(server.streamable_http_app())
        return
    from mcp.server.stdio import stdio_server

    async def run() -> None:
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())

    anyio.run(run)


if __name__ == "__main__":
    main()
