"""A client's file with forebay before its servers, and without it again."""

import json
from typing import Any

import pytest
import yaml
from client_files import CLAUDE_CODE, CLAUDE_CODE_USER, CLAUDE_DESKTOP, CURSOR, FILES, VS_CODE
from forebay import InvalidArgument
from forebay.config.adopt import adopt_servers, find_wrap_command, is_forebay, restore_servers
from forebay.config.client_servers import find_servers, mask_client_file
from forebay.config.documents import parse_document
from forebay.config.load import load_settings
from hypothesis import given
from hypothesis import strategies as st
from jsonc_texts import documents
from toml_texts import toml_documents
from yaml_texts import yaml_documents

FOREBAY = ["/usr/bin/forebay"]
WAYS = {"path": FOREBAY, "uvx": ["uvx", "forebay==1.2"], "module": ["/usr/bin/python3", "-m", "forebay"]}


def servers(text: str, path: str = "f") -> dict[str, Any]:
    return {str(server): server.node.to_python() for server in find_servers(parse_document(text, path), path)}


def words(server: dict[str, Any]) -> list[str]:
    return [server["command"], *server["args"]]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", FILES)
def test_undone_it_is_what_it_was_to_the_byte(name: str, way: str) -> None:
    text = FILES[name]
    change = adopt_servers(text, name, WAYS[way], ["--output-mode=handle", "--tool=x=auto"])
    assert change.skip_reasons == {}
    assert set(change.changed_servers) == set(servers(text, name))
    assert restore_servers(change.text, name).text == text


@pytest.mark.parametrize("name", FILES)
def test_the_name_of_the_server_is_added_and_undone(name: str) -> None:
    change = adopt_servers(FILES[name], name, FOREBAY, ["--journal"], add_server_names=True)
    assert restore_servers(change.text, name).text == FILES[name]
    for server in find_servers(parse_document(change.text, name), name):
        wrap = find_wrap_command(server)
        assert wrap is not None
        assert wrap.options[:2] == ["--journal", f"--server-name={server.name}"]


def test_a_name_that_clients_may_change_is_not_added() -> None:
    text = json.dumps({"mcpServers": {name: {"command": "x"} for name in ("my server", "a" * 33, "b")}})
    change = adopt_servers(text, "f", FOREBAY, [], add_server_names=True)
    assert change.text.count("--server-name") == change.text.count("--server-name=b") == 1
    chosen = adopt_servers(text, "f", FOREBAY, ["--server-name=mine"], add_server_names=True)
    assert chosen.text.count("--server-name") == chosen.text.count("--server-name=mine") == 3


@pytest.mark.parametrize("name", FILES)
def test_adopted_twice_is_adopted_once(name: str) -> None:
    once = adopt_servers(FILES[name], name, FOREBAY, []).text
    again = adopt_servers(once, name, ["other/forebay"], ["--journal"])
    assert (again.text, again.changed_servers) == (once, ())
    assert set(again.skip_reasons.values()) == {"is behind forebay already"}


def test_a_command_stands_behind_forebay() -> None:
    text = adopt_servers(CLAUDE_DESKTOP, "f", ["uvx", "forebay"], ["--journal"]).text
    now = servers(text)
    wrap = ["uvx", "forebay", "wrap", "--journal"]
    assert words(now["memory"]) == [*wrap, "--", "docker", "run", "-i", "--rm", "mcp/memory"]
    assert now["memory"]["env"] == {"API_KEY": "hunter2"}
    assert words(now["empty"]) == [*wrap, "--", "C:\\Tools\\server.exe"]
    assert words(now["plain"]) == [*wrap, "--adopted=no-args", "--", "my-server"]
    assert json.loads(text)["globalShortcut"] == "Ctrl+Space"
    # Each argument stays on its own line.
    assert '        "--",\n        "npx",\n        "-y",\n' in text


