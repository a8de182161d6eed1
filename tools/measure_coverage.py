"""Measure which lines of Python and Rust the tests run: `python tools/measure_coverage.py [TESTS...]`.

The Rust code is built with counters, and the package is imported from a folder of links to the sources beside that
build, so that a test counts lines of both languages. Processes that tests start are measured too, unless the test kills
them or empties their environment. With TESTS only those of Python are run, and their lines are added to the earlier
measurement, so that a long run can be made in parts; without, all tests of both languages are run.

A test of imports, memory or the depth of the stack may fail because it is measured. So failures are listed, and the
exit code is 0 all the same: `make test` decides whether the tests pass.

Everything is written to target/coverage/: `python.txt` and `rust.txt` list the files, `python-html/index.html` and
`rust-html/index.html` show their lines.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

__all__ = ["LINKED", "PACKAGE", "find_llvm_tools", "link_package", "main"]

ROOT = Path(__file__).resolve().parents[1]
OUTPUT = ROOT / "target" / "coverage"
PROFILES = OUTPUT / "profiles"
PACKAGE = ROOT / "python" / "forebay"
LINKED = OUTPUT / "python"
CARGO = OUTPUT / "cargo"

LONG_TESTS = ("versions",)
"""Folders of tests that need environments of their own."""

NOT_MEASURED = r"/registry/|/rustc/|/rust/core/(src/.*tests\.rs|tests/.*)$"


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure which lines of Python and Rust the tests run.")
    parser.add_argument(
        "tests", nargs=argparse.REMAINDER, help="arguments of pytest: adds these tests to the measurement"
    )
    tests = parser.parse_args().tests
    tools = find_llvm_tools()
    if not tests:
        for folder in (PROFILES, OUTPUT / "data"):
            shutil.rmtree(folder, ignore_errors=True)
    failed = [] if tests or test_rust() else ["cargo test"]
    link_package(build_extension())
    # Folder by folder, so that a run that is stopped keeps what it has measured.
    folders = [folder for folder in sorted((ROOT / "tests").iterdir()) if has_tests(folder)]
    all_tests = [[str(folder), "-n", "logical", "--dist", "loadfile"] for folder in folders]
    failed += [arguments[0] for arguments in ([tests] if tests else all_tests) if not test_python(arguments)]
    summaries = [report_python(), *report_rust(*tools)]
    if failed:
        print(f"Some tests failed while they were measured: {', '.join(failed)}")
    print("\n".join(summaries))
    return 0


def find_llvm_tools() -> tuple[str, str]:
    """Return `llvm-profdata` and `llvm-cov` of the toolchain, or of the system in the version of rustc's LLVM."""
    sysroot = Path(read_output("rustc", "--print", "sysroot").strip())
    match = re.search(r"LLVM version: (\d+)", read_output("rustc", "-vV"))
    version = match[1] if match else ""
    found = []
    for name in ("llvm-profdata", "llvm-cov"):
        own = next(sysroot.glob(f"lib/rustlib/*/bin/{name}"), None)
        tool = str(own) if own else shutil.which(f"{name}-{version}")
        if tool is None:
            raise SystemExit(f"{name} is not there: run `rustup component add llvm-tools`, or install llvm-{version}")
        found.append(tool)
    return found[0], found[1]


