"""Many threads of two replicas while answers are lost at random: no byte is lost, and no account is too low."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from faults import digest, redeem
from forebay import OPERATOR, HandleNotFound, Store, StoreUnavailable, open_store
from forebay.store.backends import TOTAL_ACCOUNT, object_accounts
from s3_server import BUCKET, Proxy, S3Server
from stores import noise

pytestmark = pytest.mark.slow


class Threads:
    """Threads that put, read and delete, and what they know of the store."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.digests: dict[str, str] = {}
        self.unknown: set[str] = set()
        self.failures: list[BaseException] = []
        self.is_stopped = False

    def run(self, address: str, seed: int) -> None:
        chosen = random.Random(seed)
        try:
            with open_store(address, sweep_interval=0) as store:
                while not self.is_stopped:
                    self.step(store, chosen)
        except BaseException as error:
            self.failures.append(error)

    def step(self, store: Store, chosen: random.Random) -> None:
        with self.lock:
            handle = chosen.choice(sorted(self.digests)) if self.digests and chosen.random() < 0.5 else None
        if handle is None:
            data = noise(chosen.choice([200, 5000, 300_000, 17_000_000]), chosen.randrange(1 << 30))
            try:
                stored = store.put(data, principal=chosen.choice(["ann", None])).output_handle
            except StoreUnavailable:
                return
            with self.lock:
                self.digests[stored] = digest(data)
        elif chosen.random() < 0.5:
            with self.lock:
                expected = self.digests.pop(handle, None)
            if expected is not None:
                try:
                    store.delete(handle, principal=OPERATOR)
                except StoreUnavailable:
                    self.unknown.add(handle)
        else:
            try:
                data = redeem(store, handle, OPERATOR)
            except (HandleNotFound, StoreUnavailable):
                return
            with self.lock:
                assert digest(data) == self.digests.get(handle, digest(data))


def test_lost_answers_under_load_lose_nothing(
    server: S3Server, prefix: str, front: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen, state = random.Random(3), Threads()
    folder = server.folder / BUCKET / prefix
    address = server.url(prefix, front.port)
    threads = [threading.Thread(target=state.run, args=[address, seed]) for seed in range(4)]
    for thread in threads:
        thread.start()
    with open_store(server.url(prefix), sweep_interval=0) as store:
        try:
            for number in range(60):
                method = chosen.choice(["PUT", "PUT", "PUT", "POST", "GET", "DELETE", "HEAD"])
                front.cut_answers.append(f"{method} /{BUCKET}/{prefix}/{chosen.choice(['h', 'accounts', ''])}")
                threads[0].join(0.1)
                if number % 15 == 14:
                    store.sweep()
        finally:
            state.is_stopped = True
            front.cut_answers.clear()
            for thread in threads:
                thread.join()
        assert state.failures == []
        assert front.lost_answers > 20
        assert len(state.digests) > 10
        stored = sum((folder / key).stat().st_size for key in server.keys(prefix) if key.startswith("h/"))
        assert store._backend.usage()[TOTAL_ACCOUNT] >= stored
        for handle, expected in state.digests.items():
            assert digest(redeem(store, handle, OPERATOR)) == expected
        monkeypatch.setattr(object_accounts, "_DEAD_SECONDS", 0.0)
        report = store.sweep()
        assert store._backend.usage()[TOTAL_ACCOUNT] == report.stored_bytes


def test_one_of_many_threads_deletes_an_object(server: S3Server, prefix: str) -> None:
    stores = [open_store(server.url(prefix), sweep_interval=0) for _ in range(4)]
    for number in range(5):
        handle = stores[0].put(noise(2000, number)).output_handle
        with ThreadPoolExecutor(8) as pool:
            backends = [store._backend for store in stores] * 2
            results = list(pool.map(lambda backend: backend.delete(handle, 2000, [TOTAL_ACCOUNT]), backends))  # noqa: B023
        assert sorted(results) == [False] * 7 + [True]
    for store in stores:
        store.close()
