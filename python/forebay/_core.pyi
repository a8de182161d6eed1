"""The Rust core. Every function borrows its payload, releases the interpreter and returns a small result.

A payload is `bytes`, a read-only buffer (an `mmap` opened for reading, a read-only `memoryview`) or a `str`, which
is read as UTF-8. (On first use, CPython encodes a `str` that is not ASCII and keeps the encoded bytes as long as the
`str`.) Offsets and sizes are in bytes unless a name says items, lines or chars.

The memory behind a read-only buffer must not change during a call: the result would be wrong, though never unsafe.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, final

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
        """Number of the item that starts at byte `start`. The first requested item is this one or a later one."""
    @property
    def count(self) -> int:
        """How many of the requested items exist."""

@final
class Chunk:
    """A part of a payload, `data[start:end]`, that holds whole items: some blocks of its index."""

    @property
    def start(self) -> int:
        """Offset of the first byte, which begins an item."""
    @property
    def end(self) -> int: ...
    @property
    def first(self) -> int:
        """Number of the first item."""
    @property
    def count(self) -> int:
        """How many items the chunk holds."""
    @property
    def block(self) -> int:
        """Number of the first block."""
    @property
    def block_count(self) -> int:
        """How many blocks the chunk has."""

@final
class ItemIndex:
    """Locations of the items of a payload: one entry per 64 KiB block, whatever the size of the items."""

    @staticmethod
    def from_bytes(data: Buffer) -> ItemIndex:
        """Load an index that `to_bytes` wrote. Raise `CorruptIndex` for any other bytes."""
    def to_bytes(self) -> bytes:
        """Return the index as bytes, a few per entry."""
    def __reduce__(self) -> tuple[Callable[[Buffer], ItemIndex], tuple[bytes]]: ...
    def __len__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    @property
    def kind(self) -> Literal["array", "map", "ndjson", "lines", "csv", "tsv"] | None:
        """Kind of items: "array", "map", "ndjson", "lines", "csv" or "tsv"; `None` if the payload has no items."""
    @property
    def columns(self) -> list[str] | None:
        """Names of the columns, which are the keys of each item; `None` unless the items are rows of CSV or TSV."""
    @property
    def path(self) -> str | None:
        """JSON Pointer of the items' array or map; `""` if it is the whole document, and for NDJSON and rows."""
    @property
    def start(self) -> int:
        """Offset of the array's or map's opening bracket, or of the first line; 0 for rows."""
    @property
    def end(self) -> int:
        """Offset after the array's or map's closing bracket, or after the last line."""
    def span(self, offset: int, limit: int) -> Span:
        """Return a byte range that contains `limit` complete items, the first of which is item `offset`.

        The index only knows blocks, so the range may be larger than the items; `read_items` finds their exact bytes.
        """
    def chunk(self, block: int, max_bytes: int) -> Chunk | None:
        """Return the chunk that begins with block number `block`, or `None` after the last block.

        It has as many blocks as fit into `max_bytes`, but at least one. A block is about 64 KiB, or as large as its
        last item.
        """

@final
class ItemIndexer:
    """Indexer of a payload that arrives in pieces. The result does not depend on how the payload is cut.

    Threads may share an indexer. It processes one piece at a time, and other threads wait with the interpreter
    released. After `finish` or an error, in any thread, both methods raise `InvalidArgument`.
    """

    def __new__(cls, path: str | None = None, *, validate: bool = True) -> ItemIndexer: ...
    def feed(self, data: Buffer | str) -> None:
        """Index the next piece of the payload.

        Raise `InvalidJSON` for invalid JSON. Bytes are checked in blocks of 64, so the error may come with a later
        piece or with `finish`.
        """
    def finish(self) -> ItemIndex:
        """Return the index of all pieces. After this, `feed` raises `InvalidArgument`."""

