"""One build of the package: an interpreter, and the names the package has there."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("forebay", "headgate")
"""The names the package has had, newest first."""

_EARLIER_OPTIONS = {"prefix": "tool_prefix", "quota_bytes": "quota", "principal_quota_bytes": "principal_quota"}
"""Options of the adapters that had another name under the package's earlier name; of the gateway, only `prefix`."""

_FIND = """
import importlib.util, json, sys, sysconfig
name = next((name for name in sys.argv[1:] if importlib.util.find_spec(name)), None)
print(json.dumps({"name": name, "scripts": sysconfig.get_path("scripts"), "prefix": sys.prefix}))
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
        return name if self.name == NAMES[0] else _EARLIER_OPTIONS.get(name, name)

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


def find_build(python: str) -> Build:
    """Return the build that an interpreter has installed."""
    # Not resolved: the link is what makes it the interpreter of its environment.
    python = os.path.abspath(shutil.which(python) or python)  # noqa: PTH100
    try:
        done = subprocess.run([python, "-c", _FIND, *NAMES], capture_output=True, text=True, check=True, cwd="/")
    except (OSError, subprocess.CalledProcessError) as error:
        raise BuildNotFound(f"{python} cannot be run: {error}") from error
    answer = json.loads(done.stdout)
    if answer["name"] is None:
        raise BuildNotFound(f"{python} has none of the packages {', '.join(NAMES)}")
    return Build(python, answer["name"], Path(answer["scripts"]), answer["prefix"])


def script(name: str) -> list[str]:
    """Return the command of a script of this folder, run with the interpreter of the tool itself."""
    return [sys.executable, str(Path(__file__).with_name(name))]
