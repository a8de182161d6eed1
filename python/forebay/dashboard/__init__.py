"""The dashboard: pages of HTML about a store, and a viewer of what it holds."""
