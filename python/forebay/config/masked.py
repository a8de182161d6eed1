"""What is configured, as it may be shown: without what lets one in."""

import re
from collections.abc import Sequence

__all__ = ["MASK", "hidden", "masked_args", "masked_url"]

MASK = "***"

_SECRET_NAME = re.compile(
    r"token|secret|passw|passphrase|pwd|credential|auth(?!or)|bearer|cookie|header|private|dsn"
    r"|(?:^|[^a-z])(?:api|access|client|account)?(?:key|pat|sas)s?(?:$|[^a-z])",
    re.IGNORECASE,
)
_SETS_VARIABLE = ("-e", "--env")
_SETS_HEADER = ("-H",)
_PAIR = re.compile(r"(-{0,2}[A-Za-z_][\w.-]*)=(.+)", re.DOTALL)
_HEADER = re.compile(r"([A-Za-z][\w-]*:\s*)\S.*", re.DOTALL)
_LOOKS_SECRET = re.compile(
    r"(?:sk|pk|rk|ghp|gho|ghs|ghu|github_pat|glpat|xox[abeprs]|shpat|hf|npm|pypi|key|pat)[-_][\w.-]{8,}"
    r"|eyJ[\w-]{8,}\.[\w.-]+"
    r"|(?=\w*\d)(?=\w*[A-Za-z])\w{20,}"
)
_VARIABLE = re.compile(r"(?:[A-Za-z]+ )?\$\{[^}]*\}")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")


def masked_url(url: str) -> str:
    """An address without the passwords and values that it may carry."""
    address, mark, query = url.partition("?")
    host = re.sub(r"(?<=://)[^/]*(?=@)", MASK, address)
    return f"{host}{mark}{re.sub(r'(?<==)[^&#]+', MASK, query)}"


def hidden(value: str) -> str:
    """A mask in place of a secret, unless it only says where that is: `${VAR}`, `Bearer ${VAR}`."""
    return value if _VARIABLE.fullmatch(value) else MASK


def masked_args(args: Sequence[str]) -> list[str]:
    """Words of a command without what looks like a secret: by the name of its option, or by itself."""
    return [_masked(word, before) for before, word in zip(["", *args], args, strict=False)]


def _masked(word: str, before: str) -> str:
    pair = _PAIR.fullmatch(word)
    if pair is not None and (before in _SETS_VARIABLE or pair[1] in _SETS_VARIABLE or _SECRET_NAME.search(pair[1])):
        return f"{pair[1]}={hidden(pair[2])}"
    if before in _SETS_HEADER and (header := _HEADER.fullmatch(word)):
        return header[1] + hidden(word[len(header[1]) :])
    if _is_option(before) and not word.startswith("-"):
        return hidden(word)
    name, value = (f"{pair[1]}=", pair[2]) if pair is not None else ("", word)
    if _LOOKS_SECRET.fullmatch(value):
        return f"{name}{MASK}"
    return _ADDRESS.sub(lambda found: masked_url(found[0]), word)


def _is_option(word: str) -> bool:
    return word.startswith("-") and "=" not in word and _SECRET_NAME.search(word) is not None
