"""Where people find what there is, when they have named something that there is not."""

LISTED_BY = {
    "unknown-campaign": "; `forewarn campaign list --all` shows them",
    "unknown-event": "; `forewarn event list` shows those that are open, `forewarn history` all",
    "unknown-host": "; `forewarn host list` shows them",
    "unknown-scope": "; `forewarn scope list` shows them",
    "unknown-token": "; `forewarn token list` shows them",
    "unknown-vm": "; `forewarn vm list` shows them",
}
"""What is added to the sentence of a refusal, by its code."""
