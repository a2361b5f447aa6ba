"""Live views: journal stream, followed events and campaigns, the watch screen."""
