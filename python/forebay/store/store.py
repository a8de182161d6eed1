"""The store: payloads under handles, stored whole, read in pages, and removed when they expire."""

import contextlib
import functools
import io
from collections.abc import AsyncIterable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Self, cast

from typing_extensions import Buffer

from forebay import _core
from forebay.arguments import check_fields, check_integer, check_pointer, check_text
from forebay.errors import ForebayError, HandleCorrupt, HandleNotFound, InvalidArgument, InvalidFormat
from forebay.store.async_methods import make_async, put_in_thread
from forebay.store.backends import Backend
from forebay.store.call_counts import CallCounts
from forebay.store.catalog import Catalog, StoredOutput, make_not_found_error
from forebay.store.export import MAX_RESULT_BYTES, Export, export_payload, export_rows
from forebay.store.handles import OPERATOR, Descriptor, Principal, find_handles, is_handle, is_valid_name
from forebay.store.journal import Journal
from forebay.store.mailbox import Mailbox
from forebay.store.mirror import Mirror, MirrorReport
from forebay.store.options import Options
from forebay.store.page_builder import build_page
from forebay.store.pages import DEFAULT_MAX_BYTES, Format, Page, PageRequest
from forebay.store.payload import CHUNK_BYTES, Payload, outline_first_items, skip_bom
from forebay.store.put import PayloadWriter, PutRequest
from forebay.store.queries import DEFAULT_TIMEOUT_SECONDS, QueryPage, QueryRequest, load_engine
from forebay.store.quota import Quota
from forebay.store.reader import PayloadFile, PayloadReader, View, read_value, select_view
from forebay.store.search import Mode, SearchPage, SearchRequest, search_payload
from forebay.store.sidecars import Sidecars, delete_sidecar
from forebay.store.sweep import Sweeper, SweepReport
from forebay.store.threads import run_in_pool
from forebay.store.where import MatchCache, encode_conditions
from forebay.telemetry import is_active, start_span

__all__ = ["Store"]

_MAX_REFUSALS_PER_SECOND = 20
"""Maximum number of refused handles to record in the journal per second; more would push other events out of it."""


