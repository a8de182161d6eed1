"""The `forebay` command, for a `ForkServer`: imports what most commands need, also what they import late."""

import sys

import forebay.__main__
import forebay.cli
import forebay.cli.output.charts
import forebay.cli.output.tables
import forebay.cli.parser
import forebay.dashboard.texts
import forebay.store

if __name__ == "__main__":
    sys.argv[0] = forebay.__main__.__file__
    forebay.cli.main()
