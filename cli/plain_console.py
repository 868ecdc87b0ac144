"""A rich console for texts from result folders: it shows their markup and control characters, or drops these, and obeys
none."""

from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

from tfdist.launch.text import plain


class PlainConsole(Console):
    """Prints strings as they are, also those in tables, without control characters; a file gets no wrapped lines."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(file=stream, highlight=False, markup=False, emoji=False, soft_wrap=not stream.isatty())

    def render_str(self, text: str, **options: Any) -> Text:
        """The text as rich lays it out."""
        return super().render_str(plain(text), **options)
