"""Checks of the servers in clients' configuration files: their entries, and whether they start."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

from forebay.cli.output import replace_controls
from forebay.cli.parser import parse_wrap_options
from forebay.cli.store_checks import check_store
from forebay.config.adopt import WrapCommand, find_tool_problems, find_wrap_command, is_forebay, list_rule_servers
from forebay.config.allow_lists import find_hidden_tools, find_missing_rules
from forebay.config.client_servers import NoServers, ServerEntry, find_servers, make_upstream, read_client_file
from forebay.config.clients import ClientFile
from forebay.config.documents import CannotEdit, Document, parse_document
from forebay.config.load import load_settings
from forebay.config.masking import MASK, mask_args, mask_url
from forebay.config.upstreams import UpstreamConfig
from forebay.errors import ForebayError, InvalidArgument
from forebay.outputs.clients import CLIENTS
from forebay.proxy.http.probe import HttpProbe, SignInRequired
from forebay.proxy.probe import Probe, ServerProbe
from forebay.store import RemoteAddress, resolve_address

__all__ = ["check_files", "describe_store"]

_MAX_PROBES = 4
"""Maximum number of servers to start at a time."""

_STORE_VARIABLES = ("AWS_", "AZURE_", "GOOGLE_", "REDIS_")
"""Beginnings of the variables that stores on other machines read."""

_STDERR_TAIL_BYTES = 4096
_MAX_STDERR_CHARS = 300
_MIN_SECRET_CHARS = 4
"""Shorter values are not masked in errors, because they occur in other words."""


def check_files(
    files: Sequence[ClientFile],
    rule_files: Sequence[ClientFile],
    *,
    timeout: float,
    starts_project_servers: bool,
    requires_servers: bool,
) -> list[dict[str, Any]]:
    """Check each server in `files`, and return one row of results for each.

    `rule_files` have the clients' rules on tools. `timeout` is the maximum number of seconds for each server.
    Servers in project files are started, and their stores on other machines opened, only if `starts_project_servers`.
    A file without servers is a problem only if `requires_servers`.
    """
    checks: list[ServerCheck] = []
    for file in files:
        try:
            checks += _inspect_file(file, rule_files)
        except InvalidArgument as error:
            if requires_servers or not isinstance(error, NoServers):
                checks.append(ServerCheck(file, problems=[str(error)]))
    for check in checks:
        if check.file.is_of_project and not starts_project_servers and check.upstream is not None:
            check.skip("not started", "anyone may have written this project file; --trust-project starts its servers")
    _probe_all(checks, timeout)
    _compare_stores(checks)
    # The credentials of the user are not for the stores that a project file names.
    _check_remote_stores([check for check in checks if starts_project_servers or not check.file.is_of_project])
    return [check.to_dict() for check in checks]


def describe_store(address: str) -> dict[str, Any]:
    """Check a store, and return its row of results. Raises `InvalidArgument` if it is on this machine."""
    store = resolve_address(address)
    if isinstance(store, Path):
        raise InvalidArgument(f"{address} is on this machine; forebay checks it when it opens it")
    check = ServerCheck(ClientFile(Path(), None))
    check.check_store(store)
    return {**check.to_dict(), "path": str(store)}


class ServerCheck:
    """Results for one server, or for a file that cannot be read."""

    def __init__(self, file: ClientFile, server: str | None = None, problems: Sequence[str] = ()) -> None:
        self.file = file
        self.server = server
        self.problems = [*problems]
        self.status = "ok"
        self.note: str | None = None
        """Why the server was not started."""
        self.upstream: UpstreamConfig | None = None
        """How to start or reach the server; `None` if it will not be started."""
        self.is_wrapped = False
        self.store: Path | RemoteAddress | None = None
        """The folder of the store, if the server is behind forebay."""
        self.cwd: str | None = None
        self.tools: list[str] | None = None
        self.start_seconds: float | None = None
        self.start_limit_seconds: float | None = None
        self.secrets: Collection[str] = ()

    @property
    def client_name(self) -> str | None:
        return None if self.file.client is None else self.file.client.name

    @property
    def has_output_tools(self) -> bool:
        """Whether the server has the tools that read handles. Their names may have a prefix."""
        return all(any(tool.endswith(name) for tool in self.tools or []) for name in ("output_fetch", "output_search"))

    def to_dict(self) -> dict[str, Any]:
        return {
            "client": self.client_name,
            "path": str(self.file.path),
            "server": self.server,
            "status": "problem" if self.problems else self.status,
            "behind_forebay": self.is_wrapped,
            "tools": None if self.tools is None else len(self.tools),
            "output_tools": None if self.tools is None else self.has_output_tools,
            "start_seconds": None if self.start_seconds is None else round(self.start_seconds, 3),
            "start_limit_seconds": self.start_limit_seconds,
            "result_limit": self._describe_result_limit(),
            "note": self.note,
            "problems": self.problems,
        }

    def _describe_result_limit(self) -> str | None:
        """Return the size above which the client cuts a result or writes it to a file; `None` if it is not known."""
        client = next((client for client in CLIENTS if client.title == self.client_name), None)
        return None if client is None else f"{client.limit:,} {client.unit}"

    def check_store(self, address: RemoteAddress) -> None:
        """Check the server's store on other machines."""
        problems, note = check_store(address)
        self.problems += [_mask(problem, self.secrets) for problem in problems]
        self.note = self.note or note

    def skip(self, status: str, note: str) -> None:
        """Mark the server as not to be started. `note` is the reason."""
        self.upstream, self.status, self.note = None, status, note


