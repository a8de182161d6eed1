"""Responses that keep to the contract: a summary, whether it went well, what fits of the payload, where the rest is."""

import functools
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import orjson
from typing_extensions import Buffer

from forebay import _core
from forebay.arguments import check_flag, short_repr
from forebay.errors import ForebayError, InvalidArgument, RedactionFailed
from forebay.outputs.contract.artifacts import format_artifact_name, make_reference, put_artifact
from forebay.outputs.contract.context import ResponseContext, find_context, record_failure, record_response
from forebay.outputs.contract.limits import Category, ResponseLimits, resolve_limits
from forebay.outputs.contract.text import MAX_SUMMARY_LENGTH, shorten_to_bytes, to_single_line
from forebay.store.pages import escaped_size, is_mostly_items
from forebay.store.payload import Payload, detect_mime_type, is_json_mime_type, needs_json_encoding, read_all
from forebay.store.put import apply_redactions

__all__ = [
    "ENVELOPE_BYTES",
    "PayloadView",
    "Response",
    "build_response",
    "find_largest",
    "format_error",
    "redact_text",
    "wrap_response",
]

if TYPE_CHECKING:
    from forebay.store import Store


_MIN_VIEW_BYTES = 13
"""Every overview has a form of so many bytes."""

_SLACK_BYTES = 64
"""How much of the room may stay empty, for not looking at the payload once more."""

_MAX_COMPARED_BYTES = 1 << 18
"""A payload with white space of this size is not looked through for whether it was only that what is not shown."""

_TOKEN_PATTERN = re.compile(rb'("(?:[^"\\]|\\.)*")|[ \t\r\n]+', re.DOTALL)
_LONE_SURROGATE = re.compile(rb"(\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\[^u])|\\u[dD][89a-fA-F]..")
_SNIFFED_BYTES = 4096
"""As much as is needed to see what a binary is."""


