"""Benchmarks on one payload, beside the libraries and commands that are installed: `forebay bench`."""
