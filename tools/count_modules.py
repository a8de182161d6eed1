"""Count the modules of the package that a large result passes through.

    python tools/count_modules.py PYTHON

`PYTHON` is an interpreter that has a build installed, under its present or an earlier name. A result of 20 MB goes
through it in three ways: through `wrap` before a server on stdio (an array of JSON objects in one text), through
`serve` on stdio before the same server, and through the adapter in a server of the mcp SDK (a tool that returns a list
of dicts, so that it is text and structured content). For each the tool prints how many modules were entered, and which,
in the order of their first entry:

    wrap                   one tools/call, from before its request is sent until its answer has arrived
    wrap, result only      the same without the request: from the first byte of the server's answer on
    serve                  one tools/call, as for wrap
    serve, result only     the same without the request, as for wrap
    in process             one tools/call, as for wrap
    ..., one page          one output_fetch of 20 items, as for wrap

A module is entered when one of its functions is called, or a generator or coroutine of it resumed, in any thread
(`sys.setprofile`). Importing a module does not count, nor does what runs while one is imported. The call that is
counted comes after `initialize`, `tools/list` and another call of the same kind, so that nothing is counted that
happens once, such as first imports and the opening of the store.
"""

import argparse
import inspect
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from wire.build import Build, BuildNotFound, find_build, script

RESULT_BYTES = 20_000_000
WAYS = ("wrap", "serve", "in process")
ROW_BYTES = {"wrap": 90, "serve": 90, "in process": 1040}
"""Size of a row. In process every row becomes an object of the SDK, so fewer and larger rows take less time."""
DELAY_SECONDS = 2.0
TIMEOUT_SECONDS = 120.0
CLIENT = {"name": "count", "version": "1"}


class Recorder:
    """Records the modules of a package that are entered between SIGUSR1 and SIGUSR2, and writes them to a file."""

    def __init__(self, package: str, report: Path) -> None:
        import importlib.util

        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            raise LookupError(package)
        self._root = str(Path(spec.origin).parent) + os.sep
        self._package = package
        self._report = report
        self._modules: dict[CodeType, str | None] = {}
        self._modules_entered: dict[str, None] = {}
        self._is_recording = False
        self._importing = threading.local()

    def install(self) -> None:
        """Record this thread, and all threads that start later."""
        signal.signal(signal.SIGUSR1, self._start)
        signal.signal(signal.SIGUSR2, self._stop)
        threading.setprofile(self._on_event)
        sys.setprofile(self._on_event)

    def _start(self, _number: int, _frame: object) -> None:
        self._modules_entered = {}
        self._is_recording = True
        self._write([])

    def _stop(self, _number: int, _frame: object) -> None:
        self._is_recording = False
        self._write(list(self._modules_entered))

    def _write(self, modules: list[str]) -> None:
        """Write the report in one step, so that a reader never sees half of it."""
        temporary = self._report.with_suffix(".new")
        temporary.write_text(json.dumps(modules))
        temporary.replace(self._report)

    def _on_event(self, frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        if code.co_name == "<module>":
            if frame.f_globals.get("__name__") == "__main__":
                # The program itself: it runs for as long as it serves.
                return
            depth = getattr(self._importing, "depth", 0)
            self._importing.depth = depth + (event == "call") - (event == "return")
        elif event == "call" and self._is_recording and not getattr(self._importing, "depth", 0):
            if code not in self._modules:
                self._modules[code] = self._module_of(code)
            if (module := self._modules[code]) is not None:
                self._modules_entered.setdefault(module)

    def _module_of(self, code: CodeType) -> str | None:
        """Return the module of a function of the package; `None` for other code, such as class bodies."""
        if not code.co_flags & inspect.CO_OPTIMIZED or not code.co_filename.startswith(self._root):
            return None
        parts = Path(code.co_filename.removeprefix(self._root)).with_suffix("").parts
        return ".".join([self._package, *(part for part in parts if part != "__init__")])


def run_watched(package: str, report: str, arguments: list[str]) -> None:
    """Run a module (`-m NAME`) or a script with the recorder, in the interpreter of the build."""
    Recorder(package, Path(report)).install()
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")


class Server:
    """Server on stdio whose modules are recorded."""

    def __init__(self, build: Build, folder: Path, *arguments: str) -> None:
        self._report = folder / "report.json"
        self._process = subprocess.Popen(
            [build.python, __file__, "--watch", build.name, str(self._report), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=build.environment(folder),
            cwd=folder,
        )
        self._number = 0

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        """Send a request, and return the result that comes back."""
        return self._receive(self._send(method, params))

    def _send(self, method: str, params: dict[str, Any]) -> int:
        self._number += 1
        self._write({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        return self._number

    def _write(self, message: dict[str, Any]) -> None:
        if self._process.stdin is not None:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()

    def _receive(self, number: int) -> Any:
        for line in self._process.stdout or ():
            answer = json.loads(line)
            if answer.get("id") == number:
                return answer["result"]
        raise RuntimeError("the server has ended")

    def initialize(self) -> None:
        self.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT})
        self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})
        cursor = self.ask("tools/list", {}).get("nextCursor")
        while cursor is not None:
            cursor = self.ask("tools/list", {"cursor": cursor}).get("nextCursor")

    def watch(self, tool: str, *, delay: float = 0, **arguments: Any) -> tuple[Any, list[str]]:
        """Call a tool, and return its result and the modules that were entered for it.

        With a delay the server waits that long before it answers, and recording starts after the request.
        """
        if delay:
            arguments["delay"] = delay
        else:
            self._signal(signal.SIGUSR1)
        number = self._send("tools/call", {"name": tool, "arguments": arguments})
        if delay:
            time.sleep(delay / 2)
            self._signal(signal.SIGUSR1)
        return self._receive(number), self._signal(signal.SIGUSR2)

    def _signal(self, number: signal.Signals) -> list[str]:
        """Send a signal, and return the report that it asks for."""
        self._report.unlink(missing_ok=True)
        self._process.send_signal(number)
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not self._report.exists():
            if time.monotonic() > deadline:
                raise RuntimeError("the recorder does not answer")
            time.sleep(0.01)
        return [str(module) for module in json.loads(self._report.read_text())]

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(10)
        finally:
            self._process.kill()
            if self._process.stdout is not None:
                self._process.stdout.close()


