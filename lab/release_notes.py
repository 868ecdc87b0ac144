"""Notes of a release: python -m lab.release_notes v0.2.0 prints that version's section of CHANGELOG.md.

Fails unless the tag, package/__init__.py, docs/compare.md, CITATION.cff and CHANGELOG.md agree on the version and its
date.
"""

import re
import sys
from pathlib import Path

import yaml

from tfdist import __version__

ROOT = Path(__file__).parents[1]
FILES = "CHANGELOG.md", "CITATION.cff", "docs/compare.md"


def release_notes(tag: str, version: str, changelog: str, citation: str, action: str) -> str:
    """The section of `changelog` about `version`, without its heading. `action`: the page with the action's example.

    Raises:
        ValueError: one of them has another version or date; the message names the file to change.
    """
    if tag != f"v{version}":
        raise ValueError(f"tag {tag}: package/__init__.py has {version}; change it, or tag v{version}")
    section = re.search(rf"^## {re.escape(version)} - (\S+)\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if section is None:
        raise ValueError(f"CHANGELOG.md has no '## {version} - YYYY-MM-DD'; rename '## Unreleased'")
    cited = yaml.safe_load(citation)
    found = (cited["version"], str(cited.get("date-released", "no date")))
    if found != (version, section[1]):
        raise ValueError(f"CITATION.cff has {' of '.join(found)}, CHANGELOG.md {version} of {section[1]}; change one")
    used = re.findall(r"uses: tfdist/tfdist@v(\S+)", action)
    if used != [version]:
        raise ValueError(f"docs/compare.md uses tfdist/tfdist@v{', '.join(used)}; write @v{version}")
    return re.sub(r"\n +(?=\S)", " ", section[2].strip())  # GitHub shows a line break for each newline of a release


if __name__ == "__main__":
    files = ((ROOT / name).read_text(encoding="utf-8") for name in FILES)
    try:
        print(release_notes(" ".join(sys.argv[1:]), __version__, *files))
    except ValueError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
