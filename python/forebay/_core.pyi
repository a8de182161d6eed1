"""The Rust core. Every function borrows its payload, releases the interpreter and returns a small result.

A payload is `bytes`, a read-only buffer (an `mmap` opened for reading, a read-only `memoryview`) or a `str`, which
stands for its UTF-8 bytes: CPython encodes one that is not ASCII on first use, and keeps both. Offsets and sizes are in
bytes unless a name says items, lines or chars.

The owner of a read-only buffer must not change it during a call: the result would be wrong, though never unsafe.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, final

from typing_extensions import Buffer

__version__: str

@final
class Span:
    """A byte range, `data[start:end]`, that contains the requested items completely."""

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def first(self) -> int:
        """Position of the item that starts at byte `start`. The first requested item follows within one block."""
    @property
    def count(self) -> int:
        """How many of the requested items exist."""

@final
class ItemIndex:
    """Locations of the items of a payload: one entry per 64 KiB block, whatever the size of the items."""

    @staticmethod
    def from_bytes(data: Buffer) -> ItemIndex:
        """Load an index that `to_bytes` wrote, from any buffer. Raise `CorruptIndex` for any other bytes."""
    def to_bytes(self) -> bytes:
        """Return the index in a form to store, a few bytes per entry."""
    def __reduce__(self) -> tuple[Callable[[Buffer], ItemIndex], tuple[bytes]]: ...
    def __len__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    @property
    def kind(self) -> Literal["array", "ndjson", "lines"] | None:
        """Kind of items: "array", "ndjson" or "lines"; `None` if the payload has no items."""
    @property
    def path(self) -> str | None:
        """JSON Pointer of the items' array; `""` for a top-level array and for NDJSON."""
    @property
    def start(self) -> int:
        """Offset of the array's opening bracket, or of the first line."""
    @property
    def end(self) -> int:
        """Offset after the array's closing bracket, or after the last line."""
    def span(self, offset: int, limit: int) -> Span:
        """Return a byte range that contains `limit` complete items, the first of which is item `offset`.

        The index only knows blocks, so the range may be larger than the items; `read_items` finds their exact bytes.
        """

@final
class ItemIndexer:
    """Indexer of a payload that arrives in pieces. The result does not depend on where it is cut.

    Threads may share an indexer. It takes a piece at a time, in the order in which the calls of `feed` acquire it; the
    other threads wait with the interpreter released. Once it has finished or failed, in any thread, both methods raise
    `InvalidArgument`.
    """

    def __new__(cls, path: str | None = None, *, validate: bool = True) -> ItemIndexer: ...
    def feed(self, data: Buffer | str) -> None:
        """Feed the next piece.

        Raise `InvalidJSON` within 64 bytes of the first invalid byte, since blocks are checked as a whole, or at the
        latest in `finish`. Nothing can be fed after an error.
        """
    def finish(self) -> ItemIndex:
        """Return the index of all pieces. Nothing can be fed after it."""

def index_items(data: Buffer | str, path: str | None = None, *, validate: bool = True) -> ItemIndex:
    """Index the items of a top-level array, of the array at `path` (a JSON Pointer), or of NDJSON.

    Without a `path`, the items of a document that is an object are those of its *main* array: of all arrays that object
    keys alone lead to, at most four keys deep, the one with the most bytes, and the first of equals. A deeper array
    needs a `path`. A key of more than 4096 bytes is not followed. A document without a main array has no items: its
    length is 0, `path` and `kind` are `None`.

    Where one object has equal keys, any of them may lead to the main array, while a `path` follows the first, as in
    `get` and `project`. `start` and `end` tell which array was indexed.

    Several values, one per line, are NDJSON: every value is an item, blank lines are not. Unlike that of `get`, a
    `path` does not lead into NDJSON.

    `validate=True` checks the whole payload against RFC 8259 and raises `InvalidJSON` with the first invalid byte.
    `validate=False` reads the structure only: what is not JSON gives some index or an error, but is never unsafe.
    """

def index_lines(data: Buffer | str) -> ItemIndex:
    """Index the lines of a text. Every line counts, blank or not; the last one needs no newline."""

@final
class Findings:
    """Result of a `Survey`: the type of a payload, and its indexes."""

    @property
    def nature(self) -> Literal["json", "ndjson", "text", "binary"]: ...
    @property
    def items(self) -> ItemIndex | None:
        """Index of its items, if it is JSON or NDJSON."""
    @property
    def lines(self) -> ItemIndex | None:
        """Index of its lines, unless it is binary."""

