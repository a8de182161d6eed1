"""Arguments by reference: `{"$file": …}` and `{"$handle": …}` are replaced by the content they refer to."""
