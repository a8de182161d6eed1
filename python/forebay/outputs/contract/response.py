"""Contract responses: a summary, a success flag, as much of the payload as fits, and a reference to all of it."""

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
from forebay.store.payload import (
    Payload,
    detect_mime_type,
    escaped_size,
    is_json_mime_type,
    is_mostly_items,
    needs_json_encoding,
    read_all,
    skip_bom,
)
from forebay.store.redaction import apply_redactions

__all__ = [
    "ENVELOPE_BYTES",
    "PayloadView",
    "Response",
    "build_response",
    "find_largest_excerpt",
    "format_error",
    "make_default_summary",
    "redact_text",
    "wrap_response",
]

if TYPE_CHECKING:
    from forebay.store import Store

ENVELOPE_BYTES = 256
"""Bytes reserved for the message around a response, if its exact size is not known."""

_MAX_ERROR_BYTES = 256
"""Maximum bytes of an error message inside a response, after escaping."""

_SUMMARY_LENGTHS = (MAX_SUMMARY_LENGTH, 40, 10)
"""Summary lengths to try, in characters, until there is room for `data`."""

_MIN_DATA_BYTES = 32
"""Minimum bytes to leave for `data`: room for the smallest excerpt, even if every character is escaped."""

ResponseHead: TypeAlias = dict[str, Any]
"""The fields of a response without `data`."""

_MIN_EXCERPT_BYTES = 13
"""Smallest size to which `_core.truncate` can shorten any payload."""

_SLACK_BYTES = 64
"""Unused bytes of the budget that are accepted to save another pass over the payload."""

_MAX_COMPARED_BYTES = 1 << 18
"""Maximum bytes of a payload that is normalized to compare it with its excerpt."""

_STRING_OR_SPACE_PATTERN = re.compile(rb'("(?:[^"\\]|\\.)*")|[ \t\r\n]+', re.DOTALL)
_LONE_SURROGATE_PATTERN = re.compile(rb"(\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\[^u])|\\u[dD][89a-fA-F]..")
_SNIFFED_BYTES = 4096
"""Bytes read to detect the MIME type of a binary payload."""


