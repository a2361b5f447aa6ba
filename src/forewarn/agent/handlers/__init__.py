"""Handlers: what the agent does about an event. The interface is in `base`; each kind of handler has a module."""
