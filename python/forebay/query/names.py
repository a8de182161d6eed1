"""Find the fields that an SQL statement may use, so that only these are loaded."""

import re
from collections.abc import Iterator

__all__ = ["find_paths"]

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|--[^\n\r]*)
    |(?P<text>'(?:[^']|'')*')
    |"(?P<quoted>(?:[^"]|"")*)"
    |(?P<number>\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?|\.\d+)
    |(?P<word>\w+)
    |(?P<symbol>.)
    """,
    re.VERBOSE | re.DOTALL,
)

_MAX_PATH_NAMES = 8
"""Of a longer path, the value at this depth is read whole."""

_MAX_TOKENS = 2000
"""A statement with more tokens is not examined: the time grows with the square of their number."""

_ALL_FIELDS_KEYWORDS = {
    *("columns", "describe", "exclude", "explain", "information_schema", "natural", "pivot", "pivot_longer"),
    *("pivot_wider", "pragma", "rename", "show", "summarize", "table", "unpivot"),
}
"""Keywords of statements that may use fields without naming them. A field with such a name only costs a full load."""

_CATALOG_NAME = re.compile("duckdb_|pg_|pragma_|sqlite_")
"""Tables and functions of the catalog, which show the fields of other tables."""

_SCHEMA_NAMES = {"main", "memory", "system", "temp"}
"""Schemas and databases. What follows their dot is a table, whose name alone would stand for all its fields."""

_INDIRECT_FUNCTION = re.compile("query|sql|getvariable")
"""Functions that read a table by a name in a text."""

_AFTER_FROM = {
    *("except", "group", "having", "intersect", "limit", "offset", "order", "qualify", "select", "union", "where"),
    *("window", ")", ";"),
}
"""Tokens that end a FROM clause."""

_NO_SELECT_LIST = {"", "(", ";", "all", "distinct", "except", "intersect", "union"}
"""Tokens before a FROM without a SELECT list, such as `FROM items`, which returns all fields."""

_FROM_KEYWORDS = {
    *("and", "anti", "as", "asof", "cross", "from", "full", "inner", "join", "lateral", "left", "on", "or", "outer"),
    *("positional", "right", "semi", "using"),
}
"""Keywords inside a FROM clause."""

_NOT_OPERANDS = {
    *("all", "and", "as", "between", "by", "distinct", "else", "exclude", "from", "glob", "group", "having"),
    *("ilike", "in", "intersect", "is", "like", "limit", "not", "on", "or", "order", "rename", "replace", "select"),
    *("similar", "then", "union", "using", "when", "where", "window", "except", "offset", "qualify"),
}
"""Words beside which a star is no multiplication."""


_PADDING = ["", "", ""]
"""Empty tokens around those of a statement, so that each of them has neighbors."""


def find_paths(sql: str) -> frozenset[tuple[str, ...]] | None:
    """Return the paths of all fields that a statement names, or `None` if it may use fields that it does not name.

    A name alone is the path of a whole field; `owner.id` is the path of a member of the field `owner`, or of the field
    `id` of a table. The paths include the names of tables, functions and keywords, and the texts: a field too many only
    costs time, but a missing one would be wrong. When in doubt, the result is `None`.
    """
    matches = list(_TOKEN.finditer(sql))
    if len(matches) > _MAX_TOKENS or any(map(_is_ambiguous, matches, [None, *matches])):
        return None
    matches = [match for match in matches if match.lastgroup != "space"]
    if _uses_all_fields([_normalize(match) for match in matches]):
        return None
    chains = list(_split_chains(matches))
    # In `items.owner.id` the path may start after the table's name. A name can be a table's only if it also ends a
    # chain, as in `FROM main.items`.
    possible_tables = {chain[-1].lower() for chain in chains}
    return frozenset(
        tuple(chain[start : start + _MAX_PATH_NAMES])
        for chain in chains
        for start in range(len(chain))
        if start == 0 or chain[start - 1].lower() in possible_tables
    )


def _split_chains(matches: list[re.Match[str]]) -> Iterator[list[str]]:
    """Yield the names in a statement; names with dots between them are one chain. A function is a chain of its own."""
    chain: list[str] = []
    for i, match in enumerate(matches):
        if match.lastgroup not in ("word", "quoted", "text"):
            continue
        after = matches[i + 1][0] if i + 1 < len(matches) else ""
        if chain and after == "(":
            # A function of what is before the dot, such as `owner.to_json()`.
            yield chain
            chain = []
        chain.append(_get_name(match))
        is_joined = match.lastgroup != "text" and after == "." and _starts_with_name(matches[i + 2 : i + 3])
        if not is_joined:
            yield chain
            chain = []


def _starts_with_name(matches: list[re.Match[str]]) -> bool:
    return bool(matches) and matches[0].lastgroup in ("word", "quoted")


def _is_ambiguous(match: re.Match[str], before: re.Match[str] | None) -> bool:
    """Return whether DuckDB may tokenize the text differently here.

    That is so for block comments, dollar quotes, strings with a prefix such as `E'…'` or `U&'…'`, and symbols and
    spaces that are not ASCII.
    """
    is_after_word = before is not None and before.lastgroup == "word"
    if match.lastgroup in ("text", "quoted"):
        return is_after_word or (before is not None and before[0] == "&")
    if match.lastgroup == "symbol":
        is_comment = before is not None and before[0] + match[0] == "/*"
        return is_comment or match[0] in "$#\\'\"" or not match[0].isascii()
    return match.lastgroup == "space" and not match[0].isascii() and not match[0].startswith("--")


def _normalize(match: re.Match[str]) -> str:
    """Return a token in lower case. A quoted name keeps its first quote, so that it is no keyword; a number is `0`."""
    if match.lastgroup == "quoted":
        return f'"{match["quoted"].lower()}'
    return "0" if match.lastgroup == "number" else match[0].lower()


def _get_name(match: re.Match[str]) -> str:
    if match.lastgroup == "quoted":
        return match["quoted"].replace('""', '"')
    return match[0][1:-1].replace("''", "'") if match.lastgroup == "text" else match[0]


def _uses_all_fields(tokens: list[str]) -> bool:
    if tokens[:1] not in (["select"], ["with"], ["("]):
        return True
    tokens = [*_PADDING, *tokens, *_PADDING]
    tables = _find_tables(tokens)
    if tables is None:
        return True
    positions, names = tables
    for i in range(len(_PADDING), len(tokens) - len(_PADDING)):
        before, word, after = tokens[i - 1 : i + 2]
        if word == "*":
            is_count = tokens[i - 2 : i + 2] == ["count", "(", "*", ")"]
            is_product = _is_operand(before, ")]") and _is_operand(after, "([-+")
            if not is_count and not is_product:
                return True
        elif word == "from":
            if before in _NO_SELECT_LIST or tokens[i - 2 : i] == ["by", "name"]:
                return True
            # `WITH t AS (…) FROM t` has no SELECT list.
            if _ends_common_table(tokens[:i]):
                return True
        elif (
            word in _ALL_FIELDS_KEYWORDS
            # `(DESC items)` is short for DESCRIBE.
            or (word == "desc" and before == "(")
            or _CATALOG_NAME.match(_get_plain_name(word))
            or (after == "." and _get_plain_name(word) in _SCHEMA_NAMES)
            or (after == "(" and _INDIRECT_FUNCTION.search(word))
            # DuckDB takes `t.owner.at.upper()` for a function of `t.at`.
            or (after == "(" and before == tokens[i - 3] == tokens[i - 5] == ".")
            or (i not in positions and _get_plain_name(word) in names and _is_row(tokens[i - 1 : i + 4]))
        ):
            return True
    return False


def _is_row(tokens: list[str]) -> bool:
    """Return whether a table's name, the second of the tokens, stands for a struct of all its fields."""
    before, _, after, function, bracket = tokens
    is_definition = after == "as" and (
        function == "(" or (function, bracket) in (("materialized", "("), ("not", "materialized"))
    )
    if before == "." or after == "(" or is_definition:
        # A field, a function, or the definition of a common table expression.
        return False
    return after != "." or (function != "*" and bracket == "(")


