"""What helps people test against Forewarn: shipped, not private."""
