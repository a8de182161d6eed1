"""Draw docstrings, comments and names at random, for people to review.

    python tools/sample_words.py --seed 7 --count 100

Prints `--count` docstrings and comments, and as many names (functions, methods, classes, constants of modules,
parameters), each with its file and line; a docstring with the definition it belongs to. The same seed on the same tree
gives the same samples. With `--rust`, also from the crates below `rust/`.
"""

import argparse
import ast
import dataclasses
import io
import random
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef

_NOT_WORDS = re.compile(r"#\s*(?:noqa|type:|ruff:|fmt:|pragma|!/|mypy:)")
_RUST_COMMENT = re.compile(r"^\s*(//[/!]?)\s?(.*)$")
_RUST_NAMES = {
    "function": re.compile(r"\bfn\s+([a-z_]\w*)"),
    "type": re.compile(r"\b(?:struct|enum|trait|union|type)\s+([A-Z]\w*)"),
    "constant": re.compile(r"\b(?:const|static)\s+([A-Z][A-Z0-9_]*)\s*:"),
    "module": re.compile(r"^\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+([a-z_]\w*)"),
    "parameter": re.compile(r"[(,]\s*(?:mut\s+)?([a-z_]\w*)\s*:\s*[&A-Za-z\[(]"),
}


@dataclasses.dataclass(frozen=True)
class Sample:
    """A text or a name, with its place in the source."""

    path: Path
    line: int
    kind: str
    words: str
    definition: str = ""
    """First line of the definition that a docstring belongs to."""

    def __str__(self) -> str:
        head = f"{self.path}:{self.line}  {self.kind}"
        if "\n" not in self.words and not self.definition:
            return f"{head}  {self.words}"
        body = [
            *([self.definition] if self.definition else []),
            *(f"    {line}".rstrip() for line in self.words.split("\n")),
        ]
        return "\n".join([head, *(f"    {line}" for line in body)])


