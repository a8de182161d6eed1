"""Large results are cast to their schemas in a thread, without blocking the event loop."""

import asyncio
import threading
from typing import Any

import pytest
from forebay.envelope import Body, ResponseEnvelope
from forebay.operations import CallError, OperationRegistry, OperationSpec, results
from forebay.operations.results import is_large, to_envelope

LISTS = {"type": "array"}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (None, False),
        ([1] * 9_000, False),
        ([1] * 20_000, True),
        ({"a": [[0] * 10] * 2_000}, True),
        ({"a": {"b": "x" * 2_000_000}}, True),
        (["x" * 100] * 5_000, False),
        (Body(b"[" + b" " * 2_000_000 + b"]"), True),
        (Body(b"[]"), False),
    ],
    ids=[*"abcdefgh"],
)
def test_what_is_large(data: Any, expected: bool) -> None:
    assert is_large(data) is expected


@pytest.mark.parametrize(
    ("count", "schema", "in_thread"), [(3, LISTS, False), (30_000, LISTS, True), (30_000, None, False)]
)
def test_only_what_takes_long_is_done_aside(
    count: int, schema: Any, in_thread: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []

    def record_thread(result: Any, spec: OperationSpec) -> ResponseEnvelope[Any]:
        threads.append(threading.current_thread())
        return to_envelope(result, spec)

    monkeypatch.setattr(results, "to_envelope", record_thread)
    registry = OperationRegistry()
    registry.register(OperationSpec(namespace="a", name="many", output_schema=schema), lambda *_: [1] * count)
    envelope = asyncio.run(registry.execute("a.many"))
    assert envelope.data == [1] * count
    assert (threads[0] is not threading.main_thread()) is in_thread


def test_what_is_small_does_not_keep_everyone_waiting_for_what_is_large() -> None:
    held, may_release, released = threading.Event(), threading.Event(), []
    spec = OperationSpec(namespace="a", name="many", output_schema=LISTS)
    registry = OperationRegistry()
    registry.register(spec, lambda *_: [1])
    registry.register(OperationSpec(namespace="a", name="other", output_schema=LISTS), lambda *_: [2])

    def cast_large() -> None:
        with spec.caster._lock:
            held.set()
            released.append(may_release.wait(5))

    async def run() -> None:
        small = asyncio.create_task(registry.execute("a.many"))
        await asyncio.sleep(0)
        assert (await registry.execute("a.other")).data == [2]
        may_release.set()
        assert (await small).data == [1]

    casting = threading.Thread(target=cast_large)
    casting.start()
    held.wait()
    asyncio.run(run())
    casting.join()
    assert released == [True]


class _Exhausted:
    def model_dump(self, **_: Any) -> Any:
        return next(iter(()))


@pytest.mark.parametrize("count", [0, 30_000])
def test_what_no_future_takes_is_told_all_the_same(count: int) -> None:
    registry = OperationRegistry()
    registry.register(
        OperationSpec(namespace="a", name="many", output_schema=LISTS), lambda *_: [_Exhausted(), *[1] * count]
    )
    with pytest.raises(CallError, match="StopIteration"):
        asyncio.run(asyncio.wait_for(registry.execute("a.many"), 10))


def test_large_results_share_a_bounded_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[int] = set()
    spec = OperationSpec(namespace="n", name="large", type="query", description="", output_schema=LISTS)

    def convert(result: Any, spec: OperationSpec) -> ResponseEnvelope[Any]:
        threads.add(threading.get_ident())
        return to_envelope(result, spec)

    async def run() -> None:
        await asyncio.gather(*(results.to_envelope_async([1] * 20_000, spec) for _ in range(200)))

    monkeypatch.setattr(results, "to_envelope", convert)
    asyncio.run(run())
    assert 1 <= len(threads) <= 32
