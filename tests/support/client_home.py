"""A home and a project with the files of MCP clients."""

import sys
from pathlib import Path

import pytest

_VARIABLES = (
    "APPDATA",
    "CLAUDE_CONFIG_DIR",
    "CLINE_DATA_DIR",
    "CLINE_MCP_SETTINGS_PATH",
    "CODEX_HOME",
    "COPILOT_HOME",
    "CRUSH_GLOBAL_CONFIG",
    "GEMINI_CLI_HOME",
    "OPENCODE_CONFIG",
    "QWEN_HOME",
    "XDG_CONFIG_HOME",
)


class ClientHome:
    """The user's home, and an empty project, which is the working directory."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.user, self.project = root / "user", root / "project"
        for folder in (self.user, self.project):
            folder.mkdir()
        for name in _VARIABLES:
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HOME", str(self.user))
        if sys.platform == "win32":
            monkeypatch.setenv("USERPROFILE", str(self.user))
            # So that most files have the same names on all systems.
            monkeypatch.setenv("APPDATA", str(self.user / ".config"))
        monkeypatch.chdir(self.project)

    def write(self, name: str, content: str | bytes) -> Path:
        """Write a file of the user, or of the project if the name begins with `project/`."""
        if sys.platform == "win32":
            name = name.replace(".config/goose/", ".config/Block/goose/config/")
        path = self.user.parent / name if name.startswith("project/") else self.user / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def read_all(self) -> dict[str, bytes]:
        """Return the content of each file except backups, by its path."""
        files = [path for path in self.user.parent.rglob("*") if path.is_file() and "backup" not in path.name]
        return {path.relative_to(self.user.parent).as_posix(): path.read_bytes() for path in files}
