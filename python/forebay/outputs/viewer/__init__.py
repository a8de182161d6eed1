"""The viewer of stored outputs for browsers: `viewer.js` and `viewer.css`, for the dashboard and for MCP Apps."""