@final
class Survey:
    """Detector of the type of a payload that arrives in pieces. The result does not depend on where it is cut.

    `is_json` says whether to try JSON and NDJSON; `None` tries them only if the payload starts as an array or object,
    so that a lone number or word is text. Invalid JSON is text, and text that is not UTF-8 or contains a NUL is binary:
    neither is an error.
    """

    def __new__(cls, is_json: bool | None = None) -> Survey: ...
    def feed(self, data: Buffer | str) -> None:
        """Feed the next piece. Threads may share a survey."""
    def finish(self) -> Findings:
        """Return the result for all pieces. Nothing can be fed after it."""

def checksum(data: Buffer | str) -> int:
    """Return the XXH64 of `data`, the checksum of zstd: its frames end with the lower four bytes."""

@final
class Cut:
    """An item or line that exceeded the page's budget and was truncated."""

    @property
    def index(self) -> int:
        """Number of the item or line."""
    @property
    def size_bytes(self) -> int:
        """Its full size in bytes."""
    @property
    def byte_offset(self) -> int:
        """Where to continue reading: an item's first byte, or the byte after the shown part of a line."""

@final
class ItemPage:
    """A page of whole items within a byte budget."""

    @property
    def content(self) -> bytes:
        """A JSON array of the items, each copied verbatim."""
    @property
    def offset(self) -> int: ...
    @property
    def returned(self) -> int: ...
    @property
    def total(self) -> int: ...
    @property
    def next_offset(self) -> int | None:
        """Number of the item after the last one returned; `None` at the end."""
    @property
    def start(self) -> int:
        """Offset of the first item."""
    @property
    def end(self) -> int:
        """Offset of the byte after the last item."""
    @property
    def truncated(self) -> list[Cut]: ...

@final
class TextPage:
    """A page of whole characters within a byte budget."""

    @property
    def text(self) -> str: ...
    @property
    def start(self) -> int:
        """Offset of the text. A requested offset inside a character moves back to its first byte."""
    @property
    def end(self) -> int: ...
    @property
    def next_offset(self) -> int | None:
        """`end`; `None` at the end of the payload."""

@final
class LinePage:
    """A page of whole lines within a byte budget."""

    @property
    def text(self) -> str:
        """The lines, line ends included."""
    @property
    def offset(self) -> int: ...
    @property
    def returned(self) -> int: ...
    @property
    def total(self) -> int | None:
        """How many lines the payload has, if an index was given or the page is the last one."""
    @property
    def next_offset(self) -> int | None: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def truncated(self) -> list[Cut]: ...

@final
class Match:
    """A match of a pattern."""

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def line(self) -> int | None:
        """Number of the line it starts in, from 0; `None` if an item index was given."""
    @property
    def item(self) -> int | None:
        """Number of the item it starts in; `None` without an item index, or outside the items."""
    @property
    def context(self) -> str | None:
        """Whole characters around and including the match; `None` if the match is not text."""
    @property
    def context_start(self) -> int:
        """Offset of the context's first byte."""

@final
class SearchResult:
    """A page of matches."""

    @property
    def matches(self) -> list[Match]: ...
    @property
    def next_start(self) -> int | None:
        """The `start` of the next page; `None` if the payload was searched to its end."""

def preview(
    data: Buffer | str,
    max_bytes: int = 2048,
    *,
    max_escaped_bytes: int | None = None,
    escape_levels: int = 1,
) -> str | None:
    """Return the longest whole prefix of at most `max_bytes`; `None` for binary data.

    Whole: not cut inside a UTF-8 sequence, a JSON escape or an escaped surrogate pair, nor inside a grapheme cluster
    where avoiding that costs at most 64 bytes. `max_escaped_bytes` also bounds the prefix once it is JSON-escaped
    `escape_levels` times (1 or 2), without the quotes around it. There is no smallest budget: if not even one character
    fits, the preview is `""`.

    Binary: the bytes within the budget are not UTF-8, or contain a NUL.
    """

def read_items(
    data: Buffer | str,
    index: ItemIndex,
    offset: int = 0,
    limit: int = 200,
    max_bytes: int = 65536,
    *,
    last: int | None = None,
    base: int = 0,
) -> ItemPage:
    """Return whole items from number `offset` on, at most `limit`, as a JSON array of at most `max_bytes`.

    `last=n` replaces `offset` and `limit`: the page starts at the n-th item from the end, and if the last n do not fit,
    `next_offset` continues with the rest. `data` may be a part of the payload that starts at byte `base` and contains
    at least `index.span(offset, limit)`. An item that alone exceeds the budget is truncated, returned alone, and listed
    in `truncated`. A budget under 15 is rejected.

    The index must be that of this payload. With another one, the function raises `CorruptIndex` where that shows, and
    returns a wrong page where it does not.
    """

