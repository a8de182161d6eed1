"""What a client gets of a result that nobody parsed: what it would get of it parsed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from headgate.contract.limits import ResponseLimits
from headgate.errors import HeadgateError
from headgate.gateway.raw import taken_apart, written
from headgate.gateway.spool import Spool
from headgate.servers import pipeline as module
from headgate.servers.modes import Mode
from headgate.servers.pipeline import MESSAGE, Call, Pipeline
from headgate.store import Store, open_store

LINES = "a line é\n" * 5000
ROWS = [{"id": number, "weight": number / 3, "big": 10**30} for number in range(500)]
META = {"mine": 1e300, "io.modelcontextprotocol/serverInfo": {"name": "n", "icon": "x" * 2000}}
RESULTS: list[dict[str, Any]] = [
    {"content": [{"type": "text", "text": LINES, "annotations": {"priority": 0.1234567890123456789}}], "_meta": META},
    {"content": [{"type": "text", "text": json.dumps(ROWS)}], "structuredContent": {"result": ROWS}},
    {"content": [{"type": "text", "text": LINES}], "isError": True, "_meta": {"long": "y" * 3000}},
    {"content": [{"type": "text", "text": str(number)} for number in range(3000)]},
]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "store") as store:
        yield store


@pytest.fixture
def spools(tmp_path: Path) -> Path:
    folder = tmp_path / "spools"
    folder.mkdir()
    return folder


def without_handle(message: bytes, handle: str) -> str:
    return message.decode().replace(handle, "oh_")


def answers(store: Store, result: dict[str, Any], spools: Path, call: Call) -> list[tuple[dict[str, Any], bytes]]:
    """The answer to a result parsed, in memory and spooled; and what is stored of it."""
    message = json.dumps(result, ensure_ascii=False, separators=(",", ":")).encode()
    pipeline, found = Pipeline(store, "output_fetch"), []
    with Spool(spools) as spool:
        spool.write(message)
        for given in (json.loads(message), taken_apart(message), taken_apart(spool)):
            answer = json.loads(written(pipeline.stored(given, call)))
            said = json.loads(answer["content"][0]["text"])
            handle = said.get("output_handle") or said["artifactRef"].rpartition("/")[2]
            found.append((json.loads(without_handle(written(answer), handle)), store.read(handle)))
            assert len(written(answer)) <= (MESSAGE if call.contract is None else call.contract.max_bytes)
    return found


@pytest.mark.parametrize("result", RESULTS)
@pytest.mark.parametrize("contract", [None, ResponseLimits()])
def test_the_answer_is_that_to_the_same_result_parsed(
    store: Store, spools: Path, result: dict[str, Any], contract: ResponseLimits | None
) -> None:
    parsed, *raw = answers(store, result, spools, Call("tool", contract=contract))
    for answer, payload in raw:
        assert payload == parsed[1]
        assert answer.keys() == parsed[0].keys()
        assert answer.get("_meta") == parsed[0].get("_meta")
