"""Tools that need input from the client, as in protocol 2026-07-28: the result lists the requests to answer."""

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

MISSING_CAPABILITY_CODE = -32021


def ask_user(message: str, name: str, kind: str = "string") -> ElicitRequest:
    schema = {"type": "object", "properties": {name: {"type": kind}}, "required": [name]}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def ask_model(text: str) -> CreateMessageRequest:
    message = SamplingMessage(role="user", content=TextContent(type="text", text=text))
    return CreateMessageRequest(params=CreateMessageRequestParams(messages=[message], max_tokens=100))


def require_input(state: str | None = None, **requests: Any) -> InputRequiredResult:
    """Return a result that asks the client for input; the client sends `state` back with its responses."""
    return InputRequiredResult(input_requests=requests, request_state=state)


def find_responses(ctx: Context, *names: str) -> list[Any] | None:
    """Return the client's responses in this order, or None while one is missing."""
    responses = ctx.input_responses or {}
    if any(name not in responses for name in names):
        return None
    return [responses[name] for name in names]


def form_value(response: Any, name: str) -> str | None:
    """Return a string field of a form response."""
    content = getattr(response, "content", None)
    value = content.get(name) if isinstance(content, dict) else None
    return value if isinstance(value, str) else None


def add_input_tools(server: MCPServer) -> None:
    """Add tools and a prompt that ask for input once."""

    @server.tool()
    def test_input_required_result_elicitation(ctx: Context) -> str | InputRequiredResult:
        """Asks for a name."""
        responses = find_responses(ctx, "user_name")
        name = form_value(responses[0], "name") if responses else None
        return require_input(user_name=ask_user("What is your name?", "name")) if name is None else f"Hello, {name}!"

    @server.tool()
    def test_input_required_result_sampling(ctx: Context) -> str | InputRequiredResult:
        """Asks the client's model."""
        responses = find_responses(ctx, "capital_question")
        if responses is None:
            return require_input(capital_question=ask_model("What is the capital of France?"))
        return str(getattr(responses[0].content, "text", responses[0].content))

    @server.tool()
    def test_input_required_result_list_roots(ctx: Context) -> str | InputRequiredResult:
        """Asks for the client's roots."""
        responses = find_responses(ctx, "client_roots")
        if responses is None:
            return require_input(client_roots=ListRootsRequest())
        return ", ".join(str(root.uri) for root in responses[0].roots)

    @server.tool()
    async def test_streaming_elicitation(ctx: Context) -> str | InputRequiredResult:
        """Asks, after it has begun."""
        await ctx.report_progress(0, 1, "asking")
        if find_responses(ctx, "user_name") is None:
            return require_input(user_name=ask_user("What is your name?", "name"))
        return "done"

    @server.prompt()
    def test_input_required_result_prompt(ctx: Context) -> str | InputRequiredResult:
        """Asks before there is a prompt."""
        responses = find_responses(ctx, "user_context")
        if responses is None:
            return require_input(user_context=ask_user("What context should the prompt use?", "context"))
        return f"Use this context: {form_value(responses[0], 'context')}"


def add_state_tools(server: MCPServer) -> None:
    """Add tools that keep state in the client. The SDK signs the state and rejects others."""

    @server.tool()
    def test_input_required_result_request_state(ctx: Context) -> str | InputRequiredResult:
        """Asks once."""
        if find_responses(ctx, "confirm") is None or ctx.request_state != "asked":
            return require_input("asked", confirm=ask_user("Please confirm", "ok", "boolean"))
        return "state-ok"

    @server.tool()
    def test_input_required_result_tampered_state(ctx: Context) -> str | InputRequiredResult:
        """Asks once, of a client that will lie."""
        if find_responses(ctx, "confirm") is None:
            return require_input("asked", confirm=ask_user("Please confirm", "ok", "boolean"))
        return "done"

    @server.tool()
    def test_input_required_result_multiple_inputs(ctx: Context) -> str | InputRequiredResult:
        """Asks three at once."""
        if find_responses(ctx, "user_name", "greeting", "client_roots") is None:
            return require_input(
                "asked",
                user_name=ask_user("What is your name?", "name"),
                greeting=ask_model("Generate a greeting"),
                client_roots=ListRootsRequest(),
            )
        return "done"

    @server.tool()
    def test_input_required_result_multi_round(ctx: Context) -> str | InputRequiredResult:
        """Asks one after the other."""
        if ctx.request_state == "two" and find_responses(ctx, "step2"):
            return "done"
        if ctx.request_state == "one" and find_responses(ctx, "step1"):
            return require_input("two", step2=ask_user("Step 2: What is your favorite color?", "color"))
        return require_input("one", step1=ask_user("Step 1: What is your name?", "name"))


def add_capability_tools(server: MCPServer) -> None:
    """Add tools that depend on the client's capabilities."""

    @server.tool()
    def test_input_required_result_capabilities(ctx: Context) -> str | InputRequiredResult:
        """Asks what the client can answer, and nothing else."""
        able = ctx.client_capabilities
        requests: dict[str, Any] = {}
        if able is not None and able.elicitation is not None:
            requests["user_name"] = ask_user("What is your name?", "name")
        if able is not None and able.sampling is not None:
            requests["greeting"] = ask_model("Generate a greeting")
        return require_input(**requests) if requests else "nothing to ask"

    @server.tool()
    def test_missing_capability(ctx: Context) -> str:
        """Is only for clients that have a model."""
        able = ctx.client_capabilities
        if able is None or able.sampling is None:
            needed: dict[str, Any] = {"requiredCapabilities": {"sampling": {}}}
            raise MCPError(code=MISSING_CAPABILITY_CODE, message="this tool needs sampling", data=needed)
        return "done"
