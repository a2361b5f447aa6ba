"""Options for a pytest run inside a test: with the Forewarn plug-in, without the other plug-ins of this repository."""

WITHOUT_OTHERS = tuple(
    option
    for name in ("anyio", "faker", "hypothesispytest", "schemathesis", "xdist.looponfail")
    for option in ("-p", f"no:{name}")
)
"""Arguments: loading the other plug-ins takes longer than running a test."""
