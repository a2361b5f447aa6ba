"""The operator API /v1 as types, and its client. Needs nothing of the server."""
