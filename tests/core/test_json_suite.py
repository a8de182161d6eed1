"""Valid and invalid JSON that parsers get wrong, with the byte at which invalid cases stop being JSON.

That byte is the first one after which the payload cannot become valid any more; for a payload that ends too early, it
is the payload's length.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from forebay import InvalidJSON, ItemIndexer, index_items

SUITE = Path(__file__).resolve().parents[3] / "shared" / "corpus" / "json-test-suite"

ACCEPTED = [
    # White space, everywhere it may stand.
    b" [] ",
    b"\t\r\n{}\n",
    b'{ "a"\t:\r1\n,"b" : [ ] }',
    b"[\n\n1\n,\n2\n]",
    b"\n\n\n7",
    # Every kind of value, also at the top.
    b"null",
    b"true",
    b"false",
    b'""',
    b"0",
    b"-0",
    b'"a string alone"',
    b'[[], {}, null, true, false, 0, ""]',
    # Numbers.
    b"[-1, 10, 100000]",
    b"[0.0, -0.5, 1.25]",
    b"[1e1, 1E1, 1e+1, 1E-1, 0e0, 0E+00]",
    b"[-1.5e-300, 1e400, -1e-400]",
    b"[123456789012345678901234567890]",
    b"[0.00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000001]",
    b"[1.0e0123]",
    # Strings: every escape, surrogates in pairs and alone, text of two to four bytes a character.
    rb'["\" \\ \/ \b \f \n \r \t"]',
    rb'["\u0000\u001f\u00e9\uABCD\uabcd"]',
    rb'["\ud83d\ude00"]',
    rb'["\ud83d", "\ude00", "\ude00\ud83d", "\ud83dx"]',
    '["é漢😀"]'.encode(),
    '["\u2028\u2029\ufeff\u007f\u0080\uffff\U0010ffff"]'.encode(),
    b'["\x7f"]',
    b'["/", "\'", "[{,:}]", "//", "/*"]',
    rb'["\\\\", "\\\\\"", "\\u00zz"]',
    b'["' + b"a" * 200 + b'"]',
    b'["' + rb"\\" * 100 + b'"]',
    # Keys: empty, equal, escaped, anything a string can be.
    b'{"": 0}',
    b'{"a": 1, "a": 2}',
    rb'{"\u0061": 1, "\"": 2}',
    b'{"a": {"a": {"a": {}}}}',
    '{"é漢😀": []}'.encode(),
    # Nesting.
    b"[" * 1000 + b"]" * 1000,
    b'{"a":' * 1000 + b"0" + b"}" * 1000,
    b'[{"a":[{"b":[[]]}]}]',
    b"[" + b"[]," * 100 + b"{}]",
    # Rows: values on lines of their own.
    b"1\n2",
    b'{"a": 1}\r\n[2]\r\n"x"\r\n',
    b"\n\n1\n \t \n2\n\n",
    b"[]\n[]\n[]",
    b'"a"\n"b"',
    b"null\ntrue",
]

REJECTED = [
    # Nothing, or not enough.
    (b"", 0),
    (b"   ", 3),
    (b"\n", 1),
    (b"[", 1),
    (b"{", 1),
    (b'"', 1),
    (b"-", 1),
    (b"[1", 2),
    (b"[1,", 3),
    (b'{"a"', 4),
    (b'{"a":', 5),
    (b'{"a":1', 6),
    (b'{"a":1,', 7),
    (b'["a', 3),
    (rb'["\u12', 6),
    (b"tru", 3),
    (b"[nul", 4),
    (b"1.", 2),
    (b"1e", 2),
    (b"1e+", 3),
    (b"[[[[", 4),
    # Too much.
    (b"[]]", 2),
    (b"{}}", 2),
    (b"1 2", 2),
    (b"[] []", 3),
    (b"[],", 2),
    (b"1,", 1),
    (b'""""', 2),
    (b"truefalse", 4),
    (b"null\x00", 4),
    # Commas and colons.
    (b"[,]", 1),
    (b"[,1]", 1),
    (b"[1,]", 3),
    (b"[1,,2]", 3),
    (b"[1 2]", 3),
    (b"[1:2]", 2),
    (b'["a":1]', 4),
    (b"[1\n,]", 4),
    (b"{,}", 1),
    (b'{"a":1,}', 7),
    (b'{"a":1,,"b":2}', 7),
    (b'{"a",1}', 4),
    (b'{"a"}', 4),
    (b'{"a":}', 5),
    (b'{"a"::1}', 5),
    (b'{"a" 1}', 5),
    (b'{"a":1 "b":2}', 7),
    (b'{"a":1:2}', 6),
    (b"{:1}", 1),
    (b":", 0),
    (b",", 0),
    # Brackets.
    (b"]", 0),
    (b"}", 0),
    (b"[}", 1),
    (b"{]", 1),
    (b"[1}", 2),
    (b'{"a":1]', 6),
    (b"[{]}", 2),
    (b"[[1]}", 4),
    # Keys.
    (b"{1:1}", 1),
    (b"{a:1}", 1),
    (b"{'a':1}", 1),
    (b"{[]:1}", 1),
    (b"{null:1}", 1),
    (b'{"a":1, 2}', 8),
    # Numbers.
    (b"01", 1),
    (b"-01", 2),
    (b"[00]", 2),
    (b"+1", 0),
    (b".5", 0),
    (b"[-]", 2),
    (b"--1", 1),
    (b"[1.]", 3),
    (b"[1.e1]", 3),
    (b"[1e]", 3),
    (b"[1e+]", 4),
    (b"[1e1.5]", 4),
    (b"[1.2.3]", 4),
    (b"[0x10]", 2),
    (b"[1_000]", 2),
    (b"[1a]", 2),
    (b"[-a]", 2),
    (b"[-Infinity]", 2),
    (b"[Infinity]", 1),
    (b"[NaN]", 1),
    (b"[1e1e1]", 4),
    ("[１]".encode(), 1),
    (b"[1+2]", 2),
    # Literals.
    (b"[True]", 1),
    (b"[nulL]", 4),
    (b"[truee]", 5),
    (b"[falsy]", 5),
    (b"[undefined]", 1),
    (b"[nan]", 2),
    (b"[t]", 2),
    # Strings.
    (b"['a']", 1),
    (b'["a\nb"]', 3),
    (b'["\t"]', 2),
    (b'["\x00"]', 2),
    (b'["\x1f"]', 2),
    (rb'["\x41"]', 3),
    (rb'["\a"]', 3),
    (rb'["\U0041"]', 3),
    (rb'["\u00g0"]', 6),
    (rb'["\u 041"]', 4),
    (rb'["\u+041"]', 4),
    (rb'["\u"]', 4),
    (rb'["\u004"]', 7),
    (rb'["\"]', 5),
    (rb'["\\\"]', 7),
    (b'["\\\n"]', 3),
    (b"[\\n]", 1),
    (b'["a"b]', 4),
    (b'["a" "b"]', 5),
    # Bytes that are not text: alone, cut short, longer than needed, halves of pairs, out of range.
    (b"\xff", 0),
    (b'["\xff"]', 2),
    (b'["\x80"]', 2),
    (b'["\xc3"]', 2),
    (b'["a\xe6\xbc"]', 3),
    (b'["\xc0\xaf"]', 2),
    (b'["\xe0\x80\xaf"]', 2),
    (b'["\xed\xa0\x80"]', 2),
    (b'["\xf4\x90\x80\x80"]', 2),
    (b'["\xf0\x9f\x98"]', 2),
    (b"[\xc3\xa9]", 1),
    # White space that JSON does not know, comments, marks.
    (b"\xef\xbb\xbf[]", 0),
    (b"[\x0c]", 1),
    (b"[\x0b1]", 1),
    (b"[\xc2\xa0]", 1),
    ("[\u2060]".encode(), 1),
    (b"[]\x00", 2),
    (b"[1]// end", 3),
    (b"/* */[]", 0),
    (b"[1, # one\n2]", 4),
    (b"<html>", 0),
    # Rows that are not lines of their own.
    (b"1\n2 3", 4),
    (b"[1,\n2]\n3", 7),
    (b"1\n[2,\n3]", 5),
    (b"1\n,2", 2),
    (b"1\n]", 2),
    (b"{}\n{", 4),
    (b'1\n"a\n"', 4),
]


