"""`make bench`: what Forewarn can do on this machine, measured and held against its targets."""