def index_items(data: Buffer | str, path: str | None = None, *, validate: bool = True) -> ItemIndex:
    """Index the items of a top-level array, of the array or object at `path` (a JSON Pointer), or of NDJSON.

    Without a `path`, the items are those of the document's *main* collection: the one with the most bytes, or the first
    of several, among those that are at most four object keys deep and not inside an array. A collection is an array, or
    a map of like values: an object that has no collection inside with more than half of its bytes, and whose first 8
    values are objects with similar keys (on average at least a quarter of all their keys together), or the first 32
    arrays, or the first 100 scalars of one type. Nulls are not counted, and of each value the first 32 keys are
    compared. Any other array or object needs a `path`. A key of more than 4096 bytes is not followed. A document
    without a main collection has no items: the length of the index is 0, `path` and `kind` are `None`.

    If a key is repeated in an object, each of its values may hold the main collection, but a `path` follows the first
    value, as in `get` and `project`. `start` and `end` of the index tell which one was indexed.

    Several values, one per line, are NDJSON: every value is an item, and blank lines are ignored. Unlike in `get`, a
    `path` cannot lead into NDJSON.

    `validate=True` checks the whole payload against RFC 8259 and raises `InvalidJSON` with the first invalid byte. For
    more than 8 MB it takes two threads, if there is a second processor; the result does not depend on it.
    `validate=False` only reads the structure: invalid JSON gives a wrong index or an error, but is never unsafe.
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
        """Index of the payload's items; `None` unless it is JSON, NDJSON, or text with rows."""
    @property
    def lines(self) -> ItemIndex | None:
        """Index of the payload's lines; `None` if it is binary."""

@final
class Survey:
    """Detector of the type of a payload that arrives in pieces. The result does not depend on how the payload is cut.

    `is_json` says whether to try JSON and NDJSON; `None` tries them only if the payload starts like an array or object,
    so that a single number or word is text. Nothing is an error: invalid JSON is text, and a payload that is not UTF-8
    or contains a NUL is binary.

    `rows` says that text is CSV or TSV, whose items are its rows. Rows are read as by Python's `csv` module. The first
    one is the header; if it takes more than 64 KiB, there are no items.
    """

    def __new__(cls, is_json: bool | None = None, rows: Literal["csv", "tsv"] | None = None) -> Survey: ...
    def feed(self, data: Buffer | str) -> None:
        """Examine the next piece of the payload. Threads may share a survey."""
    def finish(self) -> Findings:
        """Return the result for all pieces. After this, `feed` raises `InvalidArgument`."""

def checksum(data: Buffer | str) -> int:
    """Return the XXH64 checksum of `data`. A zstd frame ends with the lower four bytes of it."""

def build_footer(
    metadata: bytes, items: ItemIndex | None, lines: ItemIndex | None, frames: Sequence[tuple[int, int, int]]
) -> bytes:
    """Return the footer of a stored file.

    The metadata is JSON. An entry of `frames` is the stored size of a frame, the payload bytes in it, and its checksum.
    """

def parse_footer(
    tail: bytes, file_bytes: int
) -> int | tuple[bytes, ItemIndex | None, ItemIndex | None, list[tuple[int, int, int]]]:
    """Parse the footer of a file of `file_bytes`, which ends with `tail`.

    Return the arguments of `build_footer` or, if `tail` is too short, how many bytes the footer takes. Raise
    `CorruptIndex` if the footer is damaged. The metadata is not examined.
    """

@final
class Cut:
    """An item or line that exceeded the page's budget and was truncated."""

    @property
    def index(self) -> int:
        """Number of the item or line."""
    @property
    def size_bytes(self) -> int:
        """Full size of the item or line in bytes; of an entry of a map, the size of its value."""
    @property
    def byte_offset(self) -> int:
        """Offset to continue reading at: an item's first byte, or the byte after the shown part of a line.

        Of an entry of a map, it is the first byte of the value.
        """

@final
class ItemPage:
    """A page of whole items within a byte budget."""

    @property
    def content(self) -> bytes:
        """A JSON array of the items, each copied verbatim. A row of CSV or TSV is an object of strings.

        An entry of a map is its value with the key as a first member `_key`. If the value is not an object, or has a
        member `_key` itself, the item is `{"_key": …, "_value": …}`.
        """
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
    @property
    def truncated_key(self) -> str | None:
        """Key of the truncated item, if it is an entry of a map and its key is text (has no lone surrogate)."""

