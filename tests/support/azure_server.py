"""A server of Azure's blobs on loopback: Azurite, which npm installs."""

import base64
import contextlib
import hashlib
import hmac
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path

import pytest
from s3_server import find_binary, free_port, is_listening
from waiting import wait_until

CONTAINER = "forebay-test"
ACCOUNT = "testaccount"
KEY = base64.b64encode(bytes(32)).decode()


@contextlib.contextmanager
def azure_server(folder: Path) -> Iterator[str]:
    """Start the server with a container, set the key in the environment, and return the URL of the account."""
    port = free_port()
    options = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder), "--silent"]
    process = subprocess.Popen(
        [find_binary("azurite-blob"), *options, "--skipApiVersionCheck", "--disableTelemetry"],
        stdout=subprocess.DEVNULL,
        env={**os.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"},
    )
    try:
        wait_until(lambda: is_listening(port), seconds=60)
        url = f"http://127.0.0.1:{port}/{ACCOUNT}"
        _create_container(url)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
            yield url
    finally:
        process.kill()
        process.wait()


def _create_container(url: str) -> None:
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    # The signature of Azure's shared keys: the method, eleven empty headers, those of Azure, and the resource.
    lines = ["PUT", *[""] * 11, *(f"{name}:{value}" for name, value in headers.items())]
    text = "\n".join([*lines, f"/{ACCOUNT}/{ACCOUNT}/{CONTAINER}", "restype:container"])
    digest = hmac.digest(base64.b64decode(KEY), text.encode(), hashlib.sha256)
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
    request = urllib.request.Request(  # noqa: S310 - a URL of this module
        f"{url}/{CONTAINER}?restype=container", headers=headers, method="PUT"
    )
    urllib.request.urlopen(request).close()  # noqa: S310
