"""Forked children, memory, exits, and what is not installed."""

import os
import subprocess
import sys
import textwrap

import pytest
from faults import redeem
from forebay import Store, open_store
from peak import MAX_GROWTH_BYTES, measured
from s3_server import S3Server


def opened(address: str) -> Store:
    return open_store(address, sweep_interval=0)


def run(script: str, *arguments: str) -> str:
    finished = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def test_a_forked_child_is_told_what_to_do_and_does_not_hang(address: str) -> None:
    out = run(
        """
        import os, sys
        from forebay import StoreUnavailable, open_store
        store = open_store(sys.argv[1], sweep_interval=0)
        handle = store.put([{"id": n} for n in range(1000)], source_tool="parent").output_handle
        if os.fork() == 0:
            for use in (lambda: store.fetch(handle), lambda: store.put(b"x"), lambda: open_store(sys.argv[1])):
                try:
                    use()
                except StoreUnavailable as error:
                    assert "spawn" in str(error), error
                else:
                    raise AssertionError
            store.close()
            print("child", flush=True)
            sys.exit()
        assert os.wait()[1] == 0
        assert len(store.fetch(handle).content) > 1000
        assert [event["event"] for event in store.journal.recent()].count("output_handle_created") == 1
        print("parent")
        """,
        address,
    )
    assert out == "child\nparent\n"


def test_a_child_that_opens_the_first_store_can_use_it(address: str) -> None:
    script = """
        import os, sys
        from forebay import open_store
        if os.fork() == 0:
            with open_store(sys.argv[1], sweep_interval=0) as store:
                print(store.put(b"x" * 10).size_bytes, flush=True)
            sys.exit()
        assert os.wait()[1] == 0
        """
    assert run(script, address) == "10\n"


def test_a_stream_of_300_mb_takes_little_memory(address: str) -> None:
    script = """
import random, sys
from forebay import open_store
with open_store(sys.argv[1], sweep_interval=0) as store:
    block = random.Random(1).randbytes(1 << 20)
    store.put(block)
    before = peak()
    store.put(block for _ in range(24))
    small = peak()
    store.put(block[n:] + block[:n] for n in range(300))
    print(before, small, peak())
"""
    before, small, after = measured(script, address)
    assert after - small <= MAX_GROWTH_BYTES, (before >> 20, small >> 20, after >> 20)


def test_a_process_that_exits_without_closing_leaves_its_events_and_its_slices(address: str) -> None:
    out = run(
        """
        import sys
        from forebay import open_store
        store = open_store(sys.argv[1], sweep_interval=0)
        store.call_counts.add("tool", calls=3)
        print(store.put(b"x" * 1000).output_handle)
        """,
        address,
    )
    with opened(address) as store:
        handle = out.strip()
        assert redeem(store, handle) == b"x" * 1000
        assert [event["handle"] for event in store.journal.recent()][-1] == handle
        assert store._backend.usage()["total"] == store.stat(handle).stored_bytes
        assert [row["calls"] for row in store.call_counts.read()] == [3]


def test_without_the_library_the_error_names_the_extra() -> None:
    out = run(
        """
        import sys
        sys.modules["obstore"] = None
        from forebay import InvalidArgument, open_store
        try:
            open_store("s3://bucket/prefix")
        except InvalidArgument as error:
            print(error)
        """
    )
    assert "pip install 'forebay[s3]'" in out


def test_importing_the_package_imports_no_library() -> None:
    script = "import sys, forebay; forebay.open_store; print('obstore' in sys.modules)"
    assert run(script) == "False\n"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "wrong-secret"}, "check the credentials"),
        ({"AWS_ACCESS_KEY_ID": "wrong-key"}, "credentials"),
    ],
)
def test_wrong_credentials_are_named_but_not_shown(
    environment: dict[str, str], expected: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(OSError, match=expected) as raised:
        opened(address)
    assert not any(os.environ[name] in str(raised.value) for name in ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"))


def test_a_bucket_that_is_missing_is_named(server: S3Server) -> None:
    with pytest.raises(OSError, match="there is no bucket 'other-bucket': create it"):
        opened(server.url("").replace("forebay-test", "other-bucket"))
