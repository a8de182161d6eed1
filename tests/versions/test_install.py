"""forebay takes the packages that it finds: installing it beside a server changes none, and old ones are enough."""

import re
import subprocess
import tomllib
import venv

import pytest
from sdk_versions import ROOT, Environment, find_wheel, run_pip

pytestmark = pytest.mark.slow


def test_no_other_package_changes(environment: Environment) -> None:
    before, after = environment.packages_before, environment.packages_after
    assert len(before) > 10
    assert {name: after.get(name) for name in before} == before
    run_pip(environment.python, "check")


def test_the_oldest_dependencies_work() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    dependencies = [re.sub(">=", "==", dependency) for dependency in project["dependencies"]]
    assert len(dependencies) > 5
    folder = ROOT / "target" / "versions" / "oldest"
    venv.create(folder, clear=True, with_pip=True)
    python = str(folder / "bin" / "python")
    run_pip(python, "install", "--quiet", "--only-binary", ":all:", *dependencies, str(find_wheel()))
    command = [python, str(ROOT / "tests" / "smoke.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
