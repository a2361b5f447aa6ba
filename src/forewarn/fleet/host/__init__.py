"""Hosts of a cluster: the commands that they send to control nodes, and both ends of that exchange."""
