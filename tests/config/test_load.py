"""Loading of settings, and messages about errors in them."""

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from forebay import InvalidArgument
from forebay.config.load import ConfigFile, explain, load_settings
from forebay.config.masking import mask_args, mask_url
from forebay.config.option_types import expand_variables
from forebay.config.options import OPTIONS, OPTIONS_AND_ALIASES, Settings
from forebay.outputs.policy import OutputPolicy
from hypothesis import given
from hypothesis import strategies as st

SECRET = "hunter2"  # noqa: S105


def toml(folder: Path, text: str) -> str:
    path = folder / "forebay.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def wrapping(flags: dict[str, Any] | None = None, environ: dict[str, str] | None = None) -> Settings:
    return load_settings("wrap", flags or {}, environ or {})


@given(st.lists(st.booleans(), min_size=3, max_size=3))
def test_a_flag_beats_a_variable_beats_a_file_beats_the_default(tmp: Any, are_given: list[bool]) -> None:
    by_flag, by_variable, by_file = are_given
    path = toml(tmp, 'output_mode = "handle"\n' if by_file else "")
    flags = {"config": path} | ({"output_mode": "inline"} if by_flag else {})
    settings = wrapping(flags, {"FOREBAY_OUTPUT_MODE": "auto"} if by_variable else {})
    expected = [("inline", "--output-mode"), ("auto", "FOREBAY_OUTPUT_MODE"), ("handle", f"{path}:1"), ("auto", None)]
    value, source = next(pair for pair, is_given in zip(expected, [*are_given, True], strict=True) if is_given)
    assert (settings.output_mode, settings.sources.get("output_mode")) == (value, source)


@pytest.fixture(scope="module")
def tmp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("config")


ROOTS = ("C:\\a", "C:\\b") if sys.platform == "win32" else ("/a", "/b")

FLAGS: dict[str, tuple[Any, str, str, Any]] = {
    "output_inline_limit_bytes": ("64KiB", "64KiB", "65536", 65536),
    "ttl": ("2d", "172800", "172800", 172800.0),
    "tools": (
        ["a*=handle", "b=auto"],
        "a*=handle,b=auto",
        '{"a*" = "handle", b = "auto"}',
        {"a*": "handle", "b": "auto"},
    ),
    "contract": (["*_list"], "*_list", '["*_list"]', {"*_list": True}),
    "capabilities": (["x_*=core"], "x_*=core", '{"x_*" = "core"}', {"x_*": "core"}),
    "tools_only": (["a,b"], "a,b", '["a", "b"]', ("a", "b")),
    "redact": (["a,b", "c"], "a,b\nc", '["a,b", "c"]', ("a,b", "c")),
    "journal": (True, "yes", "true", True),
    "quota_bytes": ("none", "none", '"none"', None),
    "call_timeout_seconds": ("2m", "120", "120", 120.0),
    "file_roots": ([*ROOTS], os.pathsep.join(ROOTS), f"['{ROOTS[0]}', '{ROOTS[1]}']", ROOTS),
}


@pytest.mark.parametrize("name", FLAGS)
def test_flag_variable_and_key_say_the_same(name: str, tmp_path: Path) -> None:
    flag, variable, key, value = FLAGS[name]
    path = toml(tmp_path, f"{name} = {key}\n")
    # `file_roots` needs `file_refs`.
    refs = {"FOREBAY_FILE_REFS": "true"}
    for settings in (
        wrapping({name: flag}, refs),
        wrapping({}, refs | {OPTIONS[name].variable: variable}),
        wrapping({"config": path}, refs),
        wrapping({}, refs | {"FOREBAY_CONFIG": path}),
    ):
        assert getattr(settings, name) == value
        assert name in settings.sources


def test_a_tool_may_have_a_limit_of_its_own_in_a_file(tmp_path: Path) -> None:
    path = toml(tmp_path, '[tools]\nslow = "handle"\n[tools."big_*"]\noutput_inline_limit_bytes = "1KiB"\n')
    rules = wrapping({"config": path}).tools
    assert rules == {"slow": "handle", "big_*": {"output_inline_limit_bytes": 1024}}


