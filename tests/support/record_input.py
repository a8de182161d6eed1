"""Start a server and record its input: `python record_input.py FILE COMMAND…`."""

import subprocess
import sys
from pathlib import Path


def main() -> int:
    _, path, *command = sys.argv
    with Path(path).open("wb", buffering=0) as tap, subprocess.Popen(command, stdin=subprocess.PIPE) as server:
        assert server.stdin
        for line in sys.stdin.buffer:
            tap.write(line)
            server.stdin.write(line)
            server.stdin.flush()
        server.stdin.close()
        return server.wait()


if __name__ == "__main__":
    sys.exit(main())
