"""report.html of a recorded bench in a real browser: Debian's chromium, without a window.

Screenshots are kept in test-output/.
"""

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.expected_conditions import alert_is_present

from tests.bench.hostile import TEXTS, spoil
from tests.bench.report.figures.test_colors import contrast
from tests.integration.browser import clear_logs, needs_chromium, open_browser, requests
from tfdist.bench.report.build import make_report
from tfdist.bench.report.write import write_page

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "bench_results" / "20261124T102831Z-cpu"
OUTPUT = ROOT / "test-output"
HEIGHT = 900
TEXT_COLORS = """
return [...document.querySelectorAll("body *")].filter(e => [...e.childNodes].some(
  n => n.nodeType === 3 && n.textContent.trim()) && e.checkVisibility() && !["SCRIPT", "STYLE"].includes(e.tagName))
  .map(e => getComputedStyle(e)[e instanceof SVGElement ? "fill" : "color"])"""

pytestmark = [pytest.mark.thorough, needs_chromium]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(make_report([RECORDED]), tmp_path_factory.mktemp("it's; new"))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    driver = open_browser(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()


def show(browser: webdriver.Chrome, page: Path, width: int, scheme: str) -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    resize(browser, width, HEIGHT)
    browser.get(page.as_uri())


def resize(browser: webdriver.Chrome, width: int, height: int) -> None:
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def hexadecimal(color: str) -> str:
    return "#" + "".join(f"{int(part):02x}" for part in color.removeprefix("rgb(").removesuffix(")").split(","))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_the_page_fits_and_can_be_read(browser: webdriver.Chrome, page: Path, width: int, scheme: str) -> None:
    show(browser, page, width, scheme)
    assert browser.execute_script("return document.documentElement.scrollWidth") == width
    shown = [svg for svg in browser.find_elements(By.CSS_SELECTOR, "figure svg") if svg.is_displayed()]
    assert len(shown) == len(browser.find_elements(By.TAG_NAME, "figure")) == 4
    assert all(len(svg.get_attribute("aria-label") or "") > 20 for svg in shown)
    paper = hexadecimal(browser.execute_script("return getComputedStyle(document.body).backgroundColor"))
    assert (paper == "#ffffff") == (scheme == "light")
    colors = set(browser.execute_script(TEXT_COLORS))
    assert len(colors) > 2
    assert all(contrast(hexadecimal(color), paper) >= 4.5 for color in colors), colors
    OUTPUT.mkdir(exist_ok=True)
    resize(browser, width, browser.execute_script("return document.documentElement.scrollHeight"))
    assert browser.save_screenshot(str(OUTPUT / f"report-{width}-{scheme}.png"))


@pytest.mark.core
def test_it_loads_alone_and_without_an_error(browser: webdriver.Chrome, page: Path) -> None:
    clear_logs(browser)
    show(browser, page, 1280, "light")
    assert browser.get_log("browser") == []
    assert requests(browser) == [page.as_uri()]


@pytest.mark.parametrize("name", TEXTS)
def test_hostile_texts_are_text(browser: webdriver.Chrome, tmp_path: Path, name: str) -> None:
    recorded = ROOT / "bench_results" / "compare" / "base"
    root = spoil(recorded, tmp_path / "bench", TEXTS[name])
    page = write_page(make_report([root]), root)
    browser.get_log("browser")
    show(browser, page, 360, "light")
    assert not alert_is_present()(browser)
    assert browser.get_log("browser") == []
    assert browser.execute_script("return document.documentElement.scrollWidth") == 360
    assert len(browser.find_elements(By.TAG_NAME, "script")) == 1
    assert not browser.find_elements(By.TAG_NAME, "img")
    names = [cell.text for cell in browser.find_elements(By.CSS_SELECTOR, "#results tbody th")]
    assert len(names) >= 2
    assert all(len(shown) <= 120 for shown in names)
    if name == "html":
        assert names[0] == f"{TEXTS[name]}one-device"


def column(table: WebElement, index: int) -> list[str]:
    return [
        row.find_elements(By.CSS_SELECTOR, "th, td")[index].text
        for row in table.find_elements(By.CSS_SELECTOR, "tbody tr")
    ]


def test_tables_sort(browser: webdriver.Chrome, page: Path) -> None:
    show(browser, page, 1280, "light")
    (table,) = browser.find_elements(By.CSS_SELECTOR, "#results table")
    buttons = table.find_elements(By.CSS_SELECTOR, "thead button")
    names = [button.text for button in buttons]
    rates, intervals = names.index("images/s (whole job)"), names.index("speed-up interval")
    buttons[rates].click()
    shown = [float(text) for text in column(table, rates)]
    assert shown == sorted(shown, reverse=True)
    assert column(table, 0)[0] == "independent"
    buttons[rates].send_keys(Keys.ENTER)
    assert [float(text) for text in column(table, rates)] == sorted(shown)
    heading = table.find_elements(By.CSS_SELECTOR, "thead th")[rates]
    assert heading.get_attribute("aria-sort") == "ascending"
    buttons[intervals].click()
    assert column(table, intervals)[-1] == "-"
    assert heading.get_attribute("aria-sort") is None
    buttons[0].click()
    assert column(table, 0) == sorted(column(table, 0))


def test_the_data_of_a_chart_is_one_click_away(browser: webdriver.Chrome, page: Path) -> None:
    show(browser, page, 1280, "light")
    links = browser.find_elements(By.CSS_SELECTOR, "figcaption a, caption a")
    assert len(links) == 7
    for link in links:
        kind, _, data = str(link.get_attribute("href")).partition(",")
        assert kind == "data:text/csv;base64"
        assert base64.b64decode(data) == (page.parent / str(link.get_attribute("download"))).read_bytes()