def test_a_gate_can_be_made_with_what_was_set(tmp_path: Path) -> None:
    settings = wrapping(
        {
            "store": (tmp_path / "store").as_uri(),
            "tools": ["a=handle"],
            "contract": ["*_list=list"],
            "redact": ["sk-[a-z]+"],
            "prefix": "oc_",
            "journal": True,
            "ttl": "1h",
            "quota_bytes": "none",
            "on_full": "evict",
        }
    )
    gate = OutputPolicy(**settings.policy_options())
    try:
        assert gate.resolve_mode("a", {})[0].output_mode == "handle"
        assert gate.resolve_mode("b", {})[0].output_mode == "auto"
        assert gate.resolve_mode("x_list", {})[0].contract is not None
        assert gate.tools.fetch_tool == "oc_output_fetch"
        handle = gate.store.put("key sk-abc!").output_handle
        with gate.store.open(handle) as file:
            assert file.read() == b"key [redacted]!"
    finally:
        gate.close()


def refused(command: str, flags: dict[str, Any], environ: dict[str, str] | None = None) -> str:
    with pytest.raises(InvalidArgument) as caught:
        load_settings(command, flags, environ or {})
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ('x = 1\noutput_mod = "auto"', 1, "no key x; `forebay config --explain` lists them all"),
        ('\noutput_mod = "auto"', 2, "no key output_mod; did you mean output_mode?"),
        ('\ntool_prefix = "a_"', 2, "there is no key tool_prefix; use prefix"),
        ("max_sessions = 1", 1, "there is no key max_sessions; raise max_connections"),
        ('output-mode = "auto"', 1, "did you mean output_mode?"),
        ('file-root = ["/a"]', 1, "did you mean file_roots?"),
        ('[tool]\na = "auto"', 1, "did you mean tools?"),
        ('output_mode = "all"', 1, "output_mode is one of inline, handle, auto, not 'all'"),
        ("\n\nquota_bytes = -1", 3, "quota_bytes is a number of bytes, or none, such as 64MiB, not -1"),
        ('[tools]\na = "auto"\nb = {output_mod = "auto"}', 1, "has no output_mod"),
        ('redact = ["ok", "("]', 1, "'(' cannot be redacted"),
        ('http = "127.0.0.1:80"', 1, "http is for `forebay serve`"),
        ('[upstreams.a]\nurl = "http://x"', 1, "upstreams is for `forebay serve`"),
        ('store = "${NOT_SET}"', 1, "the variable NOT_SET is not set"),
    ],
)
def test_what_is_wrong_in_a_file_is_named_with_its_line(text: str, line: int, expected: str, tmp_path: Path) -> None:
    path = toml(tmp_path, text)
    message = refused("wrap", {"config": path})
    assert message.startswith(f"{path}:{line}: ")
    assert expected in message


@pytest.mark.parametrize(
    ("upstream", "line", "expected"),
    [
        ('commnd = "x"', 2, "an upstream has no commnd; did you mean command?"),
        ('command = "x"\nurl = "http://x"', 1, "has command and url: leave one of them"),
        ('prefix = "x"', 1, "has none of command, url, openapi, python: give it one"),
        ('url = "http://x"\ncwd = "/"', 3, "an upstream by url has no cwd"),
        ('command = "x"\nargs = "-y"', 3, "a list of texts"),
        ('command = ["x", "-y"]', 2, 'command of the upstream a must be a text, such as "npx"; what follows it is in'),
        ('command = "x"\n[upstreams.a.env]\nA = 1', 3, "a table of texts"),
        ('url = "x"', 2, "url of the upstream a must be an address that begins with http:// or https://, not 'x'"),
        ('url = "ann:secret@x"', 2, "an address that begins with http:// or https://"),
        ('openapi = "x"\nauth = {a = 1}', 3, "a token, or"),
        ('openapi = "x"\nauth = "token"', 3, "a token, or"),
        ('url = "http://x"\nheaders = {A = "${NOT_SET}"}', 3, "NOT_SET is not set"),
    ],
)
def test_what_is_wrong_in_an_upstream_is_named_too(upstream: str, line: int, expected: str, tmp_path: Path) -> None:
    path = toml(tmp_path, f"[upstreams.a]\n{upstream}\n")
    message = refused("serve", {"config": path})
    assert message.startswith(f"{path}:{line}: ")
    assert expected in message
    assert "secret" not in message