def test_an_address_becomes_a_command_and_its_headers_variables() -> None:
    now = servers(adopt_servers(CLAUDE_CODE, "f", FOREBAY, []).text)["github"]
    assert now == {
        "type": "stdio",
        "command": "/usr/bin/forebay",
        "args": ["wrap", "--adopted=type=http", "--url", "https://api.example.com/mcp"],
        "env": {"FOREBAY_HEADER_Authorization": "Bearer ${GITHUB_TOKEN}"},
    }
    settings = load_settings("wrap", {"url": now["args"][3]}, {**now["env"], "GITHUB_TOKEN": "t"})
    assert settings.headers == {"Authorization": "Bearer t"}


def test_words_that_no_file_can_hold() -> None:
    with pytest.raises(InvalidArgument, match="not UTF-8 and cannot be written into f"):
        adopt_servers(CURSOR, "f", FOREBAY, ["--store=\udcff"])


def test_comments_stay() -> None:
    text = adopt_servers(VS_CODE, "f", FOREBAY, []).text
    for comment in (
        "// Servers of this workspace.",
        "/* over HTTP */",
        "// from the registry",
        "// yes to all",
        "// ours",
    ):
        assert comment in text


def test_only_those_that_were_named() -> None:
    change = adopt_servers(CURSOR, "f", FOREBAY, [], ["local"])
    before, now = servers(CURSOR), servers(change.text)
    assert change.changed_servers == ("local",)
    assert {name for name in now if now[name] != before[name]} == {"local"}
    both = adopt_servers(change.text, "f", FOREBAY, []).text
    assert restore_servers(both, "f", ["remote", "with-env"]).text == change.text


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(InvalidArgument, match="f has no server remot; did you mean remote"):
        adopt_servers(CURSOR, "f", FOREBAY, [], ["remot"])


def test_servers_of_one_project_are_adopted_too() -> None:
    text = '{"mcpServers":{},"projects":{"/p":{"mcpServers":{"db":{"command":"x"}}}}}'
    change = adopt_servers(text, "f", FOREBAY, [])
    assert change.changed_servers == ("db of /p",)
    assert words(servers(change.text)["db of /p"]) == [*FOREBAY, "wrap", "--adopted=no-args", "--", "x"]
    assert restore_servers(change.text, "f").text == text
    alone = '{"projects":{"/p":{"mcpServers":{"db":{"command":"x"}}},"/q":3,"/r":{"mcpServers":[]}}}'
    assert adopt_servers(alone, "f", FOREBAY, []).changed_servers == ("db of /p",)
    with pytest.raises(InvalidArgument, match="has no servers"):
        adopt_servers('{"projects":{"/p":{"mcpServers":{}}}}', "f", FOREBAY, [])


def test_a_name_is_of_every_project_or_of_the_one_that_is_named_with_it() -> None:
    db = ("db", "db of /home/ann/shop", "db of /home/ann/notes")
    assert adopt_servers(CLAUDE_CODE_USER, "f", FOREBAY, [], ["db"]).changed_servers == db
    assert adopt_servers(CLAUDE_CODE_USER, "f", FOREBAY, [], [db[1]]).changed_servers == (db[1],)
    with pytest.raises(InvalidArgument, match="did you mean db of /home/ann/shop"):
        adopt_servers(CLAUDE_CODE_USER, "f", FOREBAY, [], ["db of /home/ann/shp"])


def test_who_was_let_in_without_headers_is_named() -> None:
    change = adopt_servers(CLAUDE_CODE, "f", FOREBAY, [])
    assert change.servers_without_headers == ("old",)
    assert restore_servers(change.text, "f").servers_without_headers == ()


def test_later_edits_are_left_alone() -> None:
    text = adopt_servers(CLAUDE_DESKTOP, "f", FOREBAY, []).text
    text = text.replace('"my-server"]', '"my-server", "--new"]').replace("Ctrl+Space", "Ctrl+X")
    text = text.replace('"API_KEY": "hunter2"', '"API_KEY": "other", "MORE": "1"')
    now = servers(restore_servers(text, "f").text)
    assert now["plain"] == {"command": "my-server", "args": ["--new"]}
    assert now["memory"]["env"] == {"API_KEY": "other", "MORE": "1"}
    assert now["filesystem"] == servers(CLAUDE_DESKTOP)["filesystem"]
    assert "Ctrl+X" in restore_servers(text, "f").text


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_was_written_anew_is_undone_by_its_meaning(name: str) -> None:
    """Some clients sort the keys and drop the comments when they save."""
    text = adopt_servers(FILES[name], name, FOREBAY, []).text
    values = parse_document(text, name).root.to_python()
    if name.endswith(".toml"):
        anew = write_toml(values)
    elif name.endswith(".yaml"):
        anew = yaml.safe_dump(values)
    else:
        anew = json.dumps(values, indent=1, sort_keys=True)
    assert servers(restore_servers(anew, name).text, name) == servers(FILES[name], name)


