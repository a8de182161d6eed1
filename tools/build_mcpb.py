"""Build an MCP bundle (`.mcpb`) from a wheel: `python tools/build_mcpb.py dist/forebay-….whl`.

The bundle holds the wheel; uv, which the client has, installs its dependencies. So it is for the platform of the wheel.
"""

import json
import sys
import zipfile
from pathlib import Path

PACKAGING = Path(__file__).resolve().parents[1] / "packaging" / "mcpb"

PLATFORMS = {"linux": "linux", "manylinux": "linux", "musllinux": "linux", "macosx": "darwin", "win": "win32"}
"""Platforms of the bundle format, by the beginning of a wheel's platform tag."""

PYPROJECT = """\
[project]
name = "forebay-bundle"
version = "{version}"
requires-python = ">=3.11"
dependencies = ["forebay"]

[tool.uv.sources]
forebay = {{ path = "{wheel}" }}
"""


def build(wheel: Path) -> Path:
    """Write the bundle beside the wheel, and return its path."""
    _, version, *_, platform = wheel.stem.split("-")
    system = next(PLATFORMS[start] for start in sorted(PLATFORMS, reverse=True) if platform.startswith(start))
    manifest = json.loads((PACKAGING / "manifest.json").read_text(encoding="utf-8"))
    manifest |= {"version": version, "compatibility": {"platforms": [system], "runtimes": {"python": ">=3.11"}}}
    bundle = wheel.with_name(f"forebay-{version}-{platform}.mcpb")
    with zipfile.ZipFile(bundle, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", json.dumps(manifest, indent=2, ensure_ascii=False))
        archive.writestr("pyproject.toml", PYPROJECT.format(version=version, wheel=wheel.name))
        archive.write(PACKAGING / "server.py", "server.py")
        # Wheels are compressed already.
        archive.write(wheel, wheel.name, zipfile.ZIP_STORED)
    return bundle


if __name__ == "__main__":
    print(build(Path(sys.argv[1])))
