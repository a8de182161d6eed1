"""A string on Redis is what docs/format.md says: a header, and a stored file."""

import struct

import forebay
from redis_server import RedisServer
from spec_reader import read_stored_file


def test_the_string_of_a_payload(shared_redis: RedisServer, redis_address: str) -> None:
    payload = b"".join(b'{"id": %d}\n' % number for number in range(50_000))
    with forebay.open_store(redis_address) as store:
        handle = store.put(payload, mime_type="application/x-ndjson").output_handle
    string = shared_redis.client.get(f"forebay:{{{handle}}}")
    assert isinstance(string, bytes)
    magic, size, _, written_at = struct.unpack("<II16sd", string[:32])
    assert (magic, size) == (0x184D2A50, 24)
    stored = read_stored_file(string[32:])
    assert stored.payload == payload
    assert stored.meta["handle"] == handle
    assert abs(written_at - stored.meta["created_at"]) < 60
    assert stored.read_item(49_999) == {"id": 49_999}
