"""What becomes of a tool result: inline, stored under a handle, or cut to the response contract."""