def _ends_common_table(tokens: list[str]) -> bool:
    """Return whether tokens end with a common table expression, `AS (…)`."""
    depth = 0
    for i in range(len(tokens) - 1, 0, -1):
        depth += {")": 1, "(": -1}.get(tokens[i], 0)
        if depth == 0:
            return tokens[i] == "(" and tokens[i - 1] in ("as", "materialized")
    return False


def _find_tables(tokens: list[str]) -> tuple[set[int], set[str]] | None:
    """Return the positions of names in FROM clauses, and these names: tables, their aliases, and maybe others.

    Return `None` for column aliases, as in `FROM items AS t(a, b)`, and for a parenthesized join.
    """
    positions: set[int] = set()
    names: set[str] = set()
    for start, word in enumerate(tokens):
        if word != "from":
            continue
        depth, is_condition = 0, False
        for i in range(start + 1, len(tokens)):
            if depth == 0 and tokens[i] in _AFTER_FROM:
                break
            depth += {"(": 1, ")": -1}.get(tokens[i], 0)
            if tokens[i - 1] in ("from", "join", ",") and not is_condition and _opens_join(tokens[i : i + 2]):
                return None
            if depth == 0 and tokens[i] in ("on", "join", ","):
                is_condition = tokens[i] == "on"
            if (
                depth != 0
                or is_condition
                or not _is_name(tokens[i])
                or tokens[i] in _FROM_KEYWORDS
                or tokens[i - 1] == "."
            ):
                continue
            if tokens[i + 1 : i + 2] == ["("]:
                before = tokens[i - 2] if tokens[i - 1] == "as" else tokens[i - 1]
                if _is_name(before) and before not in _FROM_KEYWORDS:
                    return None
            positions.add(i)
            names.add(_get_plain_name(tokens[i]))
    return positions, names


def _opens_join(tokens: list[str]) -> bool:
    return tokens[0] == "(" and tokens[-1] not in ("from", "select", "values", "with")


def _is_name(word: str) -> bool:
    return word != "0" and (word[:1] in ('"', "'", "_") or word[:1].isalnum())


def _get_plain_name(word: str) -> str:
    """Return a word without its quotes; `_normalize` keeps the first one of a quoted name."""
    if word.startswith("'"):
        return word[1:-1].replace("''", "'")
    return word[1:].replace('""', '"') if word.startswith('"') else word


def _is_operand(word: str, brackets: str) -> bool:
    return word != "" and (word == "0" or word in brackets or (_is_name(word) and word not in _NOT_OPERANDS))
