"""The text of one stream of one task, as lines. A line that has not ended may be shown already."""

from dataclasses import dataclass, field

from tfdist.launch.console.visible import KEPT_CHARACTERS, shorten
from tfdist.launch.noise import NOISE, NoiseFilter
from tfdist.launch.text import has_controls

MOST_CHARACTERS = 1 << 16
"""Characters that are kept at the end of a blank line, or one with control characters, that has not ended."""


@dataclass
class TaskLines:
    """Splits text into lines, without TensorFlow's start-up messages unless `verbose`."""

    task: str
    verbose: bool
    rest: str = ""
    """The line that has not ended. Of a long plain line, what was not shown yet."""
    shown: str = ""
    """What the console shows of `rest`."""
    shown_at: float | None = None
    """When something of the line that has not ended was shown last; None: nothing was."""
    noise: bool = False
    """The line that has not ended is a start-up message."""
    filter: NoiseFilter = field(default_factory=NoiseFilter)

    @property
    def overwrites(self) -> bool:
        """Whether the line that has not ended is a progress bar."""
        return has_controls(self.rest.rstrip("\r"))

    def add(self, text: str) -> tuple[str | None, list[str]]:
        """Add text that follows.

        Returns:
            The rest of a line of which something was shown, if it has ended; and the lines that have ended.
        """
        *lines, rest = (self.rest + text).split("\n")
        ending = None
        if lines and self.noise:
            del lines[0]
        elif lines and self.shown_at is not None:
            ending = lines.pop(0)
        if not self.verbose:
            lines = list(self.filter.keep(lines))
        self.noise = not self.verbose and (NOISE.match(rest) is not None or (self.noise and rest == self.rest + text))
        only_end = has_controls(rest) or rest.isspace()
        self.rest = "" if self.noise else shorten(rest)[-MOST_CHARACTERS:] if only_end else rest
        return ending, lines

    def show(self, text: str, now: float) -> None:
        """Take note that the console shows `text` for `rest`."""
        self.shown, self.shown_at = text, now
        if len(self.rest) > KEPT_CHARACTERS and not self.overwrites:
            self.rest = self.shown = ""

    def end(self) -> None:
        """Take note that the line has ended."""
        self.shown, self.shown_at = "", None