@pytest.mark.parametrize(
    ("text", "place", "expected"),
    [
        ("upstreams = 3", ":1", "upstreams are tables, such as [upstreams.files]"),
        ("[upstreams]\na = 3", ":2", "an upstream is a table, such as [upstreams.a]"),
        ('[upstreams."a b"]\npython = "m"', ":1", "upstreams have names of letters, digits, dots, dashes"),
        # The line of the nearest key that has one, or none.
        ('\nupstreams = {a = {pythn = "m"}}', ":2", "an upstream has no pythn; did you mean python?"),
        ('"output_mod\\u0065" = "all"', "", "output_mode is one of inline, handle, auto, not 'all'"),
    ],
)
def test_what_is_no_upstream_is_named_with_its_place(text: str, place: str, expected: str, tmp_path: Path) -> None:
    path = toml(tmp_path, text)
    assert refused("serve", {"config": path}).startswith(f"{path}{place}: {expected}")


@pytest.mark.parametrize(
    ("one", "two", "expected"),
    [
        ("my_", "my_", "the upstreams one and two have the same prefix my_; give one another"),
        ("x_", "one_", "before them when they clash; give two another prefix, or rename one"),
        ("x_", "one", "before them when they clash; give two another prefix, or rename one"),
    ],
)
def test_a_prefix_says_whose_a_tool_is(one: str, two: str, expected: str, tmp_path: Path) -> None:
    text = "".join(
        f'[upstreams.{name}]\ncommand = "x"\nprefix = "{prefix}"\n' for name, prefix in {"one": one, "two": two}.items()
    )
    path = toml(tmp_path, text)
    for message in (refused("serve", {"config": path}), _explain_error(path)):
        assert message.startswith(f"{path}:6: ")
        assert expected in message


def _explain_error(path: str) -> str:
    with pytest.raises(InvalidArgument) as caught:
        explain({"config": path}, {})
    return str(caught.value)


def test_prefixes_that_are_told_apart_are_taken(tmp_path: Path) -> None:
    text = """
[upstreams.one]
command = "x"
prefix = "one_"
[upstreams.two]
command = "x"
prefix = "one_two_"
[upstreams.three]
command = "x"
prefix = ""
[upstreams.four]
command = "x"
prefix = ""
"""
    settings = load_settings("serve", {"config": toml(tmp_path, text)}, {})
    assert [target.prefix for target in settings.upstreams.values()] == ["one_", "one_two_", "", ""]


def test_a_prefix_is_not_the_name_of_a_client_s_server_either(tmp_path: Path) -> None:
    path = toml(tmp_path, '[upstreams.one]\ncommand = "x"\nprefix = "files_"\n')
    servers = tmp_path / "mcp.json"
    servers.write_text('{"mcpServers": {"files": {"command": "x"}}}')
    assert "or rename files" in refused("serve", {"config": path, "mcp_servers": str(servers)})


@pytest.mark.parametrize("text", ["a = ", "[", 'a = "\n', "a = 1\na = 2", "[a]\n[a]", "a = " + "[" * 5000])
def test_what_is_no_toml_is_refused(text: str, tmp_path: Path) -> None:
    assert "is no TOML" in refused("wrap", {"config": toml(tmp_path, text)})


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    assert "cannot be read: No such file" in refused("wrap", {"config": str(tmp_path / "none")})
    (tmp_path / "latin").write_bytes(b"a = '\xe9'")
    assert "is not UTF-8" in refused("wrap", {"config": str(tmp_path / "latin")})


def test_no_file_is_searched_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toml(tmp_path, 'output_mode = "handle"')
    monkeypatch.chdir(tmp_path)
    assert wrapping().output_mode == "auto"


def test_a_variable_that_nothing_reads_is_an_error() -> None:
    assert "did you mean FOREBAY_OUTPUT_MODE?" in refused("wrap", {}, {"FOREBAY_OUTPUT_MODES": "auto"})
    assert "--explain" in refused("wrap", {}, {"FOREBAY_QQ": "1"})
    wrapping({}, {"FOREBAY_HOME": "/x", "FOREBAY_HTTP": "127.0.0.1:1", "FOREBAYR": "x", "FOREBAY_STORE": ""})


