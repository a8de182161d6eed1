"""The Rust core. Every verb borrows its payload, releases the interpreter and returns small things.

A payload is `bytes`, a read-only buffer (an `mmap` opened for reading, a read-only `memoryview`) or a `str`,
which counts as its UTF-8 bytes: CPython encodes one that is not ASCII on first use, and keeps both. Offsets and sizes
are in bytes unless a name says items, lines or chars.

The owner of a read-only buffer must not change it during a call: the answer would be wrong, though never unsafe.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, final

from typing_extensions import Buffer

__version__: str

@final
class Span:
    """Where items are: `data[start:end]` holds them whole."""

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def first(self) -> int:
        """The number of the item that starts at `start`; at most a block before the one asked for."""
    @property
    def count(self) -> int:
        """How many of the items asked for exist."""

@final
class ItemIndex:
    """Where the items of a payload are: one entry a 64 KiB block, whatever the items' size."""

    @staticmethod
    def from_bytes(data: Buffer) -> ItemIndex:
        """Loads what `to_bytes` wrote, from any buffer. Raises `CorruptIndex` for anything else."""
    def to_bytes(self) -> bytes:
        """The index in a form to store: a few bytes an entry."""
    def __reduce__(self) -> tuple[Callable[[Buffer], ItemIndex], tuple[bytes]]: ...
    def __len__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    @property
    def kind(self) -> Literal["array", "ndjson", "lines"] | None:
        """What an item is: "array", "ndjson" or "lines"; `None` where the payload has no items."""
    @property
    def path(self) -> str | None:
        """The JSON Pointer of the items' array; `""` for a top-level array and for NDJSON."""
    @property
    def start(self) -> int:
        """The first byte of the array (its bracket), or of the first line."""
    @property
    def end(self) -> int:
        """The byte after the array's closing bracket, or after the last line."""
    def span(self, offset: int, limit: int) -> Span:
        """The blocks that hold `limit` items from `offset` on: what to read to have them whole.

        The index alone knows blocks, not items; `read_items` finds the exact bytes.
        """

@final
class ItemIndexer:
    """Indexes a payload that arrives in pieces; the answer is the same for every way of cutting it.

    Threads may share one. It takes a piece at a time, in the order in which `feed` gets hold of it, and the others wait
    with the interpreter released. Once it has finished, or failed in any thread, both methods raise `InvalidArgument`.
    """

    def __new__(cls, path: str | None = None, *, validate: bool = True) -> ItemIndexer: ...
    def feed(self, data: Buffer | str) -> None:
        """Takes the next piece.

        Raises `InvalidJSON` within 64 bytes of the byte that cannot be right, since it works by blocks; `finish` does
        at the latest. Nothing can be fed after an error.
        """
    def finish(self) -> ItemIndex:
        """The index of all pieces. Nothing can be fed after it."""

def index_items(data: Buffer | str, path: str | None = None, *, validate: bool = True) -> ItemIndex:
    """Finds the items of a top-level array, of the array at `path` (a JSON Pointer), or of NDJSON.

    Without a `path`, the items of a document that is an object are those of its *main* array: of all arrays
    reachable by object keys alone, at most four keys deep, the one with the most bytes; the first of equals.
    A deeper one needs a `path`. A key of more than 4096 bytes leads to no items.
    A document without one has no items: length 0, `path` and `kind` are `None`.

    Of equal keys in one object all may lead to the main array, while a `path`, like `get` and `project`, means the
    first: `start` and `end` say which array was indexed.

    Several values, each on a line of its own, are NDJSON: every value is an item, blank lines are not. A `path` does
    not lead into NDJSON, as that of `get` does.

    `validate=True` checks the whole payload against RFC 8259 and raises `InvalidJSON` with the byte.
    `validate=False` trusts it and reads structure only: what is not JSON gives some answer or an error, never harm.
    """

def index_lines(data: Buffer | str) -> ItemIndex:
    """Finds the lines of a text. Every line counts, blank or not; a last line needs no newline."""

@final
class Findings:
    """What a payload is, as far as its bytes say."""

    @property
    def nature(self) -> Literal["json", "ndjson", "text", "binary"]: ...
    @property
    def items(self) -> ItemIndex | None:
        """Where its items are, if it is JSON or NDJSON."""
    @property
    def lines(self) -> ItemIndex | None:
        """Where its lines are, unless it is binary."""

