"""The text of the help."""

__all__ = ["HELP"]

HELP = """
Moving
  j k, arrows      one row down, up
  Space b          one page down, up; also PgDn, PgUp
  ^D ^U            half a page down, up
  g NUMBER         go to an item or line; g 50% to a share
  Home, End or G   the first, the last row
  h l, arrows      next column; in text, scroll sideways
  0 $              the first, the last column

Reading
  Enter            open an item or line; in a tree,
                   open or close a branch
  e E              in a tree: open, close all branches
  p POINTER        open the value at a JSON Pointer
  t                text of the payload, and back
  o                outline of the document
  c NAMES          choose the columns: id,customer.country
  Esc, Backspace   back; Esc also ends a filter
  q                back, and at the first screen quit
  Q                quit

Finding
  /TEXT            go to the next row that has the text
    ^R             ... TEXT is a regular expression
    ^O             ... upper and lower case are the same
    ^T             ... search keys and values of JSON,
                   with their escapes decoded
  n N              next, previous row that has a match
  f CONDITIONS     show only items such as
                   status = failed and total > 200
                   = != < <= > >= ~ contains in
                   exists missing; empty: all items
  :SQL             query the table items; needs the
                   extra sql

Taking along
  yy yp yc yt      copy the value, its JSON Pointer, the
                   command or the tool call that reads it
  x FILE           export what is shown as a file:
                   .json .ndjson .csv .parquet

Esc or ^C cancels what takes long. The arrows up and down
in a prompt repeat what was typed before. Some prompts are
filled in: ^U clears what is before the cursor.
"""
