"""The documentation site: committed pages, a reference generated from the code, and checks of what was built."""
