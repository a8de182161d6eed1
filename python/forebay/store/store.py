"""Payloads under handles: put whole, read in pages, gone when they expire."""

import asyncio
import contextlib
import dataclasses
import io
from collections.abc import AsyncIterable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any, BinaryIO, Concatenate, ParamSpec, Self, TypeVar, cast

from typing_extensions import Buffer

from forebay import _core
from forebay.arguments import check_integer, check_pointer
from forebay.errors import HandleCorrupt, HandleNotFound, InvalidFormat
from forebay.store.backends import Backend
from forebay.store.catalog import Catalog
from forebay.store.handles import Descriptor, is_handle
from forebay.store.journal import Journal
from forebay.store.options import Options
from forebay.store.pages import Format, Page, SearchPage
from forebay.store.pages import fetch_page as fetch_page
from forebay.store.payload import Payload
from forebay.store.principals import OPERATOR, Principal, is_valid_name
from forebay.store.put import PayloadWriter
from forebay.store.quota import Quota
from forebay.store.reader import ArrayView, PayloadFile, PayloadReader, ValueView, View, read_value
from forebay.store.search import search_payload as search_page
from forebay.store.sweep import Sweeper, SweepReport
from forebay.store.threads import BlockingChunks, start_in_thread
from forebay.store.times import format_timestamp

__all__ = ["Store", "StoredOutput"]


_MAX_REFUSALS_PER_SECOND = 20
"""How many a second the journal is told of."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _make_async(
    method: Callable[Concatenate["Store", _P], _T],
) -> Callable[Concatenate["Store", _P], Coroutine[Any, Any, _T]]:
    """The same, done in another thread and awaited."""

    async def twin(self: "Store", /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await asyncio.to_thread(method, self, *args, **kwargs)

    twin.__name__, twin.__doc__ = f"{method.__name__}_async", f"`{method.__name__}`, awaited."
    return twin


@dataclasses.dataclass(frozen=True, slots=True)
class StoredOutput:
    """What is known of a stored payload."""

    output_handle: str
    mime_type: str
    nature: str
    size_bytes: int
    stored_bytes: int
    item_count: int | None
    items_path: str | None
    line_count: int | None
    outline: str | None
    created_at: str
    expires_at: str
    source_tool: str | None
    principal: str | None

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON would have it."""
        return dataclasses.asdict(self)

    @classmethod
    def from_reader(cls, reader: PayloadReader) -> Self:
        """What an open payload says of itself."""
        meta, lines = reader.footer.meta, reader.lines
        return cls(
            output_handle=meta["handle"],
            mime_type=meta["mime_type"],
            nature=meta["nature"],
            size_bytes=meta["size_bytes"],
            stored_bytes=reader.stored_bytes,
            item_count=meta["item_count"],
            items_path=meta["items_path"],
            line_count=None if lines is None else len(lines),
            outline=meta["outline"],
            created_at=format_timestamp(meta["created_at"]),
            expires_at=format_timestamp(meta["expires_at"]),
            source_tool=meta["source_tool"],
            principal=meta["principal"],
        )


