"""The transport to an upstream process."""

import asyncio
import sys
import threading
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from forebay.hub.transport import open_transport
from forebay.outputs.policy import OutputPolicy
from forebay.proxy.process_group import Grace
from forebay.proxy.stdio import Process, StdioUpstream
from forebay.wire.framing import LineReader, create_spool
from serve_http_harness import is_running
from waiting import wait_until_async

pytestmark = pytest.mark.slow


def test_a_server_ends_whose_connection_is_cancelled_while_it_starts(tmp_path: Path) -> None:
    pids: list[int] = []
    is_starting, may_start = threading.Event(), threading.Event()
    command = [sys.executable, "-c", "import time; time.sleep(3600)"]

    async def connect_and_cancel(policy: OutputPolicy) -> None:
        make_reader = partial(LineReader, spool_above_bytes=1 << 20, make_spool=partial(create_spool, policy.store))

        def start() -> StdioUpstream:
            is_starting.set()
            assert may_start.wait(60)
            process = Process(command)
            pids.append(process._group.server.pid)
            return StdioUpstream(process, command, make_reader=make_reader, grace=Grace(0.1))

        async def connect() -> None:
            async with open_transport(start, policy):
                pass

        task = asyncio.create_task(connect())
        await wait_until_async(is_starting.is_set)
        task.cancel()
        may_start.set()
        await asyncio.wait([task])
        assert task.cancelled()
        await wait_until_async(lambda: pids and not is_running(pids[0]))

    with closing(OutputPolicy(store=tmp_path.as_uri(), sweep_interval=0)) as policy:
        asyncio.run(connect_and_cancel(policy))