class Store:
    """Payloads under handles. The methods may be called from any thread.

    Every method that blocks has an async version, such as `fetch_async` for `fetch`.
    """

    def __init__(self, backend: Backend, options: Options) -> None:
        self._backend = backend
        self.options = options
        self.journal = Journal(backend.log, options.clock)
        self.call_counts = CallCounts(backend.call_counts, options.clock)
        self._quota = Quota(backend, options.quota_bytes, options.principal_quota_bytes)
        self._catalog = Catalog(backend, options.clock)
        self._match_cache = MatchCache()
        self.mailbox = Mailbox(backend, self._quota, options.clock)
        self._sweeper = Sweeper(backend, self._catalog, self._quota, self.journal, self.mailbox, options)
        self._writer = PayloadWriter(backend, self._quota, self.journal, options, self._sweeper)
        self.sidecars = Sidecars(backend, self._catalog, self._quota)
        self._refusals = (0, 0)

    def check(self) -> None:
        """Raise `StoreUnavailable` if the storage does not answer."""
        self._backend.check()

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
        """Store a payload and return its descriptor.

        The payload is bytes, text, an open binary file, an iterator of chunks, or an object that can be encoded as
        JSON, where NaN and infinities become null. Streams may be larger than memory. The MIME type is detected if it
        is not given; a payload declared as JSON that is not valid JSON is stored as text or binary. The items of a
        payload declared as CSV or TSV are its rows. `progress` is called with the number of bytes stored so far. `ttl`
        and `handle_length` override the options of the store.

        Raises `StoreFull`, `StoreUnavailable` or `RedactionFailed`; then nothing was stored.
        """
        request = PutRequest(
            mime_type=mime_type,
            source_tool=source_tool,
            principal=principal,
            ttl=ttl,
            progress=progress,
            handle_length=handle_length,
        )
        self._sweeper.start()
        self._sweeper.ensure_counted()
        with start_span("forebay.put", {"forebay.source_tool": source_tool}) as span:
            descriptor = self._writer.put(payload, request)
            if span is not None:
                span.set_attributes({"forebay.handle": descriptor.output_handle, "forebay.size": descriptor.size_bytes})
            return descriptor

    def describe(
        self,
        payload: Payload,
        *,
        mime_type: str | None = None,
        principal: str | None = None,
        handle_length: int | None = None,
    ) -> Descriptor:
        """Return the descriptor that `put` would return for a small payload, without storing the payload.

        The descriptor has a handle of its own, which leads nowhere.
        """
        request = PutRequest(mime_type=mime_type, principal=principal, handle_length=handle_length)
        return self._writer.describe(payload, request)

    async def put_async(
        self,
        payload: "Payload | AsyncIterable[Buffer]",
        *,
        mime_type: str | None = None,
        source_tool: str | None = None,
        principal: str | None = None,
        ttl: float | None = None,
        progress: Callable[[int], None] | None = None,
        handle_length: int | None = None,
    ) -> Descriptor:
        """Run `put` in a thread. Also takes an async iterable of chunks. A cancelled call leaves nothing stored."""
        # Check `progress` here, because `put` gets another function.
        PutRequest(progress=progress).check()

        def put(chunks: Payload, report_progress: Callable[[int], None]) -> Descriptor:
            return self.put(
                chunks,
                mime_type=mime_type,
                source_tool=source_tool,
                principal=principal,
                ttl=ttl,
                progress=report_progress,
                handle_length=handle_length,
            )

        def delete(descriptor: Descriptor) -> None:
            # It may be gone already: expired, or evicted.
            with contextlib.suppress(HandleNotFound):
                self.delete(descriptor.output_handle, principal=principal)

        return await put_in_thread(payload, put, delete, progress)

    def fetch(
        self,
        handle: str,
        *,
        offset: int = 0,
        limit: int | None = None,
        format: Format = "auto",  # noqa: A002
        path: str | None = None,
        fields: Sequence[str] | None = None,
        where: Mapping[str, Any] | str | None = None,
        max_bytes: int = DEFAULT_MAX_BYTES,
        escape_levels: int = 0,
        is_ascii: bool = False,
        principal: Principal = None,
    ) -> Page:
        """Read a page: items, lines, text or bytes from `offset` on.

        `format` "auto" reads items where they make up most of the payload, else text, else bytes; an object or scalar
        at a path that fits on the page is JSON, as bytes. `limit` counts items or lines (200 by default), or bytes.
        `fields` (`user.name` or `/user/name`) reduces every item to these fields.

        `where` keeps the items that fulfil all conditions (`{"status": "failed", "total": {">": 200}}`, as an object or
        as JSON): `offset`, `limit` and `total` then count matches. A condition is a value, or an object of operators
        `=`, `!=`, `<`, `<=`, `>`, `>=`, `in`, `contains`, `matches` (a regular expression) and `exists`. Numbers and
        text never compare with each other, except for CSV and TSV, whose fields may be read as numbers. The first page
        scans all items.

        `path` is a JSON Pointer to a value inside the payload. Finding the value scans the payload, unless the path
        leads to the items or into one of them. Lines of a value are always found by a scan. If a key is repeated,
        `path` uses the first one, except on the way to the items, where it uses the key that leads to them.

        The page takes at most `max_bytes` as it will be sent: `escape_levels` is how often it will be written into a
        JSON string, and `is_ascii` whether the transport escapes characters that are not ASCII.

        Following `next_offset` reads everything exactly once. An item or line larger than a page is cut, and
        `truncated` has the arguments to read all of it.

        Raises `InvalidArgument`, `InvalidFormat`, or `PathNotFound`, also for fields that no item has.
        """
        request = PageRequest(
            offset=offset,
            limit=limit,
            format=format,
            path=path,
            fields=fields,
            where=where,
            max_bytes=max_bytes,
            escape_levels=escape_levels,
            is_ascii=is_ascii,
        )
        return self.fetch_page(handle, request, principal=principal)

    def fetch_page(self, handle: str, request: PageRequest, *, principal: Principal = None) -> Page:
        """Read a page like `fetch`, with the parameters in one object."""
        with _trace("forebay.page", handle), self._open_reader(handle, principal) as reader:
            is_map = request.format == "items" or bool(request.where)
            view = select_view(reader, request.path, lambda: self._catalog.read_payload(reader), is_map=is_map)
            find_matches = functools.partial(self._match_cache.find, reader, request.path)
            page = build_page(view, handle, request, find_matches)
        content = page.content if isinstance(page.content, bytes) else page.content.encode()
        self._record_read(reader, page.format, len(content), offset=page.offset, returned=page.returned)
        return page

    def _open_reader(self, handle: str, principal: Principal) -> "_Reading":
        return _Reading(self._catalog, self._start_reading(handle, principal))

    def _start_reading(self, handle: str, principal: Principal) -> PayloadReader:
        self._sweeper.start()
        try:
            return self._catalog.open(handle, principal)
        except (HandleNotFound, HandleCorrupt) as error:
            self._record_refusal(handle, principal, error.code)
            raise

    def _record_refusal(self, handle: object, principal: Principal, code: str) -> None:
        second = int(self.options.clock())
        self._refusals = (second, self._refusals[1] + 1 if self._refusals[0] == second else 1)
        if self._refusals[1] <= _MAX_REFUSALS_PER_SECOND:
            self.journal.record(
                "output_handle_refused",
                # Principal and handle come from outside, and may be any value of any size.
                principal=principal if is_valid_name(principal) else None,
                handle=handle if is_handle(handle) else None,
                code=code,
            )

    def _record_read(self, reader: PayloadReader, page_format: str, returned_bytes: int, **details: object) -> None:
        meta = reader.footer.meta
        self.journal.record(
            "output_handle_fetched",
            principal=meta["principal"],
            handle=meta["handle"],
            format=page_format,
            **details,
            returned_bytes=returned_bytes,
        )

    def search(
        self,
        handle: str,
        pattern: str,
        *,
        regex: bool = False,
        ignore_case: bool = False,
        mode: Mode = "text",
        offset: int = 0,
        limit: int = 50,
        context: int = 80,
        fields: Sequence[str] | None = None,
        count_only: bool = False,
        max_bytes: int = DEFAULT_MAX_BYTES,
        escape_levels: int = 0,
        is_ascii: bool = False,
        principal: Principal = None,
    ) -> SearchPage:
        """Find a text or a regular expression from byte `offset` on. Following `next_offset` finds all matches.

        `mode="values"` searches the keys and values of JSON with their escapes decoded. `context` is the number of
        bytes shown on each side of a match; `fields` shows these fields of its item instead. `count_only` only counts.
        """
        request = SearchRequest(
            pattern=pattern,
            regex=regex,
            ignore_case=ignore_case,
            mode=mode,
            offset=offset,
            limit=limit,
            context=context,
            fields=fields,
            count_only=count_only,
            max_bytes=max_bytes,
            escape_levels=escape_levels,
            is_ascii=is_ascii,
        )
        return self.search_page(handle, request, principal=principal)

    def search_page(self, handle: str, request: SearchRequest, *, principal: Principal = None) -> SearchPage:
        """Find matches like `search`, with the parameters in one object."""
        with _trace("forebay.search", handle), self._open_reader(handle, principal) as reader:
            page = search_payload(reader, self._catalog, handle, request)
            self._record_read(reader, "search", len(page.to_json()), offset=page.offset, returned=page.returned)
            return page

    def query(
        self,
        handle: str,
        sql: str,
        *,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        max_bytes: int = DEFAULT_MAX_BYTES,
        escape_levels: int = 0,
        is_ascii: bool = False,
        principal: Principal = None,
    ) -> QueryPage:
        """Run one SELECT over the items of a payload, in the SQL of DuckDB. Needs `forebay[sql]`.

        The items are the table `items`, and also a table with the name of the array or map that holds them. Every other
        payload of the principal is a table with its handle as the name. `timeout` is in seconds.

        Raises `QueryFailed` if the statement is wrong, or takes too much time or memory.
        """
        request = QueryRequest(
            sql=sql, timeout=timeout, max_bytes=max_bytes, escape_levels=escape_levels, is_ascii=is_ascii
        )
        return self.query_page(handle, request, principal=principal)

    def query_page(self, handle: str, request: QueryRequest, *, principal: Principal = None) -> QueryPage:
        """Run a query like `query`, with the parameters in one object."""
        return self._run_query(handle, request, principal)

    def _run_query(
        self, handle: str, request: QueryRequest, principal: Principal, *, as_text: bool = False
    ) -> QueryPage:
        check_text("sql", request.sql)
        with contextlib.ExitStack() as stack:
            stack.enter_context(_trace("forebay.query", handle))
            readers = {handle: stack.enter_context(self._open_reader(handle, principal))}
            for other in find_handles(request.sql):
                if other not in readers:
                    # A handle that does not exist is a table that does not exist.
                    with contextlib.suppress(HandleNotFound):
                        readers[other] = stack.enter_context(self._open_reader(other, principal))
            page = load_engine().run_query(readers, request, self.sidecars, as_text=as_text)
            self._record_read(readers[handle], "query", len(page.content), returned=page.row_count)
            return page

    def outline(self, handle: str, max_bytes: int = 512, *, principal: Principal = None) -> str:
        """Return the shape of a JSON payload, or of the first rows of CSV or TSV, in one line."""
        check_integer("max_bytes", max_bytes)
        with self._open_reader(handle, principal) as reader:
            if reader.has_rows:
                head = reader.read(0, min(reader.size, CHUNK_BYTES))
                shape = outline_first_items(head, reader.items, max_bytes)
                if shape is None:
                    raise InvalidFormat(
                        f"no row has an outline within max_bytes={max_bytes}; fetch this payload as text"
                    )
            elif reader.nature in ("json", "ndjson"):
                shape = _core.outline(skip_bom(self._catalog.read_payload(reader)), max_bytes)
            else:
                raise InvalidFormat("only JSON, CSV and TSV have an outline; fetch this payload as text or bytes")
            self._record_read(reader, "outline", len(shape.encode()))
            return shape

    def get(self, handle: str, pointer: str, *, principal: Principal = None) -> bytes:
        """Return all bytes of the value at a JSON Pointer, which `fetch` calls `path`."""
        with self._open_reader(handle, principal) as reader:
            if not reader.has_paths:
                raise InvalidFormat("a path leads into JSON, and this payload is not; fetch it as text or bytes")
            check_pointer("pointer", pointer)
            value = bytes(read_value(reader, pointer, lambda: self._catalog.read_payload(reader)))
            self._record_read(reader, "value", len(value))
            return value

    def open(self, handle: str, *, principal: Principal = None) -> BinaryIO:
        """Open a payload as a seekable binary file, to be closed by the caller."""
        reader = self._start_reading(handle, principal)
        self.journal.record("output_handle_opened", principal=reader.footer.meta["principal"], handle=handle)
        return cast("BinaryIO", io.BufferedReader(PayloadFile(reader)))

    @contextlib.contextmanager
    def open_view(self, handle: str, path: str | None = None, *, principal: Principal = None) -> Iterator[View]:
        """Open a payload, or the value at a path, to read ranges of it. The journal does not record the reads."""
        with self._open_reader(handle, principal) as reader:
            yield select_view(reader, path, lambda: self._catalog.read_payload(reader))

    @contextlib.contextmanager
    def open_export(
        self,
        handle: str,
        *,
        format: str | None = None,  # noqa: A002
        where: object = None,
        fields: Sequence[str] | None = None,
        sql: str | None = None,
        principal: Principal = None,
    ) -> Iterator[Export]:
        """Open a payload to write it to a file, as it is or as `json`, `ndjson`, `csv` or `parquet`.

        `where` selects items like that of `fetch`, and `fields` reduces every item to these fields. In CSV, they are
        the columns, in this order. `sql` writes the result of a query, of at most 64 MiB, instead. Parquet needs
        `forebay[sql]`, and holds all items.
        """
        if where is not None and sql is not None:
            raise InvalidArgument("an export has where or sql; put the conditions into the statement")
        if fields is not None and sql is not None:
            raise InvalidArgument("an export has fields or sql; name the columns in the statement")
        if sql is not None:
            request = QueryRequest(sql=sql, max_bytes=MAX_RESULT_BYTES)
            page = self._run_query(handle, request, principal, as_text=format == "parquet")
        with self._open_reader(handle, principal) as reader:
            if sql is not None:
                export = export_rows(page, format)
            else:
                conditions = None if where is None else encode_conditions(where)
                export = export_payload(reader, format, conditions, None if fields is None else check_fields(fields))
            export.principal = reader.footer.meta["principal"]
            yield export

    @property
    def folder(self) -> Path | None:
        """The folder of the stored files; `None` if the backend does not use files."""
        return self._backend.folder

    def stat(self, handle: str, *, principal: Principal = None) -> StoredOutput:
        """Return the metadata of a payload."""
        with self._open_reader(handle, principal) as reader:
            return StoredOutput.from_reader(reader)

    def list(self, *, principal: Principal = None) -> Iterator[StoredOutput]:
        """Return the payloads of a principal, in no particular order."""
        for handle, _ in self._backend.list():
            # Skips payloads that were deleted meanwhile, are damaged, or belong to others.
            with contextlib.suppress(HandleNotFound, HandleCorrupt), self._catalog.open(handle, principal) as reader:
                yield StoredOutput.from_reader(reader)

    def delete(self, handle: str, *, principal: Principal = None) -> None:
        """Delete a payload before it expires. Raises `HandleNotFound` if another process was first."""
        try:
            with self._open_reader(handle, principal) as reader:
                meta, size = reader.footer.meta, reader.stored_bytes
        except HandleCorrupt:
            if principal is not OPERATOR:
                raise
            # The principal of a damaged payload is unknown, so the counters stay too high until the next sweep.
            meta, size = {"principal": None}, 0
        self._catalog.forget(handle)
        if not self._quota.delete(handle, meta["principal"], size):
            raise make_not_found_error(handle)
        delete_sidecar(self._backend, self._quota, handle, meta["principal"])
        self.journal.record("output_handle_deleted", principal=meta["principal"], handle=handle)

    def sweep(self) -> SweepReport:
        """Remove expired payloads and the leftovers of crashed writers."""
        return self._sweeper.sweep()

    def mirror_to(
        self,
        target: "Store",
        *,
        progress: Callable[[MirrorReport], None] | None = None,
        on_failure: Callable[[str, ForebayError], None] | None = None,
    ) -> MirrorReport:
        """Copy to another store all payloads that have not expired, with their handles, principals and times.

        What is stored is copied byte for byte: `redact`, `ttl` and `compression` of the target do not apply, and
        `on_full="evict"` evicts nothing. A payload that the target has is skipped. One that is damaged or cannot be in
        the target is not copied, and passed to `on_failure` with the reason. Both functions are called in threads, but
        only by one at a time.

        Raises `StoreFull` or `StoreUnavailable`. What was copied stays, and a second call continues.
        """

        def delete(handle: str) -> None:
            target.delete(handle, principal=OPERATOR)

        target._sweeper.ensure_counted()
        mirror = Mirror(
            self._backend,
            self._catalog,
            target._backend,
            target._quota,
            clock=self.options.clock,
            sweep=target.sweep,
            delete=delete,
            progress=progress,
            on_failure=on_failure,
        )
        return mirror.run()

    async def list_async(self, *, principal: Principal = None) -> Sequence[StoredOutput]:
        """Run `list` in a thread and return all payloads at once."""
        return await run_in_pool(lambda: [*self.list(principal=principal)])

    open_async = make_async(open)  # noqa: A003
    fetch_async = make_async(fetch)
    search_async = make_async(search)
    query_async = make_async(query)
    outline_async = make_async(outline)
    get_async = make_async(get)
    stat_async = make_async(stat)
    delete_async = make_async(delete)
    sweep_async = make_async(sweep)
    mirror_to_async = make_async(mirror_to)

    def close(self) -> None:
        """Stop the background threads. Payloads stay until they expire."""
        self._sweeper.stop()
        self._writer.close()
        self.call_counts.close()
        self._backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class _Reading:
    """A payload that is open for one operation. A context manager written out: pages are fast enough to notice."""

    __slots__ = ("_catalog", "_reader")

    def __init__(self, catalog: Catalog, reader: PayloadReader) -> None:
        self._catalog = catalog
        self._reader = reader

    def __enter__(self) -> PayloadReader:
        return self._reader

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        with self._reader:
            if error_type is None:
                try:
                    # What is in memory may be all that was read.
                    self._reader.check()
                except HandleNotFound:
                    self._forget()
                    raise
            elif issubclass(error_type, HandleNotFound):
                self._forget()

    def _forget(self) -> None:
        self._catalog.forget(self._reader.footer.meta["handle"])


def _trace(name: str, handle: object) -> contextlib.AbstractContextManager[object]:
    # A model may send any value. It is only looked at if somebody collects spans, because this runs for each page.
    return start_span(name, {"forebay.handle": handle} if is_active() and is_handle(handle) else None)
