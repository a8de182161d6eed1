"""JSON-RPC messages as bytes: framing, spooling, lazy parsing, and HTTP bodies."""
