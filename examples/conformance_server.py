"""A server with what the protocol's conformance suite asks for, with forebay or without.

python examples/conformance_server.py [--http PORT] [--forebay --store file:///path]      over stdio without a port
"""

import argparse
import base64
import contextlib
import json
from typing import Annotated, Any, Literal

import pages
from forebay.adapters.mcp import Forebay
from inputs import add_capabilities, add_inputs, add_states
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

PIXEL = base64.b64encode(pages.picture("pixel", 1, 1)).decode()
SILENCE = base64.b64encode(
    b"RIFF" + (36).to_bytes(4, "little") + b"WAVEfmt " + (16).to_bytes(4, "little") + bytes.fromhex("0100010040")
    + bytes.fromhex("1f0000803e0000020010") + b"\0data" + bytes(4)
).decode()  # fmt: skip


class Events(EventStore):
    """What was sent, so that a client whose connection broke can have the rest."""

    def __init__(self) -> None:
        self._sent: list[tuple[str, JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        self._sent.append((stream_id, message))
        return str(len(self._sent))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        last = int(last_event_id) if last_event_id.isdigit() else 0
        if not 0 < last <= len(self._sent):
            return None
        stream = self._sent[last - 1][0]
        for number, (of, message) in enumerate(self._sent[last:], last + 1):
            if of == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


def resource(uri: str, mime_type: str, text: str) -> EmbeddedResource:
    contents = TextResourceContents(uri=uri, mime_type=mime_type, text=text)
    return EmbeddedResource(type="resource", resource=contents)


def image() -> ImageContent:
    return ImageContent(type="image", data=PIXEL, mime_type="image/png")


def add_results(server: MCPServer) -> None:
    """Tools of every kind of result."""

    @server.tool()
    def test_simple_text() -> str:
        """Text."""
        return "This is a simple text response for testing."

    @server.tool()
    def test_image_content() -> list[ImageContent]:
        """An image."""
        return [image()]

    @server.tool()
    def test_audio_content() -> list[AudioContent]:
        """Audio."""
        return [AudioContent(type="audio", data=SILENCE, mime_type="audio/wav")]

    @server.tool()
    def test_embedded_resource() -> list[EmbeddedResource]:
        """A resource inside of the result."""
        return [resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")]

    @server.tool()
    def test_multiple_content_types() -> list[TextContent | ImageContent | EmbeddedResource]:
        """Several kinds at once."""
        text = TextContent(type="text", text="Multiple content types test:")
        data = resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}')
        return [text, image(), data]

    @server.tool()
    def test_error_handling() -> str:
        """An error."""
        raise ToolError("This tool intentionally returns an error for testing")


def add_messages(server: MCPServer) -> None:
    """Tools that say something on the way."""

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


def titled(keyword: str, **titles: str) -> dict[str, Any]:
    return {keyword: [{"const": value, "title": title} for value, title in titles.items()]}


class Choices(BaseModel):
    untitledSingle: Literal["option1", "option2", "option3"]  # noqa: N815 - the suite's names
    titledSingle: Annotated[str, Field(json_schema_extra=titled("oneOf", value1="First", value2="Second"))]  # noqa: N815
    legacyEnum: Annotated[  # noqa: N815
        str, Field(json_schema_extra={"enum": ["opt1", "opt2"], "enumNames": ["Option One", "Option Two"]})
    ]
    untitledMulti: list[Literal["option1", "option2", "option3"]]  # noqa: N815
    titledMulti: Annotated[  # noqa: N815
        list[str], Field(json_schema_extra={"items": titled("anyOf", value1="First", value2="Second")})
    ]


def add_questions(server: MCPServer) -> None:
    """Tools that ask back, as it was done until 2025-11-25."""

    async def asked(ctx: Context, message: str, schema: type[BaseModel]) -> str:
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
        return await asked(ctx, message, Answer)

    @server.tool()
    async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
        """Asks the user, and suggests answers."""
        return await asked(ctx, "Please provide user information", Defaults)

    @server.tool()
    async def test_elicitation_sep1330_enums(ctx: Context) -> str:
        """Asks the user to choose."""
        return await asked(ctx, "Please select", Choices)


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
        found = resource(resourceUri, "text/plain", "Embedded resource content for testing.")
        return [UserMessage(found), UserMessage("Please process the embedded resource above.")]

    @server.prompt()
    def test_prompt_with_image() -> list[UserMessage]:
        """A prompt with an image in it."""
        return [UserMessage(image()), UserMessage("Please analyze the image above.")]


def add_the_rest(server: MCPServer) -> None:
    """What has no decorator."""

    @server.completion()  # type: ignore[no-untyped-call,untyped-decorator]
    async def completed(*_: Any) -> Completion:
        return Completion(values=["paris", "park", "party"], total=3, has_more=False)

    async def accepted(*_: Any) -> EmptyResult:
        return EmptyResult()

    low_level = server._lowlevel_server
    low_level.add_request_handler("logging/setLevel", SetLevelRequestParams, accepted)
    low_level.add_request_handler("resources/subscribe", SubscribeRequestParams, accepted)
    low_level.add_request_handler("resources/unsubscribe", UnsubscribeRequestParams, accepted)


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


def with_schema() -> Tool:
    """A tool whose schema has all that a schema may have."""

    def json_schema_2020_12_tool() -> str:
        """Takes an address."""
        return "done"

    return Tool.from_function(json_schema_2020_12_tool).model_copy(update={"parameters": SCHEMA})


def make_server() -> MCPServer:
    server = MCPServer("conformance", version="1.0", log_level="WARNING", tools=[with_schema()])
    for add in (
        add_results,
        add_messages,
        add_questions,
        add_inputs,
        add_states,
        add_capabilities,
        add_resources,
        add_prompts,
        add_the_rest,
    ):
        add(server)
    return server


def main() -> None:
    parser = argparse.ArgumentParser(description="What the conformance suite asks for.")
    parser.add_argument("--http", type=int, metavar="PORT", help="streamable HTTP, in place of stdio")
    parser.add_argument("--forebay", action="store_true", help="with everything of forebay switched on")
    parser.add_argument("--store", help="where outputs are kept, as file:///path")
    asked = parser.parse_args()
    server = make_server()
    with contextlib.ExitStack() as stack:
        if asked.forebay:
            gate = Forebay(asked.store, output_mode="auto", per_call=True, journal=True)
            stack.callback(gate.close)
            gate.install(server)
        if asked.http is None:
            server.run()
            return
        server.run("streamable-http", port=asked.http, event_store=Events(), retry_interval=100)


if __name__ == "__main__":
    main()
