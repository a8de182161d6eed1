"""The HTTP side of `forebay serve` before a hub whose tools do as told: `python scripted_hub.py SETTINGS`, as JSON.

`ping_seconds` and `kept_seconds` among the settings replace constants.
"""

import asyncio
import json
import logging
import sys
from typing import TYPE_CHECKING, Any

from forebay.config.options import Settings
from forebay.http import connection, http_exchange, server
from forebay.proxy.message_queue import Reply
from forebay.wire.framing import Message, Spool
from forebay.wire.messages import make_error_message, make_result_message

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger("forebay")


class ScriptedSession:
    """A client. Implements `Session`."""

    def __init__(self, hub: "ScriptedHub", outbox: Reply | None) -> None:
        self._hub = hub
        self._outbox = outbox
        self._answers: dict[object, asyncio.Future[Any]] = {}

    async def handle(self, message: Any, raw: Message, reply: Reply) -> Message | None:  # noqa: ARG002
        match message:
            case {"id": request_id, "method": "tools/call", "params": {"name": name, "arguments": arguments}}:
                tool: Callable[..., Any] = getattr(self, f"_{name}")
                try:
                    result = await tool(reply, **arguments)
                except asyncio.CancelledError:
                    _log.info("%s was cancelled", name)
                    raise
                if result is None or isinstance(result, Spool):
                    return result
                return make_result_message(request_id, {"content": [{"type": "text", "text": result}]})
            case {"id": request_id, "method": "initialize", "params": {"protocolVersion": version}}:
                return make_result_message(request_id, {"protocolVersion": version, "capabilities": {}})
            case {"id": request_id, "method": "initialize"}:
                return make_error_message(request_id, -32602, "initialize has no version")
            case {"id": request_id, "method": "subscriptions/listen"}:
                return await self._listen(request_id, reply)
            case {"id": request_id, "method": "ping"}:
                return make_result_message(request_id, {})
            case {"id": request_id, "method": _}:
                return make_error_message(request_id, -32601, "Method not found")
            case {"id": request_id, "result": result}:
                self._answers[request_id].set_result(result)
        return None

    async def close(self) -> None:
        _log.info("a session was closed")

    async def _text(self, _: Reply, size: int = 3) -> str:
        return "x" * size

    async def _report(self, reply: Reply, count: int) -> str:
        for number in range(count):
            _notify(reply, "notifications/progress", progressToken=1, progress=number)
        return "reported"

    async def _ask(self, reply: Reply) -> str:
        self._answers["q"] = asyncio.get_running_loop().create_future()
        request = {"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {}}
        reply.send(json.dumps(request).encode(), "elicitation/create")
        return json.dumps(await self._answers["q"])

    async def _wait(self, reply: Reply, report_first: bool = False) -> str:
        if report_first:
            _notify(reply, "notifications/progress", progressToken=1, progress=0)
        _log.info("wait has begun")
        await self._hub.is_released.wait()
        self._hub.is_released.clear()
        for number in (1, 2):
            _notify(reply, "notifications/progress", progressToken=1, progress=number)
        _log.info("wait has ended")
        return "at last"

    async def _release(self, _: Reply) -> str:
        self._hub.is_released.set()
        return "released"

    async def _push(self, _: Reply, method: str, count: int = 1, size: int = 0) -> str:
        """Send notifications outside of any request."""
        for number in range(count):
            if self._outbox is not None:
                _notify(self._outbox, method, uri=f"x://{number}", pad="x" * size)
        return "pushed"

    async def _fail(self, _: Reply) -> str:
        raise LookupError("a bug")

    async def _vanish(self, _: Reply) -> None:
        return None

    async def _spool(self, reply: Reply, size: int, report_first: bool = False) -> Spool:
        if report_first:
            _notify(reply, "notifications/progress", progressToken=1, progress=0)
        spool = Spool("/tmp")  # noqa: S108 - where a message that is too large for memory may be
        spool.write(b'{"jsonrpc":"2.0","id":2,\n"result":{"text":"')
        spool.write(b"x" * size)
        spool.write(b'"}}')
        return spool

    async def _listen(self, request_id: object, reply: Reply) -> Message:
        _notify(reply, "notifications/subscriptions/acknowledged")
        _log.info("listen has begun")
        try:
            await self._hub.is_stopping.wait()
        except asyncio.CancelledError:
            _log.info("listen was cancelled")
            raise
        return make_result_message(request_id, {})


def _notify(reply: Reply, method: str, **params: Any) -> None:
    reply.send(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode(), method)


class ScriptedHub:
    """Hub that answers by itself. Implements `Hub`."""

    def __init__(self) -> None:
        self.is_released = asyncio.Event()
        self.is_stopping = asyncio.Event()

    async def start(self) -> None:
        _log.info("the hub was started")

    async def check(self) -> None: ...

    async def close(self) -> None:
        _log.info("the hub was closed")

    def open_session(self, principal: str | None, outbox: Reply) -> ScriptedSession:
        _log.info("a session of %s was opened", principal)
        return ScriptedSession(self, outbox)

    async def handle_stateless(self, principal: str | None, message: Any, raw: Message, reply: Reply) -> Message | None:
        _log.info("a request of %s", principal)
        return await ScriptedSession(self, None).handle(message, raw, reply)

    handle_sessionless = handle_stateless


def main() -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    options = json.loads(sys.argv[1])
    options["http"] = ("127.0.0.1", 0)
    http_exchange.PING_SECONDS = options.pop("ping_seconds", http_exchange.PING_SECONDS)
    http_exchange._KEPT_SECONDS = options.pop("kept_seconds", http_exchange._KEPT_SECONDS)
    if options.pop("parser", "") == "h11":
        server.HTTPConnection = connection.H11Connection  # type: ignore[attr-defined]
    hub = ScriptedHub()
    code = server.run_http(hub, Settings(**options), on_shutdown=hub.is_stopping.set)
    sys.stderr.write(f"ended with {code}\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