@final
class TextPage:
    """A page of whole characters within a byte budget."""

    @property
    def text(self) -> str: ...
    @property
    def start(self) -> int:
        """Offset of the text. A requested offset inside a character moves back to the character's first byte."""
    @property
    def end(self) -> int: ...
    @property
    def next_offset(self) -> int | None:
        """The same as `end`, or `None` at the end of the payload."""

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
        """Number of lines in the payload; `None` without an index, unless the page is the last one."""
    @property
    def next_offset(self) -> int | None: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def truncated(self) -> list[Cut]: ...

@final
class Feed:
    """Writer of items as lines of JSON for DuckDB.

    Only the fields on these paths are kept; `None` keeps all fields. A name alone is the path of a whole field, and a
    longer path that of a member. Names are compared without regard to case. Of a field that has only paths of members,
    only these members are kept, if it is a struct that has all of them. Chunks may be written in several threads.
    """

    def __new__(cls, paths: Sequence[Sequence[str]] | None = None) -> Feed: ...
    def write(self, data: Buffer | str, index: ItemIndex, offset: int) -> bytes:
        """Return the lines of a chunk's items, the first of which is item `offset`.

        Raise `InvalidArgument` if the items have too many different keys for a table.
        """
    def finish(self, index: ItemIndex) -> list[tuple[str, str, str, str]] | None:
        """Return name, type, key and read type of each column; `None` if all chunks must be written again.

        The key is that in the lines. A column is read with its read type, and then cast to its type. The columns are in
        the order in which they first occur. All chunks are written again if a column needs its values as strings; then
        call `finish` again.
        """
    def skipped(self) -> list[str] | None:
        """Return the names of the fields that were not kept, in lower case; `None` if there were too many."""

@final
class Redactor:
    """Regular expressions whose matches are replaced by `[redacted]`.

    The syntax is that of `search`. Raise `InvalidPattern` for an expression that does not compile.
    """

    def __new__(cls, patterns: Sequence[str]) -> Redactor: ...
    def redact(self, data: Buffer | str, rows: Literal["csv", "tsv"] | None = None) -> bytes | None:
        """Return a payload without its secrets, or `None` if it has none.

        The expressions see each text of the payload: all of it, or in JSON each string and number, with its escapes
        decoded. A text that is itself JSON, or base64 of text, is searched by its own texts. What was JSON stays JSON.

        An expression that extends over a key and its value, such as `"password": "[^"]*"`, is matched against the JSON
        as it is written; both are replaced then.

        With `rows` the expressions see the cells of CSV or TSV, header included, as texts instead, and each row as a
        JSON object: a match over a key and its value replaces the cell, but not the name of its column. A cell that
        changes is quoted where it must be, so that the rows and columns stay.
        """

@final
class Match:
    """A match of a pattern."""

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def line(self) -> int | None:
        """Number of the line in which the match starts, from 0; `None` if an item index was given."""
    @property
    def item(self) -> int | None:
        """Number of the item in which the match starts; `None` without an item index, or outside the items."""
    @property
    def path(self) -> str | None:
        """JSON Pointer of the value in which the match starts.

        `None` without `paths`, outside of all values, or if it would cost too much to find.
        """
    @property
    def context(self) -> str | None:
        """The match and the text around it, in whole characters and within its item; `None` if it is not text."""
    @property
    def context_start(self) -> int:
        """Offset of the context's first byte."""

@final
class SearchResult:
    """A page of matches."""

    @property
    def matches(self) -> list[Match]: ...
    @property
    def next_offset(self) -> int | None:
        """The `offset` of the next page; `None` if the payload was searched to its end."""

@final
class MatchCount:
    """Number of matches in a payload."""

    @property
    def matches(self) -> int: ...
    @property
    def items(self) -> int | None:
        """How many items have a match that begins in them; `None` without an item index."""
    @property
    def is_complete(self) -> bool:
        """Whether all of the payload was searched. If not, there may be more matches."""

@final
class LiteralCounter:
    """Counter of a literal in a payload that arrives in pieces. A piece may end anywhere, even inside a match."""

    def __new__(cls, pattern: str) -> LiteralCounter: ...
    def feed(self, data: Buffer | str) -> None:
        """Count the matches that end in the next piece."""
    @property
    def matches(self) -> int:
        """How many matches there are in all pieces."""

