"""The operator API /v1: its types, its client, the fleet file and the campaign file. Does not depend on the server."""
