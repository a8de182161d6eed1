"""Secrets inside of base64 are redacted, and the base64 keeps its form."""

import base64
import json

import pytest
from forebay._core import Redactor


@pytest.mark.parametrize("size", range(24, 36))
@pytest.mark.parametrize("is_url_safe", [False, True])
@pytest.mark.parametrize("is_padded", [False, True])
def test_redacted_base64_is_written_as_it_was(size: int, is_url_safe: bool, is_padded: bool) -> None:
    text = "password=hunter2 ???>>>" + "~" * (size - 23)
    encode = base64.urlsafe_b64encode if is_url_safe else base64.b64encode
    written = encode(text.encode()).decode()
    stored = written if is_padded else written.rstrip("=")
    redacted = Redactor(["hunter2"]).redact(json.dumps({"data": stored}).encode())
    assert redacted is not None
    result = json.loads(redacted)["data"]
    expected = encode(text.replace("hunter2", "[redacted]").encode()).decode()
    # Padding is written if the payload had some. Whole groups do not tell, and count as padded in the usual alphabet.
    has_padding = stored.endswith("=") or (len(stored) % 4 == 0 and not is_url_safe)
    assert result == (expected if has_padding else expected.rstrip("="))