@final
class Survey:
    """Finds out what a payload is that arrives in pieces; the answer is the same for every way of cutting it.

    `is_json` says whether to try JSON and NDJSON. Where it is not known, whatever begins as an array or object is
    tried, so that a lone number or word is text. What is not valid is text, and text that is not UTF-8 or holds a NUL
    is binary: never an error.
    """

    def __new__(cls, is_json: bool | None = None) -> Survey: ...
    def feed(self, data: Buffer | str) -> None:
        """Takes the next piece. Several threads may take turns."""
    def finish(self) -> Findings:
        """What the pieces were. Nothing can be fed after it."""

def checksum(data: Buffer | str) -> int:
    """XXH64, the checksum of zstd's frames: those end in its lower four bytes."""

@final
class Cut:
    """An item or line that was larger than the page's budget and came back cut."""

    @property
    def index(self) -> int:
        """Its number."""
    @property
    def size_bytes(self) -> int:
        """Its whole size."""
    @property
    def byte_offset(self) -> int:
        """Where to read on from: an item's first byte, or the byte after what was shown of a line."""

@final
class ItemPage:
    """Whole items within a budget."""

    @property
    def content(self) -> bytes:
        """A JSON array of the items, each as it stands in the payload."""
    @property
    def offset(self) -> int: ...
    @property
    def returned(self) -> int: ...
    @property
    def total(self) -> int: ...
    @property
    def next_offset(self) -> int | None:
        """The item after the last one shown; `None` exactly at the end."""
    @property
    def start(self) -> int:
        """The first byte of the first item shown."""
    @property
    def end(self) -> int:
        """The byte after the last item shown."""
    @property
    def truncated(self) -> list[Cut]: ...

@final
class TextPage:
    """Whole characters within a budget."""

    @property
    def text(self) -> str: ...
    @property
    def start(self) -> int:
        """Where the text really starts: an offset inside a character moves back to its first byte."""
    @property
    def end(self) -> int: ...
    @property
    def next_offset(self) -> int | None:
        """`end`, or `None` exactly at the end of the payload."""

@final
class LinePage:
    """Whole lines within a budget."""

    @property
    def text(self) -> str:
        """The lines as they stand in the payload, line ends included."""
    @property
    def offset(self) -> int: ...
    @property
    def returned(self) -> int: ...
    @property
    def total(self) -> int | None:
        """How many lines there are, where an index knows or the page is the last one."""
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
    """One place a pattern was found."""

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def line(self) -> int | None:
        """The number of the line it starts in, from 0; `None` where an item index was given."""
    @property
    def item(self) -> int | None:
        """The number of the item it starts in; `None` without an index, or outside of the items."""
    @property
    def context(self) -> str | None:
        """Whole characters around and including the match; `None` where the match is not text."""
    @property
    def context_start(self) -> int:
        """The byte the context starts at."""

@final
class SearchResult:
    """A page of matches."""

    @property
    def matches(self) -> list[Match]: ...
    @property
    def next_start(self) -> int | None:
        """The `start` that goes on after these matches; `None` when the payload was searched to its end."""

