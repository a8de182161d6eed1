"""`output_export`: stored outputs as files, compared with plain Python, and attacks on its paths."""

import csv
import errno
import io
import json
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forebay import (
    FileRefDenied,
    FileRefNotFound,
    FileRefTooLarge,
    ForebayError,
    HandleNotFound,
    InvalidArgument,
    InvalidFormat,
    MissingExtra,
    QueryFailed,
    Store,
    StoreUnavailable,
)
from forebay.outputs.export import ExportRoots, export_output, write_chunks
from forebay.outputs.policy import OutputPolicy
from forebay.outputs.tool_call import ToolCall
from forebay.outputs.tools import Caller
from forebay.query import duckdb_module
from forebay.store.payload import encode
from stores import store_at

ROWS: list[Any] = [
    {"id": n, "status": ["open", "failed"][n % 2], "text": f'é "{n}",\n=1', "big": 10**25 + n, "tags": [n, None]}
    | ({"extra": ""} if n % 3 == 0 else {"nothing": None})
    for n in range(5000)
]
FAILED = [row for row in ROWS if row["status"] == "failed"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with store_at(tmp_path / "store") as store:
        yield store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    return root


@pytest.fixture
def roots(store: Store, root: Path) -> ExportRoots:
    return ExportRoots([root], store.folder)


PAYLOADS = {
    "array": json.dumps(ROWS, indent=1),
    "inside": json.dumps({"total": len(ROWS), "rows": ROWS}),
    "ndjson": "".join(json.dumps(row) + "\n" for row in ROWS),
}


def read_cells(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def to_cell(row: dict[str, Any], name: str) -> str:
    value = row.get(name)
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, separators=(",", ":"))


@pytest.mark.parametrize("name", PAYLOADS)
@pytest.mark.parametrize(("where", "rows"), [(None, ROWS), ({"status": "failed"}, FAILED), ({"id": -1}, [])])
def test_formats_hold_the_items(store: Store, roots: ExportRoots, name: str, where: Any, rows: list[Any]) -> None:
    handle = store.put(PAYLOADS[name]).output_handle

    def export(file_format: str) -> str:
        report = export_output(store, roots, handle, format=file_format, where=where)
        content = Path(report["path"]).read_bytes()
        assert (report["size_bytes"], report["rows"], report["format"]) == (len(content), len(rows), file_format)
        return content.decode()

    lines = export("ndjson").splitlines()
    assert [json.loads(line) for line in lines] == rows
    cells = read_cells(export("csv"))
    columns = list(dict.fromkeys(key for row in rows for key in row))
    assert [list(row) for row in cells[:1]] == [columns for _ in rows[:1]]
    for cell_row, row in zip(cells, rows, strict=True):
        assert {key: cell.replace(" ", "") for key, cell in cell_row.items() if key == "tags"} == {
            "tags": to_cell(row, "tags")
        }
        assert all(cell_row[key] == to_cell(row, key) for key in columns if key != "tags")
    document = export("json")
    if where is None and name != "ndjson":
        assert document == PAYLOADS[name]
    else:
        assert json.loads(document) == rows


def test_a_payload_is_copied_byte_for_byte(store: Store, roots: ExportRoots) -> None:
    for content, file_format, rows in (
        (b'{"a" : [1.50, 1e5]}', "json", 2),
        (b"a,b\r\n1,2\n", "csv", 1),
        (b"plain text", "text", None),
        (os.urandom(3_000_000), "binary", None),
    ):
        mime_type = "text/csv" if file_format == "csv" else None
        handle = store.put(content, mime_type=mime_type).output_handle
        report = export_output(store, roots, handle)
        assert Path(report["path"]).read_bytes() == content
        assert (report["format"], report["rows"]) == (file_format, rows)
    with pytest.raises(InvalidFormat, match="no items"):
        export_output(store, roots, store.put("text").output_handle, format="csv")
    with pytest.raises(InvalidArgument, match="format is json, ndjson, csv, parquet"):
        export_output(store, roots, handle, format="xml")


def test_rows_of_csv_and_maps(store: Store, roots: ExportRoots) -> None:
    handle = store.put("a,b\n1,x\n2,y\n", mime_type="text/csv").output_handle
    report = export_output(store, roots, handle, format="ndjson", where={"a": {">": 1}})
    assert Path(report["path"]).read_text() == '{"a":"2","b":"y"}\n'
    entries = {f"k{n}": {"n": n, "pad": "x" * 50} for n in range(100)}
    report = export_output(store, roots, store.put(entries).output_handle, format="csv", where={"n": {"<": 2}})
    assert Path(report["path"]).read_text().splitlines()[1:] == [f"k{n},{n},{'x' * 50}" for n in range(2)]


@pytest.mark.posix
def test_sql_writes_the_result_of_a_query(store: Store, roots: ExportRoots) -> None:
    pytest.importorskip("duckdb")
    handle = store.put(ROWS).output_handle
    sql = "SELECT status, count(*) AS n, count(*) FROM items GROUP BY 1 ORDER BY 1"
    report = export_output(store, roots, handle, sql=sql, format="ndjson")
    lines = Path(report["path"]).read_text().splitlines()
    assert [list(json.loads(line).values()) for line in lines] == [["failed", 2500, 2500], ["open", 2500, 2500]]
    assert report["rows"] == 2
    with pytest.raises(InvalidArgument, match="where or sql"):
        export_output(store, roots, handle, sql=sql, where={"id": 1})
    with pytest.raises(FileRefTooLarge):
        export_output(store, roots, handle, sql="SELECT repeat('x', 1000000) FROM range(100)")


@pytest.mark.posix
def test_parquet_holds_all_items(store: Store, roots: ExportRoots) -> None:
    duckdb = pytest.importorskip("duckdb")
    handle = store.put(ROWS).output_handle
    report = export_output(store, roots, handle, format="parquet")
    assert (report["rows"], report["format"], Path(report["path"]).suffix) == (len(ROWS), "parquet", ".parquet")
    sql = "SELECT id, status, text, big, tags FROM read_parquet(?) ORDER BY id"
    rows = duckdb.connect().execute(sql, [report["path"]]).fetchall()
    assert rows == [(row["id"], row["status"], row["text"], row["big"], row["tags"]) for row in ROWS]
    with pytest.raises(InvalidFormat, match="no items"):
        export_output(store, roots, store.put("text").output_handle, format="parquet")


@pytest.mark.posix
def test_parquet_holds_selected_items(store: Store, roots: ExportRoots) -> None:
    duckdb = pytest.importorskip("duckdb")
    handle = store.put({"rows": ROWS}).output_handle

    def read(**selection: Any) -> tuple[int, list[Any]]:
        report = export_output(store, roots, handle, format="parquet", **selection)
        return report["rows"], duckdb.connect().execute("FROM read_parquet(?)", [report["path"]]).fetchall()

    status = ROWS[0]["status"]
    selected = [row for row in ROWS if row["status"] == status]
    count, rows = read(where={"status": status})
    assert count == len(rows) == len(selected) > 1
    assert [row[0] for row in rows] == [row["id"] for row in selected]
    assert read(where={"status": "no such status"}) == (0, [])
    sql = "SELECT status, count(*) AS n, max(big) AS big FROM items GROUP BY ALL ORDER BY ALL"
    count, rows = read(sql=sql)
    by_status = {row["status"]: [other for other in ROWS if other["status"] == row["status"]] for row in ROWS}
    assert count == len(rows) == len(by_status)
    assert rows == [(name, len(group), max(row["big"] for row in group)) for name, group in sorted(by_status.items())]
    cells = store.put("a,b\n1,x\n2,y\n", mime_type="text/csv").output_handle
    with pytest.raises(InvalidArgument, match="use sql, or export all rows"):
        export_output(store, roots, cells, format="parquet", where={"a": 1})


PARQUET_SQL = """
    SELECT
        DATE '2026-11-18' AS day, TIMESTAMP '2026-11-18 01:02:03.5' AS "at", TIMESTAMPTZ '2026-11-18 01:02:03+01' AS tz,
        1.10::DECIMAL(18, 2) AS p, 9999999999999999999999999999999999999::HUGEINT AS huge, 'infinity'::DATE AS never,
        ['a', NULL, 'it''s, [b]', ''] AS list, {'x "y"': 1.5::DECIMAL(4, 1), 'HUGEINT': [DATE '2026-01-01']} AS struct,
        MAP {'k': 1::HUGEINT} AS map, true AS yes, 0.1::FLOAT AS float, '\\x00\\xFF'::BLOB AS bytes, NULL AS nothing,
        'NaN'::DOUBLE AS nan, 'NULL' AS text, '{"a": [1.50, null]}'::JSON AS json, uuid() = uuid() AS same,
        INTERVAL '-1 month' AS span, '01:02:03+05'::TIMETZ AS zone, 'b'::ENUM ('HUGEINT', 'b') AS kind,
        1::UTINYINT AS tiny, 5::UNION(n INTEGER, s VARCHAR) AS either, row(1, 'x') AS pair, [1::HUGEINT] AS huges,
        TIMESTAMP_NS '2026-11-18 01:02:03.123456789' AS ns, 1 AS "Day", 2 AS "day", id FROM items ORDER BY id
"""

# What Parquet has instead of types that it does not have.
PARQUET_TYPES = {
    "HUGEINT": "DECIMAL(38,0)",
    "HUGEINT[]": "DECIMAL(38,0)[]",
    "MAP(VARCHAR, HUGEINT)": "MAP(VARCHAR, DECIMAL(38,0))",
    '"NULL"': "VARCHAR",
    "INTERVAL": "VARCHAR",
    "TIME WITH TIME ZONE": "VARCHAR",
    "ENUM('HUGEINT', 'b')": "VARCHAR",
    "UNION(n INTEGER, s VARCHAR)": "VARCHAR",
    "TUPLE(INTEGER, VARCHAR)": "STRUCT(element1 INTEGER, element2 VARCHAR)",
}


@pytest.mark.posix
def test_parquet_has_the_types_and_values_of_the_query(store: Store, roots: ExportRoots) -> None:
    duckdb = pytest.importorskip("duckdb")
    handle = store.put([{"id": n} for n in range(3)]).output_handle
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("CREATE TABLE items AS SELECT range AS id FROM range(3)")
    expected = connection.execute(f"DESCRIBE {PARQUET_SQL}").fetchall()
    names = [*(row[0] for row in expected[:-3]), "Day_2", "day_3", "id"]
    types = [PARQUET_TYPES.get(row[1], row[1]) for row in expected]
    values = connection.execute(f"SELECT COLUMNS(*)::VARCHAR FROM ({PARQUET_SQL})").fetchall()
    for sql, count in ((PARQUET_SQL, 3), (f"FROM ({PARQUET_SQL}) LIMIT 0;", 0)):
        report = export_output(store, roots, handle, sql=sql, format="parquet")
        assert report["rows"] == count
        described = connection.execute("DESCRIBE FROM read_parquet(?)", [report["path"]]).fetchall()
        assert [row[0] for row in described] == (names if count else [*names[:-3], "Day_1", "day_2", "id"])
        assert [row[1] for row in described] == types
        written = connection.execute("SELECT COLUMNS(*)::VARCHAR FROM read_parquet(?)", [report["path"]]).fetchall()
        # A row has no names, and a struct has.
        expected_rows = [[*row] for row in values[:count]]
        for row in expected_rows:
            row[[*names].index("pair")] = "{'element1': 1, 'element2': x}"
        assert [list(row) for row in written] == expected_rows


@pytest.mark.posix
def test_a_number_that_parquet_cannot_hold_is_not_rounded(store: Store, roots: ExportRoots) -> None:
    pytest.importorskip("duckdb")
    handle = store.put(ROWS).output_handle
    with pytest.raises(QueryFailed, match="as Parquet; use ndjson or csv"):
        export_output(store, roots, handle, sql=f"SELECT {10**38}::HUGEINT", format="parquet")


@pytest.mark.posix
def test_without_duckdb_parquet_says_what_to_install(
    store: Store, roots: ExportRoots, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = store.put(ROWS[:10]).output_handle
    monkeypatch.setattr(duckdb_module, "find_duckdb", lambda: None)
    with pytest.raises(MissingExtra, match=r"Parquet needs duckdb: pip install 'forebay\[sql\]'"):
        export_output(store, roots, handle, format="parquet")


@pytest.mark.posix
def test_the_default_name_is_new_each_time(store: Store, roots: ExportRoots, root: Path) -> None:
    handle = store.put([1, 2]).output_handle
    names = [Path(export_output(store, roots, handle)["path"]).name for _ in range(3)]
    assert names == [f"{handle}.json", f"{handle}-2.json", f"{handle}-3.json"]
    assert stat.S_IMODE((root / names[0]).stat().st_mode) == 0o600
    assert sorted(path.name for path in root.iterdir()) == sorted([*names, "sub"])
    (event,) = store.journal.recent(1)
    assert (event["event"], event["handle"], event["size_bytes"]) == ("output_exported", handle, 5)


@pytest.mark.posix
@pytest.mark.parametrize(
    "path",
    [
        "../x",
        "sub/../../x",
        "/etc/forebay-x",
        "",
        "sub",
        ".",
        "/",
        "a\0b",
        "link/x",
        "link",
        "dangling",
        "file",
        "sub/",
        "\ud800",
        ".git/hooks",
        ".bashrc",
    ],
)
def test_paths_that_are_refused(store: Store, roots: ExportRoots, root: Path, tmp_path: Path, path: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (root / "link").symlink_to(outside)
    (root / "dangling").symlink_to(outside / "new")
    (root / "file").write_text("mine")
    (root / ".git").mkdir()
    handle = store.put([1]).output_handle
    before = sorted(root.rglob("*"))
    with pytest.raises((FileRefDenied, InvalidArgument)) as caught:
        export_output(store, roots, handle, path=path)
    assert len(str(caught.value)) < 500
    assert list(outside.iterdir()) == []
    assert (root / "file").read_text() == "mine"
    assert sorted(root.rglob("*")) == before


def test_a_hidden_path_is_refused_with_the_reason(store: Store, roots: ExportRoots) -> None:
    handle = store.put([1]).output_handle
    for path in (".git/hooks", ".bashrc"):
        with pytest.raises(FileRefDenied, match="is hidden or in a hidden folder"):
            export_output(store, roots, handle, path=path)


@pytest.mark.posix
def test_what_the_filesystem_refuses_is_reported(
    store: Store, roots: ExportRoots, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    handle = store.put([1]).output_handle
    with monkeypatch.context() as patch:
        # As on filesystems without hard links.
        patch.setattr(os, "link", refuse)
        with pytest.raises(FileRefDenied, match=r"'x\.json' cannot be created: Operation not permitted"):
            export_output(store, roots, handle, path="x.json")
    with monkeypatch.context() as patch:
        patch.setattr(ExportRoots, "_open_folder", refuse)
        with pytest.raises(FileRefDenied, match=r"'sub/x\.json' cannot be created: Operation not permitted"):
            export_output(store, roots, handle, path="sub/x.json")
    assert [path.name for path in root.iterdir()] == ["sub"]


@pytest.mark.posix
def test_a_full_disk_is_reported(store: Store) -> None:
    handle = store.put([*range(100)]).output_handle
    with (
        store.open_export(handle) as export,
        Path("/dev/full").open("wb", buffering=0) as full,
        pytest.raises(StoreUnavailable, match="cannot be written: No space left on device; free some space"),
    ):
        write_chunks(export, full)


def test_a_root_may_be_a_hidden_folder(store: Store, tmp_path: Path) -> None:
    hidden = tmp_path / ".cache" / "exports"
    hidden.mkdir(parents=True)
    roots, handle = ExportRoots([hidden], store.folder), store.put([1]).output_handle
    for path in ("x", str(hidden / "y")):
        assert Path(export_output(store, roots, handle, path=path)["path"]).parent == hidden


def test_the_store_and_missing_folders_are_refused(store: Store, tmp_path: Path) -> None:
    handle = store.put([1]).output_handle
    roots = ExportRoots([tmp_path], store.folder)
    assert store.folder is not None
    for path in (store.folder / "x", Path("store/x")):
        with pytest.raises(FileRefDenied, match="is in the store"):
            export_output(store, roots, handle, path=str(path))
    with pytest.raises(FileRefDenied, match="is in the store"):
        export_output(store, ExportRoots([store.folder], store.folder), handle)
    with pytest.raises(FileRefNotFound, match="make it"):
        export_output(store, roots, handle, path="missing/x")
    with pytest.raises(InvalidArgument, match=r"export_roots: .* is no folder"):
        ExportRoots([tmp_path / "missing"], store.folder)


@pytest.mark.posix
def test_a_name_that_is_taken_meanwhile_is_not_replaced(roots: ExportRoots, root: Path) -> None:
    with roots.create("x.json") as new_file:
        new_file.file.write(b"ours")
        (root / "x.json").write_text("theirs")
        with pytest.raises(FileRefDenied, match="already"):
            new_file.publish()
    assert (root / "x.json").read_text() == "theirs"
    with roots.create("y.json") as new_file:
        (root / "y.json").symlink_to(root / "target")
        with pytest.raises(FileRefDenied, match="already"):
            new_file.publish()
    assert not (root / "target").exists()
    assert not [path for path in root.iterdir() if path.name.endswith(".part")]


@pytest.mark.posix
@pytest.mark.slow
def test_swapped_folders_lead_nowhere_else(store: Store, roots: ExportRoots, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (root / "link").symlink_to(outside)
    handle, is_done = store.put([1]).output_handle, threading.Event()

    def swap() -> None:
        while not is_done.is_set():
            for a, b in (("sub", "was"), ("link", "sub"), ("sub", "link"), ("was", "sub")):
                (root / a).rename(root / b)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for number in range(300):
            try:
                export_output(store, roots, handle, path=f"sub/{number}")
            except (FileRefDenied, FileRefNotFound):
                continue
    finally:
        is_done.set()
        swapping.join()
    assert list(outside.iterdir()) == []


def test_outputs_of_other_principals_are_not_found(store: Store, roots: ExportRoots, root: Path) -> None:
    handle = store.put([1], principal="ann").output_handle
    export_output(store, roots, handle, principal="ann")
    for principal in (None, "bob"):
        with pytest.raises(HandleNotFound):
            export_output(store, roots, handle, principal=principal)
    assert len(list(root.iterdir())) == 2


def test_the_tool_is_listed_where_it_is_enabled(store: Store, root: Path) -> None:
    assert "output_export" not in OutputPolicy(store).tools.names
    policy = OutputPolicy(store, export_roots=[root], file_refs=True)
    definitions = policy.tools.list_definitions()
    (tool,) = (tool for tool in definitions if tool["name"] == "output_export")
    assert tool["annotations"] == {"destructiveHint": False}
    handle = store.put(ROWS).output_handle
    arguments = {"output_handle": handle, "format": "csv", "where": {"id": {"<": 2}}, "path": "sub/two.csv"}
    text = policy.tools.call("output_export", arguments, Caller())["content"][0]["text"]
    assert json.loads(text)["path"] == str(root / "sub" / "two.csv")
    assert json.loads(text)["rows"] == 2
    again = policy.tools.call("output_export", arguments, Caller())
    assert again["isError"]
    assert "name another path" in again["content"][0]["text"]


def test_the_tool_writes_fields_as_the_command_does(store: Store, root: Path) -> None:
    policy = OutputPolicy(store, export_roots=[root])
    handle = store.put(ROWS).output_handle

    def call(**arguments: Any) -> dict[str, Any]:
        result = policy.tools.call("output_export", {"output_handle": handle, **arguments}, Caller())
        return dict(json.loads(result["content"][0]["text"]))

    report = call(path="two.csv", fields=["status", "id"], where={"id": {"<": 2}})
    assert (report["rows"], report["format"]) == (2, "csv")
    assert (root / "two.csv").read_text() == "status,id\nopen,0\nfailed,1\n"
    report = call(path="all.json", fields=["id", "nope"])
    assert json.loads((root / "all.json").read_text()) == [{"id": row["id"]} for row in ROWS]
    assert "no item has the field 'nope'" in report["hint"]
    assert call(fields=["id"], sql="SELECT 1")["error"]["code"] == "invalid_argument"
    assert call(fields="id")["error"]["code"] == "invalid_argument"


def test_an_unknown_extension_is_refused(store: Store, root: Path) -> None:
    policy = OutputPolicy(store, export_roots=[root])
    arguments = {"output_handle": store.put(ROWS).output_handle, "path": "q.XLSX"}
    refused = policy.tools.call("output_export", arguments, Caller())
    error = json.loads(refused["content"][0]["text"])["error"]
    assert error["code"] == "invalid_argument"
    assert "'.XLSX'; end the name in .json, .ndjson, .jsonl, .csv, .parquet" in error["message"]
    assert list(root.iterdir()) == [root / "sub"]
    policy.tools.call("output_export", {**arguments, "format": "json"}, Caller())
    assert json.loads((root / "q.XLSX").read_bytes()) == ROWS


def test_descriptors_suggest_the_tool(store: Store, root: Path) -> None:
    result = {"content": [{"type": "text", "text": json.dumps(ROWS)}]}
    exporting: dict[str, Any] = {"export_roots": [root], "prefix": "oc_"}
    for options, is_on in (({}, False), (exporting, True)):
        policy = OutputPolicy(store, **options)
        response = policy.pipeline.store_result(result, ToolCall("rows"))
        descriptor = json.loads(response["content"][0]["text"])
        tools = [call["tool"] for call in descriptor["next_calls"]]
        assert ("oc_output_export" in tools) is is_on
        assert len(encode(response)) <= 4096
        call = ToolCall("rows", fetch_with="mcp__my__output_fetch")
        descriptor = json.loads(policy.pipeline.store_result(result, call)["content"][0]["text"])
        assert ("mcp__my__output_export" in [call["tool"] for call in descriptor["next_calls"]]) is is_on


def test_a_failed_export_leaves_nothing(store: Store, roots: ExportRoots, root: Path) -> None:
    handle = store.put([{"n": n, f"k{n}": 1} for n in range(5000)]).output_handle
    with pytest.raises(ForebayError, match="too many for CSV; use ndjson"):
        export_output(store, roots, handle, format="csv")
    with pytest.raises(InvalidArgument):
        export_output(store, roots, handle, where={"n": {"~": 1}})
    assert [path.name for path in root.iterdir()] == ["sub"]


def test_a_name_that_is_too_long_is_refused(store: Store, roots: ExportRoots) -> None:
    handle = store.put([1, 2]).output_handle
    with pytest.raises(FileRefDenied, match="too long"):
        export_output(store, roots, handle, path="x" * 300)


def test_rows_keep_cells_beyond_the_header(store: Store, roots: ExportRoots) -> None:
    handle = store.put("a,b\n2\n3,4,5\n", mime_type="text/csv").output_handle
    report = export_output(store, roots, handle, format="csv", where={"a": {">=": 2}})
    assert Path(report["path"]).read_text() == "a,b,column_3\n2,,\n3,4,5\n"


@pytest.mark.posix
@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("SELECT [NULL]::JSON[] AS l", "[null]"),
        ("SELECT ['0.12345678901234567890123'::JSON, '1.50'::JSON] AS l", "[0.12345678901234567890123,1.50]"),
        ("""SELECT {'a': ['"it''s"'::JSON, NULL]} AS l""", """{"a":["it's",null]}"""),
        ("SELECT {} AS l", "{}"),
    ],
)
def test_parquet_holds_nested_json_as_json(store: Store, roots: ExportRoots, sql: str, text: str) -> None:
    duckdb = pytest.importorskip("duckdb")
    handle = store.put([{"id": 1}]).output_handle
    path = export_output(store, roots, handle, sql=sql, format="parquet")["path"]
    assert duckdb.connect().execute("SELECT l, typeof(l) FROM read_parquet(?)", [path]).fetchall() == [(text, "JSON")]
