"""What is configured, as it may be shown: without what lets one in."""

import re
from collections.abc import Sequence

from forebay._core import search
from forebay.store.payload import Redaction

__all__ = ["MASK", "make_redaction", "mask_args", "mask_secret", "mask_url"]

MASK = "***"

_SECRET_NAME = re.compile(
    r"token|secret|passw|passphrase|pwd|credential|auth(?!or)|bearer|cookie|header|private|dsn"
    r"|(?:^|[^a-z])(?:api|access|client|account)?(?:key|pat|sas)s?(?:$|[^a-z])",
    re.IGNORECASE,
)
_VARIABLE_FLAGS = ("-e", "--env")
_HEADER_FLAGS = ("-H",)
_PAIR = re.compile(r"(-{0,2}[A-Za-z_][\w.-]*)=(.+)", re.DOTALL)
_HEADER = re.compile(r"([A-Za-z][\w-]*:\s*)\S.*", re.DOTALL)
_SECRET_SHAPE = re.compile(
    r"(?:sk|pk|rk|ghp|gho|ghs|ghu|github_pat|glpat|xox[abeprs]|shpat|hf|npm|pypi|key|pat)[-_][\w.-]{8,}"
    r"|eyJ[\w-]{8,}\.[\w.-]+"
    r"|(?=\w*\d)(?=\w*[A-Za-z])\w{20,}"
)
_VARIABLE = re.compile(r"(?:[A-Za-z]+ )?\$\{[^}]*\}")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")


def mask_url(url: str) -> str:
    """An address without the passwords and values that it may carry."""
    address, mark, query = url.partition("?")
    host = re.sub(r"(?<=://)[^/]*(?=@)", MASK, address)
    return f"{host}{mark}{re.sub(r'(?<==)[^&#]+', MASK, query)}"


def mask_secret(value: str) -> str:
    """A mask in place of a secret, unless it only says where that is: `${VAR}`, `Bearer ${VAR}`."""
    return value if _VARIABLE.fullmatch(value) else MASK


def mask_args(args: Sequence[str]) -> list[str]:
    """Words of a command without what looks like a secret: by the name of its option, or by itself."""
    return [_mask_word(word, before) for before, word in zip(["", *args], args, strict=False)]


def _mask_word(word: str, before: str) -> str:
    pair = _PAIR.fullmatch(word)
    if pair is not None and (before in _VARIABLE_FLAGS or pair[1] in _VARIABLE_FLAGS or _SECRET_NAME.search(pair[1])):
        return f"{pair[1]}={mask_secret(pair[2])}"
    if before in _HEADER_FLAGS and (header := _HEADER.fullmatch(word)):
        return header[1] + mask_secret(word[len(header[1]) :])
    if _is_secret_option(before) and not word.startswith("-"):
        return mask_secret(word)
    name, value = (f"{pair[1]}=", pair[2]) if pair is not None else ("", word)
    if _SECRET_SHAPE.fullmatch(value):
        return f"{name}{MASK}"
    return _ADDRESS.sub(lambda found: mask_url(found[0]), word)


def _is_secret_option(word: str) -> bool:
    return word.startswith("-") and "=" not in word and _SECRET_NAME.search(word) is not None


_REPLACEMENT = b"[redacted]"
_MATCHES_PER_SEARCH = 1000


def make_redaction(expression: str) -> Redaction:
    """Puts `[redacted]` in place of every match. Raises `InvalidPattern` for what is no expression.

    It has the syntax of `output_search`, and takes time linear in the payload for each match at most: a payload is
    not to be trusted with Python's own.
    """
    search(b"", expression, regex=True)

    def redact(data: bytes) -> bytes:
        pieces, done, start = [], 0, 0
        while True:
            found = search(data, expression, regex=True, start=start, limit=_MATCHES_PER_SEARCH, context=0)
            for match in found.matches:
                pieces += [data[done : match.start], _REPLACEMENT]
                done = match.end
            if found.next_start is None:
                break
            start = found.next_start
        return b"".join([*pieces, data[done:]]) if pieces else data

    return redact
