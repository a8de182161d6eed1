"""The text of the help."""

__all__ = ["HELP"]

HELP = """
Moving
  j k, arrows        one row down, up
  Space b, PgDn PgUp one page down, up         Ctrl+D Ctrl+U  half a page
  g NUMBER           go to an item or line     g 50%          or to a share
  Home, End or G     the first, the last row
  h l, arrows        column to the left, right; in text, scroll to the side
  0 ^ $              the first, the last column

Reading
  Enter              open the item or line; in a tree, open or close a branch
  e E                in a tree: open, close all branches
  p POINTER          open the value at a JSON Pointer
  t                  text of the payload, or its items again
  o                  outline of the document
  c NAMES            choose the columns, such as id,customer.country
  Esc, Backspace     back; without a filter or job
  q                  back, and at the first screen quit          Q  quit

Finding
  /TEXT              search for the next row that has the text
    Ctrl+R           it is a regular expression
    Ctrl+O           ignore upper and lower case
    Ctrl+T           search keys and values of JSON, with their escapes decoded
  n N                next, previous row that has a match
  f CONDITIONS       show only items such as: status = failed and total > 200
                     operators: = != < <= > >= ~ contains in exists missing
                     or JSON as for --where; empty: show all items
  :SQL               query the table items (needs the extra sql)

Taking along
  y                  copy: then y the value, p its JSON Pointer,
                     c the command that reads it, t the tool call that reads it
  x FILE             export what is shown: .json .ndjson .csv .parquet

Esc or Ctrl+C cancels what takes long. Arrows up and down in a prompt repeat
what was typed before.
"""
