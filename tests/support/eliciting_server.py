"""A server of the mcp SDK that requests input in the way of one protocol era: `eliciting_server.py TRANSPORT ERA`."""

# ruff: noqa: ARG001

import math
import sys
from typing import Any

import anyio
from listening import serve_http
from mcp.server import Server
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    ErrorData,
    GetPromptRequestParams,
    GetPromptResult,
    InputRequest,
    InputRequiredResult,
    InputResponse,
    JSONRPCError,
    JSONRPCRequest,
    ListPromptsResult,
    ListResourcesResult,
    ListRootsRequest,
    ListToolsResult,
    PaginatedRequestParams,
    Prompt,
    PromptMessage,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    SamplingMessage,
    TextContent,
    TextResourceContents,
    Tool,
)

Context = ServerRequestContext[Any, Any]

TOOLS = ["elicit", "sample", "roots", "all", "forever", "later", "odd"]


def make_request(kind: str, of: str = "you") -> InputRequest:
    if kind == "roots":
        return ListRootsRequest()
    if kind == "sample":
        message = SamplingMessage(role="user", content=TextContent(type="text", text=f"Say {of}"))
        return CreateMessageRequest(params=CreateMessageRequestParams(messages=[message], max_tokens=7))
    schema: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}}
    return ElicitRequest(params=ElicitRequestFormParams(message=f"Who is {of}?", requested_schema=schema))


def dump_response(response: InputResponse) -> str:
    return response.model_dump_json(by_alias=True, exclude_none=True)


async def request_during_call(ctx: Context, kind: str, of: str) -> str:
    try:
        match request := make_request(kind, of):
            case ElicitRequest(params=ElicitRequestFormParams() as form):
                return dump_response(await ctx.session.elicit_form(form.message, form.requested_schema, ctx.request_id))
            case CreateMessageRequest(params=params):
                sample = await ctx.session.create_message(
                    params.messages, max_tokens=params.max_tokens, related_request_id=ctx.request_id
                )
                return dump_response(sample)
            case _:
                assert isinstance(request, ListRootsRequest)
                return dump_response(await ctx.session.list_roots())
    except MCPError as error:
        return f"refused: {error.code}"


def request_by_result(params: Any, kind: str, of: str) -> str | InputRequiredResult:
    kinds = ["elicit", "sample", "roots"] if kind == "all" else [kind]
    round_number = int(params.request_state or 0)
    if kind == "later" and round_number < 2:
        return InputRequiredResult(request_state=str(round_number + 1))
    if kind == "later":
        return f"later: {params.input_responses}"
    if params.input_responses is None or kind == "forever":
        requests = {kind: make_request(kind, of) for kind in kinds}
        return InputRequiredResult(input_requests=requests, request_state=str(round_number + 1))
    return " ".join(dump_response(params.input_responses[kind]) for kind in kinds)


def make_server(era: str) -> Server[Any]:
    async def request_input(ctx: Context, params: Any, kind: str, of: str = "you") -> str | InputRequiredResult:
        if era == "modern":
            return request_by_result(params, kind, of)
        kinds = ["elicit", "sample", "roots"] if kind == "all" else [kind]
        return " ".join([await request_during_call(ctx, kind, of) for kind in kinds])

    async def reject_other_era(ctx: Context, call_next: CallNext) -> HandlerResult:
        if ctx.method == ("initialize" if era == "modern" else "server/discover"):
            raise MCPError(code=-32601, message="Method not found")
        if ctx.method == "tools/call" and (ctx.params or {}).get("name") == "odd":
            return {"resultType": "input_required", "inputRequests": {"a": {"params": 1}}, "requestState": "odd"}
        return await call_next(ctx)

    async def list_tools(ctx: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name=tool, input_schema={"type": "object"}) for tool in TOOLS])

    async def call_tool(ctx: Context, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
        answer = await request_input(ctx, params, params.name, **(params.arguments or {}))
        if isinstance(answer, InputRequiredResult):
            return answer
        return CallToolResult(content=[TextContent(type="text", text=answer)])

    async def list_prompts(ctx: Context, params: PaginatedRequestParams | None) -> ListPromptsResult:
        return ListPromptsResult(prompts=[Prompt(name="greet")])

    async def get_prompt(ctx: Context, params: GetPromptRequestParams) -> GetPromptResult | InputRequiredResult:
        answer = await request_input(ctx, params, "elicit")
        if isinstance(answer, InputRequiredResult):
            return answer
        text = TextContent(type="text", text=answer)
        return GetPromptResult(messages=[PromptMessage(role="user", content=text)])

    async def list_resources(ctx: Context, params: PaginatedRequestParams | None) -> ListResourcesResult:
        return ListResourcesResult(resources=[Resource(uri="asking://1", name="one")])

    async def read(ctx: Context, params: ReadResourceRequestParams) -> ReadResourceResult | InputRequiredResult:
        answer = await request_input(ctx, params, "elicit")
        if isinstance(answer, InputRequiredResult):
            return answer
        return ReadResourceResult(contents=[TextResourceContents(uri=params.uri, text=answer)])

    server: Server[Any] = Server(
        "eliciting",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_list_resources=list_resources,
        on_read_resource=read,
    )
    server.middleware.insert(0, reject_other_era)
    return server


async def forward_messages(era: str, reading: Any, writing: Any, send: Any) -> None:
    """Forward messages, but reject `server/discover` for a legacy server, which the SDK would accept on stdio."""
    async with send:
        async for item in reading:
            message = getattr(item, "message", None)
            if era == "legacy" and isinstance(message, JSONRPCRequest) and message.method == "server/discover":
                error = ErrorData(code=-32601, message="Method not found")
                await writing.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=message.id, error=error)))
            else:
                await send.send(item)


def main() -> None:
    transport, era = sys.argv[1:]
    server = make_server(era)
    if transport == "http":
        serve_http(server.streamable_http_app())
        return
    from mcp.server.stdio import stdio_server

    async def run() -> None:
        send, receive = anyio.create_memory_object_stream[SessionMessage | Exception](math.inf)
        async with stdio_server() as (reading, writing), anyio.create_task_group() as tasks:
            tasks.start_soon(forward_messages, era, reading, writing, send)
            await server.run(receive, writing, server.create_initialization_options())

    anyio.run(run)


if __name__ == "__main__":
    main()
