"""The dashboard: HTML pages about a store, and a viewer of its outputs."""
