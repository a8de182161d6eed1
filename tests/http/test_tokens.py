"""The token file: parsing, permissions, reloading, and that no token is ever shown."""

import contextlib
import hashlib
import logging
import os
import stat
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from command import run
from forebay.errors import InvalidArgument
from forebay.http.tokens import TokenFile, hash_token, make_token, parse_token_lines
from hypothesis import given
from hypothesis import strategies as st
from private_files import write_private

SECRET = "s3cr3t-" + "k" * 32
OTHER = "0123456789abcdef" * 2


def write_tokens(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = write_private(folder / "tokens", text)
    if mode != 0o600:
        path.chmod(mode)
    return path


def find_owner(tokens: TokenFile, token: str) -> str | None:
    found = anyio.run(tokens.verify_token, token)
    assert found is None or token not in repr(found)
    return None if found is None else found.client_id


def test_a_token_identifies_its_principal(tmp_path: Path) -> None:
    hashed = hashlib.sha256(b"hashed-" * 5).hexdigest()
    text = f"# ours\n\nalice: {SECRET}\n  team of bob :{OTHER}  \r\ncarol: sha256:{hashed.upper()}\nalice: {'n' * 22}\n"
    tokens = TokenFile(str(write_tokens(tmp_path, text)))
    assert find_owner(tokens, SECRET) == "alice"
    # A principal may have two tokens, so that one can be replaced without a gap.
    assert find_owner(tokens, "n" * 22) == "alice"
    assert find_owner(tokens, OTHER) == "team of bob"
    assert find_owner(tokens, "hashed-" * 5) == "carol"
    for wrong in (
        "",
        SECRET[:-1],
        SECRET + "k",
        SECRET.upper(),
        f"sha256:{hashed}",
        hashed,
        "alice",
        "# ours",
        "é\x00",
    ):
        assert find_owner(tokens, wrong) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no tokens"),
        ("# alice: x\n", "has no tokens"),
        (SECRET, ":1: this is not `name: token`"),
        (f"\nalice {SECRET}", ":2: this is no"),
        (f"alice: {SECRET} bob", "this is no"),
        (f": {SECRET}", "this is no"),
        (f"a\x07b: {SECRET}", "this is no"),
        (f"{'a' * 201}: {SECRET}", "this is no"),
        (f"alice: sha256:{SECRET}", "this is no"),
        ("alice: k3y" + "k" * 18, "can be guessed"),
        ("alice: " + "ab" * 15, "can be guessed"),
        (f"alice: {SECRET}\nbob: {SECRET}", ":2: this token is another principal's"),
    ],
)
def test_invalid_lines_are_refused_and_not_shown(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument) as refused:
        TokenFile(str(write_tokens(tmp_path, text)))
    assert message in str(refused.value)
    assert not any(word in str(refused.value) for word in (SECRET, "k" * 8, "ab" * 4))
    assert refused.value.__cause__ is None


@pytest.mark.skipif(sys.platform != "win32", reason="elsewhere a file has permissions of its own")
def test_a_file_with_the_permissions_of_its_folder_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"alice: {SECRET}")
    with pytest.raises(InvalidArgument, match=r"icacls .*tokens. /inheritance:r"):
        TokenFile(str(path))
    assert find_owner(TokenFile(str(path), allow_others_to_read=True), SECRET) == "alice"


@pytest.mark.posix
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o644])
def test_a_file_that_others_can_read_is_refused(mode: int, tmp_path: Path) -> None:
    path = write_tokens(tmp_path, f"alice: {SECRET}", mode)
    with pytest.raises(InvalidArgument, match=r"chmod 600 .*tokens$"):
        TokenFile(str(path))
    assert find_owner(TokenFile(str(path), allow_others_to_read=True), SECRET) == "alice"


@pytest.mark.posix
@pytest.mark.parametrize(
    ("mode", "owner", "group", "is_allowed"),
    [
        (0o440, 0, 3000, True),
        (0o440, 0, 4000, False),
        (0o440, 7, 3000, False),
        (0o444, 0, 3000, False),
        (0o460, 0, 3000, False),
        (0o400, 0, 4000, True),
    ],
)
def test_the_group_of_a_mounted_secret_may_read_it(
    mode: int, owner: int, group: int, is_allowed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_tokens(tmp_path, f"ann: {SECRET}\n")
    status = os.stat_result((stat.S_IFREG | mode, 1, 1, 1, owner, group, 50, 0, 0, 0))
    monkeypatch.setattr(os, "fstat", lambda _: status)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "getgroups", lambda: [1000, 3000])
    if is_allowed:
        assert find_owner(TokenFile(str(path)), SECRET) == "ann"
    else:
        with pytest.raises(InvalidArgument, match="chmod 600"):
            TokenFile(str(path))


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="No such file"):
        TokenFile(str(tmp_path / "none"))
    with pytest.raises(InvalidArgument, match="Permission denied" if sys.platform == "win32" else "Is a directory"):
        TokenFile(str(tmp_path))
    if sys.platform != "win32":
        os.mkfifo(tmp_path / "pipe", 0o600)
        with pytest.raises(InvalidArgument, match="not a file of tokens"):
            TokenFile(str(tmp_path / "pipe"))
    path = write_tokens(tmp_path, "")
    path.write_bytes(b"alice: \xff" + SECRET.encode())
    with pytest.raises(InvalidArgument, match="not UTF-8"):
        TokenFile(str(path))
    path.write_bytes(b"#" * (1 << 20) + b"\n")
    with pytest.raises(InvalidArgument, match="not a file of tokens"):
        TokenFile(str(path))