def test_a_wrong_value_says_where_it_came_from() -> None:
    expected = "output_inline_limit_bytes is a number of bytes, such as 64MiB, not 'x'"
    message = refused("wrap", {"output_inline_limit_bytes": "x"})
    assert message == "--output-inline-limit-bytes is a number of bytes, such as 64MiB, not 'x'"
    message = refused("wrap", {}, {"FOREBAY_OUTPUT_INLINE_LIMIT_BYTES": "x"})
    assert message == f"FOREBAY_OUTPUT_INLINE_LIMIT_BYTES: {expected}"


@pytest.mark.parametrize(
    ("alias", "text", "name", "value"),
    [
        ("output_handle_ttl_hours", "2", "ttl", 7200.0),
        ("output_handle_ttl_hours", "0", "ttl", 0.0),
        ("output_handle_sweep_interval_seconds", "2", "sweep_interval", 2.0),
    ],
)
def test_an_alias_sets_its_option(alias: str, text: str, name: str, value: float, tmp_path: Path) -> None:
    option = OPTIONS_AND_ALIASES[alias]
    path = toml(tmp_path, f"{alias} = {text}\n")
    sources = {
        option.flag: wrapping({alias: text}),
        option.variable: wrapping({}, {option.variable: text}),
        f"{path}:1": wrapping({"config": path}),
    }
    for source, settings in sources.items():
        assert getattr(settings, name) == value
        assert settings.sources == {name: source} | ({"config": "--config"} if source.startswith(path) else {})
        assert settings.policy_options()[name] == value
    message = refused("wrap", {"output_handle_ttl_hours": "-1"})
    assert message == "--output-handle-ttl-hours is a number of hours, such as 24h, not '-1'"


def test_a_removed_variable_names_what_to_do() -> None:
    message = refused("wrap", {}, {"FOREBAY_TOOL_PREFIX": "a_"})
    assert message == "forebay reads no variable FOREBAY_TOOL_PREFIX; use prefix"


def test_sessions_and_principals_grow_with_connections(tmp_path: Path) -> None:
    path = toml(tmp_path, '[upstreams.a]\npython = "m"\n')

    def limits(**flags: str) -> tuple[int, int]:
        settings = load_settings("serve", {"config": path, **flags}, {})
        return settings.max_sessions, settings.max_principals

    assert limits() == limits(max_connections="8") == (1000, 64)
    assert limits(max_connections="1024") == (2000, 128)


def test_headers_by_flag_variable_and_file(tmp_path: Path) -> None:
    path = toml(tmp_path, '[headers]\nAuthorization = "Bearer ${TOKEN}"\n')
    token = {"TOKEN": SECRET}
    expected = {"Authorization": f"Bearer {SECRET}"}
    assert wrapping({"headers": ["Authorization: Bearer ${TOKEN}"]}, token).headers == expected
    assert wrapping({}, {"FOREBAY_HEADER_Authorization": "Bearer ${TOKEN}", **token}).headers == expected
    assert wrapping({"config": path}, token).headers == expected
    assert wrapping({"headers": ["A: $${TOKEN} ${input:x}"]}).headers == {"A": "${TOKEN} ${input:x}"}


def test_secrets_are_not_in_messages() -> None:
    assert SECRET not in refused("wrap", {"headers": [f"Authorization {SECRET}"]})
    assert SECRET not in refused("wrap", {}, {"FOREBAY_HEADER_A": f"{SECRET}\n"})
    assert SECRET not in repr(wrapping({"headers": [f"A: {SECRET}"]}))


UPSTREAMS = """
[upstreams.files]
command = "npx"
args = ["-y", "server", "--token=${TOKEN}"]
env = {KEY = "${TOKEN}"}
cwd = "data"
prefix = "fs_"
[upstreams.web]
url = "https://user:${TOKEN}@example.com/mcp?key=hunter2"
headers = {Authorization = "Bearer hunter2"}
[upstreams.api]
openapi = "api.yaml"
base_url = "https://example.com"
auth = {bearer = "${TOKEN}", basic = ["user", "hunter2"]}
cross_host_redirects = true
[upstreams.far]
openapi = "https://example.com/openapi.json"
[upstreams.mine]
python = "package.module"
"""


