"""Print the section of CHANGELOG.md of a version: `python tools/release_notes.py 1.2.3`.

Without a version it prints what is not released yet. The exit code is 1 if the version is not that of Cargo.toml, where
the version stands, or if the section is missing or empty. It needs Python's standard library alone.
"""

import re
import sys
import tomllib
from pathlib import Path

__all__ = ["find_section", "read_version"]

ROOT = Path(__file__).resolve().parents[1]
UNRELEASED = "Unreleased"


def find_section(changelog: str, version: str) -> str:
    """Return the text below the heading of a version, and raise `LookupError` if there is none."""
    heading = re.compile(rf"^## {re.escape(version)}(?: .*)?$", re.MULTILINE)
    found = heading.search(changelog)
    if found is None:
        raise LookupError(f"CHANGELOG.md has no section `## {version}`: rename `## {UNRELEASED}`")
    text = re.split(r"^## ", changelog[found.end() :], maxsplit=1, flags=re.MULTILINE)[0].strip()
    if not text:
        raise LookupError(f"the section `## {version}` of CHANGELOG.md is empty")
    return text


def read_version(root: Path = ROOT) -> str:
    """Return the version of the package."""
    manifest = tomllib.loads((root / "Cargo.toml").read_text(encoding="utf-8"))
    version: str = manifest["workspace"]["package"]["version"]
    return version


def main(arguments: list[str], root: Path = ROOT) -> int:
    version = arguments[0] if arguments else UNRELEASED
    if version not in (UNRELEASED, read_version(root)):
        print(f"Cargo.toml has version {read_version(root)}, not {version}: set it there first", file=sys.stderr)
        return 1
    try:
        print(find_section((root / "CHANGELOG.md").read_text(encoding="utf-8"), version))
    except LookupError as error:
        print(error.args[0], file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
