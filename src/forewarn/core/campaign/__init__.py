"""Campaigns: rolling maintenance over many scopes, wave by wave. Specification, plan and rollout; all pure."""