def test_upstreams_of_every_type(tmp_path: Path) -> None:
    settings = load_settings("serve", {"config": toml(tmp_path, UPSTREAMS)}, {"TOKEN": SECRET})
    types = {name: target.upstream_type for name, target in settings.upstreams.items()}
    assert types == {"files": "command", "web": "url", "api": "openapi", "far": "openapi", "mine": "python"}
    files, api = settings.upstreams["files"], settings.upstreams["api"]
    assert (files.command, files.args, files.env) == ("npx", ("-y", "server", f"--token={SECRET}"), {"KEY": SECRET})
    assert (files.cwd, files.prefix) == (str(tmp_path / "data"), "fs_")
    assert (api.openapi, api.auth) == (str(tmp_path / "api.yaml"), {"bearer": SECRET, "basic": ("user", SECRET)})
    assert settings.upstreams["far"].openapi == "https://example.com/openapi.json"
    assert (api.cross_host_redirects, settings.upstreams["far"].cross_host_redirects) == (True, False)


def test_what_is_explained_has_no_secrets(tmp_path: Path) -> None:
    text = 'store = "file:///C:/${TOKEN}"\nredact = ["${TOKEN}+"]\n[tools]\n"${TOKEN}" = "handle"\n'
    text += '[headers]\nA = "hunter2"\n' + UPSTREAMS
    flags = {"config": toml(tmp_path, text), "url": "https://u:hunter2@x/?t=hunter2"}
    explanation = explain(flags, {"TOKEN": SECRET})
    assert SECRET not in repr(explanation)
    rows = {row["name"]: row for row in explanation["options"]}
    assert rows.keys() == OPTIONS.keys()
    assert (rows["store"]["value"], rows["store"]["source"]) == ("file:///C:/${TOKEN}", f"{flags['config']}:1")
    assert rows["headers"]["value"] == {"A": "***"}
    assert (rows["redact"]["value"], rows["tools"]["value"]) == (["${TOKEN}+"], {"${TOKEN}": "handle"})
    assert rows["url"]["value"] == "https://***@x/?t=***"
    assert (rows["on_full"]["value"], rows["on_full"]["source"]) == ("refuse", "default")
    assert [upstream["name"] for upstream in explanation["upstreams"]] == ["files", "web", "api", "far", "mine"]
    assert explanation["upstreams"][1]["headers"] == {"Authorization": "***"}


@given(st.text(alphabet="abc@:/?&=#.", max_size=12), st.text(alphabet="abc@:/?&=#.", max_size=12))
def test_addresses_keep_nothing_of_what_lets_one_in(before: str, after: str) -> None:
    assert "SECRET" not in mask_url(f"http://{before.replace('/', '').replace('?', '')}SECRET@host/{after}")
    assert "SECRET" not in mask_url(f"http://host/?a=SECRET&{after}")


@pytest.mark.parametrize(
    ("args", "masked"),
    [
        (["--api-key", "abc"], ["--api-key", "***"]),
        (["--apiKey", "abc"], ["--apiKey", "***"]),
        (["--token=abc", "x"], ["--token=***", "x"]),
        (["-p", "GITHUB_PAT=abc"], ["-p", "GITHUB_PAT=***"]),
        (["-e", "LANG=abc", "--env", "A=b"], ["-e", "LANG=***", "--env", "A=***"]),
        (["--env=A_SECRET=b"], ["--env=***"]),
        (["-H", "X-Own: abc"], ["-H", "X-Own: ***"]),
        (["--header", "Authorization: Bearer abc"], ["--header", "***"]),
        (["--header=X: abc"], ["--header=***"]),
        (["postgresql://me:abc@host/db"], ["postgresql://***@host/db"]),
        (["--db=https://me:abc@host/?k=abc"], ["--db=https://***@host/?k=***"]),
        (["ghp_abcdefgh1234"], ["***"]),
        (["--with=sk-abcdefgh1234"], ["--with=***"]),
        (["0123456789abcdef0123456789"], ["***"]),
        (["--token", "${TOKEN}", "--key=${KEY}", "-H", "A: Bearer ${B}"],) * 2,
        (["--password", "--verbose", "x"],) * 2,
        (["-y", "@modelcontextprotocol/server-filesystem", "/data", "--author", "me", "--monkey=1", "-e", "x"],) * 2,
        (["-m", "my_package.server_with_a_long_name", "--port", "8000", "https://host/a?b"],) * 2,
    ],
)
def test_what_looks_like_a_secret_in_the_words_of_a_command_is_not_shown(
    args: list[str], masked: list[str], tmp_path: Path
) -> None:
    assert mask_args(args) == masked
    words = ", ".join(f"'{word}'" for word in args)
    path = toml(tmp_path, f'[upstreams.one]\ncommand = "x"\nargs = [{words}]\n')
    upstreams = explain({"config": path}, {"TOKEN": "t", "KEY": "k", "B": "b"})["upstreams"]
    assert upstreams == [{"name": "one", "command": "x", "args": masked}]


