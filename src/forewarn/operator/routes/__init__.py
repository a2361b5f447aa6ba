"""Route handlers of the operator API, one module per resource."""
