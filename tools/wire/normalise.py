"""Replaces values that differ between runs, such as ids and times, by fixed text."""

import re
from collections.abc import Callable
from pathlib import Path

from wire.build import Build

__all__ = ["Normaliser", "is_same"]

_FIXED = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        # The digits of a time differ, its form does not.
        (rb"\b20\d\d-\d\d-\d\d(?=T\d\d:\d\d)", b"0000-00-00"),
        (rb"(?<=0000-00-00T)\d\d:\d\d:\d\d", b"00:00:00"),
        (rb"(?<=0000-00-00T00:00:00\.)\d+", lambda match: b"0" * len(match[0])),
        (rb"(?<=127\.0\.0\.1:)\d{4,5}", b"<port>"),
        (rb"(?<=localhost:)\d{4,5}", b"<port>"),
        # Sizes on disk depend on the handle and the times that are stored, which do not always compress alike.
        (rb"(?<=this takes at least )[\d,]+", b"<bytes>"),
        (rb"(?<=bytes has )[\d,]+(?= left)", b"<bytes>"),
        (rb'(?<="stored_bytes":)\d+', b"<bytes>"),
        (rb'(?<="freed_bytes":)\d+', b"<bytes>"),
        # A handle that the journal shows to strangers.
        ("oh_[A-Z2-7]{3}(?=…)".encode(), b"<handle>"),
    )
]

_NUMBERED = [
    ("handle", re.compile(rb"\boh_(?:[A-Z2-7]{26}|[A-Z2-7]{12})(?![A-Z2-7])")),
    ("state", re.compile(rb'(?<=requestState":")[\w-]{43,}')),
    ("hex", re.compile(rb"\b[0-9a-f]{32}\b")),
    ("own request", re.compile(rb"(?<=-)[0-9a-f]{16}(?=-)")),
]
"""Random ids. Each is replaced by a number, the same wherever it comes again, and by its length."""

_STAMP = b'io.modelcontextprotocol/serverInfo":{"name":"<product>"'
_COUNTED = re.compile(rb'(?<=response_bytes\\":)\d+')

_MESSAGE_BYTES = 4096
"""The budget of a message with a descriptor."""
_SLACK_BYTES = 16
"""How much of its budget a full message may leave: the next character may take eight bytes escaped."""


class Normaliser:
    """Normalises the bytes of one conversation."""

    def __init__(self, build: Build, folder: Path) -> None:
        paths = {folder: b"<folder>", build.scripts: b"<scripts>", Path(build.prefix): b"<prefix>"}
        self._paths = [(str(path).encode(), name) for path, name in paths.items()]
        self._product = [word.encode() for word in (build.name, build.name.capitalize(), build.name.upper())]
        self._numbers: dict[bytes, int] = {}

    def __call__(self, data: bytes) -> bytes:
        for path, name in self._paths:
            data = data.replace(path, name)
        for kind, pattern in _NUMBERED:
            data = pattern.sub(self._numbered(kind), data)
        for pattern, replacement in _FIXED:
            data = pattern.sub(replacement, data)
        for name in self._product:
            data = data.replace(name, b"<product>")
        # Since 2026-07-28 every answer names the package, which the journal counts.
        return _COUNTED.sub(b"<bytes>", data) if _STAMP in data else data

    def _numbered(self, kind: str) -> Callable[["re.Match[bytes]"], bytes]:
        def replace(match: "re.Match[bytes]") -> bytes:
            number = self._numbers.setdefault(match[0], len(self._numbers) + 1)
            return f"<{kind} {number} of {len(match[0])}>".encode()

        return replace


def is_same(before: bytes, after: bytes, raw_before: bytes, raw_after: bytes) -> bool:
    """Return whether two normalised lines are equal, except for the length of a preview that fills its message.

    A message with a descriptor contains the name of the package (in the address of the stored output, and as the
    server's own name), and its preview takes what the budget leaves. So in a full message the preview is a few bytes
    longer where the name is shorter. Nothing else may differ.
    """
    if before == after:
        return True
    if min(len(raw_before), len(raw_after)) < _MESSAGE_BYTES - _SLACK_BYTES or len(raw_before) > 2 * _MESSAGE_BYTES:
        return False
    shorter, longer = sorted((before, after), key=len)
    start = next((at for at, (a, b) in enumerate(zip(shorter, longer, strict=False)) if a != b), 0)
    added = len(longer) - len(shorter)
    is_preview = b'\\"preview\\":\\"' in shorter[:start]
    return is_preview and added <= _SLACK_BYTES and shorter[start:] == longer[start + added :]
