"""`make coverage` measures the sources of the tree, and says what it needs."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import measure_coverage
import pytest
from measure_coverage import PACKAGE, find_llvm_tools, link_package


def test_the_linked_package_has_the_sources_and_the_build_that_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked = tmp_path / "python"
    monkeypatch.setattr(measure_coverage, "LINKED", linked)
    extension = tmp_path / "lib_core.so"
    spec = find_spec("forebay._core")
    assert spec is not None
    assert spec.origin is not None
    extension.write_bytes(Path(spec.origin).read_bytes())
    link_package(extension)
    code = "import forebay._core, forebay.store; print(forebay._core.__file__, forebay.store.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(linked)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    core, store = (Path(name) for name in done.stdout.split())
    assert core.is_relative_to(linked)
    assert core.resolve() == extension
    assert store.resolve() == PACKAGE / "store" / "__init__.py"


def test_missing_tools_of_llvm_name_the_next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rustc = tmp_path / "rustc"
    rustc.write_text(f'#!/bin/sh\n[ "$1" = -vV ] && echo "LLVM version: 99.1.2" || echo {tmp_path}\n')
    rustc.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match=r"run `rustup component add llvm-tools`, or install llvm-99"):
        find_llvm_tools()
    for name in ("llvm-profdata-99", "llvm-cov-99"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    assert find_llvm_tools() == (str(tmp_path / "llvm-profdata-99"), str(tmp_path / "llvm-cov-99"))