def _inspect_file(file: ClientFile, rule_files: Sequence[ClientFile]) -> list[ServerCheck]:
    """Return a check for each server in a file, with the problems that can be seen without starting it."""
    path = str(file.path)
    document = parse_document(read_client_file(path), path)
    servers = find_servers(document, path)
    wrapped_servers = list_rule_servers(document, path)
    problems = [*find_tool_problems(document, path), *_find_rule_problems(document, path, wrapped_servers)]
    for rule_file in rule_files:
        if wrapped_servers and rule_file.client == file.client:
            problems += _read_rule_problems(str(rule_file.path), wrapped_servers)
    checks = [_inspect_server(file, server) for server in servers]
    for check, server in zip(checks, servers, strict=True):
        check.problems += [advice for name, advice in problems if name in (server.name, str(server))]
    return checks


def _read_rule_problems(path: str, wrapped_servers: Mapping[str, Collection[str]]) -> list[tuple[str, str]]:
    try:
        return _find_rule_problems(parse_document(read_client_file(path), path), path, wrapped_servers)
    except InvalidArgument as error:
        return [(name, str(error)) for name in wrapped_servers]


def _find_rule_problems(
    document: Document, path: str, wrapped_servers: Mapping[str, Collection[str]]
) -> list[tuple[str, str]]:
    """Return the name of each server whose rules do not allow forebay's tools, with advice."""
    hidden = [(name, f"{path}: {advice}") for name, advice in find_hidden_tools(document, wrapped_servers)]
    missing = {name: find_missing_rules(document, {name: tools}) for name, tools in wrapped_servers.items()}
    return hidden + [
        (name, f"{path} has rules for other tools of it; add {', '.join(rules)}, which `forebay adopt --all` does")
        for name, rules in missing.items()
        if rules
    ]


def _inspect_server(file: ClientFile, server: ServerEntry) -> ServerCheck:
    check = ServerCheck(file, str(server))
    check.start_limit_seconds = _find_start_limit(file, server)
    check.cwd = server.project if server.project is not None and os.path.isdir(server.project) else None  # noqa: PTH112
    wrap = None
    with contextlib.suppress(CannotEdit):
        wrap = find_wrap_command(server)
    check.is_wrapped = wrap is not None
    if server.is_disabled:
        check.skip("disabled", "the server is disabled in the client")
        return check
    try:
        check.upstream = make_upstream(server, os.environ, str(file.path))
    except InvalidArgument as error:
        # The client may have a variable that this process does not have.
        check.skip("not started", str(error))
        return check
    check.secrets = _list_secrets(check.upstream)
    if check.upstream.command is not None and _find_program(check.upstream) is None:
        program = check.upstream.command
        advice = (
            "run `forebay adopt` with --undo and then again" if wrap is not None else "install it, or give its path"
        )
        check.problems.append(f"{program} is no command here; {advice}")
        check.skip("not started", "the command does not exist")
    if wrap is not None:
        _inspect_wrap(check, wrap, {} if check.upstream is None else check.upstream.env)
    return check


def _inspect_wrap(check: ServerCheck, wrap: WrapCommand, env: Mapping[str, str]) -> None:
    """Add the problems of the `forebay wrap` command of a server."""
    if any(is_forebay(program) and word == "wrap" for program, word in pairwise(wrap.list_targets())):
        check.problems.append(
            "it is behind forebay twice; `forebay adopt FILE --undo --server NAME` removes one of them"
        )
    environ = {**os.environ, **env}
    try:
        settings = load_settings("wrap", parse_wrap_options(wrap.options), environ)
        home = environ.get("FOREBAY_HOME")
        check.store = resolve_address(settings.store or (Path(home).expanduser() if home else None))
    except ForebayError as error:
        check.problems.append(_mask(str(error), check.secrets))
        return
    if isinstance(check.store, Path) and not _is_writable(check.store):
        check.problems.append(f"its store {check.store} cannot be written; name another folder with --store")