def test_paths_of_a_file_are_relative_to_it(tmp_path: Path) -> None:
    path = toml(
        tmp_path, 'file_refs = true\nfile_roots = ["a", "/b"]\ntoken_file = "tokens"\n[upstreams.x]\npython = "m"\n'
    )
    settings = load_settings("serve", {"config": path}, {})
    assert (settings.file_roots, settings.token_file) == (
        (str(tmp_path / "a"), str(tmp_path / "/b")),
        str(tmp_path / "tokens"),
    )
    assert wrapping({"file_roots": ["a"], "file_refs": True}).file_roots == ("a",)


def test_references_may_be_switched_off_where_a_file_has_roots_for_them(tmp_path: Path) -> None:
    path = toml(tmp_path, 'file_refs = true\nfile_roots = ["a"]\n')
    assert wrapping({"config": path, "file_refs": False}).file_refs is False
    assert wrapping({"config": path}, {"FOREBAY_FILE_REFS": "false"}).file_refs is False


def test_roots_without_references_are_refused_in_the_words_that_they_were_given_in(tmp_path: Path) -> None:
    rule = "has no effect without references to files; give"
    assert refused("wrap", {"file_roots": ["a"]}) == f"--file-root {rule} --file-refs too"
    message = refused("wrap", {}, {"FOREBAY_FILE_ROOTS": "a"})
    assert message == f"FOREBAY_FILE_ROOTS {rule} FOREBAY_FILE_REFS=true too"
    path = toml(tmp_path, '\nfile_roots = ["a"]\n[upstreams.x]\npython = "m"\n')
    assert refused("serve", {"config": path}) == f"{path}:2: file_roots {rule} file_refs = true too"


OAUTH = {
    "oauth_issuer": "https://issuer.example",
    "oauth_audience": "https://mcp.example.com/mcp",
    "oauth_jwks_url": "https://issuer.example/keys",
}


@pytest.mark.parametrize(
    ("flags", "is_right"),
    [
        ({"http": "127.0.0.1:80"}, True),
        ({"http": "localhost:80"}, True),
        ({"http": "[::1]:80"}, True),
        ({"http": "0.0.0.0:80"}, False),
        ({"http": "example.com:80"}, False),
        ({"http": "[::]:80"}, False),
        ({"http": "0.0.0.0:80", "allowed_hosts": ["a.example"]}, False),
        ({"http": "10.0.0.1:80", "insecure": True}, True),
        ({"http": "10.0.0.1:80", "token_file": "x"}, True),
        ({"http": "10.0.0.1:80", **OAUTH}, True),
    ],
)
def test_who_can_be_reached_by_others_needs_tokens(flags: dict[str, Any], is_right: bool, tmp_path: Path) -> None:
    flags["config"] = toml(tmp_path, '[upstreams.a]\npython = "m"\n')
    if is_right:
        assert load_settings("serve", flags, {}).http is not None
    else:
        assert "--token-file" in refused("serve", flags)


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ({"http": "0.0.0.0:80", "token_file": "x"}, "--allowed-hosts"),
        ({"http": "[::]:80", "insecure": True}, "--allowed-hosts"),
        ({"allowed_hosts": ["https://a.example"]}, "--allowed-hosts takes host names"),
        ({"allowed_hosts": ["a.example/mcp"]}, "--allowed-hosts takes host names"),
        ({"allowed_origins": ["a.example"]}, "--allowed-origins takes origins, such as https://"),
        (
            {"allowed_origins": ["https://a.example", "https://b.example/"]},
            "--allowed-origins takes origins, such as https://",
        ),
        ({"oauth_issuer": "https://a.example"}, "give --oauth-audience and --oauth-jwks-url too"),
        ({"oauth_scopes": ["mcp:use"]}, "--oauth-issuer"),
        ({**OAUTH, "oauth_jwks_url": "http://a.example/keys"}, "--oauth-jwks-url must begin with https://"),
        ({"http": "10.0.0.1:80", "insecure": True, "file_roots": ["/srv"]}, "--file-refs-beyond-loopback"),
        ({"http": "10.0.0.1:80", "insecure": True, "export_roots": ["/srv"]}, "other machines can call, which cannot"),
        (
            {"http": "127.0.0.1:80", "allowed_hosts": ["a.example"]},
            "other machines can reach a.example; give --token-file",
        ),
        (
            {"http": "127.0.0.1:80", "allowed_hosts": ["a.example"], "file_roots": ["/srv"], "insecure": True},
            "--file-refs-beyond",
        ),
        ({"rate_limit_per_minute": "0"}, "more than 0, or none"),
        ({"body_limit_bytes": "0"}, "more than 0"),
        ({"max_connections": "0"}, "more than 0"),
        ({"call_timeout_seconds": "0"}, "more than 0"),
    ],
    ids=str,
)
def test_what_would_let_in_the_wrong_ones_is_refused(flags: dict[str, Any], why: str, tmp_path: Path) -> None:
    flags["config"] = toml(tmp_path, '[upstreams.a]\npython = "m"\n')
    assert why in refused("serve", flags)


