"""Campaigns: maintenance over many scopes, wave by wave. What is asked for, its plan, and how it goes on; all pure."""
