"""Debian's chromium, without a window."""

import json
import os
import shutil
from pathlib import Path

import pytest
from selenium import webdriver

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
needs_chromium = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="needs chromium and chromium-driver: apt-get install both"
)


def open_browser(profile: Path) -> webdriver.Chrome:
    """A browser that logs errors of pages and requests, with its profile in this folder."""
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium's sandbox does not work for root
    for argument in (
        *sandbox,
        "--headless=new",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        f"--user-data-dir={profile}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(str(DRIVER)))


def clear_logs(browser: webdriver.Chrome) -> None:
    """Forget the errors and requests so far."""
    for kind in ("browser", "performance"):
        browser.get_log(kind)


def requests(browser: webdriver.Chrome) -> list[str]:
    """The addresses requested since the last call, or since `clear_logs`."""
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
