"""`forebay export`: stored payloads as files."""

import json
import stat
from pathlib import Path

import pytest
from command import ROWS, UNKNOWN, run

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("home")]


def put(content: bytes) -> str:
    return str(run("put", "-", stdin=content).json["output_handle"])


@pytest.mark.posix
def test_a_payload_becomes_a_file(tmp_path: Path) -> None:
    content = json.dumps(ROWS, indent=1).encode()
    handle, path = put(content), tmp_path / "rows.json"
    report = run("export", handle, str(path)).json
    assert report == {"path": str(path), "size_bytes": len(content), "rows": len(ROWS), "format": "json"}
    assert path.read_bytes() == content
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (event,) = run("journal", "--count", "1").json
    assert (event["event"], event["path"]) == ("output_exported", str(path))


def test_items_are_selected_and_converted(tmp_path: Path) -> None:
    handle, path = put(b'[{"id": 1, "n": 10}, {"id": 2, "n": 20}]'), tmp_path / "x"
    run("export", handle, str(path), "--format", "csv", "--where", '{"n": {">": 10}}')
    assert path.read_text() == "id,n\n2,20\n"
    run("export", handle, str(path), "--sql", "SELECT sum(n) AS n FROM items", "--format", "ndjson", "--force")
    assert path.read_text() == '{"n":30}\n'


def test_a_file_is_replaced_only_by_force(tmp_path: Path) -> None:
    handle, path = put(b"[1]"), tmp_path / "x"
    path.write_text("mine")
    failed = run("export", handle, str(path))
    assert failed.code == 1
    assert "--force" in failed.error["message"]
    assert path.read_text() == "mine"
    assert run("export", handle, str(path), "--force").json["rows"] == 1
    assert path.read_text() == "[1]"
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".forebay")] == []


def test_errors_have_exit_codes(tmp_path: Path) -> None:
    handle = put(b"text")
    assert run("export", UNKNOWN, str(tmp_path / "x")).code == 3
    assert run("export", handle, str(tmp_path / "x"), "--format", "csv").code == 6
    assert run("export", handle, str(tmp_path / "x"), "--format", "xml").code == 2
    assert run("export", handle, str(tmp_path / "missing" / "x")).code == 1
    assert not (tmp_path / "x").exists()


def test_the_name_of_the_file_chooses_the_format(tmp_path: Path) -> None:
    handle = put(b'[{"id": 1}, {"id": 2}]')
    for name, content in (
        ("x.csv", "id\n1\n2\n"),
        ("x.jsonl", '{"id": 1}\n{"id": 2}\n'),
        ("x.json", '[{"id": 1}, {"id": 2}]'),
        ("x", '[{"id": 1}, {"id": 2}]'),
        ("x 1.5", '[{"id": 1}, {"id": 2}]'),
    ):
        run("export", handle, str(tmp_path / name))
        assert (tmp_path / name).read_text() == content
    run("export", handle, str(tmp_path / "sum.csv"), "--sql", "SELECT sum(id) AS n FROM items")
    assert (tmp_path / "sum.csv").read_text() == "n\n3\n"


def test_an_unknown_extension_is_refused_unless_a_format_is_given(tmp_path: Path) -> None:
    handle, path = put(b'[{"id": 1}, {"id": 2}]'), tmp_path / "q.xlsx"
    for options in ((), ("--sql", "SELECT 1 AS n"), ("--fields", "id"), ("--where", '{"id": 1}')):
        failed = run("export", handle, str(path), *options)
        assert failed.code == 2
        assert "'.xlsx'" in failed.error["message"]
        assert ".json, .ndjson, .jsonl, .csv, .parquet" in failed.error["message"]
        assert not path.exists()
    run("export", handle, str(path), "--format", "csv")
    assert path.read_text() == "id\n1\n2\n"
    # A payload that has none of the formats is copied to a file of any name.
    for content in (b"PK\x03\x04\x00", b"plain text"):
        run("export", put(content), str(path), "--force")
        assert path.read_bytes() == content


