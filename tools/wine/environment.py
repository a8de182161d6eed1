"""Install Wine, a Windows Python and the packages that the tests need, below one folder.

The machine needs only APT, `mmdebstrap`, `unshare` and Go: Wine comes from Debian's packages, in a root of its own, and
Python from a Go module that embeds it for all platforms. Each step is skipped if it was done before.
"""

import gzip
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

__all__ = ["PROJECT", "Environment"]

PROJECT = Path(__file__).resolve().parents[2]

_DEBIAN_RELEASE = "trixie"
_WINE_PACKAGES = "wine,wine64"

_PYTHON_MODULE = "github.com/kluctl/go-embed-python@v0.0.0-3.11.11-20241219-1"
_PYTHON_VERSION = "3.11"
_IS_FOLDER = 1 << 31
"""Bit of Go's file modes."""

_EXTRAS = ("mcp", "serve", "sql", "view", "yaml", "redis", "s3")
_TEST_PACKAGES = (
    "fastmcp>=4.1,<5",
    "hypothesis",
    "jsonschema",
    "opentelemetry-sdk>=1.30",
    "optimade[server]>=1.5",
    "Pillow>=11",
    "pyte",
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
    "pyzstd",
    "tzdata",
)

_MOUNT_MANAGER_KEY = r"HKLM\System\CurrentControlSet\Services\MountMgr"

# The folders of the host that Wine sees, at the same paths. Everything else comes from Wine's own root.
_RUN_SCRIPT = """
root=$1; project=$2; folder=$3; shift 3
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/tmp"
mkdir -p "$root$project"
mount --rbind "$project" "$root$project"
cp /etc/resolv.conf /etc/hosts "$root/etc/"
# The inner shell stays beside the command, and reaps the processes that outlive their parents.
exec chroot "$root" sh -c 'cd "$1" && shift && "$@"; exit $?' sh "$folder" "$@"
"""


class Environment:
    """Wine and a Windows Python below a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.python = folder / "python"
        self.site_packages = self.python / "Lib" / "site-packages"
        self._tools = folder / "tools"

    def install(self) -> None:
        """Install what is missing."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._step("Wine (Debian's, two minutes)", self.root / "usr/lib/wine/wine64", self._install_wine)
        self._step("Python for Windows", self.python / "python.exe", self._install_python)
        requirements = sorted({*self._read_requirements(), *_TEST_PACKAGES})
        marker = self.folder / "packages.json"
        if not marker.exists() or json.loads(marker.read_text()) != requirements:
            print("windows: Python packages", flush=True)
            self._install_packages(requirements)
            marker.write_text(json.dumps(requirements))
        self._step("Wine's prefix", self.folder / "prefix/system.reg", self._make_prefix)
        compiled = self.folder / "compiled.json"
        if not compiled.exists() or compiled.read_text() != marker.read_text():
            print("windows: bytecode (two minutes)", flush=True)
            self.compile(self.python / "Lib")
            compiled.write_text(marker.read_text())

    def run(self, *command: str, folder: Path = PROJECT, environment: dict[str, str] | None = None) -> int:
        """Run a command of Wine's root, and return its exit code. All processes that it starts end with it."""
        variables = {
            "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": "/root",
            "XDG_RUNTIME_DIR": "/tmp",  # noqa: S108 - it is empty, and gone with the command
            # Names of files are UTF-8.
            "LC_ALL": "C.UTF-8",
            "WINEPREFIX": str(self.folder / "prefix"),
            "WINEDEBUG": "-all",
            # Neither .NET nor a browser is needed, and Wine would ask for them.
            "WINEDLLOVERRIDES": "mscoree,mshtml=",
            **(environment or {}),
        }
        namespaces = ["--mount", "--pid", "--fork", "--kill-child"]
        if os.geteuid():
            namespaces += ["--user", "--map-root-user"]
        # If this process is killed, `unshare` is, too, and so are its children.
        prefix = ["setpriv", "--pdeathsig", "KILL", "unshare", *namespaces]
        return subprocess.run(
            [*prefix, "sh", "-ec", _RUN_SCRIPT, "sh", self.root, PROJECT, folder, *command], env=variables, check=False
        ).returncode

    def compile(self, folder: Path) -> None:
        """Compile the modules in a folder: tests start many processes, and each would compile what it imports."""
        # Some files of the standard library's own tests cannot be compiled.
        self.run("wine", str(self.python / "python.exe"), "-m", "compileall", "-qq", str(folder))

    def _step(self, name: str, made: Path, make: Callable[[], object]) -> None:
        if not made.exists():
            print(f"windows: {name}", flush=True)
            make()
            if not made.exists():
                sys.exit(f"windows: {made} was not made; see the output above")

    def _install_wine(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        mode = "unshare" if os.geteuid() else "root"
        subprocess.run(
            [
                *("mmdebstrap", "--quiet", "--variant=apt", f"--mode={mode}", f"--include={_WINE_PACKAGES}"),
                *(_DEBIAN_RELEASE, self.root, _find_mirror()),
            ],
            check=True,
        )

    def _install_python(self) -> None:
        module = json.loads(
            subprocess.run(
                ["go", "mod", "download", "-json", _PYTHON_MODULE], check=True, capture_output=True, cwd=self.folder
            ).stdout
        )
        source = Path(module["Dir"]) / "python/internal/data/windows-amd64"
        for file in json.loads((source / "files.json").read_bytes())["files"]:
            target = self.python / file["name"]
            if file["perm"] & _IS_FOLDER:
                target.mkdir(parents=True, exist_ok=True)
            elif file.get("compressed"):
                target.write_bytes(gzip.decompress((source / f"{file['name']}.gz").read_bytes()))
            else:
                target.write_bytes((source / file["name"]).read_bytes())

    def _make_prefix(self) -> None:
        # Disable the mount manager. Otherwise Wine asks it for the volume of each file, so opening takes twice as long.
        command = f"wineboot --init && wine reg add '{_MOUNT_MANAGER_KEY}' /v Start /t REG_DWORD /d 4 /f"
        # The server writes the registry when it ends.
        self.run("sh", "-c", f"{command} && wineserver --wait")

    def _read_requirements(self) -> list[str]:
        project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
        extras = project["optional-dependencies"]
        return [*project["dependencies"], *(requirement for extra in _EXTRAS for requirement in extras[extra])]

    def _install_packages(self, requirements: list[str]) -> None:
        # pip evaluates markers for the machine that it runs on; uv evaluates them for the given platform.
        uv = self._tools / "bin" / "uv"
        if not uv.exists():
            subprocess.run([sys.executable, "-m", "venv", self._tools], check=True)
            subprocess.run([self._tools / "bin" / "python", "-m", "pip", "install", "--quiet", "uv"], check=True)
        subprocess.run(
            [
                *(uv, "pip", "install", "--quiet", "--python-platform", "x86_64-pc-windows-msvc"),
                *("--python-version", _PYTHON_VERSION, "--only-binary", ":all:"),
                *("--target", self.site_packages, "--cache-dir", self.folder / "cache"),
                *requirements,
            ],
            check=True,
        )


def _find_mirror() -> str:
    """Return the address of the Debian mirror that this machine uses."""
    addresses = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)"], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.split()
    for address in addresses:
        # Not the one of security updates.
        if address.rstrip("/").endswith("/debian"):
            return address
    sys.exit("windows: this machine's apt names no mirror of Debian; wine can be installed on Debian only")
