"""References in the arguments of a call: `{"$file": …}` and `{"$handle": …}` stand for what they name."""
