"""A server with the tools, prompts and resources that the protocol's conformance suite needs.

python examples/conformance_server.py [--http PORT] [--forebay --store file:///path]      stdio without --http
"""

import argparse
import base64
import contextlib
import json
from typing import Annotated, Any, Literal

import pages
from forebay.adapters.mcp import Forebay
from inputs import add_capability_tools, add_input_tools, add_state_tools
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.prompts.base import UserMessage
from mcp.server.mcpserver.tools import Tool
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp_types import (
    AudioContent,
    Completion,
    EmbeddedResource,
    EmptyResult,
    ImageContent,
    JSONRPCMessage,
    SamplingMessage,
    SetLevelRequestParams,
    SubscribeRequestParams,
    TextContent,
    TextResourceContents,
    UnsubscribeRequestParams,
)
from pydantic import BaseModel, Field

PIXEL = base64.b64encode(pages.render_png("pixel", 1, 1)).decode()
SILENCE = base64.b64encode(
    b"RIFF" + (36).to_bytes(4, "little") + b"WAVEfmt " + (16).to_bytes(4, "little") + bytes.fromhex("0100010040")
    + bytes.fromhex("1f0000803e0000020010") + b"\0data" + bytes(4)
).decode()  # fmt: skip


class InMemoryEventStore(EventStore):
    """Sent events, so that a client can resume after its connection broke."""

    def __init__(self) -> None:
        self._events: list[tuple[str, JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        self._events.append((stream_id, message))
        return str(len(self._events))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        last = int(last_event_id) if last_event_id.isdigit() else 0
        if not 0 < last <= len(self._events):
            return None
        stream = self._events[last - 1][0]
        for number, (stream_id, message) in enumerate(self._events[last:], last + 1):
            if stream_id == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


def make_resource(uri: str, mime_type: str, text: str) -> EmbeddedResource:
    contents = TextResourceContents(uri=uri, mime_type=mime_type, text=text)
    return EmbeddedResource(type="resource", resource=contents)


def make_image() -> ImageContent:
    return ImageContent(type="image", data=PIXEL, mime_type="image/png")


def add_result_tools(server: MCPServer) -> None:
    """Add a tool for every kind of result."""

    @server.tool()
    def test_simple_text() -> str:
        """Text."""
        return "This is a simple text response for testing."

    @server.tool()
    def test_image_content() -> list[ImageContent]:
        """An image."""
        return [make_image()]

    @server.tool()
    def test_audio_content() -> list[AudioContent]:
        """Audio."""
        return [AudioContent(type="audio", data=SILENCE, mime_type="audio/wav")]

    @server.tool()
    def test_embedded_resource() -> list[EmbeddedResource]:
        """A resource inside of the result."""
        return [make_resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")]

    @server.tool()
    def test_multiple_content_types() -> list[TextContent | ImageContent | EmbeddedResource]:
        """Several kinds at once."""
        text = TextContent(type="text", text="Multiple content types test:")
        data = make_resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}')
        return [text, make_image(), data]

    @server.tool()
    def test_error_handling() -> str:
        """An error."""
        raise ToolError("This tool intentionally returns an error for testing")


def add_notification_tools(server: MCPServer) -> None:
    """Add tools that send notifications before they return."""

    @server.tool()
    async def test_tool_with_logging(ctx: Context) -> str:
        """Logs three times."""
        for message in ("Tool execution started", "Tool processing data", "Tool execution completed"):
            await ctx.info(message)
        return "done"

    @server.tool()
    async def test_logging_tool(ctx: Context) -> str:
        """Logs once."""
        await ctx.info("logged")
        return "done"

    @server.tool()
    async def test_tool_with_progress(ctx: Context) -> str:
        """Reports progress three times."""
        for progress in (0, 50, 100):
            await ctx.report_progress(progress, 100, f"Completed step {progress} of 100")
        return "done"

    @server.tool()
    async def test_reconnection(ctx: Context) -> str:
        """Closes the connection before it answers."""
        await ctx.close_sse_stream()
        return "Reconnection test completed"

    @server.tool()
    async def test_trigger_tool_change(ctx: Context) -> str:
        """Says that there may be other tools."""
        await ctx.notify_tools_changed()
        return "done"

    @server.tool()
    async def test_trigger_prompt_change(ctx: Context) -> str:
        """Says that there may be other prompts."""
        await ctx.notify_prompts_changed()
        return "done"


class Answer(BaseModel):
    response: str = Field(description="what the user says")


class Defaults(BaseModel):
    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Annotated[str, Field(json_schema_extra={"enum": ["active", "inactive", "pending"]})] = "active"
    verified: bool = True


def make_titled_choices(keyword: str, **titles: str) -> dict[str, Any]:
    return {keyword: [{"const": value, "title": title} for value, title in titles.items()]}


class Choices(BaseModel):
    untitledSingle: Literal["option1", "option2", "option3"]  # noqa: N815 - the suite's names
    titledSingle: Annotated[str, Field(json_schema_extra=make_titled_choices("oneOf", value1="First", value2="Second"))]  # noqa: N815
    legacyEnum: Annotated[  # noqa: N815
        str, Field(json_schema_extra={"enum": ["opt1", "opt2"], "enumNames": ["Option One", "Option Two"]})
    ]
    untitledMulti: list[Literal["option1", "option2", "option3"]]  # noqa: N815
    titledMulti: Annotated[  # noqa: N815
        list[str], Field(json_schema_extra={"items": make_titled_choices("anyOf", value1="First", value2="Second")})
    ]


def add_client_request_tools(server: MCPServer) -> None:
    """Add tools that send requests to the client, as in protocol 2025-11-25 and earlier."""

    async def elicit(ctx: Context, message: str, schema: type[BaseModel]) -> str:
        result = await ctx.elicit(message=message, schema=schema)
        content = result.data.model_dump_json() if result.action == "accept" else "{}"
        return f"User response: action={result.action}, content={content}"

    @server.tool()
    async def test_sampling(prompt: str, ctx: Context) -> str:
        """Asks the client's model."""
        question = SamplingMessage(role="user", content=TextContent(type="text", text=prompt))
        result = await ctx.session.create_message(messages=[question], max_tokens=100)
        return f"LLM response: {getattr(result.content, 'text', '')}"

    @server.tool()
    async def test_elicitation(message: str, ctx: Context) -> str:
        """Asks the user."""
        return await elicit(ctx, message, Answer)

    @server.tool()
    async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
        """Asks the user, and suggests answers."""
        return await elicit(ctx, "Please provide user information", Defaults)

    @server.tool()
    async def test_elicitation_sep1330_enums(ctx: Context) -> str:
        """Asks the user to choose."""
        return await elicit(ctx, "Please select", Choices)


def add_resources(server: MCPServer) -> None:
    @server.resource("test://static-text", mime_type="text/plain")
    def static_text() -> str:
        return "This is the content of the static text resource."

    @server.resource("test://static-binary", mime_type="image/png")
    def static_binary() -> bytes:
        return base64.b64decode(PIXEL)

    @server.resource("test://watched-resource", mime_type="text/plain")
    def watched() -> str:
        return "Watched resource content"

    @server.resource("test://template/{id}/data", mime_type="application/json")
    def template(id: str) -> str:  # noqa: A002 - the suite's name
        return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})


