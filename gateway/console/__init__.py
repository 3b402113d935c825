"""The console: pages for people, over the same code as the HTTP API."""
