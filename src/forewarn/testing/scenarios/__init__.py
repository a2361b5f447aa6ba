"""The scenarios that come with Forewarn, one per file; `forewarn scenario list` shows them."""