def write_toml(values: dict[str, Any], *path: str) -> str:
    """Write tables with a header each, as Codex does."""
    lines = [f"[{'.'.join(map(json.dumps, path))}]"] if path else []
    lines += [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in values.items() if is_plain(value)]
    tables = [write_toml(value, *path, key) for key, value in values.items() if isinstance(value, dict)]
    return "\n".join([*lines, *tables])


def is_plain(value: Any) -> bool:
    return isinstance(value, str | int) or (isinstance(value, list) and all(map(is_plain, value)))


def test_what_stands_behind_forebay_with_a_comma_is_undone() -> None:
    text = '{"mcpServers": {"a": {"command": "forebay", "args": ["wrap", "--", "x" , ]}}}'
    assert servers(restore_servers(text, "f").text) == {"a": {"command": "x", "args": []}}


@pytest.mark.parametrize(
    ("server", "why"),
    [
        ("{}", "has neither a command nor a url"),
        ("3", "has neither a command nor a url"),
        ('{"command": "x", "url": "http://x"}', "has both a command and a url"),
        ('{"command": 3}', "is no text"),
        ('{"command": ""}', "a command that is empty"),
        ('{"command": "x", "args": "y"}', "args that are no list"),
        ('{"command": "x", "args": [1]}', "one of its args that is no text"),
        ('{"url": null}', "is no text"),
        ('{"url": ""}', "has a url that is empty"),
        ('{"url": "http://x", "args": []}', "has a url and args"),
        ('{"url": "http://x", "headers": [], "type": "http"}', "no object"),
        ('{"url": "http://x", "headers": {"A": 1}}', "is no text"),
        ('{"url": "http://x", "headers": {"A B": "1"}}', "cannot be sent"),
        ('{"url": "http://x", "headers": {"A": "1"}, "env": {"A": "b"}}', "has headers and variables"),
        ('{"url": "http://x", "env": {"FOREBAY_HEADER_A": "b"}}', "has a url and variables of forebay"),
        ('{"url": "http://x", "httpUrl": "http://x"}', "has url and httpUrl; leave one of them"),
        ('{"url": "http://x", "oauth": {}}', "has oauth, which only its client understands"),
    ],
)
def test_what_cannot_be_adopted_is_left_and_said(server: str, why: str) -> None:
    text = f'{{"mcpServers": {{"a": {server}, "b": {{"command": "x"}}}}}}'
    change = adopt_servers(text, "f", FOREBAY, [])
    assert change.changed_servers == ("b",)
    assert why in change.skip_reasons["a"]
    assert restore_servers(change.text, "f").text == text


@pytest.mark.parametrize(
    ("server", "why"),
    [
        ('{"command": "x", "args": ["wrap", "--", "y"]}', "is not behind forebay"),
        ('{"command": "forebay", "args": ["wrap"]}', "is not behind forebay"),
        ('{"command": "forebay", "args": ["wrap", "--url"]}', "is not behind forebay"),
        ('{"command": "forebay", "args": ["serve", "--", "y"]}', "is not behind forebay"),
        ('{"command": "forebay", "args": ["wrap", "--"]}', "before nothing"),
        (
            '{"command": "forebay", "args": ["wrap", "--url", "http://x"],"env": {"FOREBAY_HEADER_A": "1", "B": "2"}}',
            "variables beside its headers",
        ),
    ],
)
def test_what_cannot_be_undone_is_left_and_said(server: str, why: str) -> None:
    change = restore_servers(f'{{"servers": {{"a": {server}}}}}', "f")
    assert change.changed_servers == ()
    assert why in change.skip_reasons["a"]


