"""`make bench`: measurements of Forewarn on this machine, compared with its targets."""
