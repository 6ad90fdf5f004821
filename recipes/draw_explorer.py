"""Take the pictures of the explorer that the documentation shows: every view on a wide page, some on a dark phone.

    elmo serve --port 8080 &
    python recipes/draw_explorer.py [--address http://127.0.0.1:8080] [--folder docs/explorer]

Needs playwright and Pillow (the extra `test` brings both) and Chromium, which it finds by its name. A view that is not
drawn, or a message on the console, ends it with an error.
"""

import argparse
import os
import shutil
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

# What is on the page once a view is drawn.
VIEWS = {
    "compare": ".map rect[data-cosine]",
    "usages": ".point",
    "neighbours": ".near-item",
    "predictions": ".map rect[data-bits]",
    "inside": ".map rect[data-filter]",
}
CLICKS = {"usages": "cell, then and now"}  # an example other than the first
WIDE = {"viewport": {"width": 1240, "height": 890}, "color_scheme": "light"}
PHONE = {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark", "device_scale_factor": 1.5}
PAGES = {"": (WIDE, tuple(VIEWS)), "-phone": (PHONE, ("compare", "predictions", "inside"))}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--address", default="http://127.0.0.1:8080")
    parser.add_argument("--folder", type=Path, default=Path("docs/explorer"))
    asked = parser.parse_args()
    with sync_playwright() as playwright:
        path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        for suffix, (options, views) in PAGES.items():
            for view in views:
                take(browser, asked.address, view, asked.folder / f"{view}{suffix}.png", options)
        browser.close()


def take(browser, address, view, path, options):
    """One picture, in 128 colours: a third of the bytes, and no difference to the eye."""
    context = browser.new_context(locale="en-GB", **options)
    page, wrong = context.new_page(), []
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.goto(f"{address}/#view={view}")
    page.wait_for_selector(VIEWS[view])
    if view in CLICKS:
        page.get_by_role("button", name=CLICKS[view]).click()
    page.wait_for_timeout(1500)  # for answers and colours that fade in
    picture = Image.open(BytesIO(page.screenshot()))
    context.close()
    if wrong:
        raise SystemExit(f"{address}: {wrong[0]}")
    picture.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