def count(build: Build, way: str, size: int) -> dict[str, list[str]]:
    """Return the modules that a large result enters, and those that one page of it enters, by title."""
    with tempfile.TemporaryDirectory(prefix="count-") as folder:
        server = Server(build, Path(folder), *_make_arguments(build, way, Path(folder)))
        size_arguments = {"count": size // ROW_BYTES[way]}
        if way == "in process":
            size_arguments["width"] = 1000
        counts = {}
        try:
            server.initialize()
            server.watch("rows", **size_arguments)
            result, counts[way] = server.watch("rows", **size_arguments)
            if way != "in process":
                _, counts[f"{way}, result only"] = server.watch("rows", **size_arguments, delay=DELAY_SECONDS)
            handle = json.loads(result["content"][0]["text"])["output_handle"]
            for _ in range(2):
                _, counts[f"{way}, one page"] = server.watch("output_fetch", output_handle=handle, limit=20)
        finally:
            server.close()
    return counts


def _make_arguments(build: Build, way: str, folder: Path) -> list[str]:
    """Return what the interpreter runs: a module or a script, and its arguments."""
    store = (folder / "store").as_uri()
    upstream = [*script("upstream.py"), "stdio"]
    if way == "wrap":
        return ["-m", build.name, "wrap", "--store", store, "--", *upstream]
    if way == "serve":
        path = folder / "mcp.json"
        path.write_text(json.dumps({"mcpServers": {"wire": {"command": upstream[0], "args": upstream[1:]}}}))
        return ["-m", build.name, "serve", "--store", store, "--mcp-servers", str(path)]
    options = json.dumps({"output_mode": "auto", "store": store})
    return [str(Path(__file__).with_name("wire") / "adapter_server.py"), build.name, "mcp", options]


def main() -> int:
    if sys.argv[1:2] == ["--watch"]:
        run_watched(sys.argv[2], sys.argv[3], sys.argv[4:])
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", metavar="PYTHON", help="an interpreter with a build of the package")
    parser.add_argument(
        "--size", metavar="BYTES", type=int, default=RESULT_BYTES, help="of the result (default: 20 MB)"
    )
    parser.add_argument("--brief", action="store_true", help="only the numbers")
    options = parser.parse_args()
    try:
        build = find_build(options.python)
    except BuildNotFound as error:
        parser.error(str(error))
    for way in WAYS:
        for title, modules in count(build, way, options.size).items():
            print(f"{title}: {len(modules)} modules")
            if not options.brief:
                print("".join(f"  {module}\n" for module in modules), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