class PayloadView:
    """A payload and size-limited excerpts of it."""

    def __init__(self, data: Buffer, limits: ResponseLimits, mime_type: str | None = None) -> None:
        self._data = data
        survey = _core.Survey(is_json_mime_type(mime_type))
        survey.feed(self._data)
        facts = survey.finish()
        self.nature = facts.nature
        self.size = memoryview(self._data).nbytes
        self.item_count = len(facts.items) if is_mostly_items(facts.items, self.size) else None
        """Number of items, or `None` if the payload is not mainly a list."""
        self.line_count = 0 if facts.lines is None else len(facts.lines)
        self._mime_type = mime_type
        self._limits = limits
        self._document = self._to_json()

    def _to_json(self) -> Buffer:
        if self.nature in ("json", "ndjson"):
            return skip_bom(self._data)
        if self.nature == "binary":
            head = bytes(memoryview(self._data)[:_SNIFFED_BYTES])
            return orjson.dumps(
                {"mimeType": self._mime_type or detect_mime_type("binary", head), "sizeBytes": self.size}
            )
        return self._to_line_lists() if self.is_log else orjson.dumps(self.read_start())

    @property
    def is_log(self) -> bool:
        """Whether the payload is a text long enough to be shown by its first and last lines."""
        is_short = self.size <= self._limits.max_string_length and self.line_count <= self._limits.max_log_lines
        return self.nature == "text" and self.line_count > 1 and not is_short

    def read_start(self) -> str:
        """Return the start of a text, or "" for a binary payload.

        Of a text longer than `max_string_length`, at least one character more is returned, so that `truncate` marks it
        as cut.
        """
        if self.nature == "binary":
            return ""
        return _core.read_text(self._data, 0, 4 * (self._limits.max_string_length + 1)).text

    def _to_line_lists(self) -> bytes:
        """Return the first and last lines as JSON, in two lists so that each keeps to `max_array_items`."""
        limits = self._limits
        head = min((limits.max_log_lines + 1) // 2, limits.max_array_items)
        tail = min(limits.max_log_lines // 2, limits.max_array_items)
        # Room for every line at its maximum length, so that none is dropped.
        max_bytes = (head + tail + 1) * (4 * (limits.max_string_length + 1) + _SLACK_BYTES)
        lines = _core.truncate_lines(self._data, head, tail, max_bytes=max_bytes).removesuffix("\n").split("\n")
        # If lines were left out, a marker line stands between head and tail.
        tail_start = head + 1 if self.line_count > head + tail else head
        return orjson.dumps({"head": lines[:head], "tail": lines[tail_start:], "lineCount": self.line_count})

    def truncate(self, max_bytes: int) -> bytes:
        """Return an excerpt of at most `max_bytes` of valid JSON."""
        limits = self._limits
        excerpt = _core.truncate(
            self._document,
            max_bytes=max(_MIN_EXCERPT_BYTES, max_bytes),
            max_array_items=limits.max_array_items,
            max_string_chars=limits.max_string_length,
            # The response around the payload takes one level of the depth.
            max_depth=limits.max_json_depth - 1,
        )
        return (
            _LONE_SURROGATE_PATTERN.sub(lambda match: match[1] or rb"\ufffd", excerpt) if b"\\u" in excerpt else excerpt
        )

    def is_complete(self, excerpt: bytes) -> bool:
        """Return whether the excerpt holds the whole payload; `False` if the payload is too large to compare."""
        match self.nature:
            case "binary":
                return False
            case "text":
                return self.size <= _MAX_COMPARED_BYTES and excerpt == orjson.dumps(bytes(self._data).decode())
        if excerpt == self._document:
            return True
        return self.size <= _MAX_COMPARED_BYTES and excerpt == self._strip_whitespace()

    def _strip_whitespace(self) -> bytes:
        data = bytes(self._document)
        if self.nature == "json":
            return _STRING_OR_SPACE_PATTERN.sub(_drop_white_space, data)
        rows = [_STRING_OR_SPACE_PATTERN.sub(_drop_white_space, row) for row in data.splitlines()]
        return b"[" + b",".join(row for row in rows if row) + b"]"


def _drop_white_space(token: re.Match[bytes]) -> bytes:
    return token[1] or b""


def find_largest_excerpt(truncate: Callable[[int], bytes], measure: Callable[[bytes], int], max_bytes: int) -> bytes:
    """Return nearly the largest excerpt whose measured size is at most `max_bytes`.

    The escaped size depends on the content: a quote takes two bytes. So each excerpt is measured, and its size gives
    the next guess.
    """
    low, high, best = _MIN_EXCERPT_BYTES, max_bytes + 1, truncate(_MIN_EXCERPT_BYTES)
    guess = max_bytes
    while low < guess < high and high - low > _SLACK_BYTES // 4:
        excerpt = truncate(guess)
        size = measure(excerpt)
        if size > max_bytes:
            high = guess
            guess = max((low + high) // 2, min(high - 1, guess * max_bytes // size))
        else:
            best, low = excerpt, guess
            if max_bytes - size <= _SLACK_BYTES:
                break
            guess = (low + high) // 2
    return best


class Response(str):
    """The JSON text of a response. A tool returns it, and an SDK sends it as a single text block."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the response as a dictionary."""
        fields: dict[str, Any] = json.loads(self)
        return fields


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
    """Return a response within its limits; a payload that does not fit is stored whole.

    As much of the payload as fits is under `data`. If anything is left out, `hasMore` is true and `artifactRef` refers
    to the whole payload: in the passed store, else in the store of the server that runs the tool, else in the user's
    default store. If storing fails, `error` says why and there is no reference.
    """
    if not isinstance(summary, str):
        raise InvalidArgument(f"summary is a line of text that says what came of it, not {short_repr(summary)}")
    check_flag("success", success)
    context = find_context(store)
    limits = context.tighten_limits(resolve_limits(category, limits))
    return build_response(data, lambda _: summary, success, limits, context, domain or category or "result")


def build_response(
    data: Payload,
    summarize: Callable[[PayloadView], str],
    success: bool,
    limits: ResponseLimits,
    context: ResponseContext,
    domain: str,
    *,
    artifact_id: str = "result",
    mime_type: str | None = None,
    measure_envelope: Callable[[ResponseHead], int] = lambda _: ENVELOPE_BYTES,
    is_repeated: bool = False,
) -> Response:
    """Return a response, and store the payload if it does not fit.

    `measure_envelope` gets the fields of the response, and returns the size of the message around it. `is_repeated`
    means that the response is also sent as `structuredContent`, where it is not escaped.
    """
    format_artifact_name(domain, artifact_id)
    mime_type = mime_type or ("application/json" if needs_json_encoding(data) else None)
    payload = read_all(data)
    try:
        redacted = apply_redactions(payload, context.redactions, mime_type) if context.redactions else payload
        view = PayloadView(redacted, limits, mime_type)
        summary = redact_text(summarize(view), context)
    except RedactionFailed as error:
        # The payload may hold secrets, so show nothing of it, not even its size.
        view = PayloadView(b"null", limits, "application/json")
        head = {"summary": "", "success": success, "hasMore": True, "error": format_error(error)}
        return _finish_response(*_fit_response(head, view, limits, measure_envelope, context.is_ascii))
    fields: ResponseHead = {"summary": summary, "success": success}
    if view.item_count is not None:
        fields["count"] = view.item_count
    head, excerpt = _fit_response(
        {**fields, "hasMore": False}, view, limits, measure_envelope, context.is_ascii, is_repeated=is_repeated
    )
    if not view.is_complete(excerpt):
        fields = {**fields, "hasMore": True, **_store_payload(context, domain, artifact_id, payload, mime_type)}
        head, excerpt = _fit_response(fields, view, limits, measure_envelope, context.is_ascii, is_repeated=is_repeated)
    return _finish_response(head, excerpt)


def _store_payload(
    context: ResponseContext, domain: str, artifact_id: str, payload: Buffer, mime_type: str | None
) -> ResponseHead:
    """Store the payload and return the fields that refer to it, or an `error` field if storing fails."""
    try:
        descriptor = put_artifact(context, domain, artifact_id, payload, mime_type)
    except ForebayError as error:
        return {"error": format_error(error)}
    fields = {"artifactRef": make_reference(domain, artifact_id, descriptor.output_handle)}
    return fields if context.fetch_with is None else {**fields, "fetchWith": context.fetch_with}


def make_default_summary(tool: str, view: PayloadView) -> str:
    """Return the summary of a tool's payload: the number of items, lines or bytes."""
    if view.item_count is not None:
        return f"{tool}: {view.item_count} items"
    match view.nature:
        case "text" if view.line_count > 1:
            return f"{tool}: {view.line_count} lines of text"
        case "binary":
            return f"{tool}: {view.size} bytes"
    return f"{tool}: done"


def redact_text(text: str, context: ResponseContext) -> str:
    """Apply the store's redactions to a text."""
    if not context.redactions:
        return text
    return apply_redactions(text.encode("utf-8", "replace"), context.redactions).decode("utf-8", "replace")


def format_error(error: ForebayError) -> dict[str, str]:
    """Return the code and a short message of an error, as they appear in a response."""
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
    is_repeated: bool = False,
) -> tuple[ResponseHead, bytes]:
    """Return the fields with a summary that fits, and the largest excerpt of the payload that fits beside them."""
    measure = functools.partial(escaped_size, escape_levels=1, is_ascii=is_ascii)

    def measure_excerpt(excerpt: bytes) -> int:
        repeated = b',"data":' + excerpt if is_repeated else b""
        return measure(excerpt) + escaped_size(repeated, 0, is_ascii=is_ascii)

    default_summary = "Done" if head["success"] else "Failed"
    for length in _SUMMARY_LENGTHS:
        fitted = {**head, "summary": to_single_line(head["summary"], length) or default_summary}
        remaining = limits.max_bytes - measure_envelope(fitted) - measure(_dump_response(fitted, b""))
        if remaining >= _MIN_DATA_BYTES:
            break
    return fitted, find_largest_excerpt(view.truncate, measure_excerpt, max(_MIN_DATA_BYTES, remaining))


def _dump_response(head: ResponseHead, excerpt: bytes) -> bytes:
    """Return the response as JSON; keys of the payload stay under `data` and cannot replace other fields."""
    return orjson.dumps(head)[:-1] + b',"data":' + excerpt + b"}"


def _finish_response(head: ResponseHead, excerpt: bytes) -> Response:
    response = Response(_dump_response(head, excerpt).decode())
    record_response(response)
    return response
