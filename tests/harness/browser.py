"""The Chromium of this machine, driven by Playwright: Debian's package, or what CLOSEKNIT_CHROMIUM names."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome")


def program() -> str | None:
    """Where it is; None where there is none. Playwright brings a browser only where it is told to, and we do not."""
    named = os.environ.get("CLOSEKNIT_CHROMIUM")
    return named or next((found for name in NAMES if (found := shutil.which(name))), None)


@contextmanager
def browser() -> Iterator["Browser"]:
    """A browser without a window."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - every run of tests asks whether there is one

    with sync_playwright() as playwright:
        # Root has no sandbox of Chromium's; what it shows here is our own page.
        found = playwright.chromium.launch(executable_path=program(), args=["--no-sandbox"])
        try:
            yield found
        finally:
            found.close()
