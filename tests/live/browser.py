"""A headless Chromium, Debian's own, that opens pages of the report and says what they did.

`python -m tests.live.browser docs/check-page.webp` makes the picture of docs/check.md.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

CHROMIUM, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
HEIGHT = 900


class Browser:
    """One page at a time, in a window of any width, light or dark."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, page: Path, width: int = 1000, scheme: str = "light") -> Browser:
        """Open *page* from its file."""
        self.resize(width)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        self.driver.get(page.as_uri())
        return self

    def resize(self, width: int) -> None:
        """Make the window *width* pixels wide."""
        screen = {"width": width, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)

    def run(self, script: str, *values: object) -> Any:
        """Return what *script*, the body of a function, returns in the page."""
        return self.driver.execute_script(script, *values)

    def complaints(self) -> list[str]:
        """Return what the page's script, its policy or its resources complained about since the last time."""
        return [entry["message"] for entry in self.driver.get_log("browser")]  # type: ignore[no-untyped-call]

    def requests(self) -> list[str]:
        """Return the addresses that were requested since the last time."""
        events = (json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance"))  # type: ignore[no-untyped-call]
        return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]

    def picture(self, path: Path) -> bytes:
        """Write a picture of the whole page to *path*."""
        size = self.run("return [innerWidth, Math.min(document.documentElement.scrollHeight, 8000)]")
        clip = {"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1}
        asked = {"captureBeyondViewport": True, "clip": clip}
        data = base64.b64decode(self.driver.execute_cdp_cmd("Page.captureScreenshot", asked)["data"])
        path.write_bytes(data)
        return data

    def printed(self) -> bytes:
        """Return the page as it is printed, a PDF file."""
        asked = {"preferCSSPageSize": True, "printBackground": False}
        return base64.b64decode(self.driver.execute_cdp_cmd("Page.printToPDF", asked)["data"])


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser of its own, without a sandbox: the tests run as root."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        yield Browser(driver)
    finally:
        driver.quit()


def main(out: str) -> None:
    """Write the picture of docs/check.md: the plan of the example image on a bundled host."""
    from gpubind.model.data import BUNDLED_HOSTS
    from tests.support.commands import gpubind

    image = ("--image", "docs/examples/cuda13.sif", "--program", "/opt/app/solve")
    with browser() as opened, NamedTemporaryFile(suffix=".html") as page:
        gpubind("check", "--nv", *image, "--host", BUNDLED_HOSTS[0], "--format", "html", "-o", page.name)
        opened.open(Path(page.name))
        top = opened.run("return document.getElementById('plan').getBoundingClientRect().top + scrollY")
        clip = {"x": 10, "y": top, "width": 980, "height": 760, "scale": 1}
        asked = {"captureBeyondViewport": True, "clip": clip, "format": "webp", "quality": 60}
        Path(out).write_bytes(base64.b64decode(opened.driver.execute_cdp_cmd("Page.captureScreenshot", asked)["data"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
