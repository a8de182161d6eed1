"""Read files below roots, and return the messages of refusals."""

import pytest
from forebay import FileRefDenied
from forebay.outputs.references.files import FileRoots

SECRET = b"from outside"


def read(roots: FileRoots, path: str) -> bytes:
    with roots.open(path) as file:
        return file.read(0, file.size)


def read_refused(roots: FileRoots, path: str) -> str:
    with pytest.raises(FileRefDenied) as caught:
        read(roots, path)
    assert len(str(caught.value)) < 600
    return str(caught.value)