def texts_of_python(path: Path, source: str) -> Iterator[Sample]:
    """Find docstrings, also those of constants and fields, and comments."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for before, inner in _with_previous(getattr(node, "body", None)):
            if not (isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Constant)):
                continue
            if isinstance(inner.value.value, str):
                definition = _definition_of(node, before, source)
                yield Sample(path, inner.lineno, "docstring", _dedent(inner.value.value), definition)
    yield from _comments(path, source)


def _with_previous(body: object) -> Iterator[tuple[ast.stmt | None, ast.stmt]]:
    before = None
    for statement in body if isinstance(body, list) else ():
        yield before, statement
        before = statement


def _definition_of(owner: ast.AST, before: ast.stmt | None, source: str) -> str:
    """Return the line that a docstring describes: the assignment before it, else the enclosing definition."""
    node = before if before is not None else owner
    if isinstance(node, ast.Module):
        return "(module)"
    text = ast.get_source_segment(source, node) or ""
    if isinstance(node, Definition):
        text = source.split("\n")[node.lineno - 1].strip()
    return text.partition("\n")[0]


def _dedent(text: str) -> str:
    lines = text.strip().split("\n")
    return "\n".join([lines[0], *(line.strip() for line in lines[1:])])


def _comments(path: Path, source: str) -> Iterator[Sample]:
    """Find comments. Consecutive lines are one comment."""
    lines: list[str] = []
    start = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or _NOT_WORDS.match(token.string):
            continue
        line = token.start[0]
        is_alone = not token.line[: token.start[1]].strip()
        if lines and line == last + 1 and is_alone:
            lines.append(token.string.lstrip("# "))
        else:
            if lines:
                yield Sample(path, start, "comment", "\n".join(lines))
            lines, start = [token.string.lstrip("# ")], line
        last = line
    if lines:
        yield Sample(path, start, "comment", "\n".join(lines))


def names_of_python(path: Path, source: str) -> Iterator[Sample]:
    """Find the names of functions, methods, classes, constants of modules and parameters."""
    tree = ast.parse(source)
    for statement in tree.body:
        targets: list[ast.expr] = []
        if isinstance(statement, ast.Assign):
            targets = statement.targets
        elif isinstance(statement, ast.AnnAssign):
            targets = [statement.target]
        for target in targets:
            if isinstance(target, ast.Name) and not target.id.startswith("__"):
                yield Sample(path, statement.lineno, "constant", target.id)
    for node in ast.walk(tree):
        is_class = isinstance(node, ast.ClassDef)
        for inner in ast.iter_child_nodes(node):
            if isinstance(inner, ast.ClassDef):
                yield Sample(path, inner.lineno, "class", inner.name)
            elif isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                if not inner.name.startswith("__"):
                    yield Sample(path, inner.lineno, "method" if is_class else "function", inner.name)
                yield from _parameters(path, inner)


def _parameters(path: Path, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Sample]:
    arguments = function.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
        if argument is not None and argument.arg not in ("self", "cls"):
            yield Sample(path, argument.lineno, "parameter", f"{argument.arg}  (of {function.name})")


def texts_of_rust(path: Path, source: str) -> Iterator[Sample]:
    """Find comments. Consecutive lines are one comment; a doc comment comes with the line it documents."""
    lines = source.split("\n")
    number = 0
    while number < len(lines):
        match = _RUST_COMMENT.match(lines[number])
        if match is None:
            number += 1
            continue
        start, kind, words = number, match[1], [match[2]]
        number += 1
        while number < len(lines) and (match := _RUST_COMMENT.match(lines[number])) and match[1] == kind:
            words.append(match[2])
            number += 1
        definition = "(module)" if kind == "//!" else ""
        if kind == "///":
            after = next((line for line in lines[number:] if not line.lstrip().startswith("#")), "")
            definition = after.strip()
        title = "comment" if kind == "//" else "docstring"
        yield Sample(path, start + 1, title, "\n".join(words).strip(), definition)


def names_of_rust(path: Path, source: str) -> Iterator[Sample]:
    """Find the names of functions, types, constants, modules and parameters, as far as a line shows them."""
    for number, line in enumerate(source.split("\n"), 1):
        if _RUST_COMMENT.match(line):
            continue
        for kind, pattern in _RUST_NAMES.items():
            if kind == "parameter" and not re.search(r"\bfn\b", line):
                continue
            for match in pattern.finditer(line):
                if match[1] != "self":
                    yield Sample(path, number, kind, match[1])


def read_all(folder: Path, pattern: str) -> Iterator[tuple[Path, str]]:
    """Read the files below a folder, in the order of their names."""
    for path in sorted(folder.rglob(pattern)):
        if path.suffix in (".py", ".pyi", ".rs") and "target" not in path.parts:
            yield path.relative_to(ROOT), path.read_text()


def draw(population: Sequence[Sample], count: int, seed: str) -> list[Sample]:
    """Draw samples, and return them in order of file and line."""
    # Not for secrets: the same seed must give the same samples.
    samples = random.Random(seed).sample(population, min(count, len(population)))  # noqa: S311
    return sorted(samples, key=lambda sample: (str(sample.path), sample.line))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=100, help="how many texts, and how many names (default: 100)")
    parser.add_argument("--rust", action="store_true", help="also from the crates below rust/")
    options = parser.parse_args()
    python = list(read_all(ROOT / "python", "*.py*"))
    rust = list(read_all(ROOT / "rust", "*.rs")) if options.rust else []
    texts = [sample for file in python for sample in texts_of_python(*file)]
    texts += [sample for file in rust for sample in texts_of_rust(*file)]
    names = [sample for file in python for sample in names_of_python(*file)]
    names += [sample for file in rust for sample in names_of_rust(*file)]
    for title, population in (("docstrings and comments", texts), ("names", names)):
        samples = draw(population, options.count, f"{title} {options.seed}")
        print(f"# {len(samples)} of {len(population)} {title}, seed {options.seed}\n")
        for sample in samples:
            print(sample)
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
