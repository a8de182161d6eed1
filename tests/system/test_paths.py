"""Paths of Windows; the tests run on every system."""

import pytest
from forebay.system.paths import check_windows_name, parse_file_url


@pytest.mark.parametrize(
    ("host", "path", "expected"),
    [
        ("", "/C:/Users/ann/store", r"C:\Users\ann\store"),
        ("localhost", "/d:/x y", r"d:\x y"),
        ("", "/C:/", "C:\\"),
        ("", "/C:/a/../b", r"C:\a\..\b"),
        ("server", "/share/folder/x", r"\\server\share\folder\x"),
        ("server-1.example", "/share/folder", r"\\server-1.example\share\folder"),
        # Neither an absolute path on a drive nor one in a share.
        ("", "/var/store", None),
        ("", "C:/x", None),
        ("", "/C:x", None),
        ("", "", None),
        ("server", "/share", None),
        ("server", "", None),
        # Devices, ports and credentials.
        (".", "/pipe/x/y", None),
        ("?", "/C:/x", None),
        ("server:80", "/share/x", None),
        ("k:secret@server", "/share/x", None),
    ],
)
def test_a_file_url_on_windows(host: str, path: str, expected: str | None) -> None:
    assert parse_file_url(host, path, is_windows=True) == expected


@pytest.mark.parametrize(
    ("host", "path", "expected"),
    [
        ("", "/var/x", "/var/x"),
        ("localhost", "/x", "/x"),
        ("", "/C:/x", "/C:/x"),
        ("host", "/x/y", None),
        ("", "x", None),
    ],
)
def test_a_file_url_on_posix(host: str, path: str, expected: str | None) -> None:
    assert parse_file_url(host, path, is_windows=False) == expected


@pytest.mark.parametrize(
    "name",
    ["NUL", "nul", "Nul.txt", "nul .txt", "COM1", "com9.log", "LPT3", "COM\u00b9", "AUX", "con", "PRN.json", "CONIN$"],
)
def test_names_of_devices_are_refused(name: str) -> None:
    assert check_windows_name(name) == "is the name of a device on Windows"


@pytest.mark.parametrize("name", ["a:b", "file.txt::$DATA", "a?", "a*", 'a"b', "a<b", "a|b", "a\x1f", "a\\b"])
def test_names_with_forbidden_characters_are_refused(name: str) -> None:
    assert check_windows_name(name) == "has characters that Windows does not allow in names"


@pytest.mark.parametrize("name", ["a.", "a ", "a. ", "..."])
def test_names_with_an_end_that_windows_ignores_are_refused(name: str) -> None:
    assert check_windows_name(name) == "ends with a space or a dot, which Windows ignores"


@pytest.mark.parametrize(
    "name", ["a", "a.txt", ".hidden", "COM", "COM10", "console", "nullable.json", "ü", "a b", "NULL"]
)
def test_other_names_are_allowed(name: str) -> None:
    assert check_windows_name(name) is None