class PayloadView:
    """A payload, and what can be shown of it within limits."""

    def __init__(self, data: Buffer, limits: ResponseLimits, mime_type: str | None = None) -> None:
        self._data = data
        survey = _core.Survey(is_json_mime_type(mime_type))
        survey.feed(self._data)
        found = survey.finish()
        self.nature = found.nature
        self.size = memoryview(self._data).nbytes
        self.count = len(found.items) if is_mostly_items(found.items, self.size) else None
        """How many items there are; `None` where that is not what it is."""
        self.lines = 0 if found.lines is None else len(found.lines)
        self._mime_type = mime_type
        self._limits = limits
        self._document = self._to_json()

    def _to_json(self) -> Buffer:
        if self.nature in ("json", "ndjson"):
            return self._data
        if self.nature == "binary":
            head = bytes(memoryview(self._data)[:_SNIFFED_BYTES])
            return orjson.dumps(
                {"mimeType": self._mime_type or detect_mime_type("binary", head), "sizeBytes": self.size}
            )
        return self._to_line_lists() if self.is_log else orjson.dumps(self.read_start())

    @property
    def is_log(self) -> bool:
        """Whether it is a text that is shown by its first and last lines."""
        is_short = self.size <= self._limits.max_string_length and self.lines <= self._limits.max_log_lines
        return self.nature == "text" and self.lines > 1 and not is_short

    def read_start(self) -> str:
        """As much of a text as may be shown of it, and one more so that the end shows; nothing of a binary."""
        if self.nature == "binary":
            return ""
        most = 4 * (self._limits.max_string_length + 1)
        return _core.read_text(self._data, 0, most).text

    def _to_line_lists(self) -> bytes:
        """The first and last lines of a text. Two lists, so that neither is longer than a list may be."""
        limits = self._limits
        head = min((limits.max_log_lines + 1) // 2, limits.max_array_items)
        tail = min(limits.max_log_lines // 2, limits.max_array_items)
        # Room for every line as far as it may be shown, so that none is left out for another.
        most = (head + tail + 1) * (4 * (limits.max_string_length + 1) + _SLACK_BYTES)
        shown = _core.truncate_lines(self._data, head, tail, max_bytes=most).removesuffix("\n").split("\n")
        left_out = max(0, self.lines - head - tail)
        behind = shown[head + 1 :] if left_out else shown[head:]
        return orjson.dumps({"head": shown[:head], "tail": behind, "lineCount": self.lines})

    def truncate(self, max_bytes: int) -> bytes:
        """What is shown in so many bytes of JSON."""
        limits = self._limits
        shown = _core.truncate(
            self._document,
            max_bytes=max(_MIN_VIEW_BYTES, max_bytes),
            max_array_items=limits.max_array_items,
            max_string_chars=limits.max_string_length,
            # The response is the level above.
            max_depth=limits.max_json_depth - 1,
        )
        return _LONE_SURROGATE.sub(lambda found: found[1] or rb"\ufffd", shown) if b"\\u" in shown else shown

    def is_complete(self, shown: bytes) -> bool:
        """Whether nothing is left out; where it takes long to say, something is."""
        match self.nature:
            case "binary":
                return False
            case "text":
                return shown == orjson.dumps(bytes(self._data).decode()) if self.size <= _MAX_COMPARED_BYTES else False
        if shown == self._data:
            return True
        return self.size <= _MAX_COMPARED_BYTES and shown == self._strip_whitespace()

    def _strip_whitespace(self) -> bytes:
        data = bytes(self._data)
        if self.nature == "json":
            return _TOKEN_PATTERN.sub(_keep_string, data)
        rows = [_TOKEN_PATTERN.sub(_keep_string, row) for row in data.splitlines()]
        return b"[" + b",".join(row for row in rows if row) + b"]"


def _keep_string(token: re.Match[bytes]) -> bytes:
    return token[1] or b""


def find_largest(truncate: Callable[[int], bytes], weigh: Callable[[bytes], int], max_weight: int) -> bytes:
    """Of what is shown in more and more bytes about the most that weighs no more than `most`.

    What it weighs follows from what is in it: a quote takes twice its room in a message. So it is weighed, and the next
    guess is by what it weighed.
    """
    low, high, best = _MIN_VIEW_BYTES, max_weight + 1, truncate(_MIN_VIEW_BYTES)
    guess = max_weight
    while low < guess < high:
        shown = truncate(guess)
        weight = weigh(shown)
        if weight > max_weight:
            high = guess
            guess = max((low + high) // 2, min(high - 1, guess * max_weight // weight))
        else:
            best, low = shown, guess
            if max_weight - weight <= _SLACK_BYTES or len(shown) < guess - _SLACK_BYTES:
                break
            guess = (low + high) // 2
    return best


ENVELOPE_BYTES = 256
"""What is kept of a budget for the message around a response, where that is not known."""

_MAX_ERROR_BYTES = 256
"""What the message of an error may weigh."""

_SUMMARY_LENGTHS = (MAX_SUMMARY_LENGTH, 40, 10)
"""A summary gives way where a budget has no room for it."""

_MIN_DATA_BYTES = 32
"""The smallest overview weighs no more, even if it is all quotes."""

ResponseHead: TypeAlias = dict[str, Any]
"""A response without its payload."""


class Response(str):
    """What a tool answers with: JSON, as text. An SDK sends it as it is, once."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """The response as it will be read."""
        said = json.loads(self)
        assert isinstance(said, dict)  # noqa: S101 - it was made so
        return said


@record_failure
def wrap_response(
    data: Payload,
    *,
    summary: str,
    success: bool = True,
    category: Category | None = None,
    limits: ResponseLimits | None = None,
    store: "Store | None" = None,
    domain: str | None = None,
) -> Response:
    """A response to a call of a tool: never larger than its limits, and nothing is lost.

    What fits of the payload stands under `data`. If anything is left out, `hasMore` is true and `artifactRef` is where
    all of it is: in the store that is given, else in that of the server whose tool it is, else in the user's own. If it
    cannot be stored, `error` says why, and there is no reference.
    """
    if not isinstance(summary, str):
        raise InvalidArgument(f"summary is a line of text that says what came of it, not {short_repr(summary)}")
    check_flag("success", success)
    chosen = resolve_limits(category, limits)
    place = find_context(store)
    return build_response(
        data, lambda _: summary, success, place.tighten_limits(chosen), place, domain or category or "result"
    )


def build_response(
    data: Payload,
    summarize: Callable[[PayloadView], str],
    success: bool,
    limits: ResponseLimits,
    context: ResponseContext,
    domain: str,
    *,
    id: str = "result",  # noqa: A002
    mime_type: str | None = None,
    measure_envelope: Callable[[ResponseHead], int] = lambda _: ENVELOPE_BYTES,
    is_duplicated: bool = False,
) -> Response:
    """The response, where what is `around` it in its message is known.

    `is_twice`: whether a payload that is shown whole is in the message once more, unescaped.
    """
    format_artifact_name(domain, id)
    mime_type = mime_type or ("application/json" if needs_json_encoding(data) else None)
    payload = read_all(data)
    try:
        shown_as = apply_redactions(payload, context.redactions) if context.redactions else payload
        view = PayloadView(shown_as, limits, mime_type)
        summary = redact_text(summarize(view), context)
    except RedactionFailed as error:
        # Not even its size is shown.
        view = PayloadView(b"null", limits, "application/json")
        failed = {"summary": "", "success": success, "hasMore": True, "error": format_error(error)}
        return _finish_response(*_fit_response(failed, view, limits, measure_envelope, context.is_ascii))
    head: ResponseHead = {"summary": summary, "success": success}
    if view.count is not None:
        head["count"] = view.count
    told, shown_of_it = _fit_response(
        {**head, "hasMore": False}, view, limits, measure_envelope, context.is_ascii, is_duplicated=is_duplicated
    )
    if not view.is_complete(shown_of_it):
        where = _store_payload(context, domain, id, payload, mime_type)
        told, shown_of_it = _fit_response(
            {**head, "hasMore": True, **where}, view, limits, measure_envelope, context.is_ascii
        )
    return _finish_response(told, shown_of_it)


def _store_payload(
    context: ResponseContext, domain: str, id: str, payload: Buffer, mime_type: str | None
) -> ResponseHead:
    """Where all of it is, or why it is nowhere."""
    try:
        descriptor = put_artifact(context, domain, id, payload, mime_type)
    except ForebayError as error:
        return {"error": format_error(error)}
    found = {"artifactRef": make_reference(domain, id, descriptor.output_handle)}
    return found if context.fetch_with is None else {**found, "fetchWith": context.fetch_with}


def redact_text(text: str, context: ResponseContext) -> str:
    """A text without what must not be shown of it."""
    if not context.redactions:
        return text
    return apply_redactions(text.encode("utf-8", "replace"), context.redactions).decode("utf-8", "replace")


def format_error(error: ForebayError) -> dict[str, str]:
    """What went wrong, in a few words."""
    return {
        "code": error.code,
        "message": shorten_to_bytes(to_single_line(str(error), _MAX_ERROR_BYTES), _MAX_ERROR_BYTES),
    }


def _fit_response(
    head: ResponseHead,
    view: PayloadView,
    limits: ResponseLimits,
    measure_envelope: Callable[[ResponseHead], int],
    is_ascii: bool,
    *,
    is_duplicated: bool = False,
) -> tuple[ResponseHead, bytes]:
    """A head, and as much of the payload as there is room for beside it."""
    weight = functools.partial(escaped_size, escape_levels=1, is_ascii=is_ascii)

    def payload_weight(payload: bytes) -> int:
        return weight(payload) + (escaped_size(payload, 0, is_ascii=is_ascii) if is_duplicated else 0)

    for length in _SUMMARY_LENGTHS:
        told = {**head, "summary": to_single_line(head["summary"], length) or ("Done" if head["success"] else "Failed")}
        room = limits.max_bytes - measure_envelope(told) - weight(_dump_response(told, b""))
        if room >= _MIN_DATA_BYTES:
            break
    return told, find_largest(view.truncate, payload_weight, max(_MIN_DATA_BYTES, room))


def _dump_response(head: ResponseHead, payload: bytes) -> bytes:
    """A response as it is sent; the payload cannot take the place of anything that it says."""
    return orjson.dumps(head)[:-1] + b',"data":' + payload + b"}"


def _finish_response(head: ResponseHead, payload: bytes) -> Response:
    response = Response(_dump_response(head, payload).decode())
    record_response(response)
    return response
