"""Only `forebay.system` uses what one operating system has and another does not."""

import ast
import re
from pathlib import Path

import forebay
import pytest

PACKAGE = Path(forebay.__file__).parent
NAMES = ("files", "pipes", "processes", "worker_channel", "workers")
PAIRS = [(f"posix_{name}", f"windows_{name}") for name in NAMES]

_NAMES = re.compile(
    r"\b(?:fcntl|msvcrt|termios|WinDLL|dir_fd|src_dir_fd|fchmod|fchown|O_NOFOLLOW|O_DIRECTORY|O_PATH|O_TMPFILE"
    r"|killpg|getpgid|pread|pwrite|writev|set_inheritable|geteuid|getegid)\b"
)
_ALLOWED = {
    # The worker of queries has a sandbox for each system that it supports.
    "query/sandbox.py": {"ctypes"},
    # A filter of a socket, on Linux.
    "http/server.py": {"ctypes"},
    # A benchmark of the C library.
    "bench/memcpy.py": {"ctypes"},
}


def find_names(path: Path) -> set[str]:
    """Return the names in the code of a module, without comments and texts, that it should not use."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                found |= {name.name.partition(".")[0] for name in names}
            case ast.ImportFrom(module=str(module)):
                found.add(module.partition(".")[0])
            case ast.Attribute(attr=name) | ast.Name(id=name) | ast.keyword(arg=str(name)):
                found.add(name)
    return {name for name in found if _NAMES.fullmatch(name) or name == "ctypes"}


def test_only_the_system_s_module_makes_calls_that_are_not_portable() -> None:
    modules = [path for path in PACKAGE.rglob("*.py") if PACKAGE / "system" not in path.parents]
    assert len(modules) > 100
    found = {path.relative_to(PACKAGE).as_posix(): find_names(path) for path in modules}
    assert {name: names for name, names in found.items() if names - _ALLOWED.get(name, set())} == {}


def get_signatures(name: str) -> dict[str, str]:
    """Return the public functions of a module of `forebay.system`, and the public methods of its classes."""
    tree = ast.parse((PACKAGE / "system" / f"{name}.py").read_text(encoding="utf-8"))
    (public,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__"
    )
    signatures = dict.fromkeys(public, "")
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name in public:
            signatures[node.name] = f"{ast.unparse(node.args)} -> {ast.unparse(node.returns or ast.Constant(None))}"
    return signatures


@pytest.mark.parametrize("names", PAIRS, ids=lambda names: names[0].removeprefix("posix_"))
def test_posix_and_windows_have_the_same_functions(names: tuple[str, str]) -> None:
    posix, windows = map(get_signatures, names)
    assert posix == windows
    chooser = PACKAGE / "system" / f"{names[0].removeprefix('posix_')}.py"
    imports = [node for node in ast.walk(ast.parse(chooser.read_text())) if isinstance(node, ast.ImportFrom)]
    for module in names:
        imported = {alias.name for node in imports if node.module == f"forebay.system.{module}" for alias in node.names}
        assert imported in (set(posix), {"*", "__all__"})
