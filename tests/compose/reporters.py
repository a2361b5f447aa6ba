"""What a service says while it starts, for tests."""

from pathlib import Path


class RecordingReporter:
    """Records every report."""

    def __init__(self) -> None:
        self.sentences: list[str] = []
        self.ignored: list[Path] = []
        self.progress: list[tuple[int, int]] = []

    def report(self, sentence: str) -> None:
        self.sentences.append(sentence)

    def fleet_file_ignored(self, source: Path) -> None:
        self.ignored.append(source)

    def fill_progress(self, done: int, total: int) -> None:
        self.progress.append((done, total))