def read_output(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout


def counting(build: str = "tests") -> dict[str, str]:
    """Return the environment in which builds get counters, and the processes of a build write them."""
    return {
        **os.environ,
        "CARGO_TARGET_DIR": str(CARGO),
        "CARGO_PROFILE_DEV_OPT_LEVEL": "1",
        # Processes of one build add to the same four files. Those of another build would complain on stderr.
        "LLVM_PROFILE_FILE": str(PROFILES / f"{build}-%4m.profraw"),
        "RUSTFLAGS": "-C instrument-coverage",
    }


def test_rust() -> bool:
    # Tests in the documentation cannot be measured with a stable compiler. Few random cases run the same lines as many.
    command = ["cargo", "test", "--package", "forebay-core", "--lib", "--tests"]
    return subprocess.run(command, env={"PROPTEST_CASES": "64", **counting()}, cwd=ROOT, check=False).returncode == 0


def build_extension() -> Path:
    subprocess.run(["cargo", "build", "--package", "forebay-python"], env=counting(), cwd=ROOT, check=True)
    return next(path for path in (CARGO / "debug").iterdir() if re.fullmatch(r"lib_core\.(so|dylib)", path.name))


def link_package(extension: Path) -> None:
    """Make a package of links to the sources, with the extension module that counts."""
    shutil.rmtree(LINKED, ignore_errors=True)
    (LINKED / "forebay").mkdir(parents=True)
    for path in PACKAGE.iterdir():
        if path.suffix != ".so" and path.name != "__pycache__":
            (LINKED / "forebay" / path.name).symlink_to(path)
    (LINKED / "forebay" / "_core.abi3.so").symlink_to(extension)


def has_tests(folder: Path) -> bool:
    return folder.name not in LONG_TESTS and folder.is_dir() and any(folder.rglob("test_*.py"))


def test_python(arguments: Sequence[str]) -> bool:
    (OUTPUT / "data").mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join(filter(None, [str(LINKED), os.environ.get("PYTHONPATH")]))
    build = str((LINKED / "forebay" / "_core.abi3.so").stat().st_mtime_ns)
    environment = counting(build) | {"PYTHONPATH": path, "COVERAGE_FILE": str(OUTPUT / "data" / ".coverage")}
    command = [sys.executable, "-m", "coverage", "run", "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, env=environment, cwd=ROOT, check=False).returncode == 0


def report_python() -> str:
    """Write the reports of Python's lines, and return a line that sums them up."""
    environment = {**os.environ, "COVERAGE_FILE": str(OUTPUT / "data" / ".coverage")}

    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "coverage", *arguments]
        return subprocess.run(command, env=environment, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout

    if any((OUTPUT / "data").glob(".coverage.*")):
        run("combine", "--append", "--quiet", str(OUTPUT / "data"))
    (OUTPUT / "python.txt").write_text(run("report", "--show-missing", "--sort=miss"), encoding="utf-8")
    run("html", "--quiet", "--directory", str(OUTPUT / "python-html"))
    run("json", "--quiet", "-o", str(OUTPUT / "python.json"))
    totals = json.loads((OUTPUT / "python.json").read_bytes())["totals"]
    return (
        f"Python: {totals['covered_lines']} of {totals['num_statements']} lines"
        f" ({100 * totals['covered_lines'] / totals['num_statements']:.1f} %),"
        f" {totals['covered_branches']} of {totals['num_branches']} branches: {OUTPUT / 'python.txt'}"
    )


def report_rust(profdata: str, cov: str) -> Iterable[str]:
    """Write the reports of Rust's lines, and yield lines that sum them up."""
    merged = PROFILES / "all.profdata"
    subprocess.run(
        [profdata, "merge", "--sparse", f"--output={merged}", *map(str, PROFILES.glob("*.profraw"))], check=True
    )
    programs = [*(CARGO / "debug/deps").glob("forebay_core-*"), *(CARGO / "debug/deps").glob("allocation-*")]
    objects = [str(path) for path in programs if not path.suffix]
    objects.append(str((LINKED / "forebay" / "_core.abi3.so").resolve()))
    common = [f"--instr-profile={merged}", f"--ignore-filename-regex={NOT_MEASURED}", objects[0]]
    common += [argument for path in objects[1:] for argument in ("--object", path)]
    (OUTPUT / "rust.txt").write_text(read_output(cov, "report", *common), encoding="utf-8")
    read_output(cov, "show", "--format=html", f"--output-dir={OUTPUT / 'rust-html'}", *common)
    totals = json.loads(read_output(cov, "export", "--summary-only", *common))["data"][0]["totals"]["lines"]
    yield f"Rust: {totals['covered']} of {totals['count']} lines ({totals['percent']:.1f} %): {OUTPUT / 'rust.txt'}"


if __name__ == "__main__":
    sys.exit(main())
