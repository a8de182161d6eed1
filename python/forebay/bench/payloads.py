"""The payload of a run: its bytes, what they are, and where they come from."""

import dataclasses
import hashlib
import re
from pathlib import Path
from typing import Any, Literal

import forebay
from forebay._core import ItemIndex, Survey
from forebay.arguments import decode_token
from forebay.bench.generate import generate
from forebay.errors import InvalidJSON
from forebay.store.payload import get_row_format, guess_row_mime_type

__all__ = ["Payload", "generate_payload", "make_payload"]

_JSON_NAME_PATTERN = re.compile(r"\.(?:json|jsonl|ndjson|geojson)$", re.IGNORECASE)

Nature = Literal["json", "ndjson", "csv", "tsv", "text", "binary", "empty"]


@dataclasses.dataclass(frozen=True, slots=True)
class Payload:
    """Bytes in memory, and what a survey found out about them."""

    name: str
    """The file, or how the payload was generated."""
    data: bytes
    nature: Nature
    items: ItemIndex | None
    """Index of its items; `None` if it has none."""
    line_count: int | None
    path: Path | None = None
    """The file that it was read from; `None` if it was generated or came from standard input."""
    json_error: str | None = None
    """Why it is not JSON, if it looks like JSON or its name says so."""

    @property
    def keys(self) -> list[str]:
        """The keys that lead from the document to its items."""
        path = self.items.path if self.items is not None else None
        return [decode_token(token) for token in path.split("/")[1:]] if path else []

    @property
    def extension(self) -> str:
        """The extension of a file with this payload."""
        return {"text": "txt", "binary": "bin", "empty": "txt"}.get(self.nature, self.nature)

    @property
    def mime_type(self) -> str | None:
        """The MIME type to store it with, where the bytes alone do not show it."""
        return guess_row_mime_type(f"payload.{self.extension}")

    def to_dict(self) -> dict[str, Any]:
        """Return what a report says about the payload."""
        return {
            "name": self.name,
            "size_bytes": len(self.data),
            "nature": self.nature,
            "items": None if self.items is None else len(self.items),
            "items_path": None if self.items is None else self.items.path,
            "lines": self.line_count,
            "sha256": hashlib.sha256(self.data).hexdigest(),
            "memory": "read once into memory, not memory-mapped" if self.path else "in memory",
            "json_error": self.json_error,
        }


def make_payload(data: bytes, name: str, path: Path | None = None) -> Payload:
    """Find out what bytes are. The name tells rows of CSV and TSV from other text."""
    if not data:
        return Payload(name, data, "empty", None, None, path)
    mime_type = guess_row_mime_type(name)
    rows = get_row_format(mime_type) if mime_type else None
    is_json = True if _JSON_NAME_PATTERN.search(name) else None
    survey = Survey(is_json, rows)
    survey.feed(data)
    found = survey.finish()
    nature: Nature = found.nature
    if nature == "text" and rows is not None and found.items is not None:
        nature = rows
    # Without items, the index is empty.
    items = found.items if found.items is not None and len(found.items) else None
    looks_like_json = is_json or re.match(rb"\s*[\[{]", data) is not None
    json_error = _explain_json(data) if nature == "text" and looks_like_json else None
    return Payload(name, data, nature, items, None if found.lines is None else len(found.lines), path, json_error)


def _explain_json(data: bytes) -> str | None:
    try:
        forebay.index_items(data)
    except InvalidJSON as error:
        # Without advice on how to read it.
        return str(error).partition(";")[0]
    return None


def generate_payload(shape: str, size: int, seed: int) -> Payload:
    """Return a generated payload, which is described by its arguments."""
    data = generate(shape, size, seed)
    payload = make_payload(data, f"{shape}.csv" if shape == "csv" else shape)
    return dataclasses.replace(payload, name=f"generated {shape}, seed {seed}")