def preview(
    data: Buffer | str,
    max_bytes: int = 2048,
    *,
    max_escaped_bytes: int | None = None,
    escape_levels: int = 1,
    whole: Literal["lines", "csv", "tsv"] | None = None,
) -> str | None:
    """Return the longest whole prefix of at most `max_bytes`; `None` for binary data.

    "Whole" means not cut inside a UTF-8 sequence, a JSON escape or an escaped surrogate pair. A grapheme cluster is not
    cut either, unless that would make the prefix more than 64 bytes shorter. `max_escaped_bytes` also limits the size
    of the prefix after JSON-escaping it `escape_levels` times (1 or 2), without the quotes around it. If not even one
    character fits, the preview is `""`.

    With `whole`, the prefix ends after a whole line, or a whole row of CSV or TSV, without the line break. It ends
    inside a line if whole lines would fill less than half of it.

    "Binary" means that the bytes within the budget are not UTF-8, or contain a NUL.
    """

def preview_items(
    data: Buffer | str,
    items_start: int | None,
    max_bytes: int = 2048,
    *,
    max_escaped_bytes: int | None = None,
    escape_levels: int = 1,
    or_all: bool = False,
) -> tuple[str, int | None]:
    """Return a preview of a document with items, as many whole items from the first on as fit, and their number.

    The items are those of the array or object at byte `items_start`, or the lines of NDJSON if that is `None`. An item
    that alone does not fit is truncated as by `truncate`. The members of the objects around the items stay beside them,
    scalars first, each truncated to 96 bytes; all of them take at most half of the budget, and those left out are
    counted by a last member with the key `...`. The preview is valid JSON (or NDJSON), or `""` if nothing fits. For the
    budgets see `preview`.

    With `or_all`, a document that fits is its own preview, as it is; then the number is `None`.
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

    `last=n` replaces `offset` and `limit`: the page starts at the n-th item from the end. If the last n items do not
    fit, `next_offset` is the number of the first item that is left. `data` may be a part of the payload that starts at
    byte `base` and contains at least `index.span(offset, limit)`. An item that alone exceeds the budget is truncated,
    returned alone, and listed in `truncated`. A budget under 15 is rejected.

    The index must belong to this payload. Another index raises `CorruptIndex` if the difference is noticed; if not, the
    page is wrong.
    """

def escaped_size(data: Buffer | str, escape_levels: int) -> int:
    """Return the size of a text after it was JSON-escaped `escape_levels` times, without the quotes around it.

    `escape_levels` is 0, 1 or 2.
    """

def read_text(
    data: Buffer | str, offset: int = 0, max_bytes: int = 65536, *, last: int | None = None, escape_levels: int = 0
) -> TextPage:
    """Return text from byte `offset` on that takes at most `max_bytes` once escaped.

    `escape_levels` is how many times the text will be JSON-escaped: 0, 1 or 2. `last=n` replaces `offset`: the page
    starts at the n-th byte from the end. If that byte is in the middle of a character, the page starts after the
    character. If the last n bytes do not fit, `next_offset` is where the next page starts. `max_bytes` must be enough
    for any single character: at least 4, or 6 with one escape level, or 7 with two. Raise `InvalidText` if the text is
    not UTF-8.
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

    `escape_levels` is how many times the lines will be JSON-escaped: 0, 1 or 2. `last=n` replaces `offset` and `limit`:
    the page starts at the n-th line from the end. If the last n lines do not fit, `next_offset` is the number of the
    first line that is left. The minimum of `max_bytes` is the same as for `read_text`.

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

    An array with too many items becomes `{"items": […], "totalCount": n, "showing": k}`, a long string ends in `...`,
    and a value deeper than `max_depth` (the root has depth 0) becomes `"[truncated]"` unless it is as short as that and
    within the other limits. If members of an object are left out, a last member `"...": n` counts them; its key has
    more dots if the object has a key `...` itself. Keys and numbers of up to 64 characters are never cut, even if
    `max_string_chars` is smaller. If several keys are cut to the same text, only the first is shown. Several values,
    one per line, are NDJSON, and count as the items of an array.

    If the result is still larger than `max_bytes`, shallow values are shown before deep ones. All values of a level
    appear before any of them is shown in more detail: containers first appear closed (`{"...": 3}`), strings short.
    Then containers are opened in turn, the first item of an array before the others. A larger budget never shows less.

    Raise `InvalidArgument` if `max_bytes` is too small for the result (13 is always enough) or `max_depth` is more than
    64. Raise `InvalidJSON` if a part that is shown is not JSON, or the payload ends too early. Other parts are not
    validated: a wrong bracket in them is not noticed.
    """

