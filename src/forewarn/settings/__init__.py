"""Service settings and the source of each value.

Precedence, highest first: flags, environment, `forewarn.toml`, preset.
"""
