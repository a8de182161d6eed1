"""Tools that ask back as it is done since 2026-07-28: the answer to a call is what is still to be known."""

from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    InputRequiredResult,
    ListRootsRequest,
    SamplingMessage,
    TextContent,
)

MISSING_CAPABILITY = -32021


def question(message: str, name: str, kind: str = "string") -> ElicitRequest:
    schema = {"type": "object", "properties": {name: {"type": kind}}, "required": [name]}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def sampling(text: str) -> CreateMessageRequest:
    asked = SamplingMessage(role="user", content=TextContent(type="text", text=text))
    return CreateMessageRequest(params=CreateMessageRequestParams(messages=[asked], max_tokens=100))


def needing(state: str | None = None, **requests: Any) -> InputRequiredResult:
    """The answer to a call that cannot be answered yet; a client brings the state back with what it was asked for."""
    return InputRequiredResult(input_requests=requests, request_state=state)


def answers(ctx: Context, *names: str) -> list[Any] | None:
    """What was answered, once everything is."""
    given = ctx.input_responses or {}
    if any(name not in given for name in names):
        return None
    return [given[name] for name in names]


def said(answer: Any, name: str) -> str | None:
    """What of a form was filled in."""
    content = getattr(answer, "content", None)
    value = content.get(name) if isinstance(content, dict) else None
    return value if isinstance(value, str) else None


def add_inputs(server: MCPServer) -> None:
    """Tools that ask once, and a prompt."""

    @server.tool()
    def test_input_required_result_elicitation(ctx: Context) -> str | InputRequiredResult:
        """Asks for a name."""
        given = answers(ctx, "user_name")
        name = said(given[0], "name") if given else None
        return needing(user_name=question("What is your name?", "name")) if name is None else f"Hello, {name}!"

    @server.tool()
    def test_input_required_result_sampling(ctx: Context) -> str | InputRequiredResult:
        """Asks the client's model."""
        given = answers(ctx, "capital_question")
        if given is None:
            return needing(capital_question=sampling("What is the capital of France?"))
        return str(getattr(given[0].content, "text", given[0].content))

    @server.tool()
    def test_input_required_result_list_roots(ctx: Context) -> str | InputRequiredResult:
        """Asks for the client's roots."""
        given = answers(ctx, "client_roots")
        if given is None:
            return needing(client_roots=ListRootsRequest())
        return ", ".join(str(root.uri) for root in given[0].roots)

    @server.tool()
    async def test_streaming_elicitation(ctx: Context) -> str | InputRequiredResult:
        """Asks, after it has begun."""
        await ctx.report_progress(0, 1, "asking")
        if answers(ctx, "user_name") is None:
            return needing(user_name=question("What is your name?", "name"))
        return "done"

    @server.prompt()
    def test_input_required_result_prompt(ctx: Context) -> str | InputRequiredResult:
        """Asks before there is a prompt."""
        given = answers(ctx, "user_context")
        if given is None:
            return needing(user_context=question("What context should the prompt use?", "context"))
        return f"Use this context: {said(given[0], 'context')}"


def add_states(server: MCPServer) -> None:
    """Tools that remember by what the client carries. The SDK signs it, and refuses what it did not sign."""

    @server.tool()
    def test_input_required_result_request_state(ctx: Context) -> str | InputRequiredResult:
        """Asks once."""
        if answers(ctx, "confirm") is None or ctx.request_state != "asked":
            return needing("asked", confirm=question("Please confirm", "ok", "boolean"))
        return "state-ok"

    @server.tool()
    def test_input_required_result_tampered_state(ctx: Context) -> str | InputRequiredResult:
        """Asks once, of a client that will lie."""
        if answers(ctx, "confirm") is None:
            return needing("asked", confirm=question("Please confirm", "ok", "boolean"))
        return "done"

    @server.tool()
    def test_input_required_result_multiple_inputs(ctx: Context) -> str | InputRequiredResult:
        """Asks three at once."""
        if answers(ctx, "user_name", "greeting", "client_roots") is None:
            return needing(
                "asked",
                user_name=question("What is your name?", "name"),
                greeting=sampling("Generate a greeting"),
                client_roots=ListRootsRequest(),
            )
        return "done"

    @server.tool()
    def test_input_required_result_multi_round(ctx: Context) -> str | InputRequiredResult:
        """Asks one after the other."""
        if ctx.request_state == "two" and answers(ctx, "step2"):
            return "done"
        if ctx.request_state == "one" and answers(ctx, "step1"):
            return needing("two", step2=question("Step 2: What is your favorite color?", "color"))
        return needing("one", step1=question("Step 1: What is your name?", "name"))


def add_capabilities(server: MCPServer) -> None:
    """Tools that look at what the client can do."""

    @server.tool()
    def test_input_required_result_capabilities(ctx: Context) -> str | InputRequiredResult:
        """Asks what the client can answer, and nothing else."""
        able = ctx.client_capabilities
        requests: dict[str, Any] = {}
        if able is not None and able.elicitation is not None:
            requests["user_name"] = question("What is your name?", "name")
        if able is not None and able.sampling is not None:
            requests["greeting"] = sampling("Generate a greeting")
        return needing(**requests) if requests else "nothing to ask"

    @server.tool()
    def test_missing_capability(ctx: Context) -> str:
        """Is only for clients that have a model."""
        able = ctx.client_capabilities
        if able is None or able.sampling is None:
            needed: dict[str, Any] = {"requiredCapabilities": {"sampling": {}}}
            raise MCPError(code=MISSING_CAPABILITY, message="this tool needs sampling", data=needed)
        return "done"