def truncate_lines(data: Buffer | str, head: int = 10, tail: int = 10, *, max_bytes: int = 10240) -> str:
    """Return the first and last lines of a text, with a note between them, in at most `max_bytes`.

    The note is `[... 1,234 lines left out ...]`. If the lines do not fit, every line that is longer than an equal share
    of the budget is cut and ends in `[... 1,234 bytes left out ...]`. If there are less than 64 bytes per line, lines
    are left out from the middle. A budget under 64 is rejected.
    """

def outline(data: Buffer | str, max_bytes: int = 512, *, items: ItemIndex | tuple[int, int] | None = None) -> str:
    """Return the shape of a JSON document in one line, e.g. `{statuses: [{id: int, place?: {…}}] ×100}`.

    `int`, `float`, `str`, `bool` and `null` are joined by `|` where several occur; integers among floats are floats.
    `key?` marks a key that some objects lack. `[T] ×100` is an array of 100 items, `×0-3` stands for arrays of none to
    three. `{<138586341>: T} ×184` is a map of 184 keys such as `138586341`: an object whose keys are ids, or that has
    many keys with values of one shape: 8 if they are objects, 21 if arrays, 100 if scalars. A key that is not a plain
    word is quoted as JSON, a long key is cut. `ndjson [T] ×n` stands for n values, one per line.

    The shapes of the first 100 items of an array are merged, or of fewer if they are very large. Other items are only
    counted, and do not contribute to ranges such as `×0-3`. `…` stands for parts that did not fit into `max_bytes` (at
    least 8): keys are added level by level and in turns among siblings, and a larger budget never shows less. Values
    deeper than 32 levels are shown as `{…}` or `[…]`.

    With `items`, the index of valid `data`, the other indexed items are not even read, and `data` may start with a byte
    order mark. If `data` has only the first items of an array or map, `items` is its start and its number of items.

    Only the values that are merged are validated.
    """

def get(data: Buffer | str, pointer: str) -> bytes:
    """Return the value at a JSON Pointer (`/users/0/name`), copied verbatim.

    Raise `PathNotFound` if there is no value. `""` is the whole payload, without white space around it. If a key is
    repeated, the first one counts. In NDJSON the first token of the pointer is the number of a value. Reading stops
    after the value. Only the value is validated, not the bytes before it.
    """

def locate(data: Buffer | str, pointer: str) -> tuple[int, int]:
    """Return the span of the value that `get` returns, `data[start:end]`."""

def patch(data: Buffer | str, operations: list[Any] | Buffer | str, *, max_bytes: int = ...) -> bytes:
    """Return a JSON document with the operations of a JSON Patch (RFC 6902) applied to it.

    The operations are a list such as `[{"op": "replace", "path": "/title", "value": "New"}]`, or that list as JSON. An
    `op` is `add`, `remove`, `replace`, `move`, `copy` or `test`. Whatever they do not name keeps its bytes: order of
    keys, spelling of numbers, white space. A new member or item is spaced like its neighbours. `test` compares
    numbers by their exact value. If a key is repeated, the first one counts, and a change of it removes the others.

    Raise `InvalidArgument` for a malformed patch or more than 1,000 operations, and `PatchFailed` if an operation does
    not fit the document or makes it larger than `max_bytes` (1 GiB). Then no operation was applied.
    """

def to_ndjson(items: Buffer | str) -> bytes:
    """Return the items of a JSON array as NDJSON. An item that has line breaks is written without white space."""

def csv_columns(items: Buffer | str, limit: int) -> list[str]:
    """Return the keys of the objects in a JSON array, each once, in the order in which they are first seen.

    Items that are not objects have the key `_value`. Raise `InvalidArgument` for more than `limit` keys.
    """

def to_csv(items: Buffer | str, columns: Sequence[str]) -> bytes:
    """Return the items of a JSON array as rows of CSV with these columns, without a header.

    Texts are decoded, numbers are as they were spelled, nested values are JSON. A null or missing field is empty, and
    an empty text is `""`. If a key is repeated, the first one counts. A lone surrogate becomes U+FFFD.
    """

