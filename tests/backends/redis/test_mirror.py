"""A mirror into a cluster, where a commit is several requests to different nodes."""

from pathlib import Path

import pytest
from faults import redeem
from forebay import OPERATOR, StoreUnavailable, open_store
from forebay.store.backends.redis_client import RedisClient, Script
from forebay.store.backends.redis_scripts import SETTLE
from stores import store_at


def test_what_a_killed_writer_did_not_commit_is_copied_again(
    redis_cluster_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store_at(tmp_path) as source, open_store(redis_cluster_address, sweep_interval=0) as target:
        handle = source.put("text").output_handle
        run = RedisClient.run

        def run_until_settled(client: RedisClient, script: Script, *arguments: object, **options: bool) -> object:
            if script is SETTLE:
                raise StoreUnavailable("the process was killed")
            return run(client, script, *arguments, **options)  # type: ignore[arg-type]

        with monkeypatch.context() as patch:
            patch.setattr(RedisClient, "run", run_until_settled)
            with pytest.raises(StoreUnavailable):
                source.mirror_to(target)
        # It can be read, but a sweep will remove it.
        assert redeem(target, handle) == b"text"
        assert source.mirror_to(target).copied == 1
        assert [output.output_handle for output in target.list(principal=OPERATOR)] == [handle]
        assert source.mirror_to(target).skipped == 1
