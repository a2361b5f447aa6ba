"""Live views: journal stream, followed events and campaigns, the view of `forewarn watch`."""
