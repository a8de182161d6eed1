"""`forebay serve --http`: who may reach it, and how much."""