def preview(
    data: Buffer | str,
    max_bytes: int = 2048,
    *,
    max_escaped_bytes: int | None = None,
    escape_levels: int = 1,
) -> str | None:
    """The longest prefix of at most `max_bytes` that is whole; `None` for binary.

    Whole: not cut inside a UTF-8 sequence, a JSON escape or a surrogate pair of escapes, nor inside a grapheme
    cluster where avoiding that costs at most 64 bytes. `max_escaped_bytes` also bounds what the prefix weighs
    once it was JSON-escaped `escape_levels` times (1 or 2), without the quotes around it. There is no least budget:
    where not even one character fits, the preview is `""`.

    Binary: the bytes looked at are not UTF-8, or hold a NUL.
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
    """Whole items from number `offset` on, at most `limit`, as a JSON array of at most `max_bytes`.

    `last=n` replaces `offset` and `limit`: the page starts at the n-th item from the end, and where the last n do not
    fit `next_offset` leads on to the rest. `data` may be a part of the payload that starts at byte `base` and holds
    at least what `index.span(offset, limit)` names. An item that alone exceeds the budget comes back truncated,
    by itself, and is named in `truncated`. A budget under 15 is refused.

    It trusts that the index is this payload's: with another one it raises `CorruptIndex` where that shows, and gives
    some wrong answer where it does not.
    """

def read_text(
    data: Buffer | str, offset: int = 0, max_bytes: int = 65536, *, last: int | None = None, escape_levels: int = 0
) -> TextPage:
    """Text from byte `offset` on that is at most `max_bytes` once it was JSON-escaped `escape_levels` times.

    `last=n` replaces `offset`: the page starts at the n-th byte from the end, or at the first character after it, and
    where the last n do not fit `next_offset` leads on to the rest. A budget that some character would never fit in
    (under 4 bytes, escaped once 6, twice 7) is refused. Raises `InvalidText` where what would be returned is not UTF-8.
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
    """Whole lines from number `offset` on, at most `limit`, within `max_bytes` once JSON-escaped `escape_levels` times.

    `last=n` replaces `offset` and `limit`: the page starts at the n-th line from the end, and where the last n do not
    fit `next_offset` leads on to the rest. The least budgets are those of `read_text`.

    With an index (`index_lines`) the time does not depend on `offset`. A line that alone exceeds the budget
    comes back cut, by itself, and is named in `truncated` with the byte to read on from by `read_text`.
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
    """An overview of a JSON document: valid JSON, never longer than `max_bytes`.

    Arrays over the limit become `{"items": […], "totalCount": n, "showing": k}`, strings over theirs end in
    `...`, what is deeper than `max_depth` (the root has depth 0) becomes `"[truncated]"`, keys left out of an
    object are counted by a last one whose key is `...` (more dots beside a key of dots). Keys and numbers of up to
    64 characters are never cut, however small `max_string_chars` is. Of keys that are cut to the same all but the first
    are left out, so that keys distinct in the payload stay distinct. Several values, each on a line of its own, are
    NDJSON, and count as the items of an array.

    Where these limits alone do not fit, shallow goes before deep and every sibling before more of one: containers
    appear closed and strings short until all of a level has appeared. Then they open in turn, but the first item of
    an array before the others, as their example. A larger budget never shows less.

    Raises `InvalidArgument` if `max_bytes` is too small for any answer (13 always suffice) or `max_depth` is more
    than 64, `InvalidJSON` if what is shown is not JSON or the payload ends too early. What is left out is trusted, not
    checked: a mismatched bracket in a part that is not shown passes.
    """

def truncate_lines(data: Buffer | str, head: int = 10, tail: int = 10, *, max_bytes: int = 10240) -> str:
    """The first and last lines of a text, and between them `[... 1,234 lines left out ...]`; never over `max_bytes`.

    Where the lines do not fit, those over an equal share of the budget are cut and end in
    `[... 1,234 bytes left out ...]`. If there are not even 64 bytes a line, lines are left out from the middle, so
    that head and tail survive. A budget under 64 is refused.
    """

def outline(data: Buffer | str, max_bytes: int = 512) -> str:
    """The shape of a JSON document in one line, e.g. `{statuses: [{id: int, place?: {…}}] ×100}`.

    `int`, `float`, `str`, `bool` and `null`, joined by `|` where several were seen; integers among floats are
    floats. `key?` is missing from some objects. `[T] ×100` is an array of 100, `×0-3` arrays of none to three.
    `{<138586341>: T} ×184` is a map of 184 keys such as this one: keys that are ids, or more than 20 (100 for
    scalars) with values of one shape. A key that is no plain word is quoted as JSON, a long one is cut.
    `ndjson [T] ×n` are n values on lines of their own.

    The first 100 items of an array are merged, or fewer of very large ones. It is counted to its end, but arrays
    inside of items that were not merged have no part in a range such as `×0-3`. What did not fit into `max_bytes`
    (at least 8) is `…`: keys are revealed level by level and in turns among siblings, and a larger budget never
    shows less. What is deeper than 32 levels shows as `{…}` or `[…]`.

    Only what it reads is checked, which is what it merges; the rest is trusted to be JSON.
    """

def get(data: Buffer | str, pointer: str) -> bytes:
    """The value at a JSON Pointer (`/users/0/name`), as it stands in the payload.

    Raises `PathNotFound`. `""` is everything, without white space around it. Of equal keys the first is meant. In
    NDJSON the first token is the number of a value. Reading ends with the value, which is checked; what was passed
    over on the way is trusted to be JSON.
    """

def locate(data: Buffer | str, pointer: str) -> tuple[int, int]:
    """Where `get` finds its value: `data[start:end]`."""

def project(data: Buffer | str, fields: Iterable[str]) -> bytes:
    r"""The items of an array, an object or NDJSON, with the named fields only.

    A field is a path of at most 64 keys joined by dots (`user.name`; `\.` is a dot in a key, `\\` a backslash). One
    that begins with a slash is a JSON Pointer (`/user/name`), or a key that is written just so. Arrays on the way are
    mapped through, so that no numbers lead into them. The shape stays: `user.name` gives `{"user": {"name": …}}`. What
    an item does not have is left out; an item that is not an object becomes `null`, so that counts stay. Keys stand in
    the payload's order, of equal keys the first is meant, and values stand as they do in the payload. NDJSON gives
    NDJSON. What is returned is checked; what is left out is trusted to be JSON.
    """

def has_fields(data: Buffer | str, fields: Iterable[str]) -> bool:
    """Whether any item has any of the fields that `project` would keep."""

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
    r"""Finds a literal, or a regular expression, a page of `limit` matches at a time.

    Matches do not overlap, and empty ones are not reported. Following `next_start` gives exactly the matches of
    one unlimited search.

    Finding the next match takes time linear in the payload at most, whatever the pattern. Every match of a page may
    cost such a pass, so that patterns like `.*x|A` on one long line are slow: keep `limit` small for untrusted ones.

    Expressions have the syntax of Rust's `regex`: no back-references or look-around. `^` and `$` match at the start
    and end of every line, as with `re.MULTILINE`; `$` does not match before `\r\n`. `\w`, `\d`, `\s` and `\b` are
    ASCII, as in Python's patterns over bytes; `.`, `\W` and sets match whole characters, `\p{…}` knows Unicode.
    `ignore_case` folds by Unicode, for literals too. Raises `InvalidPattern` for what does not compile, compiles to
    too much, or repeats something that can match nothing (`(?:a*)*`).

    `context` is how many bytes of text to show on either side: whole characters, never half a JSON
    escape, nothing beyond a byte that is not UTF-8. A match of more than 256 bytes counts as its first 256 there.
    """

@final
class Unescaper:
    """`unescape` for content that comes in pieces, cut anywhere."""

    def __new__(cls) -> Unescaper: ...
    def push(self, piece: Buffer | str) -> bytes:
        """What is known by the next piece."""
    def finish(self) -> bytes:
        """What is left: an escape that was cut short."""

def dissect(
    part: tuple[Buffer | str, int, int],
    token: str,
    *,
    most_string: int = 1024,
    most_container: int = 8192,
    most_depth: int = 64,
) -> tuple[bytes, list[tuple[int, int]]]:
    """Takes a message apart: its skeleton, in which hole `n` is the string `token:n`, and where its holes are.

    A part is a buffer or, as a `str`, the path of a file, and where the message starts and ends in it. A hole is a
    string or a container that is larger than may be, a number that is not the same once it was read and written again,
    and a string that is no text. `token` is what nobody who writes messages can know. Raises `InvalidJSON` for what is
    not one JSON value.
    """

def unescape(content: Buffer | str) -> bytes:
    """What the content of a JSON string, without its quotes, stands for.

    Half of a surrogate pair is kept as three bytes; what is no escape that JSON knows stays as it is.
    """

def same_text(one: tuple[Buffer | str, int, int], other: tuple[Buffer | str, int, int]) -> bool:
    """Whether two values are strings that stand for the same text."""

def same_json(text: tuple[Buffer | str, int, int], value: tuple[Buffer | str, int, int]) -> bool:
    """Whether what the string `text` stands for is JSON, and the value to the letter.

    But for white space between tokens, and for which characters in strings are escaped.
    """

def each_says(content: tuple[Buffer | str, int, int], items: tuple[Buffer | str, int, int]) -> bool:
    """Whether each text of `content` is its item of `items`, or the JSON of it.

    `content` is an array of `{"type": "text", "text": ...}`, with nothing else in them.
    """

def members(part: tuple[Buffer | str, int, int], names: Sequence[str]) -> list[tuple[int, int] | None]:
    """Where the values of an object's members of these names are, in the order of the names.

    Of several with one name the last; what is no object has none. Raises `InvalidJSON` for an object that has no end.
    """

def only_member(part: tuple[Buffer | str, int, int], name: str) -> tuple[int, int] | None:
    """Where the value of an object's only member is, if that is called `name`."""