def test_the_extension_of_another_format_is_refused_unless_a_format_is_given(tmp_path: Path) -> None:
    handle, path = put(b'{"id": 1}\n{"id": 2}\n'), tmp_path / "q.json"
    failed = run("export", handle, str(path))
    assert failed.code == 2
    assert "end the name in .ndjson, or give the format json" in failed.error["message"]
    assert not path.exists()
    run("export", handle, str(path), "--format", "ndjson")
    assert path.read_text() == '{"id": 1}\n{"id": 2}\n'
    run("export", handle, str(path), "--where", '{"id": 1}', "--force")
    assert path.read_text() == '[{"id": 1}]'


def test_an_export_without_rows_says_why(tmp_path: Path) -> None:
    handle = put(b'[{"status": "failed"}]')
    report = run("export", handle, str(tmp_path / "x.csv"), "--where", '{"stauts": "failed"}').json
    assert report["rows"] == 0
    assert "no item has the field 'stauts'" in report["hint"]
    finished = run("fetch", handle, "--raw", "--where", '{"stauts": "failed"}')
    assert finished.out == b"[]\n"
    assert b"no item has the field" in finished.err


def test_errors_name_what_helps(tmp_path: Path) -> None:
    log = put(b"one line\nanother line\n")
    failed = run("export", log, str(tmp_path / "log.csv"))
    assert "end the name of the file in another way than .csv" in failed.error["message"]
    assert run("export", log, str(tmp_path / "log.txt")).code == 0
    failed = run("export", log, str(tmp_path / "none" / "log.txt"))
    assert f"there is no folder {tmp_path / 'none'}; make it" in failed.error["message"]
    many = put(b"[" + b",".join([b'{"id":1}'] * 2_200_000) + b"]")
    unknown = run("export", many, str(tmp_path / "x.csv"), "--fields", "nope")
    assert "name keys of an item, as in [{id: int}]" in unknown.error["message"]
    assert "offset" not in unknown.error["message"]


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    assert "is a folder" in run("export", put(b"[1]"), str(tmp_path)).error["message"]


def test_fields_are_columns(tmp_path: Path) -> None:
    handle = put(b'[{"id": 1, "user": {"name": "Ann", "age": 3}}, {"id": 2, "user": {"age": 4}}]')
    path = tmp_path / "x.csv"
    report = run("export", handle, str(path), "--fields", "user.name,id").json
    assert (report["rows"], report["format"]) == (2, "csv")
    assert path.read_text() == "user.name,id\nAnn,1\n,2\n"
    report = run("export", handle, str(tmp_path / "x.json"), "--fields", "id,nope").json
    assert json.loads((tmp_path / "x.json").read_text()) == [{"id": 1}, {"id": 2}]
    assert "no item has the field 'nope'" in report["hint"]
    assert run("export", handle, str(tmp_path / "y"), "--fields", "nope").code == 6


def test_a_dash_is_standard_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    content = b'[{"id": 1, "n": 10}, {"id": 2, "n": 20}]'
    handle = put(content)
    for _ in range(2):
        assert run("export", handle, "-") == (0, content, b"")
    (event,) = run("journal", "--count", "1").json
    assert (event["event"], event["path"], event["size_bytes"]) == ("output_exported", "-", len(content))
    assert run("export", handle, "-", "--format", "csv", "--where", '{"n": {">": 10}}') == (0, b"id,n\n2,20\n", b"")
    code, out, err = run("export", handle, "-", "--format", "ndjson", "--where", '{"m": 1}')
    assert (code, out) == (0, b"")
    assert b"no item has the field 'm'" in err
    assert run("export", UNKNOWN, "-").code == 3
    assert not (tmp_path / "-").exists()
    assert run("export", handle, "./-").json["size_bytes"] == len(content)
    assert (tmp_path / "-").read_bytes() == content
