"""`output_query` through `forebay wrap`."""

from pathlib import Path

import pytest
from forebay import open_store
from gateway_harness import connect, parse_text, result_error, wrap

pytestmark = pytest.mark.slow


def test_a_slow_query_does_not_hold_up_other_calls(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        handle = store.put([{"id": n} for n in range(300)]).output_handle
    with connect(*wrap(tmp_path / "store")) as client:
        arguments = {"output_handle": handle, "sql": "SELECT max(md5(i::VARCHAR)) FROM range(10000000000) t(i)"}
        slow = client.send_request("tools/call", {"name": "output_query", "arguments": arguments})
        # `call` would drop the response to the slow query if that came first.
        answer = parse_text(client.call("output_query", output_handle=handle, sql="SELECT max(id) FROM items"))
        assert answer["rows"] == [[299]]
        error = result_error(client.read_response(slow)["result"])
        assert error["code"] == "query_failed"
        assert "took longer than 10 s" in error["message"]
        assert client.close() == 0
