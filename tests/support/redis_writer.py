"""A process that stores payloads at an address, and reports each one that was acknowledged, until it is killed."""

import hashlib
import random
import sys

import forebay


def make_payload(rng: random.Random) -> bytes:
    size = rng.choice([0, 300, 30_000, 1_500_000, 4_000_000])
    return rng.randbytes(size) if rng.random() < 0.5 else b"a line of a log\n" * (size // 16)


def write(url: str, seed: int, quota: int | None, count: int) -> None:
    rng = random.Random(seed)
    with forebay.open_store(url, quota_bytes=quota, sweep_interval=rng.choice([0, 0.01])) as store:
        for _ in range(count):
            data = make_payload(rng)
            principal = rng.choice(["ann", "bob", "carl"])
            try:
                handle = store.put(data, principal=principal).output_handle
            except forebay.StoreFull:
                sys.stdout.write("full\n")
                sys.stdout.flush()
                continue
            sys.stdout.write(f"{handle} {principal} {hashlib.sha256(data).hexdigest()}\n")
            sys.stdout.flush()
            if rng.random() < 0.3:
                sys.stdout.write(f"delete {handle}\n")
                sys.stdout.flush()
                store.delete(handle, principal=principal)


if __name__ == "__main__":
    url, seed, quota, count = sys.argv[1:]
    write(url, int(seed), int(quota) or None, int(count))