class Store:
    """Payloads under handles. Methods of an open store may be called from any thread.

    Every method that waits has a twin that is awaited, with `_async` behind its name.
    """

    def __init__(self, backend: Backend, journal: Journal, options: Options) -> None:
        self._backend = backend
        self.options = options
        self._quota = Quota(backend, options.quota, options.principal_quota)
        self._catalog = Catalog(backend, options.clock)
        self._sweeper = Sweeper(backend, self._catalog, self._quota, journal, options)
        self._writer = PayloadWriter(backend, self._quota, journal, options, self._sweeper.free_space)
        self._refusals = (0, 0)
        self.journal = journal

    def put(
        self,
        payload: Payload,
        *,
        mime_type: str | None = None,
        source_tool: str | None = None,
        principal: str | None = None,
        ttl: float | None = None,
        progress: Callable[[int], None] | None = None,
        handle_length: int | None = None,
    ) -> Descriptor:
        """Stores a payload whole and says what it is.

        It may be bytes, text, an open binary file, an iterator of chunks, or any object that can be written as JSON
        (in which a float that is no number is null).
        The mime type is found out if it is not given; what is called JSON and is not valid is text or binary. What
        streams takes little memory; `progress` is told how many bytes have passed. `handle_length` is for this one
        what the option of that name is for all.

        Raises `StoreFull`, `StoreUnavailable` or `RedactionFailed`: then nothing was stored.
        """
        self._sweeper.start()
        self._sweeper.ensure_counted()
        return self._writer.put(
            payload,
            mime_type=mime_type,
            source_tool=source_tool,
            principal=principal,
            ttl=ttl,
            progress=progress,
            handle_length=handle_length,
        )

    async def put_async(
        self,
        payload: "Payload | AsyncIterable[Buffer]",
        *,
        mime_type: str | None = None,
        source_tool: str | None = None,
        principal: str | None = None,
        ttl: float | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Descriptor:
        """`put`, awaited; takes an async iterator of chunks, too. Cancelled, it stores nothing."""
        is_abandoned = False
        pulled = BlockingChunks(payload) if isinstance(payload, AsyncIterable) else None

        def watch(done: int) -> None:
            if is_abandoned:
                raise CancelledError
            if progress is not None:
                progress(done)

        def undo(done: "Future[Descriptor]") -> None:
            if not done.cancelled() and done.exception() is None:
                self.delete(done.result().output_handle, principal=principal)

        working = start_in_thread(
            lambda: self.put(
                payload if pulled is None else pulled,
                mime_type=mime_type,
                source_tool=source_tool,
                principal=principal,
                ttl=ttl,
                progress=watch,
            )
        )
        try:
            return await asyncio.wrap_future(working)
        except asyncio.CancelledError:
            # What runs in a thread does not end with it.
            is_abandoned = True
            if pulled is not None:
                pulled.cancel()
            working.add_done_callback(undo)
            raise

    def fetch(
        self,
        handle: str,
        *,
        offset: int = 0,
        limit: int | None = None,
        format: Format = "auto",  # noqa: A002
        path: str | None = None,
        fields: Sequence[str] | None = None,
        max_bytes: int = 65536,
        escape_levels: int = 0,
        is_ascii: bool = False,
        principal: Principal = None,
    ) -> Page:
        """A page of at most `max_bytes` as it will be sent: items, lines, text or bytes from `offset` on.

        `escape_levels` is how often it will be written into a JSON string, and `is_ascii` whether all that is not ASCII
        is escaped then.

        `auto` is items where they are most of it, else text, else bytes. `limit` is of items or lines (200 if not
        given), or of bytes. `path` is a JSON Pointer to any value inside, which costs a pass over the payload unless it
        leads to the items or into one, and always for lines. Of equal keys it means the first, but on the way to the
        items the one that leads there.
        `fields` (`user.name` or `/user/name`) keeps only these of every item. Following `next_offset` gives everything
        exactly once; what was too large for a page is named in its `truncated`, with what to ask for to read it.

        Raises `InvalidArgument`, `InvalidFormat` or `PathNotFound`, also for fields that no item has.
        """
        with self._open_reader(handle, principal) as reader:
            view = self._select_view(reader, path)
            page = fetch_page(
                view,
                handle,
                offset=offset,
                limit=limit,
                format=format,
                path=path,
                fields=fields,
                max_bytes=max_bytes,
                escape_levels=escape_levels,
                is_ascii=is_ascii,
            )
        shown = page.content if isinstance(page.content, bytes) else page.content.encode()
        self._record_read(reader, page.format, len(shown), offset=page.offset, returned=page.returned)
        return page

    def _open_reader(self, handle: str, principal: Principal) -> PayloadReader:
        self._sweeper.start()
        try:
            return self._catalog.open(handle, principal)
        except (HandleNotFound, HandleCorrupt) as error:
            self._record_refusal(handle, principal, error.code)
            raise

    def _record_refusal(self, handle: object, principal: Principal, code: str) -> None:
        # Whoever guesses handles must not push out of the journal what else happened.
        second = int(self.options.clock())
        self._refusals = (second, self._refusals[1] + 1 if self._refusals[0] == second else 1)
        if self._refusals[1] <= _MAX_REFUSALS_PER_SECOND:
            self.journal.record(
                "output_handle_refused",
                # What comes from outside may be anything, of any size.
                principal=principal if is_valid_name(principal) else None,
                handle=handle if is_handle(handle) else None,
                code=code,
            )

    def _record_read(self, reader: PayloadReader, format: str, size: int, **details: object) -> None:  # noqa: A002
        meta = reader.footer.meta
        self.journal.record(
            "output_handle_fetched",
            principal=meta["principal"],
            handle=meta["handle"],
            format=format,
            **details,
            returned_bytes=size,
        )

    def _select_view(self, reader: PayloadReader, path: str | None) -> View:
        if path is not None:
            check_pointer("path", path)
        # The payload as a whole has its items wherever they are.
        if path is None or (path == "" and reader.nature in ("json", "ndjson")):
            return reader
        if reader.items is not None and reader.items.kind == "array" and path == reader.items.path:
            return ArrayView(reader, reader.items)
        if reader.nature not in ("json", "ndjson"):
            raise InvalidFormat("a path leads into JSON, and this payload is not; leave the path out")
        return ValueView(read_value(reader, path, lambda: self._catalog.read_payload(reader)))

    def search(
        self,
        handle: str,
        pattern: str,
        *,
        regex: bool = False,
        ignore_case: bool = False,
        start: int = 0,
        limit: int = 50,
        context: int = 80,
        max_bytes: int = 65536,
        escape_levels: int = 0,
        is_ascii: bool = False,
        principal: Principal = None,
    ) -> SearchPage:
        """Where a text or a regular expression is found, from byte `start` on. Following `next_start` gives all."""
        with self._open_reader(handle, principal) as reader:
            page = search_page(
                reader,
                lambda: self._catalog.read_payload(reader),
                handle,
                pattern,
                is_cached=self._catalog.get_cached_payload(reader) is not None,
                regex=regex,
                ignore_case=ignore_case,
                start=start,
                limit=limit,
                context=context,
                max_bytes=max_bytes,
                escape_levels=escape_levels,
                is_ascii=is_ascii,
            )
            self._record_read(reader, "search", len(page.to_json()), offset=page.start, returned=len(page.matches))
            return page

    def outline(self, handle: str, max_bytes: int = 512, *, principal: Principal = None) -> str:
        """The shape of a JSON payload in one line."""
        check_integer("max_bytes", max_bytes)
        with self._open_reader(handle, principal) as reader:
            if reader.nature not in ("json", "ndjson"):
                raise InvalidFormat("only JSON has an outline; fetch this payload as text or bytes")
            shape = _core.outline(self._catalog.read_payload(reader), max_bytes)
            self._record_read(reader, "outline", len(shape.encode()))
            return shape

    def get(self, handle: str, pointer: str, *, principal: Principal = None) -> bytes:
        """The value at a JSON Pointer, as it stands in the payload, whole: what `fetch` means by the same `path`."""
        with self._open_reader(handle, principal) as reader:
            if reader.nature not in ("json", "ndjson"):
                raise InvalidFormat("a path leads into JSON, and this payload is not; fetch it as text or bytes")
            check_pointer("pointer", pointer)
            value = bytes(read_value(reader, pointer, lambda: self._catalog.read_payload(reader)))
            self._record_read(reader, "value", len(value))
            return value

    def open(self, handle: str, *, principal: Principal = None) -> BinaryIO:
        """The payload as a binary file to read and to seek in. Close it, or use it in a `with`."""
        reader = self._open_reader(handle, principal)
        self.journal.record("output_handle_opened", principal=reader.footer.meta["principal"], handle=handle)
        return cast("BinaryIO", io.BufferedReader(PayloadFile(reader)))

    @contextlib.contextmanager
    def open_view(self, handle: str, path: str | None = None, *, principal: Principal = None) -> Iterator[View]:
        """A payload, or the value that a path leads to, by ranges of bytes: to be handed on, not to be shown."""
        with self._open_reader(handle, principal) as reader:
            yield self._select_view(reader, path)

    @property
    def folder(self) -> Path | None:
        """Where payloads are files, if they are."""
        return self._backend.folder

    def stat(self, handle: str, *, principal: Principal = None) -> StoredOutput:
        """All that is known of a payload, without reading it."""
        with self._open_reader(handle, principal) as reader:
            return StoredOutput.from_reader(reader)

    def list(self, *, principal: Principal = None) -> Iterator[StoredOutput]:
        """What is stored for a principal, in no order."""
        for listed in self._backend.list():
            # What is gone meanwhile, or damaged, or someone else's, is not listed.
            with (
                contextlib.suppress(HandleNotFound, HandleCorrupt),
                self._catalog.open(listed.handle, principal) as found,
            ):
                yield StoredOutput.from_reader(found)

    def delete(self, handle: str, *, principal: Principal = None) -> None:
        """Removes a payload before it expires."""
        try:
            with self._open_reader(handle, principal) as reader:
                meta, size = reader.footer.meta, reader.stored_bytes
        except HandleCorrupt:
            if principal is not OPERATOR:
                raise
            # Whose it was cannot be read any more; the next sweep counts again.
            meta, size = {"principal": None}, 0
        self._catalog.forget(handle)
        if self._quota.release(meta["principal"], size, lambda: self._backend.delete(handle)):
            self.journal.record("output_handle_deleted", principal=meta["principal"], handle=handle)

    def sweep(self) -> SweepReport:
        """Removes what has expired, and what crashed writers left."""
        return self._sweeper.sweep()

    async def list_async(self, *, principal: Principal = None) -> Sequence[StoredOutput]:
        """`list`, awaited: all of it."""
        return await asyncio.to_thread(lambda: [*self.list(principal=principal)])

    open_async = _make_async(open)  # noqa: A003
    fetch_async = _make_async(fetch)
    search_async = _make_async(search)
    outline_async = _make_async(outline)
    get_async = _make_async(get)
    stat_async = _make_async(stat)
    delete_async = _make_async(delete)
    sweep_async = _make_async(sweep)

    def close(self) -> None:
        """Ends what runs in the background. Payloads stay until they expire."""
        self._sweeper.stop()
        self._writer.close()
        self.journal.close()
        self._backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
