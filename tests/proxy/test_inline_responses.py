"""Responses that fit inline are forwarded after a short look, with the same outcome as after a long one."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any
from unittest import mock

import pytest
from forebay.outputs.contract.limits import ResponseLimits
from forebay.outputs.modes import Mode
from forebay.outputs.policy import OutputPolicy
from forebay.proxy.response_handler import ResponseHandler
from forebay.proxy.session import PendingRequest, Session
from forebay.wire.framing import Spool
from forebay.wire.lazy_json import dump
from forebay.wire.messages import parse
from hypothesis import given
from hypothesis import strategies as st

IMAGE = {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"}
TASK = {"taskId": "t", "status": "working"}

modes = st.builds(
    Mode,
    st.sampled_from(["inline", "handle", "auto"]),
    st.integers(0, 400),
    st.sampled_from([None, None, ResponseLimits()]),
    image_mode=st.sampled_from(["inline", "handle", "auto"]),
    audio_mode=st.sampled_from(["inline", "handle", "auto"]),
)
texts = st.integers(0, 400).map(lambda size: {"type": "text", "text": "é\n" * size})
results = st.one_of(
    st.fixed_dictionaries({"content": st.lists(texts | st.just(IMAGE), max_size=2)}),
    st.sampled_from(
        [{}, {"task": TASK}, {"resultType": "task", **TASK, "result": {"content": []}}, 7, "x" * 300, None]
    ),
)
bodies = st.one_of(
    st.fixed_dictionaries({"result": results}, optional={"note": st.just("x" * 350)}),
    st.fixed_dictionaries({"error": st.fixed_dictionaries({"code": st.just(-1), "message": st.text(max_size=300)})}),
)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OutputPolicy]:
    with closing(OutputPolicy(tmp_path_factory.mktemp("store").as_uri(), monitor=True)) as policy:
        yield policy


def handle(policy: OutputPolicy, method: str, mode: Mode, raw: bytes) -> tuple[bool, bool, int]:
    """Return whether a response is forwarded unchanged, whether its task is known, and the bytes that are counted."""
    assert policy.monitor is not None
    session = Session()
    session.task_owners = (session,)
    pending = PendingRequest(method, 1, session.version, tool="read", mode=mode)
    replacement = ResponseHandler(policy, session, {"name": "forebay"})(pending, parse(raw), raw)
    assert not isinstance(replacement, Spool)
    is_known = policy.tasks.find_call({"taskId": "t"}, session.task_owners) is not None
    # Handles differ.
    counted = policy.monitor.get_sent_bytes(None, session) if replacement is None else 0
    return replacement is None, is_known, counted


@given(st.sampled_from(["tools/call", "tasks/result", "tasks/get"]), modes, bodies)
def test_the_short_look_finds_what_the_long_one_finds(
    policy: OutputPolicy, method: str, mode: Mode, body: dict[str, Any]
) -> None:
    raw = dump({"jsonrpc": "2.0", "id": 1, **body})
    outcome = handle(policy, method, mode, raw)
    with mock.patch.object(Mode, "allows_inline", return_value=False):
        assert handle(policy, method, mode, raw) == outcome