def add_prompts(server: MCPServer) -> None:
    @server.prompt()
    def test_simple_prompt() -> list[UserMessage]:
        """A prompt."""
        return [UserMessage("This is a simple prompt for testing.")]

    @server.prompt()
    def test_prompt_with_arguments(arg1: str, arg2: str) -> list[UserMessage]:
        """A prompt of two arguments."""
        return [UserMessage(f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'")]

    @server.prompt()
    def test_prompt_with_embedded_resource(resourceUri: str) -> list[UserMessage]:  # noqa: N803 - the suite's name
        """A prompt with a resource in it."""
        found = make_resource(resourceUri, "text/plain", "Embedded resource content for testing.")
        return [UserMessage(found), UserMessage("Please process the embedded resource above.")]

    @server.prompt()
    def test_prompt_with_image() -> list[UserMessage]:
        """A prompt with an image in it."""
        return [UserMessage(make_image()), UserMessage("Please analyze the image above.")]


def add_handlers(server: MCPServer) -> None:
    """Add the completion handler and handlers without a decorator."""

    @server.completion()  # type: ignore[no-untyped-call,untyped-decorator]
    async def complete(*_: Any) -> Completion:
        return Completion(values=["paris", "park", "party"], total=3, has_more=False)

    async def accept(*_: Any) -> EmptyResult:
        return EmptyResult()

    low_level = server._lowlevel_server
    low_level.add_request_handler("logging/setLevel", SetLevelRequestParams, accept)
    low_level.add_request_handler("resources/subscribe", SubscribeRequestParams, accept)
    low_level.add_request_handler("resources/unsubscribe", UnsubscribeRequestParams, accept)


SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def make_schema_tool() -> Tool:
    """Return a tool whose input schema uses many JSON Schema keywords."""

    def json_schema_2020_12_tool() -> str:
        """Takes an address."""
        return "done"

    return Tool.from_function(json_schema_2020_12_tool).model_copy(update={"parameters": SCHEMA})


def make_server() -> MCPServer:
    server = MCPServer("conformance", version="1.0", log_level="WARNING", tools=[make_schema_tool()])
    for add in (
        add_result_tools,
        add_notification_tools,
        add_client_request_tools,
        add_input_tools,
        add_state_tools,
        add_capability_tools,
        add_resources,
        add_prompts,
        add_handlers,
    ):
        add(server)
    return server


def main() -> None:
    parser = argparse.ArgumentParser(description="A server for the conformance suite.")
    parser.add_argument("--http", type=int, metavar="PORT", help="serve streamable HTTP instead of stdio")
    parser.add_argument("--forebay", action="store_true", help="install forebay with all features on")
    parser.add_argument("--store", help="URL of the store, file:///path")
    options = parser.parse_args()
    server = make_server()
    with contextlib.ExitStack() as stack:
        if options.forebay:
            forebay = Forebay(options.store, output_mode="auto", per_call=True, journal=True)
            stack.callback(forebay.close)
            forebay.install(server)
        if options.http is None:
            server.run()
            return
        server.run("streamable-http", port=options.http, event_store=InMemoryEventStore(), retry_interval=100)


if __name__ == "__main__":
    main()
