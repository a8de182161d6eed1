"""Images and audio in tool results. A model cannot read them by handle, so they go inline, scaled down if large."""

import base64
import functools
import io
import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from forebay import _core
from forebay.errors import InvalidArgument, InvalidJSON, make_missing_extra
from forebay.outputs.result import Result, is_text_value
from forebay.store.payload import encode
from forebay.wire.lazy_json import LazyJSON

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["MAX_MEDIA_BYTES", "find_media", "measure_media", "select_media"]

_log = logging.getLogger("forebay")

MAX_MEDIA_BYTES = 1_000_000
"""Maximum bytes that the images and audio of one result take inline, as base64 with the other fields of their blocks.

Some clients close the connection when a message exceeds 1 MiB.
"""

_SIDE_LENGTHS_PIXELS = (1568, 1024, 640, 320)
"""Maximum width and height of a scaled image, tried in turn until it fits. Models see no more detail than the first."""

_MAX_PIXELS = 16_000_000
"""Larger images are not decoded. This many pixels take 48 MB of memory."""

_MAX_JPEG_PIXELS = 64_000_000
"""Larger JPEGs are not decoded, even at a fraction of their size: one with several scans takes six bytes per pixel."""

_MAX_TOTAL_PIXELS = 100_000_000
"""Pixels of a result's images after which no further image is decoded. This many take a few seconds."""

_FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF")
"""Formats that are decoded. Pillow knows many more, and runs Ghostscript for PostScript."""

_MAX_FIELDS_BYTES = 512
"""Maximum bytes of the fields of a block besides its data. A block with larger ones is encoded again without them."""

_MAX_BLOCKS = 1000
"""A result with more content blocks is not searched for images and audio."""

_JPEG_QUALITIES = (85, 60)

Block: TypeAlias = Mapping[str, Any]


def find_media(result: Result | LazyJSON, kinds: frozenset[str]) -> list[Block]:
    """Return the content blocks of a result whose type is one of `kinds`. Their data may be `LazyJSON`."""
    if not kinds:
        return []
    try:
        content = result.members(("content",)).get("content") if isinstance(result, LazyJSON) else result.get("content")
        return [block for block in _iter_blocks(content) if _is_media(block, kinds)]
    except InvalidJSON:
        return []


def _iter_blocks(content: Any) -> Iterator[Any]:
    if isinstance(content, LazyJSON):
        if not content.is_array:
            return
        try:
            content = [content.slice(*span) for span in _core.items(content.span, _MAX_BLOCKS)]
        except InvalidArgument:
            return
    for block in content if isinstance(content, list) and len(content) <= _MAX_BLOCKS else ():
        yield block.parse() if isinstance(block, LazyJSON) and block.is_object else block


def _is_media(block: Any, kinds: frozenset[str]) -> bool:
    return isinstance(block, dict) and block.get("type") in kinds and is_text_value(block.get("data"))


def measure_media(blocks: list[Block]) -> int:
    """Return the size of the base64 data in image and audio blocks."""
    return sum(len(block["data"]) for block in blocks)


def select_media(blocks: list[Block], *, must_reencode: bool) -> list[dict[str, Any]]:
    """Return image and audio blocks for a model, within `MAX_MEDIA_BYTES` in total.

    Images that are too large are scaled down. Audio and unreadable images are left out if they are too large. With
    `must_reencode`, only pixels are returned: every image is encoded again without metadata and without other fields
    of its block, and audio and unreadable images are always left out.
    """
    selected: list[dict[str, Any]] = []
    remaining, scaler = MAX_MEDIA_BYTES, _Scaler()
    for number, block in enumerate(blocks):
        # Leave a share of the budget for each of the blocks that follow.
        share = remaining // (len(blocks) - number)
        fields = {key: value for key, value in block.items() if key != "data"}
        keeps_fields = not must_reencode and len(encode(fields)) <= _MAX_FIELDS_BYTES
        if keeps_fields and len(block["data"]) <= share:
            inline_block: dict[str, Any] | None = {**block, "data": _read_data(block).decode()}
        else:
            inline_block = scaler.scale_down(block, share)
        if inline_block is not None:
            selected.append({**fields, **inline_block} if keeps_fields else inline_block)
            remaining -= len(encode(selected[-1]))
    return selected


def _read_data(block: Block) -> bytes:
    data = block["data"]
    return data.text() if isinstance(data, LazyJSON) else data.encode()


class _Scaler:
    """Scales the images of one result down, as long as they have at most `_MAX_TOTAL_PIXELS` together."""

    def __init__(self) -> None:
        self._remaining_pixels = _MAX_TOTAL_PIXELS

    def scale_down(self, block: Block, max_bytes: int) -> dict[str, Any] | None:
        """Return an image block with at most `max_bytes` of base64 and no other fields, or `None` if there is none."""
        if block["type"] != "image" or self._remaining_pixels <= 0 or not _has_pillow():
            return None
        from PIL import Image

        try:
            data = base64.b64decode(_read_data(block), validate=True)
            with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
                pixels = image.width * image.height
                self._remaining_pixels -= pixels
                # Makes Pillow decode a large JPEG at a fraction of its size. A progressive one is held whole.
                if not image.info.get("progressive") and pixels <= _MAX_JPEG_PIXELS:
                    image.draft("RGB", (_SIDE_LENGTHS_PIXELS[0], _SIDE_LENGTHS_PIXELS[0]))
                if image.width * image.height > _MAX_PIXELS:
                    return None
                encoded = _encode_image(image, max_bytes // 4 * 3)
        except Exception as error:
            # The server chose these bytes, and the decoders raise errors of many types.
            _log.info("forebay: an image could not be scaled down: %.200s", error)
            return None
        if encoded is None:
            return None
        scaled, mime_type = encoded
        return {"type": "image", "data": base64.b64encode(scaled).decode(), "mimeType": mime_type}


def _encode_image(image: "Image", max_bytes: int) -> tuple[bytes, str] | None:
    """Scale an image down until it fits. Return its data and MIME type.

    An image that is not a JPEG becomes a PNG if that fits, otherwise a JPEG.
    """
    from PIL import ImageOps

    has_alpha = "transparency" in image.info or image.mode in ("RGBA", "LA", "PA")
    # Cameras save a picture as the sensor sees it, with a note how to turn it.
    ImageOps.exif_transpose(image, in_place=True)
    scaled = image.convert("RGBA" if has_alpha else "RGB")
    # Otherwise comments and color profiles are saved with the pixels. They may hold anything.
    scaled.info = {}
    for side in _SIDE_LENGTHS_PIXELS:
        scaled.thumbnail((side, side))
        if image.format != "JPEG" and len(png := _save(scaled, "PNG")) <= max_bytes:
            return png, "image/png"
        for quality in _JPEG_QUALITIES:
            jpeg = _save(_flatten(scaled) if has_alpha else scaled, "JPEG", quality=quality)
            if len(jpeg) <= max_bytes:
                return jpeg, "image/jpeg"
    return None


def _flatten(image: "Image") -> "Image":
    """Replace the transparency of an image with a white background."""
    from PIL import Image

    background = Image.new("RGB", image.size, "white")
    background.paste(image, mask=image.getchannel("A"))
    return background


def _save(image: "Image", image_format: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, image_format, **options)
    return buffer.getvalue()


@functools.cache
def _has_pillow() -> bool:
    try:
        import PIL  # noqa: F401
    except ModuleNotFoundError as error:
        missing = make_missing_extra("scaling down", "images", error)
        _log.warning("forebay: images above %d bytes are stored, not shown; %s", MAX_MEDIA_BYTES, missing)
        return False
    return True