def read_text(
    data: Buffer | str, offset: int = 0, max_bytes: int = 65536, *, last: int | None = None, escape_levels: int = 0
) -> TextPage:
    """Return text from byte `offset` on that takes at most `max_bytes` once escaped.

    `escape_levels` is how many times the text will be JSON-escaped: 0, 1 or 2. `last=n` replaces `offset`: the page
    starts at the n-th byte from the end, or at the first character after it. If the last n bytes do not fit,
    `next_offset` is where the next page starts. `max_bytes` must have room for any single character: at least 4 bytes,
    or 6 and 7 with one and two escape levels. Raise `InvalidText` if the text is not UTF-8.
    """

def read_lines(
    data: Buffer | str,
    offset: int = 0,
    limit: int = 200,
    max_bytes: int = 65536,
    *,
    last: int | None = None,
    index: ItemIndex | None = None,
    escape_levels: int = 0,
) -> LinePage:
    """Return whole lines from number `offset` on, at most `limit`, that take at most `max_bytes` once escaped.

    `escape_levels` is how many times they will be JSON-escaped: 0, 1 or 2. `last=n` replaces `offset` and `limit`: the
    page starts at the n-th line from the end, and if the last n do not fit, `next_offset` continues with the rest. The
    smallest budgets are those of `read_text`.

    With an index (`index_lines`) the cost does not depend on `offset`. A line that alone exceeds the budget is cut,
    returned alone, and listed in `truncated` with the byte from which `read_text` continues.
    """

def truncate(
    data: Buffer | str,
    *,
    max_bytes: int = 10240,
    max_array_items: int = 10,
    max_string_chars: int = 500,
    max_depth: int = 4,
    max_object_keys: int = 100,
) -> bytes:
    """Return an overview of a JSON document: valid JSON, never longer than `max_bytes`.

    Arrays over the limit become `{"items": […], "totalCount": n, "showing": k}`, strings over theirs end in `...`, and
    what is deeper than `max_depth` (the root has depth 0) becomes `"[truncated]"`. Keys left out of an object are
    counted by a last member whose key is `...`, or more dots if another key is dots. Keys and numbers of up to 64
    characters are never cut, however small `max_string_chars` is. Of keys that are cut to the same text all but the
    first are left out, so that distinct keys stay distinct. Several values, one per line, are NDJSON, and count as the
    items of an array.

    If the limits alone do not fit the budget, shallow values come before deep ones, and every sibling before more of
    one: containers appear closed and strings short until all of a level has appeared. Then they open in turn, the first
    item of an array before the others, as their example. A larger budget never shows less.

    Raise `InvalidArgument` if `max_bytes` is too small for any answer (13 always suffice) or `max_depth` is more than
    64, `InvalidJSON` if what is shown is not JSON or the payload ends too early. What is left out is not validated: a
    mismatched bracket in a part that is not shown is not noticed.
    """

def truncate_lines(data: Buffer | str, head: int = 10, tail: int = 10, *, max_bytes: int = 10240) -> str:
    """Return the first and last lines of a text, with a note between them, in at most `max_bytes`.

    The note is `[... 1,234 lines left out ...]`. If the lines do not fit, those over an equal share of the budget are
    cut and end in `[... 1,234 bytes left out ...]`. If there are less than 64 bytes per line, lines are left out from
    the middle. A budget under 64 is rejected.
    """

def outline(data: Buffer | str, max_bytes: int = 512) -> str:
    """Return the shape of a JSON document in one line, e.g. `{statuses: [{id: int, place?: {…}}] ×100}`.

    `int`, `float`, `str`, `bool` and `null` are joined by `|` where several occur; integers among floats are floats.
    `key?` is missing from some objects. `[T] ×100` is an array of 100 items, `×0-3` stands for arrays of none to three.
    `{<138586341>: T} ×184` is a map of 184 keys such as this one: keys that are ids, or more than 20 keys (100 for
    scalars) with values of one shape. A key that is not a plain word is quoted as JSON, a long one is cut.
    `ndjson [T] ×n` stands for n values, one per line.

    The first 100 items of an array are merged, or fewer of very large ones, and the rest is only counted. Arrays inside
    items that were not merged are not part of a range such as `×0-3`. `…` stands for what did not fit into `max_bytes`
    (at least 8): keys are revealed level by level and in turns among siblings, and a larger budget never shows less.
    What is deeper than 32 levels is shown as `{…}` or `[…]`.

    Only the values that are merged are validated.
    """

def get(data: Buffer | str, pointer: str) -> bytes:
    """Return the value at a JSON Pointer (`/users/0/name`), copied verbatim.

    Raise `PathNotFound` if there is none. `""` is the whole payload, without white space around it. Of equal keys the
    first one counts. In NDJSON the first token is the number of a value. Reading stops after the value. The value is
    validated, but nothing that was skipped on the way to it.
    """

def locate(data: Buffer | str, pointer: str) -> tuple[int, int]:
    """Return the span of the value that `get` returns: it is `data[start:end]`."""

