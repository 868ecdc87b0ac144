"""The site that `make docs` builds, also opened as a file in a real browser."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urljoin, urlparse

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.expected_conditions import presence_of_element_located
from selenium.webdriver.support.wait import WebDriverWait

from lab.reference.commands import commands
from lab.reference.pages import API
from tests.integration.browser import clear_logs, needs_chromium, open_browser, requests
from tests.integration.test_makefile import commands as commands_of_make

ROOT = Path(__file__).parents[2]
SECTIONS = ["Home", "Tutorial", "How-to", "Reference", "Explanation"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("it's; new")
    python, *words = shlex.split(commands_of_make("docs").splitlines()[-1])
    assert python.endswith("python")
    assert "--strict" in words
    command = [sys.executable, *words, "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_index_has_each_page_with_a_sentence(site: Path) -> None:
    text = (site / "llms.txt").read_text(encoding="utf-8")
    listed = re.findall(r"^- \[.+\]\((.+)\): .+$", text, re.MULTILINE)
    built = {str(path.relative_to(site)) for path in site.rglob("*.html")}
    assert sorted(listed) == sorted(built - {"404.html"})
    assert re.findall("^## (.*)$", text, re.MULTILINE) == SECTIONS
    assert {f"reference/{command.name}.html" for command in commands()[1:]} <= set(listed)


def test_what_a_page_loads_is_in_the_site(site: Path) -> None:
    for path in set(site.rglob("*.html")) - {site / "404.html"}:  # a server's page: its paths start at the root
        loaded = re.findall(
            r'<(?:script|link|img|iframe)\b[^>]*?(?:src|href)="([^"]*)"', path.read_text(encoding="utf-8")
        )
        assert loaded
        others = [url for url in loaded if not url.startswith("data:")]
        assert [url for url in others if not (path.parent / unquote(urlparse(url).path)).is_file()] == []


def test_the_docstrings_of_the_python_interface_are_there(site: Path) -> None:
    page = (site / "reference" / "python.html").read_text(encoding="utf-8")
    assert all(f'id="{name}"' in page for name in API)
    assert "in one step of all replicas together" in page  # an argument of tfdist.measure.steps


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    driver = open_browser(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()


@needs_chromium
def test_a_page_opens_as_a_file_and_search_finds_a_word(site: Path, browser: webdriver.Chrome) -> None:
    browser.set_window_size(1280, 900)
    clear_logs(browser)
    browser.get((site / "index.html").as_uri())
    tabs = browser.find_elements(By.CSS_SELECTOR, ".md-tabs__link")
    assert [tab.text for tab in tabs] == SECTIONS
    (field,) = browser.find_elements(By.CSS_SELECTOR, "[data-md-component=search-query]")
    # at once: of the letters of a word that is typed slowly, the search would complain
    browser.execute_script("arguments[0].value = 'staleness'; arguments[0].focus()", field)
    result = (By.CSS_SELECTOR, ".md-search-result__link[href*='protocol.html']")
    link = WebDriverWait(browser, 30).until(presence_of_element_located(result))
    browser.get(urljoin(browser.current_url, link.get_attribute("href")))
    assert "staleness" in browser.find_element(By.TAG_NAME, "article").text
    assert browser.get_log("browser") == []
    loaded = requests(browser)
    assert len(loaded) > 5
    assert [url for url in loaded if not url.startswith((site.as_uri(), "data:"))] == []
