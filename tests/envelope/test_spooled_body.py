"""A body in a temporary file behaves like the same body in memory."""

from pathlib import Path

import pytest
from forebay.envelope import Body
from forebay.envelope.body import dump
from forebay.store.payload import CHUNK_BYTES
from forebay.wire.framing import Spool

BODIES = [
    (b"", "text/plain"),
    (b'{"a": [1, 2]}', "application/json"),
    (b"\xef\xbb\xbf[1]", "application/json"),
    (b"[1", "application/json"),
    (b"<p>", "text/html"),
    (b"a\x00b", "text/plain"),
    (b"\xff", "text/plain"),
    # Characters that a chunk cuts.
    ("é".encode() * CHUNK_BYTES, "text/plain"),
    (b"x" + "é".encode() * CHUNK_BYTES, "text/plain"),
    (b"\x00" + "é".encode() * CHUNK_BYTES, "text/plain"),
    (b"x" * CHUNK_BYTES + "é".encode()[:1], "text/plain"),
]


def is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.parametrize(("content", "content_type"), BODIES, ids=range(len(BODIES)))
def test_a_spooled_body_is_equal_to_one_in_memory(content: bytes, content_type: str, tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.write(content)
    spooled, body = Body(spool, content_type), Body(content, content_type)
    assert (spooled.is_spooled, body.is_spooled) == (True, False)
    for one in (spooled, body):
        assert len(one) == len(content)
        assert one.content == b"".join(one.chunks()) == content
        assert one.is_utf8 is is_utf8(content)
    assert spooled == body
    assert repr(spooled) == repr(body)
    assert spooled.is_json is body.is_json
    assert dump([spooled]) == dump([body])
    if body.is_json:
        assert spooled.json() == body.json()
