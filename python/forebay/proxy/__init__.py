"""forebay in front of servers that know nothing of it."""
