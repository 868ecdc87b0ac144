"""Write the manual pages into docs/man/, from where a wheel installs them: python -m lab.reference."""

from pathlib import Path

from lab.reference.man_pages import man_pages

FOLDER = Path(__file__).parents[2] / "docs" / "man"


def main() -> None:
    """Write them; a page of a command that no longer exists is removed."""
    FOLDER.mkdir(exist_ok=True)
    written = man_pages()
    for name, text in written.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    for path in set(FOLDER.glob("*.1")) - {FOLDER / name for name in written}:
        path.unlink()


if __name__ == "__main__":
    main()
