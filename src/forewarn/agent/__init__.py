"""The daemon inside a virtual machine: hooks, approval, recovery."""