def test_a_changed_file_is_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_tokens(tmp_path, f"alice: {SECRET}")
    tokens = TokenFile(str(path))
    assert (find_owner(tokens, SECRET), find_owner(tokens, OTHER)) == ("alice", None)
    path.write_text(f"bob: {OTHER}")
    assert (find_owner(tokens, SECRET), find_owner(tokens, OTHER)) == (None, "bob")
    # Replace the file, as editors do.
    write_tokens(tmp_path, f"carol: {SECRET}").rename(tmp_path / "new")
    (tmp_path / "new").rename(path)
    assert (find_owner(tokens, SECRET), find_owner(tokens, OTHER)) == ("carol", None)
    caplog.clear()
    spoils: list[Any] = [
        lambda: path.write_text(f"bob: {OTHER}\n{SECRET}"),
        lambda: path.chmod(0o644),
        path.unlink,
    ]
    if sys.platform == "win32":
        # There the mode says nothing about others.
        del spoils[1]
    for spoil in spoils:
        spoil()
        # Logged once per change, not once per request.
        assert [find_owner(tokens, SECRET) for _ in range(3)] == ["carol"] * 3
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * len(spoils)
    assert SECRET not in caplog.text
    assert OTHER not in caplog.text
    write_tokens(tmp_path, f"dave: {OTHER}")
    assert (find_owner(tokens, SECRET), find_owner(tokens, OTHER)) == (None, "dave")


@pytest.mark.slow
def test_lines_of_the_token_command_are_accepted(tmp_path: Path) -> None:
    plain, hashed = run("token", "alice"), run("token", "team of bob", "--hashed")
    assert (plain.code, plain.err, hashed.code) == (0, b"", 0)
    tokens = TokenFile(str(write_tokens(tmp_path, (plain.out + hashed.out).decode())))
    shown = plain.out.decode().removeprefix("alice: ").strip()
    secret = hashed.err.decode().strip()
    assert (find_owner(tokens, shown), find_owner(tokens, secret)) == ("alice", "team of bob")
    assert secret not in hashed.out.decode()
    assert len({shown, secret, run("token", "alice").out.decode().split()[1]}) == 3
    assert "without colons" in run("token", "a:b").error["message"]


NAMES = st.text(st.characters(exclude_categories=["C", "Z"], exclude_characters=":#"), min_size=1, max_size=20)
TOKENS = st.from_regex(r"[A-Za-z0-9._~+/-]{32,60}=?", fullmatch=True)


@pytest.mark.slow
@given(st.dictionaries(TOKENS, NAMES, min_size=1, max_size=5), st.booleans())
def test_parsed_lines_equal_the_written_entries(entries: dict[str, str], is_hashed: bool) -> None:
    shape = {token: f"sha256:{hash_token(token).hex()}" if is_hashed else token for token in entries}
    text = "\n".join(f"{name}: {shape[token]}" for token, name in entries.items())
    assert dict(parse_token_lines(text, "x")) == {
        hashlib.sha256(token.encode()).digest(): name for token, name in entries.items()
    }


@given(st.text())
def test_any_text_is_parsed_or_refused(text: str) -> None:
    for line in (text, f"alice: {text}"):
        with contextlib.suppress(InvalidArgument):
            parse_token_lines(line, "x")


@given(st.text(max_size=300))
def test_every_name_is_refused_or_can_be_read_back(name: str) -> None:
    try:
        token, line = make_token(name)
    except InvalidArgument:
        return
    assert parse_token_lines(line, "x") == [(hash_token(token), name)]


def test_a_file_without_tokens_refuses_all_tokens(tmp_path: Path) -> None:
    path = write_tokens(tmp_path, f"alice: {SECRET}")
    tokens = TokenFile(str(path))
    assert find_owner(tokens, SECRET) == "alice"
    path.write_text("# none any more\n")
    assert find_owner(tokens, SECRET) is None
