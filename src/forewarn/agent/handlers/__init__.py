"""What the agent can do about an event: the port, and one module for each kind of handler."""
