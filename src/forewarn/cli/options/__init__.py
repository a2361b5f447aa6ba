"""Options and arguments that commands share, their parsers and completion."""
