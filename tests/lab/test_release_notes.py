import subprocess
import sys

import pytest

from lab.release_notes import FILES, ROOT, release_notes
from tfdist import __version__

CHANGELOG = """# Changelog

## Unreleased

- not yet

## 0.2.0 - 2026-12-01

### Added

- this

## 0.1.0 - 2026-01-01

- that
"""
CITATION = "version: 0.2.0\ndate-released: 2026-12-01\n"
ACTION = "      - uses: tfdist/tfdist@v{}\n"


def test_the_notes_are_the_section_of_the_version():
    assert release_notes("v0.2.0", "0.2.0", CHANGELOG, CITATION, ACTION.format("0.2.0")) == "### Added\n\n- this"
    last = CITATION.replace("0.2.0", "0.1.0").replace("12-01", "01-01")
    assert release_notes("v0.1.0", "0.1.0", CHANGELOG, last, ACTION.format("0.1.0")) == "- that"


def test_the_files_agree_on_the_last_release():
    changelog, *others = ((ROOT / name).read_text(encoding="utf-8") for name in FILES)
    assert release_notes(f"v{__version__}", __version__, changelog, *others)


@pytest.mark.parametrize(
    ("tag", "version", "citation", "message"),
    [
        ("v0.2.1", "0.2.0", CITATION, r"tag v0\.2\.1: package/__init__\.py has 0\.2\.0; change it, or tag v0\.2\.0"),
        ("", "0.2.0", CITATION, "or tag v0.2.0"),
        ("v0.3.0", "0.3.0", CITATION, "CHANGELOG.md has no '## 0.3.0 - YYYY-MM-DD'"),
        ("v0.2.0", "0.2.0", "version: 0.1.0\n", "CITATION.cff has 0.1.0 of no date, CHANGELOG.md 0.2.0 of 2026-12-01"),
        ("v0.2.0", "0.2.0", CITATION.replace("-01", "-02"), "CITATION.cff has 0.2.0 of 2026-12-02"),
    ],
)
def test_another_version_or_date_is_named_with_its_file(tag, version, citation, message):
    with pytest.raises(ValueError, match=message):
        release_notes(tag, version, CHANGELOG, citation, ACTION.format(version))


def test_an_example_with_another_version_is_named():
    with pytest.raises(ValueError, match=r"docs/compare\.md uses tfdist/tfdist@v0\.1\.0; write @v0\.2\.0"):
        release_notes("v0.2.0", "0.2.0", CHANGELOG, CITATION, ACTION.format("0.1.0"))


def test_a_wrong_tag_ends_with_one_sentence_and_code_2():
    done = subprocess.run([sys.executable, "-m", "lab.release_notes", "v9"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("tag v9: package/__init__.py has ")
    assert done.stderr.count("\n") == 1
