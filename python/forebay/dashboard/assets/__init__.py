"""Files that the pages of the dashboard load."""
