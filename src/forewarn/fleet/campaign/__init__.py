"""Campaigns of the fleet: the service (commands), the runner (one per campaign) and its actions."""
