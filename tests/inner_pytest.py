"""pytest inside of a test, as users have it: with Forewarn's plug-in, and without those of this repository's tools."""

WITHOUT_OTHERS = tuple(
    option
    for name in ("anyio", "faker", "hypothesispytest", "schemathesis", "xdist.looponfail")
    for option in ("-p", f"no:{name}")
)
"""Arguments; to load the others takes longer than to run a test."""
