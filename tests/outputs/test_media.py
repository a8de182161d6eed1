"""Images and audio go inline in mode `auto`; large images are scaled down, and the original is under a handle."""

import base64
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from forebay.outputs import media
from forebay.outputs.handle_response import MAX_MESSAGE_BYTES
from forebay.outputs.media import MAX_MEDIA_BYTES, find_media, select_media
from forebay.outputs.policy import OutputPolicy
from forebay.outputs.tool_call import ToolCall
from forebay.store.payload import encode
from forebay.wire.lazy_json import as_lazy, parse_lazy
from PIL import Image


def make_image(width: int, height: int, image_format: str = "PNG", mode: str = "RGB") -> bytes:
    """Return a noisy image, which hardly compresses."""
    channel = Image.effect_noise((width, height), 90)
    image = Image.merge("RGB", [channel, channel.rotate(90, expand=False), channel]).convert(mode)
    buffer = io.BytesIO()
    image.save(buffer, image_format)
    return buffer.getvalue()


def make_block(data: bytes, mime_type: str = "image/png", kind: str = "image") -> dict[str, Any]:
    return {"type": kind, "data": base64.b64encode(data).decode(), "mimeType": mime_type}


def respond(policy: OutputPolicy, result: dict[str, Any], *, is_lazy: bool = False) -> dict[str, Any]:
    """Return what a client gets for a result."""
    mode, _ = policy.resolve_mode("any", {})
    given: Any = parse_lazy(encode(result)) if is_lazy else result
    if policy.pipeline.is_inline(given, mode, ToolCall("any")):
        return result
    return dict(policy.pipeline.store_result(given, ToolCall("any").with_mode(mode)))


@pytest.fixture
def make_policy(tmp_path: Path) -> Any:
    def make(**options: Any) -> OutputPolicy:
        return OutputPolicy(tmp_path.as_uri(), **{"output_mode": "auto", "sweep_interval": 0, **options})

    return make


SMALL, LARGE = make_image(200, 150), make_image(2400, 1200)


@pytest.mark.parametrize("is_lazy", [False, True])
@pytest.mark.parametrize(("kind", "mime_type"), [("image", "image/png"), ("audio", "audio/wav")])
def test_small_media_go_inline_untouched(make_policy: Any, kind: str, mime_type: str, is_lazy: bool) -> None:
    data = SMALL if kind == "image" else bytes(range(256)) * 500
    result = {"content": [{"type": "text", "text": "a picture"}, make_block(data, mime_type, kind)]}
    assert len(encode(result)) > 32768
    assert respond(make_policy(), result, is_lazy=is_lazy) is result


@pytest.mark.parametrize("is_lazy", [False, True])
def test_a_large_image_is_scaled_down_and_the_original_stored(make_policy: Any, is_lazy: bool) -> None:
    policy = make_policy()
    response = respond(policy, {"content": [make_block(LARGE)]}, is_lazy=is_lazy)
    text, image = response["content"]
    assert image["type"] == "image"
    assert len(image["data"]) <= MAX_MEDIA_BYTES
    with Image.open(io.BytesIO(base64.b64decode(image["data"]))) as shown:
        assert shown.size == (1568, 784)
        assert shown.get_format_mimetype() == image["mimeType"]
    descriptor = json.loads(text["text"])
    assert descriptor["mime_type"] == "image/png"
    with policy.store.open(descriptor["output_handle"]) as stored:
        assert stored.read() == LARGE
    assert len(encode({**response, "content": [text]})) <= MAX_MESSAGE_BYTES


@pytest.mark.parametrize(
    ("image_format", "mode"),
    [("PNG", "RGBA"), ("PNG", "P"), ("PNG", "L"), ("JPEG", "CMYK"), ("WEBP", "RGB"), ("GIF", "P")],
)
def test_every_kind_of_image_is_scaled_down(make_policy: Any, image_format: str, mode: str) -> None:
    data = make_image(2600, 2000, image_format, mode)
    _, image = respond(make_policy(), {"content": [make_block(data + bytes(MAX_MEDIA_BYTES))]})["content"]
    with Image.open(io.BytesIO(base64.b64decode(image["data"]))) as shown:
        assert max(shown.size) == 1568
    assert len(image["data"]) <= MAX_MEDIA_BYTES