def test_variables_beside_that_of_the_token_are_left_and_said() -> None:
    text = '[mcp_servers.a]\nurl = "http://x"\nbearer_token_env_var = "T"\n'
    change = adopt_servers(text + 'env_vars = ["A"]\n', "f.toml", FOREBAY, [])
    assert change.changed_servers == ()
    assert change.skip_reasons["a"] == "has env_vars and a url; take the env_vars out"
    changed = adopt_servers(text, "f.toml", FOREBAY, []).text.replace('["T"]', '["T", "A"]')
    change = restore_servers(changed, "f.toml")
    assert change.changed_servers == ()
    assert change.skip_reasons["a"] == "has env_vars beside that of its token; take them out"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("f", '{"mcpServers": {"a": {"url": "http://x", "type": "h\\u0074tp"}, "b": {"command": "x"}}}'),
        ("f", '{"mcpServers": {"a": {"\\u0075rl": "http://x"}, "b": {"command": "x"}}}'),
        ("f.yaml", "extensions:\n  a:\n    cmd: x, y\n    args: [z]\n  b:\n    cmd: x\n    args: [z]\n"),
        ("f.toml", "mcp_servers.b.command = 'x'\n[mcp_servers.a]\nurl = 'x'\nhttp_headers.A = 'b'\n"),
    ],
)
def test_what_could_not_be_undone_to_the_byte_is_left(name: str, text: str) -> None:
    change = adopt_servers(text, name, FOREBAY, [])
    assert change.changed_servers == ("b",)
    assert "--undo could not restore" in change.skip_reasons["a"] or "in parts" in change.skip_reasons["a"]
    assert servers(change.text, name)["a"] == servers(text, name)["a"]
    assert restore_servers(change.text, name).text == text


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"mcpServers": []}', '{"mcpServers": {"a": 1}', "{'a': 1}", "nul"])
def test_what_is_no_client_file(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"^f (cannot be read as JSON: line 1|has no servers)"):
        adopt_servers(text, "f", FOREBAY, [])


@pytest.mark.parametrize(
    ("word", "is_ours"),
    [
        ("forebay", True),
        ("/a/forebay", True),
        ("C:\\a\\forebay.exe", True),
        ("forebay@1", True),
        ("forebay[fastmcp]", True),
        ("my-forebay", False),
        ("forebay-x", False),
        ("forebay/x", False),
    ],
)
def test_which_word_is_forebay(word: str, is_ours: bool) -> None:
    assert is_forebay(word) is is_ours


WORDS = st.text(max_size=5) | st.sampled_from(["--", "--url", "wrap", "-y", "http://x/?a=b", "--adopted=no-args"])
NAMED = st.text(min_size=1, max_size=5)
EXTRA = st.dictionaries(st.sampled_from(["cwd", "disabled", "envFile", "x"]), st.integers() | NAMED, max_size=2)
COMMANDS = st.fixed_dictionaries(
    {"command": NAMED},
    optional={"args": st.lists(WORDS, max_size=4), "env": st.dictionaries(NAMED, WORDS), "type": st.just("stdio")},
)
URLS = st.fixed_dictionaries(
    {"url": NAMED},
    optional={
        "headers": st.dictionaries(st.sampled_from(["Authorization", "X-Key", "a_b"]), WORDS),
        "type": st.sampled_from(["http", "sse", "streamable-http"]),
    },
)
SERVERS = st.tuples(COMMANDS | URLS, EXTRA).flatmap(
    lambda parts: st.permutations(list({**parts[0], **parts[1]}.items())).map(dict)
)


@pytest.mark.slow
@given(st.data())
def test_any_file_comes_back_to_the_byte(data: st.DataObject) -> None:
    mine: dict[str, dict[str, Any]] = data.draw(st.dictionaries(NAMED, SERVERS, min_size=1, max_size=3))
    text = data.draw(documents({"before": [1], "mcpServers": mine, "after": {"command": "x"}}))
    flags = data.draw(st.sampled_from([[], ["--journal", "--redact=--"]]))
    way = data.draw(st.sampled_from(list(WAYS.values())))
    change = adopt_servers(text, "f", way, flags)
    assert change.skip_reasons == {}
    assert restore_servers(change.text, "f").text == text
    assert adopt_servers(change.text, "f", way, flags).text == change.text
    for name, server in servers(change.text).items():
        assert words(server)[: len(way) + 1 + len(flags)] == [*way, "wrap", *flags]
        if "command" in mine[name]:
            own = words(server)[words(server).index("--", len(way)) + 1 :]
            assert own == [mine[name]["command"], *mine[name].get("args", [])]
            assert server.get("env") == mine[name].get("env")
        else:
            assert words(server)[-2:] == ["--url", mine[name]["url"]]
            variables = {f"FOREBAY_HEADER_{key}": value for key, value in mine[name].get("headers", {}).items()}
            assert server.get("env", {}) == variables


TOOL_LISTS = st.lists(st.sampled_from(["a", "*", "output_fetch", "x,y"]), max_size=3)
HEADERS = st.dictionaries(st.sampled_from(["Authorization", "X-Key"]), WORDS, max_size=2)
CODEX_SERVERS = st.fixed_dictionaries(
    {"command": NAMED},
    optional={"args": st.lists(WORDS, max_size=3), "env": st.dictionaries(NAMED, WORDS), "enabled_tools": TOOL_LISTS},
) | st.fixed_dictionaries(
    {"url": NAMED},
    optional={"http_headers": HEADERS, "bearer_token_env_var": NAMED, "enabled_tools": TOOL_LISTS},
)
GOOSE_SERVERS = st.fixed_dictionaries(
    {"cmd": NAMED, "type": st.just("stdio")},
    optional={"args": st.lists(WORDS, max_size=3), "envs": st.just({}), "available_tools": TOOL_LISTS},
) | st.fixed_dictionaries(
    {"uri": NAMED, "type": st.just("streamable_http")},
    optional={"headers": HEADERS, "envs": st.just({}), "available_tools": TOOL_LISTS},
)
OTHERS = [
    ("config.toml", "mcp_servers", CODEX_SERVERS, toml_documents),
    ("config.yaml", "extensions", GOOSE_SERVERS, yaml_documents),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "key", "entries", "write"), OTHERS, ids=["toml", "yaml"])
