"""Write the licenses of the Rust code that is linked into the wheel: `python tools/third_party_licenses.py`.

The wheel and the sdist carry the file. With `--check` nothing is written, and the exit code is 1 if the file does not
name the crates that are linked, or not with their present texts. The part about Rust's standard library depends on the
toolchain that wrote the file and on downloads, so `--check` does not compare it.
"""

import argparse
import html
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import NamedTuple

__all__ = ["FILE", "TARGETS", "Crate", "check", "choose_license", "linked_crates", "write"]

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "THIRD-PARTY-LICENSES.txt"

TARGETS = tuple(
    f"{processor}-{system}"
    for system in ("unknown-linux-gnu", "unknown-linux-musl", "apple-darwin", "pc-windows-msvc")
    for processor in ("x86_64", "aarch64")
)
"""The platforms that wheels are built for."""

LICENSE_FILES = {"MIT": ("license-mit", "license-mit.md", "license"), "BSL-1.0": ("license",), "Zlib": ("license",)}
"""Licenses that forebay takes crates under, the preferred first. A crate that offers no other needs a decision."""
DATA_LICENSES = ("license-unicode",)
"""Licenses of data inside of a crate, which are needed beside the crate's own."""

STD_CRATES = (
    "addr2line", "adler2", "cfg-if", "foldhash", "gimli", "hashbrown", "libc", "memchr", "miniz_oxide", "object",
    "rustc-demangle", "windows-link",
)  # fmt: skip
"""Crates in the standard library on these platforms. The toolchain's own list of notices leaves out some of them."""

STD_MANIFEST = """\
[package]
name = "forebay-std"
version = "0.0.0"
edition = "2024"
[lib]
path = "lib.rs"
"""

HEADER = """\
forebay is licensed under the MIT license (see LICENSE). Its extension module forebay._core also contains the Rust code
that is listed here, under the license named with it.
"""
RULE = "=" * 78
STD_TITLE = "The Rust standard library"


class Crate(NamedTuple):
    name: str
    version: str
    license: str
    """The license that was chosen of those that the crate offers."""

    @property
    def folder(self) -> Path:
        home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
        folder = next(home.glob(f"registry/src/*/{self.name}-{self.version}"), None)
        if folder is None:
            raise SystemExit(f"the source of {self.name} {self.version} is not there: run `cargo fetch` first")
        return folder


def choose_license(name: str, expression: str) -> str:
    """Return the license to use of an SPDX expression."""
    offered = re.split(r" OR | ?/ ?", expression)
    for chosen in LICENSE_FILES:
        if chosen in offered:
            return chosen
    raise SystemExit(f"{name} is licensed under {expression}, and only {', '.join(LICENSE_FILES)} are accepted")


def linked_crates() -> list[Crate]:
    """Return the crates of others that are linked into the wheel of any platform."""
    targets = [argument for target in TARGETS for argument in ("--target", target)]
    return read_tree(ROOT, "--locked", "--package", "forebay-python", *targets)


def read_tree(folder: Path | str, *arguments: str) -> list[Crate]:
    """Return the crates that the package in a folder links, without those of forebay."""
    command = ["cargo", "tree", "--quiet", "--prefix", "none", "--edges", "normal,no-proc-macro", "--format", "{p}|{l}"]
    lines = subprocess.run([*command, *arguments], cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout
    crates = set()
    for line in filter(None, lines.splitlines()):
        package, _, expression = line.removesuffix(" (*)").partition("|")
        name, version = package.split()[:2]
        if not name.startswith("forebay-"):
            crates.add(Crate(name, version.removeprefix("v"), choose_license(name, expression)))
    return sorted(crates)


def license_text(crate: Crate) -> str:
    """Return the text of the crate's license, and of those for data in it."""
    files = {path.name.lower(): path for path in crate.folder.iterdir()}
    names = [name for name in LICENSE_FILES[crate.license] if name in files]
    if not names:
        raise SystemExit(f"{crate.name} {crate.version} has no file {' or '.join(LICENSE_FILES[crate.license])}")
    texts = [files[names[0]], *(path for path in sorted(crate.folder.rglob("*")) if path.name.lower() in DATA_LICENSES)]
    return "\n\n".join(tidy(path.read_text(encoding="utf-8")) for path in texts)


def tidy(text: str) -> str:
    """Remove spaces around the text and at the end of lines."""
    return "\n".join(line.rstrip() for line in textwrap.dedent(text).strip().splitlines())


def section(title: str, text: str) -> str:
    return f"{RULE}\n{title}\n{RULE}\n\n{text}\n"


def render_crates() -> str:
    # No versions, so that an update changes the file only if a license changes. The SBOM has the versions.
    return "\n".join(
        section(f"{crate.name} ({crate.license}), https://crates.io/crates/{crate.name}", license_text(crate))
        for crate in linked_crates()
    )


def render_std() -> str:
    """Return the notices of the standard library and of the crates in it."""
    sysroot = subprocess.run(["rustc", "--print", "sysroot"], check=True, capture_output=True, text=True).stdout.strip()
    documents = Path(sysroot, "share/doc/rust")
    page = html.unescape((documents / "COPYRIGHT-library.html").read_text(encoding="utf-8")).partition("<h3>")[0]
    owners = dict.fromkeys(f"Copyright {owner}" for owner in re.findall(r"<b>Copyright:</b> (.*?)</p>", page))
    parts = ["\n".join(owners)]
    parts += [tidy((documents / f"licenses/{name}.txt").read_text(encoding="utf-8")) for name in ("MIT", "Unicode-3.0")]
    parts += [
        f"{crate.name} ({crate.license}), in the standard library:\n\n{license_text(crate)}" for crate in std_crates()
    ]
    return section(f"{STD_TITLE} (MIT), https://github.com/rust-lang/rust", "\n\n".join(parts))


def std_crates() -> list[Crate]:
    """Download the newest release of each crate in the standard library."""
    with tempfile.TemporaryDirectory() as folder:
        dependencies = "".join(f'{name} = "*"\n' for name in STD_CRATES)
        Path(folder, "Cargo.toml").write_text(f"{STD_MANIFEST}[dependencies]\n{dependencies}", encoding="utf-8")
        Path(folder, "lib.rs").touch()
        return read_tree(folder, "--target", "all", "--depth", "1")


def write() -> None:
    FILE.write_text("\n".join([HEADER, render_crates(), render_std()]), encoding="utf-8")


def check() -> bool:
    """Return whether the file has the present licenses of the crates, and a part about the standard library."""
    before, rule, _ = FILE.read_text(encoding="utf-8").partition(f"{RULE}\n{STD_TITLE}")
    return bool(rule) and before == f"{HEADER}\n{render_crates()}\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the licenses of the Rust code that is linked into the wheel.")
    parser.add_argument("--check", action="store_true", help="only compare the file with the crates")
    if not parser.parse_args().check:
        write()
    elif not check():
        print(f"{FILE.name} is not current: run `python tools/third_party_licenses.py`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
