"""Masking of secrets in configuration that is shown."""

import re
from collections.abc import Sequence

__all__ = ["MASK", "is_secret_name", "mask_args", "mask_secret", "mask_url"]

MASK = "***"

_SECRET_NAME_PATTERN = re.compile(
    r"token|secret|passw|passphrase|pwd|credential|auth(?!or)|bearer|cookie|header|private|dsn"
    r"|(?:^|[^a-z])(?:api|access|client|account)?(?:key|pat|sas)s?(?:$|[^a-z])",
    re.IGNORECASE,
)
_VARIABLE_FLAGS = ("-e", "--env")
_HEADER_FLAGS = ("-H",)
_PAIR_PATTERN = re.compile(r"(-{0,2}[A-Za-z_][\w.-]*)=(.+)", re.DOTALL)
_HEADER_PATTERN = re.compile(r"([A-Za-z][\w-]*:\s*)\S.*", re.DOTALL)
_SECRET_SHAPE_PATTERN = re.compile(
    r"(?:sk|pk|rk|ghp|gho|ghs|ghu|github_pat|glpat|xox[abeprs]|shpat|hf|npm|pypi|key|pat)[-_][\w.-]{8,}"
    r"|eyJ[\w-]{8,}\.[\w.-]+"
    r"|(?=\w*\d)(?=\w*[A-Za-z])\w{20,}"
)
_VARIABLE_PATTERN = re.compile(r"(?:[A-Za-z]+ )?\$\{[^}]*\}")
_URL_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")


def is_secret_name(name: str) -> bool:
    """Return whether a name, such as that of an option, is probably that of a secret."""
    return _SECRET_NAME_PATTERN.search(name) is not None


def mask_url(url: str) -> str:
    """Mask the user, the password and the query values of a URL."""
    address, question_mark, query = url.partition("?")
    address = re.sub(r"(?<=://)[^/]*(?=@)", MASK, address)
    return f"{address}{question_mark}{re.sub(r'(?<==)[^&#]+', MASK, query)}"


def mask_secret(value: str) -> str:
    """Mask a secret. A reference to a variable stays: `${VAR}`, `Bearer ${VAR}`."""
    return value if _VARIABLE_PATTERN.fullmatch(value) else MASK


def mask_args(args: Sequence[str]) -> list[str]:
    """Mask the arguments of a command that are probably secrets, judging by an option's name or a value's form."""
    return [_mask_word(word, previous) for previous, word in zip(["", *args], args, strict=False)]


def _mask_word(word: str, previous_word: str) -> str:
    pair = _PAIR_PATTERN.fullmatch(word)
    if pair is not None and (previous_word in _VARIABLE_FLAGS or pair[1] in _VARIABLE_FLAGS or is_secret_name(pair[1])):
        return f"{pair[1]}={mask_secret(pair[2])}"
    if previous_word in _HEADER_FLAGS and (header := _HEADER_PATTERN.fullmatch(word)):
        return header[1] + mask_secret(word[len(header[1]) :])
    if _is_secret_option(previous_word) and not word.startswith("-"):
        return mask_secret(word)
    name, value = (f"{pair[1]}=", pair[2]) if pair is not None else ("", word)
    if _SECRET_SHAPE_PATTERN.fullmatch(value):
        return f"{name}{MASK}"
    # The pattern is slow on a long word without a URL.
    return _URL_PATTERN.sub(lambda found: mask_url(found[0]), word) if "://" in word else word


def _is_secret_option(word: str) -> bool:
    return word.startswith("-") and "=" not in word and is_secret_name(word)
