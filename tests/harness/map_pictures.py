"""`python -m harness.map_pictures` draws docs/map/*.png: the web map of made-up clusters, in Chromium."""

from pathlib import Path
from typing import Literal

from harness.browser import browser
from harness.map_stage import Stage, eight, thousand

FOLDER = Path(__file__).parents[2] / "docs" / "map"
Scheme = Literal["light", "dark"]
EIGHT: dict[str, tuple[str, Scheme]] = {
    "eight-light": ("", "light"),
    "eight-dark": ("", "dark"),
    "job-light": ("#/job/team-llm/llama-70b", "light"),
    "waiting": ("#/job/team-vision/diffusion", "light"),
    "lost-node-dark": ("#/job/team-llm/mixtral", "dark"),
    "node-light": ("#/node/gpu-06", "light"),
}
THOUSAND: dict[str, tuple[str, Scheme]] = {"thousand": ("#/job/team-06/speech-006", "light")}


def main() -> None:
    """Draws all of them."""
    FOLDER.mkdir(exist_ok=True)
    stages = ((Stage.of(eight()), EIGHT), (Stage(thousand()), THOUSAND))  # before Playwright's event loop runs
    for stage, pictures in stages:
        with stage.in_a_thread() as port, browser() as chromium:
            for name, (place, scheme) in pictures.items():
                page = chromium.new_page(viewport={"width": 1360, "height": 850}, color_scheme=scheme)
                page.goto(f"http://localhost:{port}/map/{place}")
                page.wait_for_selector("html[data-drawn]")
                page.wait_for_timeout(600)
                page.screenshot(path=FOLDER / f"{name}.png")
                page.close()


if __name__ == "__main__":
    main()
