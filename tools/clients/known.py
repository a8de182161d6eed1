"""The clients that the run knows, with pinned versions."""

import json
from functools import partial

from clients.checks import Expectation
from clients.launch import SERVER, Client, Launch, Setup
from clients.script import PROMPT
from clients.tools import CodeTools, ListedTools

KEY = "scripted"
"""The key of the model's API. The scripted model takes any."""


def _claude_code(setup: Setup) -> Launch:
    servers = setup.write("mcp.json", {"mcpServers": setup.server()})
    return Launch(
        ["-p", PROMPT, "--mcp-config", str(servers), "--strict-mcp-config", "--allowed-tools", f"mcp__{SERVER}"],
        {
            "ANTHROPIC_BASE_URL": setup.model_url,
            "ANTHROPIC_API_KEY": KEY,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        },
    )


def _codex(setup: Setup, model: str) -> Launch:
    # Strings and lists of strings are written alike in TOML and JSON.
    config = f"""\
model = {json.dumps(model)}
model_provider = "scripted"
approval_policy = "never"
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.scripted]
name = "scripted"
base_url = {json.dumps(setup.model_url + "/v1")}
wire_api = "responses"
env_key = "SCRIPTED_KEY"

[mcp_servers.{SERVER}]
command = {json.dumps(setup.gateway[0])}
args = {json.dumps(setup.gateway[1:])}
required = true
default_tools_approval_mode = "approve"
"""
    setup.write(".codex/config.toml", config)
    return Launch(["exec", "--skip-git-repo-check", PROMPT], {"SCRIPTED_KEY": KEY})


def _gemini_cli(setup: Setup) -> Launch:
    setup.write(".gemini/settings.json", _gemini_settings(setup, "gemini-api-key"))
    return Launch(
        ["-m", "gemini-2.5-pro", "-p", PROMPT],
        {
            "GOOGLE_GEMINI_BASE_URL": setup.model_url,
            "GEMINI_API_KEY": KEY,
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
        },
    )


def _gemini_settings(setup: Setup, key_type: str) -> dict[str, object]:
    """Return the settings of Gemini CLI, which Qwen Code has inherited."""
    return {
        "mcpServers": setup.server(trust=True),
        "security": {"auth": {"selectedType": key_type}},
        "general": {"enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
    }


def _opencode(setup: Setup) -> Launch:
    model = {"name": "Scripted", "attachment": True, "modalities": {"input": ["text", "image"], "output": ["text"]}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": setup.model_url + "/v1", "apiKey": KEY},
        "models": {"scripted": model},
    }
    config = {
        "autoupdate": False,
        "share": "disabled",
        "model": "scripted/scripted",
        "provider": {"scripted": provider},
        "mcp": {SERVER: {"type": "local", "command": setup.gateway}},
    }
    setup.write(".config/opencode/opencode.json", config)
    return Launch(["run", PROMPT], {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1"})


def _qwen_code(setup: Setup) -> Launch:
    setup.write(".qwen/settings.json", _gemini_settings(setup, "openai"))
    # A model that sees pictures: Qwen Code drops them for the others.
    model = {"OPENAI_BASE_URL": setup.model_url + "/v1", "OPENAI_API_KEY": KEY, "OPENAI_MODEL": "qwen3.6-plus"}
    return Launch(["-p", PROMPT], model)


def _copilot_cli(setup: Setup) -> Launch:
    servers = setup.write("mcp.json", {"mcpServers": setup.server(type="local", tools=["*"])})
    return Launch(
        ["-p", PROMPT, "--additional-mcp-config", f"@{servers}", "--allow-tool", SERVER],
        {
            "COPILOT_OFFLINE": "true",
            "COPILOT_PROVIDER_BASE_URL": setup.model_url + "/v1",
            "COPILOT_PROVIDER_API_KEY": KEY,
            "COPILOT_PROVIDER_WIRE_API": "responses",
            "COPILOT_MODEL": "gpt-5.4",
        },
    )


def _cline(setup: Setup) -> Launch:
    provider = "openai-compatible"
    options = {"provider": provider, "apiKey": KEY, "model": "gpt-5.4", "baseUrl": setup.model_url + "/v1"}
    entry = {"settings": options, "updatedAt": "2026-01-01T00:00:00.000Z", "tokenSource": "manual"}
    providers = {"version": 1, "lastUsedProvider": provider, "modes": {}, "providers": {provider: entry}}
    setup.write(".cline/data/settings/providers.json", providers)
    # Without a timeout, Cline waits three seconds for a server to start.
    setup.write(".cline/data/settings/cline_mcp_settings.json", {"mcpServers": setup.server(timeout=60)})
    return Launch([PROMPT])


CLIENTS = [
    Client(
        "Claude Code",
        "@anthropic-ai/claude-code",
        "2.1.326",
        "@anthropic-ai/claude-code/cli-wrapper.cjs",
        ListedTools(f"mcp__{SERVER}__{{tool}}", search_tool="ToolSearch"),
        _claude_code,
    ),
    Client(
        "Codex",
        "@openai/codex",
        "0.169.0",
        "@openai/codex/bin/codex.js",
        ListedTools(f"mcp__{SERVER}.{{tool}}", search_tool="tool_search", query="{tool}"),
        partial(_codex, model="gpt-5.5"),
        Expectation(lists_tools=False),
    ),
    Client(
        "Codex with code",
        "@openai/codex",
        "0.169.0",
        "@openai/codex/bin/codex.js",
        CodeTools(f"mcp__{SERVER}__{{tool}}", code_tool="functions.exec"),
        partial(_codex, model="gpt-6.1-sol"),
        Expectation(lists_tools=False, copies_with_schema=2),
    ),
    Client(
        "Gemini CLI",
        "@google/gemini-cli",
        "0.61.0",
        "@google/gemini-cli/bundle/gemini.js",
        ListedTools(f"mcp_{SERVER}_{{tool}}"),
        _gemini_cli,
    ),
    Client(
        "opencode",
        "opencode-ai",
        "1.18.33",
        "opencode-*/bin/opencode",
        ListedTools(f"{SERVER}_{{tool}}"),
        _opencode,
    ),
    Client(
        "Qwen Code",
        "@qwen-code/qwen-code",
        "0.24.4",
        "@qwen-code/qwen-code/cli-entry.js",
        ListedTools(f"mcp__{SERVER}__{{tool}}", search_tool="tool_search", bridge="tool_call"),
        _qwen_code,
        Expectation(lists_tools=False),
    ),
    Client(
        "Copilot CLI",
        "@github/copilot",
        "1.0.102",
        "@github/copilot/npm-loader.js",
        ListedTools(f"{SERVER}-{{tool}}"),
        _copilot_cli,
        Expectation(shows_instructions=False, shows_pictures=False),
    ),
    Client(
        "Cline",
        "cline",
        "3.0.65",
        "@cline/cli-*/bin/cline",
        ListedTools(f"{SERVER}__{{tool}}"),
        _cline,
        Expectation(shows_instructions=False, shows_pictures=False, copies_with_schema=2),
    ),
]