@given(data=st.data())
def test_any_toml_or_yaml_comes_back_to_the_byte(
    name: str, key: str, entries: st.SearchStrategy[Any], write: Any, data: st.DataObject
) -> None:
    mine: dict[str, Any] = data.draw(st.dictionaries(NAMED, entries, min_size=1, max_size=3))
    text = data.draw(write({"before": [1], key: mine, "after": {"command": "x"}}))
    way = data.draw(st.sampled_from(list(WAYS.values())))
    change = adopt_servers(text, name, way, ["--journal"])
    assert restore_servers(change.text, name).text == text
    assert adopt_servers(change.text, name, way, []).text == change.text
    assert {*change.changed_servers, *change.skip_reasons} == mine.keys()
    for reason in change.skip_reasons.values():
        assert "that --undo could not restore" in reason or "is written in parts" in reason
    before, now = servers(text, name), servers(change.text, name)
    assert {server for server in now if now[server] != before[server]} == {*change.changed_servers}
    for server in change.changed_servers:
        command, *args = words({"command": now[server].get("cmd"), **now[server]})
        assert [command, *args][: len(way) + 1] == [*way, "wrap"]
        own = mine[server].get("command") or mine[server].get("cmd")
        target = mine[server].get("url") or mine[server].get("uri")
        expected = [own, *mine[server].get("args", [])] if own else [target]
        assert args[len(args) - len(expected) :] == expected
        for list_key in ("enabled_tools", "available_tools"):
            old_list, new_list = before[server].get(list_key), now[server].get(list_key)
            if old_list and "*" not in old_list:
                assert {*new_list} == {*old_list, "output_fetch", "output_search", "output_query"}
            else:
                assert new_list == old_list


@pytest.mark.parametrize("name", FILES)
def test_what_is_shown_has_no_secrets(name: str) -> None:
    for text in (FILES[name], adopt_servers(FILES[name], name, FOREBAY, []).text):
        masked = mask_client_file(text, name)
        assert "hunter2" not in masked
        assert servers(masked, name).keys() == servers(text, name).keys()
    assert "${input:key}" in mask_client_file(VS_CODE, "f")