def _is_writable(folder: Path) -> bool:
    """Return whether a folder is writable or, if it does not exist, can be created."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def _find_start_limit(file: ClientFile, server: ServerEntry) -> float | None:
    """Return how long the client waits for the server to start, in seconds."""
    if file.client is None:
        return None
    if file.client.start_option is not None:
        key, unit_seconds = file.client.start_option
        node = server.entry.find_node(key)
        if node is not None and isinstance(node.value, int | float) and node.value > 0:
            return float(node.value * unit_seconds)
    return file.client.start_seconds


def _find_program(upstream: UpstreamConfig) -> str | None:
    return shutil.which(str(upstream.command), path=upstream.env.get("PATH"))


def _list_secrets(upstream: UpstreamConfig) -> list[str]:
    """Return the values that must not be printed, longest first."""
    secrets = {*upstream.env.values(), *upstream.headers.values()}
    secrets |= {value.rpartition(" ")[2] for value in upstream.headers.values()}
    for word, masked in zip(upstream.args, mask_args(upstream.args), strict=True):
        if word != masked:
            secrets |= {word, word.partition("=")[2]}
    if upstream.url is not None and mask_url(upstream.url) != upstream.url:
        secrets.add(upstream.url)
    return sorted((secret for secret in secrets if len(secret) >= _MIN_SECRET_CHARS), key=len, reverse=True)


def _probe_all(checks: list[ServerCheck], timeout: float) -> None:
    """Start the servers and list their tools, at most `_MAX_PROBES` at a time."""
    probes: list[ServerProbe] = []
    with ThreadPoolExecutor(_MAX_PROBES) as pool:
        try:
            for future in [
                pool.submit(_probe, check, check.upstream, timeout, probes)
                for check in checks
                if check.upstream is not None
            ]:
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for probe in probes:
                probe.cancel()
            raise


def _probe(check: ServerCheck, upstream: UpstreamConfig, timeout: float, probes: list[ServerProbe]) -> None:
    with tempfile.TemporaryFile() as stderr:
        probe: Probe
        if upstream.url is not None:
            probe = HttpProbe(upstream.url, headers=upstream.headers, timeout=timeout)
        else:
            command = [_find_program(upstream) or str(upstream.command), *upstream.args]
            cwd = upstream.cwd or check.cwd
            probe = ServerProbe(command, timeout=timeout, env=upstream.env, cwd=cwd, stderr=stderr)
            probes.append(probe)
        try:
            with probe:
                check.start_seconds = probe.start_seconds
                check.tools = [str(tool.get("name")) for tool in probe.list_tools()]
        except SignInRequired as error:
            if upstream.headers:
                check.problems.append(_mask(str(error), check.secrets))
            else:
                check.skip("not checked", "the server wants a sign-in, which only its client can do")
        except ForebayError as error:
            check.problems.append(_mask(f"{error}{_read_last_line(stderr)}", check.secrets))
    limit = check.start_limit_seconds
    if check.start_seconds is not None and limit is not None and check.start_seconds > limit:
        client = check.client_name
        check.problems.append(f"it starts in {check.start_seconds:.2g} s, and {client} waits only {limit:g} s")
    if check.is_wrapped and check.tools is not None and not check.has_output_tools:
        check.problems.append(
            "output_fetch and output_search are not among its tools, so handles cannot be read; check that its command "
            "is forebay, and that its tools/list has a last page"
        )


def _read_last_line(stderr: IO[bytes]) -> str:
    """Return the last line that a server wrote to stderr, as a clause to append to an error message."""
    size = stderr.seek(0, os.SEEK_END)
    stderr.seek(max(0, size - _STDERR_TAIL_BYTES))
    lines = stderr.read().decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f"; its last words: {replace_controls(last)[:_MAX_STDERR_CHARS]}" if last else ""


def _mask(text: str, secrets: Collection[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, MASK)
    return text


def _compare_stores(checks: list[ServerCheck]) -> None:
    """Add a problem to each server whose store differs from that of the first server of the same client."""
    first_by_client: dict[str, ServerCheck] = {}
    for check in checks:
        if check.store is None or check.status == "disabled":
            continue
        first = first_by_client.setdefault(check.client_name or str(check.file.path), check)
        if first.store != check.store:
            check.problems.append(
                f"it stores in {check.store}, and {first.server} in {first.store}, so neither can read the other's "
                "handles; give both the same --store"
            )


def _check_remote_stores(checks: list[ServerCheck]) -> None:
    """Check each store on other machines once, with the first server that uses it."""
    first_by_store: dict[RemoteAddress, ServerCheck] = {}
    for check in checks:
        if isinstance(check.store, RemoteAddress) and check.status != "disabled":
            first_by_store.setdefault(check.store, check)
    for store, check in first_by_store.items():
        env = {} if check.upstream is None else check.upstream.env
        names = [name for name in env if name.startswith(_STORE_VARIABLES) and os.environ.get(name) != env[name]]
        if names:
            # The store is opened with the environment of this process.
            check.note = f"its store was not checked: set {', '.join(names)}, and run `forebay doctor {store}`"
        else:
            check.check_store(store)