def with_padding(data: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield the payload behind different amounts of white space, so that it starts at every position of a block."""
    for before in (0, *range(40, 66), 127, 128):
        yield b" " * before + data, before


@pytest.mark.parametrize("data", ACCEPTED)
def test_accepted(data: bytes) -> None:
    for payload, _ in with_padding(data):
        index = index_items(payload)
        assert index_items(payload, validate=False) == index
        assert index_items(payload + b" \n" * 40) is not None


@pytest.mark.parametrize(("data", "byte"), REJECTED)
def test_rejected_with_the_byte(data: bytes, byte: int) -> None:
    for payload, before in with_padding(data):
        with pytest.raises(InvalidJSON) as caught:
            index_items(payload)
        assert caught.value.index == before + byte


@pytest.mark.parametrize(("data", "byte"), REJECTED)
def test_the_error_is_raised_once_the_invalid_byte_is_fed(data: bytes, byte: int) -> None:
    """The bytes that follow do not matter, even if they fill blocks."""
    for payload, before in with_padding(data):
        if byte < len(data):
            with pytest.raises(InvalidJSON) as caught:
                index_items(payload[: before + byte + 1] + b" " * 200)
            assert caught.value.index <= before + byte


def test_a_colon_after_a_string_that_crosses_a_block() -> None:
    with pytest.raises(InvalidJSON) as caught:
        index_items(b'["' + b"a" * 70 + b'":1' + b",1" * 100 + b"]")
    assert caught.value.index == 73


@pytest.mark.parametrize(("data", "byte"), REJECTED)
def test_the_bytes_before_the_invalid_byte_can_still_become_valid(data: bytes, byte: int) -> None:
    ItemIndexer().feed(data[:byte])


@pytest.mark.parametrize("depth", [64, 65, 1000, 100_000])
def test_depth(depth: int) -> None:
    nested = b"[" * depth + b"]" * depth
    assert len(index_items(nested)) == 1
    for broken, byte in (
        (nested[:-1], len(nested) - 1),
        (nested + b"]", len(nested)),
        (nested[:-1] + b"}", len(nested) - 1),
    ):
        with pytest.raises(InvalidJSON) as caught:
            index_items(broken)
        assert caught.value.index == byte


def suite_files() -> list[Path]:
    return sorted(SUITE.rglob("[yn]_*.json")) if SUITE.is_dir() else []


@pytest.mark.skipif(not SUITE.is_dir(), reason="the JSON test suite is not beside this checkout")
@pytest.mark.parametrize("path", suite_files(), ids=lambda path: path.name)
def test_the_suite(path: Path) -> None:
    data = path.read_bytes()
    kind = path.name[0]
    if kind == "y":
        index_items(data)
    elif kind == "n":
        with pytest.raises(InvalidJSON) as caught:
            index_items(data)
        assert 0 <= caught.value.index <= len(data)