def name_rows(rows: Buffer | str, names: Sequence[str], max_bytes: int) -> bytes:
    """Return rows, a JSON array of arrays, as a JSON array of objects with these names as keys.

    Raise `InvalidArgument` if that takes more than `max_bytes`.
    """

def project(data: Buffer | str, fields: Iterable[str]) -> bytes:
    r"""Return the items of an array, an object or NDJSON with the named fields only.

    A field is a path of at most 64 keys joined by dots (`user.name`; `\.` is a dot in a key, `\\` a backslash). A field
    that starts with a slash is read both as a JSON Pointer (`/user/name`) and as a single key. A path applies to every
    item of an array that it passes through, so it contains no array indexes. Nesting is kept: `user.name` gives
    `{"user": {"name": …}}`. Fields that an item does not have are left out; an item that is not an object becomes
    `null`, so that the number of items stays the same. Keys keep the order of the payload, and if a key is repeated,
    the first one counts. Values are copied verbatim. The result of NDJSON is NDJSON. Only the returned values are
    validated.
    """

def has_fields(data: Buffer | str, fields: Iterable[str]) -> bool:
    """Return whether any item has any of the fields that `project` would keep."""

@final
class Selection:
    """Items of a chunk that match a filter."""

    @property
    def content(self) -> bytes:
        """A JSON array of the items. A row of CSV or TSV is an object of strings."""
    @property
    def numbers(self) -> list[int]:
        """The number of each item."""

@final
class Filter:
    """Conditions on the fields of an item, from a JSON object. Threads may share a filter.

    `{"status": "failed", "customer.country": {"in": ["DE", "FR"]}, "total": {">": 200, "<=": 500}}`: all conditions
    must hold. A field is named as in `project`. Arrays on the way to it are mapped over, and so is a field that is an
    array itself. It then has several values, and a condition holds if any of them passes. If a key is repeated, the
    first one counts.

    - `=` (or just a value) and `in` compare scalars: numbers by value and exactly, text by code points. Values of
      different types are never equal. `!=` is the negation of `=`, so it holds for items that lack the field.
    - `<`, `<=`, `>` and `>=` compare numbers with numbers and text with text.
    - `contains` finds a part of a text, or an element of an array.
    - `matches` finds a regular expression, written as for `search`, in a text.
    - `exists` tells whether the field is there, even if it is null.

    Fields of CSV and TSV are text, but one that is written like a JSON number compares with a number as a number.
    `columns` are the names of the columns: a field that is one of them is not a path.

    Raise `InvalidArgument` for a condition that is not understood.
    """

    def __new__(cls, conditions: str, columns: Sequence[str]) -> Filter: ...
    @property
    def fields(self) -> list[tuple[str, bool]]:
        """The fields that conditions are on, and whether an item must have the field to match.

        Fields that must not exist are not listed.
        """
    def count(self, data: Buffer | str, index: ItemIndex, chunk: Chunk) -> list[int]:
        """Return how many items match in each block of a chunk. `data` are the bytes of the chunk."""
    def select(self, data: Buffer | str, index: ItemIndex, chunk: Chunk, skip: int, limit: int) -> Selection:
        """Return the items of a chunk that match, without the first `skip` ones, at most `limit`."""

def replace_texts(
    data: Buffer | str, function: Callable[[bytes], bytes], rows: Literal["csv", "tsv"] | None = None
) -> bytes | None:
    """Return a payload with each of its texts replaced by what `function` returns for it, or `None` if all stay.

    The texts are those that `Redactor.redact` searches, as bytes. An exception of `function` is raised again.
    """