@pytest.mark.parametrize(
    ("flags", "is_kept"),
    [
        ({}, False),
        ({"http": "127.0.0.1:80"}, False),
        ({"http": "[::1]:80", "allowed_hosts": ["localhost:80", "[::1]"]}, False),
        ({"http": "10.0.0.1:80", "insecure": True}, True),
        ({"http": "127.0.0.1:80", "allowed_hosts": ["a.example"], "insecure": True}, True),
        ({"http": "10.0.0.1:80", "insecure": True, "file_refs_beyond_loopback": True}, False),
    ],
    ids=str,
)
def test_files_are_kept_from_callers_from_elsewhere(flags: dict[str, Any], is_kept: bool, tmp_path: Path) -> None:
    flags |= {"config": toml(tmp_path, '[upstreams.a]\npython = "m"\n'), "file_refs": True}
    options = load_settings("serve", flags, {}).policy_options()
    assert options["file_refs"] is True
    assert (options.get("file_roots") == ()) is is_kept


def test_nothing_to_serve() -> None:
    assert "there is nothing to serve" in refused("serve", {})


KEYS = st.lists(st.sampled_from(["a", "b", "c-d", "e_f"]), min_size=1, max_size=3, unique=True)


@given(st.lists(st.tuples(st.sampled_from(["", "[t]", "# x = 1", "[u.v]"]), KEYS), max_size=6))
def test_lines_are_where_keys_are(parts: list[tuple[str, list[str]]]) -> None:
    lines: list[str] = []
    lines_by_key: dict[tuple[str, ...], int] = {}
    for number, (opening, keys) in enumerate(parts):
        table = f"[t{number}]" if opening == "[t]" else f"[u.v{number}]" if opening == "[u.v]" else opening
        lines.append(table)
        prefix = tuple(table.strip("[]").split(".")) if table.startswith("[") else (f"only{number}",)
        if not table.startswith("["):
            lines.append(f'["only{number}"]')
        for key in keys:
            lines.append(f"  {key} = 1 # {key} = 2")
            lines_by_key[(*prefix, key)] = len(lines)
    document = ConfigFile(None)
    document.path, document._text = "f", "\n".join(lines)
    for keys_of, line in lines_by_key.items():
        assert document.find_location(*keys_of) == f"f:{line}"


@given(st.text(alphabet="${}AB_:- "), st.fixed_dictionaries({}, optional={"A": st.text(), "B": st.text()}))
def test_variables_are_read_once(text: str, environ: dict[str, str]) -> None:
    missing = [
        name for dollars, name in re.findall(r"\$(\$?)\{([A-Z_]+)\}", text) if not dollars and name not in environ
    ]
    if missing:
        with pytest.raises(ValueError, match=f"the variable {missing[0]} is not set"):
            expand_variables(text, environ)
        return
    naive = re.sub(
        r"\$(\$?)\{([A-Z_]+)\}", lambda found: "${" + found[2] + "}" if found[1] else environ[found[2]], text
    )
    assert expand_variables([{"k": text}, 1], environ) == [{"k": naive}, 1]
