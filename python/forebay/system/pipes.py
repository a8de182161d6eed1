"""Pipes to and from other processes, on the current operating system."""

import sys

if sys.platform == "win32":
    from forebay.system.windows_pipes import EndSignal, PipeInput, PipeOutput, count_available, enlarge_pipe, write_some
else:
    from forebay.system.posix_pipes import EndSignal, PipeInput, PipeOutput, count_available, enlarge_pipe, write_some

__all__ = ["EndSignal", "PipeInput", "PipeOutput", "count_available", "enlarge_pipe", "write_some"]
