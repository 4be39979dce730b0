"""The map in a real browser: the machine's Chromium, found by harness.browser. Without one they are skipped."""

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from closeknit.kube.api import JsonObject
from closeknit.runtime.access import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS, Access
from faults.kinds import Kind
from faults.memory_api import MemoryApi
from faults.store import Store
from harness.browser import browser
from harness.map_stage import Stage, eight, thousand
from scenarios.manifests import cut, mig_slice, node, node_topology, training_job
from scenarios.story import Story

pytestmark = pytest.mark.browser
GOOD = "a-token-that-is-good"
EVIL = '<img src=x onerror="document.title=1"><script>document.title=2</script>'


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def story() -> Story:
    """Made by a thread of its own: Playwright's event loop runs in ours."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(eight).result()


@pytest.fixture(scope="module")
def stage(story: Story) -> Stage:
    return Stage.of(story)


@pytest.fixture(scope="module")
def address(stage: Stage) -> Iterator[str]:
    with stage.in_a_thread() as port:
        yield f"http://localhost:{port}/map/"


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """A page whose scripts may err in nothing."""
    found = chromium.new_page(viewport={"width": 1360, "height": 850})
    errors: list[str] = []
    found.on("pageerror", lambda error: errors.append(str(error)))
    found.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    yield found
    found.close()
    assert [each for each in errors if "401" not in each] == []


def opened(page: Page, address: str, place: str = "") -> Page:
    page.goto(address + place)
    page.wait_for_selector("html[data-drawn]")
    return page


def faults(page: Page) -> list[str]:
    return [f"{each['id']}: {each['nodes'][0]['html']}" for each in Axe().run(page).response["violations"]]


def test_it_shows_the_cluster_and_a_job_by_its_address(page: Page, address: str) -> None:
    opened(page, address)
    expect(page.locator("button.node")).to_have_count(8)
    expect(page.locator("#live")).to_have_text("live")
    page.get_by_role("link", name="team-vision/diffusion").click()
    expect(page).to_have_url(f"{address}#/job/team-vision/diffusion")
    panel = page.locator("#panel")
    expect(panel).to_contain_text("InsufficientGPUs")
    expect(panel).to_contain_text("It would fit now")
    expect(panel).to_contain_text("1 of 4")
    opened(page, address, "#/job/team-llm/mixtral")
    expect(panel).to_contain_text("Lost: gpu-04")
    expect(panel.locator(".rank.lost")).to_have_count(8)
    opened(page, address, "#/node/gpu-06")
    expect(panel.locator("line.link")).to_have_count(16)  # of a DGX-1V's hybrid cube mesh


def test_it_goes_by_keyboard(page: Page, address: str) -> None:
    opened(page, address)
    page.keyboard.press("/")
    expect(page.locator("#find")).to_be_focused()
    page.locator("button.node").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{address}#/node/gpu-02")
    expect(page.locator("#panel")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page).to_have_url(f"{address}#/")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(page: Page, address: str, scheme: Any) -> None:
    page.emulate_media(color_scheme=scheme)
    for place in ("", "#/job/team-llm/mixtral", "#/job/team-vision/diffusion", "#/node/gpu-05"):
        assert faults(opened(page, address, place)) == []
        page.goto("about:blank")


def test_a_change_is_shown_without_a_reload_and_words_of_tenants_stay_words(
    page: Page, story: Story, stage: Stage, address: str
) -> None:
    opened(page, address, "#/job/team-x/evil")
    status = {"state": "Queued", "reason": "InsufficientGPUs", "message": EVIL}
    pending = {"reason": "InsufficientGPUs", "message": EVIL, "since": "2026-11-21T09:00:00Z", "nearest": [EVIL]}
    story.add(training_job("evil", namespace="team-x", spec={"gpus": 1}, pending=pending, **status))
    before, stage.cluster = stage.cluster, story.cluster.at(story.now)
    del story.objects["TrainingJob", "team-x", "evil"]
    try:
        expect(page.locator("#panel .note")).to_contain_text(EVIL)
        assert page.locator("#panel img, #panel script").count() == 0
        assert page.title().startswith("team-x/evil")
    finally:
        stage.cluster = before
    expect(page.locator("#panel")).to_contain_text("There is no such job")


def test_it_asks_for_a_token_and_keeps_it_in_memory_alone(page: Page, story: Story) -> None:
    def known(review: JsonObject) -> JsonObject:
        return {"authenticated": review["spec"]["token"] == GOOD, "user": {"username": "ann"}}

    def may(review: JsonObject) -> JsonObject:
        return {"allowed": review["spec"].get("resourceAttributes", {}).get("namespace") in {None, "team-speech"}}

    reviews = Kind(TOKEN_REVIEWS, "TokenReview", answer=known)
    store = Store([reviews, Kind(SUBJECT_ACCESS_REVIEWS, "SubjectAccessReview", answer=may)])
    with Stage.of(story).in_a_thread(Access(MemoryApi(store))) as port:
        page.goto(f"http://localhost:{port}/map/#/")
        expect(page.get_by_text("kubectl create token")).to_be_visible()
        assert faults(page) == []
        page.get_by_label("Token").fill(GOOD)
        page.get_by_role("button", name="Open the map").click()
        page.wait_for_selector("html[data-drawn]")
        expect(page.locator("#panel")).to_contain_text("team-speech/asr-small")
        expect(page.locator("#panel")).to_contain_text("2 more jobs that you may not list")
        assert "team-llm" not in page.content()
        kept = page.evaluate("JSON.stringify([document.cookie, {...localStorage}, {...sessionStorage}, location.href])")
        assert GOOD not in kept + page.content()
        assert json.loads(kept)[0] == ""


def test_a_gpu_that_is_cut_is_drawn_as_its_mig_devices(page: Page) -> None:
    def made() -> Stage:
        story = Story(node("gpu-1", gpus=None), cut(node_topology("gpu-1", count=1), 0, count=3), mig_slice(count=3))
        story.add(training_job("small", spec={"gpus": 1, "gpu": {"mig": "1g.18gb"}}))
        story.settle()
        return Stage.of(story)

    with ThreadPoolExecutor(1) as thread:
        stage = thread.submit(made).result()
    with stage.in_a_thread() as port:
        opened(page, f"http://localhost:{port}/map/#/node/gpu-1")
        card = page.locator("[data-node=gpu-1]")
        expect(card.locator("rect.gpu.device")).to_have_count(3)
        expect(card.locator("rect.gpu.device.job[data-job='team-b/small']")).to_have_count(1)
        expect(card.locator(".cross")).to_have_count(0)
        expect(card.locator("rect.gpu.mig")).to_have_count(1)  # around them: a free one is as dark as the card
        expect(page.locator("#totals")).to_contain_text("1 in MIG mode")
        expect(page.locator("#legend")).to_contain_text("cut into MIG devices")
        expect(card).to_have_attribute(
            "aria-label", re.compile("2 of 3 MIG devices free, team-b/small has a MIG device")
        )
        panel = page.locator("#panel")
        expect(panel.locator("path.gpu.device")).to_have_count(3)
        expect(panel.get_by_role("row", name="0: 1g.18gb team-b/small 0")).to_have_count(1)
        expect(panel.get_by_role("row", name="0: 1g.18gb free")).to_have_count(2)
        assert faults(page) == []
        opened(page, f"http://localhost:{port}/map/#/job/team-b/small")
        expect(card.locator("rect.gpu.device.picked")).to_have_count(1)
        assert faults(page) == []


def test_on_a_narrow_page_what_is_opened_comes_into_sight(page: Page, address: str) -> None:
    """There it lies below the whole map."""
    page.set_viewport_size({"width": 360, "height": 740})
    opened(page, address)
    page.locator("[data-node=gpu-05]").click()
    expect(page.locator("#panel h2", has_text="gpu-05")).to_be_in_viewport()
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    opened(page, f"{address}#/job/team-llm/llama-70b")  # by a link
    page.reload()
    page.wait_for_selector("html[data-drawn]")
    expect(page.locator("#panel h2", has_text="llama-70b")).to_be_in_viewport()


def test_a_thousand_nodes_are_drawn_where_they_are_seen(page: Page) -> None:
    with Stage(thousand()).in_a_thread() as port:
        opened(page, f"http://localhost:{port}/map/")
        assert page.locator("button.node").count() == 1000
        drawn = page.locator("button.node svg").count()
        assert 0 < drawn < 800
        page.locator("[data-node=gpu-0999]").scroll_into_view_if_needed()
        expect(page.locator("[data-node=gpu-0999] svg")).to_be_visible()


def test_of_a_long_queue_the_first_are_listed_and_a_namespace_is_found(page: Page) -> None:
    with Stage(thousand(20, 1500)).in_a_thread() as port:
        opened(page, f"http://localhost:{port}/map/")
        panel = page.locator("#panel")
        expect(panel.locator("ol.jobs > li")).to_have_count(200)
        expect(panel).to_contain_text("more: type a namespace/ or a part of a name into Find")
        page.locator("#find").fill("team-03/")
        expect(panel.locator("h2").first).to_contain_text(" of 1,")
        assert panel.locator("ol.jobs > li strong").all_inner_texts()[0].startswith("team-03/")
        assert faults(page) == []