@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "WEBP"])
def test_a_picture_of_a_turned_camera_is_shown_upright(image_format: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    buffer = io.BytesIO()
    Image.open(io.BytesIO(LARGE)).save(buffer, image_format, exif=exif)
    (block,) = select_media([make_block(buffer.getvalue())], must_reencode=True)
    assert Image.open(io.BytesIO(base64.b64decode(block["data"]))).size == (784, 1568)


def test_an_image_stays_visible_beside_a_text_that_is_stored(make_policy: Any) -> None:
    policy = make_policy()
    result = {"content": [{"type": "text", "text": "words " * 20_000}, make_block(SMALL)]}
    text, image = respond(policy, result)["content"]
    assert image == result["content"][1]
    with policy.store.open(json.loads(text["text"])["output_handle"]) as stored:
        assert json.loads(stored.read()) == result


def test_many_images_share_the_limit(make_policy: Any) -> None:
    result = {"content": [make_block(make_image(900, 900)) for _ in range(8)]}
    _, *images = respond(make_policy(), result)["content"]
    assert len(images) == 8
    assert 0 < sum(len(image["data"]) for image in images) <= MAX_MEDIA_BYTES


@pytest.mark.parametrize(
    "block",
    [
        make_block(bytes(MAX_MEDIA_BYTES), "audio/wav", "audio"),
        make_block(bytes(MAX_MEDIA_BYTES)),
        {"type": "image", "data": "?" * (MAX_MEDIA_BYTES + 1), "mimeType": "image/png"},
        make_block(make_image(30, 30)[:60] + bytes(MAX_MEDIA_BYTES)),
        {"type": "image", "data": 5, "mimeType": "x" * 50_000},
    ],
    ids=["audio", "no image", "no base64", "damaged", "no data"],
)
def test_what_cannot_be_shown_is_stored_alone(make_policy: Any, block: dict[str, Any]) -> None:
    (text,) = respond(make_policy(), {"content": [block]})["content"]
    assert json.loads(text["text"])["output_handle"].startswith("oh_")


def test_an_image_whose_share_is_too_small_for_any_size_is_stored_alone() -> None:
    audio = make_block(bytes(6), "audio/wav", "audio")
    result = {"content": [make_block(LARGE), *[audio] * 999]}
    # Each of the 1,000 blocks has a share of a thousand bytes.
    assert select_media(find_media(result, frozenset(["image", "audio"])), must_reencode=False) == [audio] * 999


def test_without_pillow_a_large_image_is_stored_alone(
    make_policy: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    media._has_pillow.cache_clear()
    try:
        for _ in range(2):
            (text,) = respond(make_policy(), {"content": [make_block(LARGE)]})["content"]
            assert "output_handle" in json.loads(text["text"])
    finally:
        media._has_pillow.cache_clear()
    assert caplog.text.count("are stored, not shown; scaling down") == 1
    assert "'forebay[images]'" in caplog.text


def test_blocks_that_cannot_be_parsed_are_no_media() -> None:
    for content in (b'[{"type": "image", "data": nonsense}]', b"[nonsense"):
        result = as_lazy(b'{"content": %s}' % content)
        assert find_media(result, frozenset(["image"])) == []


def test_an_image_of_too_many_pixels_is_not_decoded(make_policy: Any) -> None:
    buffer = io.BytesIO()
    Image.new("L", (9000, 9000)).save(buffer, "PNG")
    (text,) = respond(make_policy(), {"content": [make_block(buffer.getvalue() + bytes(MAX_MEDIA_BYTES))]})["content"]
    assert "output_handle" in json.loads(text["text"])


def test_the_mode_of_a_kind_can_be_chosen(make_policy: Any) -> None:
    small = {"content": [make_block(make_image(20, 20))]}
    medium = {"content": [make_block(SMALL)]}
    assert respond(make_policy(image_mode="auto"), small) is small
    assert len(respond(make_policy(image_mode="auto"), medium)["content"]) == 1
    assert len(respond(make_policy(image_mode="handle"), small)["content"]) == 1
    assert respond(make_policy(audio_mode="handle"), medium) is medium
    # The mode of the tool comes first.
    assert len(respond(make_policy(output_mode="handle"), small)["content"]) == 1
    by_tool = make_policy(tools={"any": {"image_mode": "handle"}})
    assert len(respond(by_tool, small)["content"]) == 1


def test_beside_a_redacted_output_only_pixels_are_shown(make_policy: Any) -> None:
    policy = make_policy(redact=["secret-[0-9]+"])
    secret = b"secret-123 " * 100
    blocks = [make_block(SMALL + secret), make_block(secret, "audio/wav", "audio"), make_block(secret)]
    result = {"content": [{"type": "text", "text": "words " * 20_000}, *blocks]}
    text, *media = respond(policy, result)["content"]
    assert [block["type"] for block in media] == ["image"]
    assert b"secret-123" not in base64.b64decode(media[0]["data"])
    assert "secret-123" not in text["text"]


def encode_image(image: Image.Image, image_format: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, image_format, **options)
    return buffer.getvalue()


SECRET = b"secret-123 " * 30


@pytest.mark.parametrize(
    ("image_format", "options"),
    [
        ("JPEG", {"comment": SECRET}),
        ("JPEG", {"icc_profile": SECRET}),
        ("PNG", {"icc_profile": SECRET}),
        ("WEBP", {"icc_profile": SECRET}),
        ("GIF", {"comment": SECRET}),
    ],
)
def test_metadata_of_an_image_is_not_shown(image_format: str, options: dict[str, Any]) -> None:
    data = encode_image(Image.new("RGB", (60, 40), "red"), image_format, **options)
    (block,) = select_media([make_block(data)], must_reencode=True)
    with Image.open(io.BytesIO(base64.b64decode(block["data"]))) as shown:
        assert b"secret-123" not in repr(shown.info).encode()


def test_fields_of_an_image_block_are_not_shown_unredacted() -> None:
    fields = {"alt": "secret-123", "annotations": {"title": "secret-123"}, "_meta": {"secret-123": 1}}
    (shown,) = select_media([{**make_block(SMALL), **fields}], must_reencode=True)
    assert shown.keys() == {"type", "data", "mimeType"}
    assert "secret-123" not in json.dumps(shown)


@pytest.mark.parametrize("kind", ["image", "audio"])
@pytest.mark.parametrize("key", ["alt", "annotations", "_meta", "mimeType"])
def test_large_fields_of_a_block_are_not_shown(kind: str, key: str) -> None:
    block = {**make_block(SMALL, kind=kind), key: "x" * 2_000_000}
    shown = select_media([block], must_reencode=False)
    assert len(shown) == (kind == "image")
    assert len(encode(shown)) <= MAX_MEDIA_BYTES


def test_small_fields_of_a_block_stay() -> None:
    fields = {"annotations": {"audience": ["user"]}, "_meta": {"page": 1}}
    for data in (SMALL, LARGE):
        (shown,) = select_media([{**make_block(data), **fields}], must_reencode=False)
        assert {key: shown[key] for key in fields} == fields


@pytest.mark.posix
def test_postscript_runs_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "gs"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    postscript = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n"
    assert select_media([make_block(postscript)], must_reencode=True) == []
    assert not (tmp_path / "ran").exists()


@pytest.mark.posix
def test_a_progressive_jpeg_takes_bounded_memory(tmp_path: Path) -> None:
    # Its decoder holds all coefficients, however small the decoded image is.
    data = encode_image(Image.new("L", (13000, 13000)), "JPEG", progressive=True)
    (tmp_path / "block.json").write_text(json.dumps(make_block(data)))
    code = """if True:
        import json, resource, sys
        from PIL import Image
        from forebay.outputs.media import select_media
        block = json.load(open(sys.argv[1]))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert select_media([block], must_reencode=True) == []
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
    """
    run = subprocess.run([sys.executable, "-c", code, tmp_path / "block.json"], capture_output=True, check=True)
    assert int(run.stdout) < 64


def test_images_of_too_many_pixels_together_are_not_all_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(media, "_MAX_TOTAL_PIXELS", 25_000)
    blocks: list[media.Block] = [make_block(make_image(100, 100)) for _ in range(9)]
    assert len(select_media(blocks, must_reencode=True)) == 3


@pytest.mark.parametrize("is_lazy", [False, True])
def test_a_result_of_very_many_blocks_is_not_searched(is_lazy: bool) -> None:
    for count in (1000, 1001):
        result: Any = {"content": [make_block(b"x") for _ in range(count)]}
        found = find_media(parse_lazy(encode(result)) if is_lazy else result, frozenset({"image"}))
        assert len(found) == (count if count <= 1000 else 0)
