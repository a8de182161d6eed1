"""Command lines of batch files: the shell of Windows interprets no argument."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from forebay.system.windows_commands import is_batch_file, make_batch_command


@pytest.mark.parametrize(
    ("path", "expected"),
    [("npx.cmd", True), (r"C:\x\NPX.CMD", True), ("a.bat", True), ("a.bat. .", True), ("a.exe", False), ("cmd", False)],
)
def test_batch_files_are_recognized_by_name(path: str, expected: bool) -> None:
    assert is_batch_file(path) is expected


def test_an_argument_is_escaped_twice_and_the_path_is_quoted() -> None:
    command = make_batch_command(r"C:\cmd.exe", r"C:\a b\npx.cmd", ["-y", "a&b", "%PATH%"])
    assert command == (
        r'"C:\cmd.exe" /d /s /v:off /c "\"C:\a b\npx.cmd\" '
        r"^^^\"-y^^^\" ^^^\"a^^^&b^^^\" ^^^\"^^^%PATH^^^%^^^\""
        '"'
    ).replace('\\"', '"')


@pytest.mark.parametrize("argument", ["a\nb", "a\rb", "a\0b"])
def test_an_argument_with_a_line_break_is_refused(argument: str) -> None:
    with pytest.raises(ValueError, match="line break"):
        make_batch_command("cmd.exe", "a.cmd", [argument])


@pytest.mark.skipif(sys.platform != "win32", reason="needs the shell of Windows")
def test_the_arguments_arrive_unchanged(tmp_path: Path) -> None:
    script = tmp_path / "show.py"
    script.write_text("import json, sys; print(json.dumps(sys.argv[1:]))")
    batch = tmp_path / "show it.cmd"
    batch.write_text(f'@"{sys.executable}" "{script}" %*\n')
    arguments = ["plain", "two words", "a&b", "x|y", "(z)"]
    command = make_batch_command(r"C:\Windows\System32\cmd.exe", str(batch), arguments)
    assert json.loads(subprocess.run(command, capture_output=True, check=True).stdout) == arguments