def project(data: Buffer | str, fields: Iterable[str]) -> bytes:
    r"""Return the items of an array, an object or NDJSON with the named fields only.

    A field is a path of at most 64 keys joined by dots (`user.name`; `\.` is a dot in a key, `\\` a backslash). One
    that starts with a slash matches both as a JSON Pointer (`/user/name`) and as a key of exactly this spelling. Arrays
    on the way are mapped over, so a path has no numbers for them. The shape stays: `user.name` gives
    `{"user": {"name": …}}`. Fields that an item lacks are left out; an item that is not an object becomes `null`, so
    that the number of items stays. Keys keep the payload's order, of equal keys the first one counts, and values are
    copied verbatim. NDJSON gives NDJSON. What is returned is validated, what is left out is not.
    """

def has_fields(data: Buffer | str, fields: Iterable[str]) -> bool:
    """Return whether any item has any of the fields that `project` would keep."""

def search(
    data: Buffer | str,
    pattern: str,
    *,
    regex: bool = False,
    ignore_case: bool = False,
    start: int = 0,
    limit: int = 50,
    context: int = 80,
    index: ItemIndex | None = None,
) -> SearchResult:
    r"""Find a literal or a regular expression, a page of `limit` matches at a time.

    Matches do not overlap, and empty ones are not reported. Following `next_start` gives exactly the matches of one
    unlimited search.

    Finding the next match takes at most linear time in the payload, whatever the pattern. Every match of a page may
    cost such a pass, so patterns like `.*x|A` are slow on one long line: keep `limit` small for untrusted patterns.

    Expressions have the syntax of Rust's `regex`: no back-references or look-around. `^` and `$` match at the start and
    end of every line, as with `re.MULTILINE`; `$` does not match before `\r\n`. `\w`, `\d`, `\s` and `\b` are ASCII, as
    in Python's patterns over bytes; `.`, `\W` and sets match whole characters, `\p{…}` knows Unicode. `ignore_case`
    folds by Unicode, for literals too. Raise `InvalidPattern` if the pattern does not compile, compiles to something
    too large, or repeats a part that can match nothing (`(?:a*)*`).

    `context` is how many bytes of text to show on either side: whole characters, never half a JSON escape, nothing
    beyond a byte that is not UTF-8. Of a match of more than 256 bytes only the first 256 are shown.
    """

@final
class Unescaper:
    """Decoder like `unescape`, for content that arrives in pieces, cut anywhere."""

    def __new__(cls) -> Unescaper: ...
    def push(self, piece: Buffer | str) -> bytes:
        """Decode the next piece, except for an incomplete escape at its end."""
    def finish(self) -> bytes:
        """Return the incomplete escape that is left, if there is one."""

def dissect(
    part: tuple[Buffer | str, int, int],
    token: str,
    *,
    max_string_bytes: int = 1024,
    max_container_bytes: int = 8192,
    max_depth: int = 64,
) -> tuple[bytes, list[tuple[int, int]]]:
    """Split a message into a skeleton, in which hole `n` is the string `token:n`, and the spans of its holes.

    A part is a buffer or, as a `str`, the path of a file, and where the message starts and ends in it. A hole is a
    string or container that is larger than allowed, a number that would change if it were parsed and written again, or
    a string that is not text. `token` must be unpredictable for the author of the message. Raise `InvalidJSON` if the
    part is not one JSON value.
    """

def unescape(content: Buffer | str) -> bytes:
    """Decode the content of a JSON string, given without its quotes.

    A lone surrogate becomes three bytes, as in WTF-8; unknown escapes are copied unchanged.
    """

def same_text(one: tuple[Buffer | str, int, int], other: tuple[Buffer | str, int, int]) -> bool:
    """Return whether two values are strings with the same decoded text."""

def same_json(text: tuple[Buffer | str, int, int], value: tuple[Buffer | str, int, int]) -> bool:
    """Return whether the decoded string `text` is JSON that equals `value` token by token.

    White space between tokens and the escaping of characters in strings do not matter.
    """

def texts_match_items(content: tuple[Buffer | str, int, int], items: tuple[Buffer | str, int, int]) -> bool:
    """Return whether each text of `content` equals its item of `items`, or is JSON that does.

    `content` must be an array of `{"type": "text", "text": ...}` without other members, `items` one of as many values.
    """

def members(part: tuple[Buffer | str, int, int], names: Sequence[str]) -> list[tuple[int, int] | None]:
    """Return the spans of the values of the named members, in the order of `names`.

    If a key is repeated, the last one counts. A value that is not an object has no members. Raise `InvalidJSON` if the
    object has no end.
    """

def only_member(part: tuple[Buffer | str, int, int], name: str) -> tuple[int, int] | None:
    """Return the span of the value of an object's only member, if its key is `name`."""
