"""JSON-RPC messages as bytes: framing, spooling and lazy parsing."""