def search(
    data: Buffer | str,
    pattern: str,
    *,
    regex: bool = False,
    ignore_case: bool = False,
    mode: Literal["text", "values"] = "text",
    offset: int = 0,
    limit: int = 50,
    context: int = 80,
    index: ItemIndex | None = None,
    paths: bool = False,
) -> SearchResult:
    r"""Find a literal or a regular expression, a page of `limit` matches at a time.

    Matches do not overlap, and empty ones are not reported. Following `next_offset` gives exactly the matches of one
    unlimited search.

    Finding one match takes at most linear time in the size of the payload, whatever the pattern. In the worst case each
    match of a page takes that long (`.*x|A` on one long line), so keep `limit` small for untrusted patterns.

    Expressions have the syntax of Rust's `regex`: no back-references or look-around. `^` and `$` match at the start and
    end of every line, as with `re.MULTILINE`; `$` does not match before `\r\n`. `\w`, `\d`, `\s` and `\b` are ASCII, as
    in Python's patterns over bytes; `.`, `\W` and sets match whole characters, `\p{…}` matches Unicode classes.
    `ignore_case` folds case by Unicode, also for literals. Raise `InvalidPattern` if the pattern does not compile,
    compiles to something too large, or repeats a part that can match nothing (`(?:a*)*`).

    `context` is the number of bytes of text to show on each side of a match. The text is cut between characters and
    between JSON escapes, and ends before a byte that is not UTF-8. Only the first 256 bytes of a match are shown. With
    an item index, the text ends with the item.

    `mode="values"` searches JSON or NDJSON as a reader reads it: keys, strings, numbers, `true`, `false` and `null`,
    each by itself and with its escapes decoded. `^` and `$` are then the ends of the value. Offsets stay those of the
    payload.

    `paths` gives each match the JSON Pointer of the value that it starts in; the payload must be JSON, NDJSON, CSV or
    TSV.
    """

def count_matches(
    data: Buffer | str,
    pattern: str,
    *,
    regex: bool = False,
    ignore_case: bool = False,
    mode: Literal["text", "values"] = "text",
    index: ItemIndex | None = None,
    max_seconds: float | None = None,
) -> MatchCount:
    """Count the matches that `search` would find in a whole payload, and with an item index the items that have any.

    Counting an expression stops at the first match after `max_seconds`.
    """

@final
class Unescaper:
    """Decoder like `unescape`, for content that arrives in pieces. A piece may end anywhere, even in an escape."""

    def __new__(cls) -> Unescaper: ...
    def push(self, piece: Buffer | str) -> bytes:
        """Decode the next piece, except for an incomplete escape at its end."""
    def finish(self) -> bytes:
        """Return the incomplete escape at the end of the content, or `b""` if there is none."""

def dissect(
    part: tuple[Buffer | str, int, int],
    token: str,
    *,
    max_string_bytes: int = 1024,
    max_container_bytes: int = 8192,
    max_depth: int = 64,
) -> tuple[bytes, list[tuple[int, int]]]:
    """Split a message into a skeleton, in which hole `n` is the string `token:n`, and the spans of its holes.

    `part` is a buffer or the path of a file (a `str`), with the offsets at which the message starts and ends in it. A
    hole is a value that is left unparsed: a string or container that exceeds `max_string_bytes`, `max_container_bytes`
    or `max_depth`, a number that would change if it were parsed and written again, or a string that is not valid text.
    `token` must be random, so that the message cannot contain it. Raise `InvalidJSON` if `part` is not one JSON value.
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
    """Return whether each text of `content` equals the item at the same position of `items`, or is that item as JSON.

    `content` must be an array of `{"type": "text", "text": ...}` without other members, and `items` an array of the
    same length.
    """

def items(part: tuple[Buffer | str, int, int], limit: int) -> list[tuple[int, int]]:
    """Return the spans of the items of an array; a value that is not an array has none.

    Raise `InvalidArgument` for more than `limit` items.
    """

def members(part: tuple[Buffer | str, int, int], names: Sequence[str]) -> list[tuple[int, int] | None]:
    """Return the spans of the values of the named members, in the order of `names`.

    The span of a missing member is `None`. If a key is repeated, the last one counts. A value that is not an object has
    no members. Raise `InvalidJSON` if the object is incomplete.
    """

def values_at(part: tuple[Buffer | str, int, int], paths: Sequence[Sequence[str]]) -> list[tuple[int, int, int]]:
    """Return the index of the path and the span of each value at these paths of names, in order.

    If a key is repeated, all of its values count. Inside of a value at a path no others are searched for. Raise
    `InvalidJSON` if the object is incomplete.
    """

def only_member(part: tuple[Buffer | str, int, int], name: str) -> tuple[int, int] | None:
    """Return the span of the value of an object's only member, if its key is `name`."""
