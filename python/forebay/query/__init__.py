"""SQL over stored outputs: a table of a payload's items, queried by DuckDB in a process of its own.

`engine` gives the tables that a statement names, written by `feed`, to a worker, and returns the rows. `process`
starts, reuses and ends workers. `worker` runs in the child process, behind the limits of `sandbox`; `rows` writes its
results as JSON. `explain` writes the errors.
"""
