"""Files of a store as releases wrote them. `python tests/support/earlier_files.py` adds those of the present version.

Each release adds its files once, so that a later one that cannot read them fails its tests.
"""

import base64
import gzip
import json
import tempfile
from pathlib import Path

import forebay
from faults import opened, stored_files
from stores import Clock

__all__ = ["PAYLOADS", "RECORDED", "TTL_SECONDS", "record"]

RECORDED = Path(__file__).parents[1] / "store" / "earlier_files.json"
TTL_SECONDS = 3600.0

ROWS = [{"id": number // 1000, "name": "row" * 20} for number in range(4_000)]
LOG = b"".join(f"{number // 100} naïve request failed\n".encode() for number in range(9_000))
PAYLOADS: dict[str, bytes] = {
    "records": json.dumps(ROWS).encode(),
    "wrapped records": json.dumps({"total": len(ROWS), "items": ROWS}).encode(),
    "lines": LOG,
    "lines in gzip": gzip.compress(LOG, mtime=0),
    "bytes": bytes(range(256)) * 20,
    "nothing": b"",
}
"""What each release stores. Those of text take several frames, and little space when they are compressed."""


def record() -> dict[str, dict[str, str]]:
    """Store the payloads, and return path and content of the file of each."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "store")
        with opened(root, clock=Clock(), ttl=TTL_SECONDS) as store:
            handles = {name: store.put(payload, principal="ann").output_handle for name, payload in PAYLOADS.items()}
        files = stored_files(root)
        return {
            name: {
                "path": files[handle].relative_to(root).as_posix(),
                "content": base64.b85encode(files[handle].read_bytes()).decode(),
            }
            for name, handle in handles.items()
        }


if __name__ == "__main__":
    releases = json.loads(RECORDED.read_bytes()) if RECORDED.exists() else {}
    if forebay.__version__ in releases:
        raise SystemExit(f"the files of {forebay.__version__} are there, and stay as they are")
    releases[forebay.__version__] = record()
    RECORDED.write_text(json.dumps(releases, indent=1) + "\n", encoding="utf-8")
