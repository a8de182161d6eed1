"""One build of the package: an interpreter, and the names the package has there."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

NAME = "forebay"
"""The name of the package, unless a build is said to have another."""

_EARLIER_OPTIONS = {"prefix": "tool_prefix", "quota_bytes": "quota", "principal_quota_bytes": "principal_quota"}
"""Options of the adapters that had another name under the package's earlier name; of the gateway, only `prefix`."""

_FIND = """
import importlib.util, json, sys, sysconfig
is_found = importlib.util.find_spec(sys.argv[1]) is not None
print(json.dumps({"is_found": is_found, "scripts": sysconfig.get_path("scripts"), "prefix": sys.prefix}))
"""


class BuildNotFound(Exception):
    """An interpreter that cannot be run, or has no build of the package."""


@dataclasses.dataclass(frozen=True)
class Build:
    """The package as one interpreter has it installed."""

    python: str
    name: str
    scripts: Path
    prefix: str

    def command(self, *arguments: str) -> list[str]:
        """Return the command line of the console script."""
        return [str(self.scripts / self.name), *arguments]

    def option(self, name: str) -> str:
        """Return the name that an option has in this build."""
        return name if self.name == NAME else _EARLIER_OPTIONS.get(name, name)

    def variable(self, name: str) -> str:
        """Return the environment variable of an option."""
        return f"{self.name.upper()}_{name}"

    def environment(self, folder: Path) -> dict[str, str]:
        """Return the environment of every process, without that of the caller."""
        return {
            "PATH": f"{self.scripts}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(folder),
            "TMPDIR": str(folder),
            "LANG": "C.UTF-8",
            "WIRE_PACKAGE": self.name,
        }


def find_build(python: str, name: str = NAME) -> Build:
    """Return the build that an interpreter has installed under a name."""
    # Not resolved: the link is what makes it the interpreter of its environment.
    python = os.path.abspath(shutil.which(python) or python)  # noqa: PTH100
    try:
        done = subprocess.run([python, "-c", _FIND, name], capture_output=True, text=True, check=True, cwd="/")
    except (OSError, subprocess.CalledProcessError) as error:
        raise BuildNotFound(f"{python} cannot be run: {error}") from error
    answer = json.loads(done.stdout)
    if not answer["is_found"]:
        raise BuildNotFound(f"{python} has no package {name}")
    return Build(python, name, Path(answer["scripts"]), answer["prefix"])


def script(name: str) -> list[str]:
    """Return the command of a script of this folder, run with the interpreter of the tool itself."""
    return [sys.executable, str(Path(__file__).with_name(name))]
