"""The dashboard in a real browser, in front of a running gateway under traffic. Skipped where there is no Chromium."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from router import admin
from router.serving import bind, listener
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import Seen, Step, chat, chat_stream
from tests.shell.test_judging import wants
from tests.support.rig import POLICY, Rig, groups, running

playwright = pytest.importorskip("playwright.async_api", reason="the extra `checks` is not installed")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium (apt package chromium)")

WAIT_MS = 20_000
# Everything that an operator or a client may name, named to do harm.
EVIL = "<img src=x onerror=alert(1)>"
GROUPS = """\
version: 1
groups:
  small: {{deployments: [small-a]}}
  large: {{deployments: [large-a]}}
deployments:
  small-a: {{upstream: openai, base_url: "{small}", model: "{evil}", api_key: none, max_in_flight: 64,
            price: {{input: 1, output: 2}}, partition: {{nodes: [node-1]}}}}
  large-a: {{upstream: openai, base_url: "{large}", model: m-large, api_key: none, price: {{input: 10, output: 20}}}}
"""


@asynccontextmanager
async def gateway(folder: Path) -> AsyncIterator[Rig]:
    """A gateway under traffic, whose requests streams of known length answer."""
    words = [f"{EVIL} "] * 8
    async with (
        ScriptedServer(lambda _: chat_stream(words)) as small,
        ScriptedServer(lambda _: chat_stream(words, first_s=0.02)) as large,
    ):
        files = GROUPS.format(small=small.base_url, large=large.base_url, evil=EVIL)
        policy = POLICY + "record_prompts: true\ntarget: {large_share: {at_most: 0.3}}\n"
        async with running(folder, files, policy) as rig:
            traffic = asyncio.create_task(keep_asking(rig))
            try:
                await rig.records(20)
                yield rig
            finally:
                traffic.cancel()
                await asyncio.gather(traffic, return_exceptions=True)


async def keep_asking(rig: Rig) -> None:
    number = 0
    while True:
        number += 1
        await rig.ask(f"{EVIL} {number}", score=(number % 10) / 10, stream=True)
        await asyncio.sleep(0.02)


@asynccontextmanager
async def browser(**options: Any) -> AsyncIterator[Any]:
    """A page; anything that the browser complains of fails the test."""
    async with playwright.async_playwright() as driver:
        chromium = await driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            context = await chromium.new_context(viewport={"width": 1280, "height": 900}, **options)
            page = await context.new_page()
            page.set_default_timeout(WAIT_MS)
            complaints: list[str] = []
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
            page.on("console", lambda line: complaints.append(line.text) if line.type == "error" else None)
            yield page
            assert [one for one in complaints if "401" not in one and "422" not in one] == []
        finally:
            await chromium.close()


async def shows(page: Any, selector: str, text: str) -> None:
    await playwright.expect(page.locator(selector)).to_contain_text(text, timeout=WAIT_MS)


async def test_the_page_shows_live_traffic_cost_times_scores_and_what_is_remembered_of_a_request(tmp_path: Path):
    async with gateway(tmp_path) as rig, browser() as page:
        await page.goto(f"{rig.admin}/")
        await shows(page, "#state", "serving")
        await shows(page, "#routes", "default / difficulty")
        before = int((await page.locator("#tiles dd").first.inner_text()).replace(",", ""))
        assert before >= 20
        await page.wait_for_function(
            "(n) => Number(document.querySelector('#tiles dd').textContent.replace(/,/g, '')) > n", arg=before
        )
        await shows(page, "#tiles", "Saved")
        await shows(page, "#assumption", "takes for granted")
        await shows(page, "#percentiles", "small")
        await shows(page, "#quality", "answers of the small groups are compared")
        await shows(page, "#scores-body", re.compile(r"default / difficulty 0\.\d{3}"))  # it moves meanwhile
        await shows(page, "#thresholds-table", "default / difficulty")
        await shows(page, "#deployments-table", "node-1")
        await page.wait_for_selector("#traffic-chart canvas")
        await page.click("#traffic details summary")
        await page.wait_for_selector("#traffic-table tbody tr td")
        await page.select_option("#filter select[name=group]", "large")
        all_large = "(rows) => rows.every((row) => row.cells[5].innerText === 'large')"
        found = f"() => ({all_large})([...document.querySelectorAll('#requests-table tbody tr')])"
        await page.wait_for_function(found)
        await page.locator("#requests-table button").first.click()
        await shows(page, "#record-body", "threshold 0.")
        await shows(page, "#record-body", EVIL)
        await shows(page, "#record-body", "at the dearest group")
        await page.keyboard.press("Escape")
        assert not await page.locator("#record").is_visible()


async def test_the_first_minute_of_a_gateway_is_drawn_though_it_is_one_point(tmp_path: Path):
    """Pixels of the small group's colour, #2f6bde: one value makes no line."""
    drawn = """() => {
      const canvas = document.querySelector("#ttft-chart canvas");
      if (!canvas) return false;
      const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
      for (let at = 0; at < data.length; at += 4)
        if (data[at] === 0x2f && data[at + 1] === 0x6b && data[at + 2] === 0xde && data[at + 3] === 255) return true;
      return false;
    }"""
    async with gateway(tmp_path) as rig, browser(color_scheme="light") as page:
        await page.goto(f"{rig.admin}/")
        await page.wait_for_function(drawn, timeout=WAIT_MS)


@asynccontextmanager
async def judged(folder: Path) -> AsyncIterator[Rig]:
    """A gateway of which every answer is judged: the small group is wrong on every third question."""

    def answers(wrong: bool) -> Callable[[Seen], Sequence[Step]]:
        def script(seen: Seen) -> Sequence[Step]:
            number = int(seen.json()["messages"][-1]["content"].split()[-1])
            return chat(f"wrong {EVIL}" if wrong and number % 3 == 0 else "right")(seen)

        return script

    async with (
        ScriptedServer(answers(True)) as small,
        ScriptedServer(answers(False)) as large,
        ScriptedServer(wants("right")) as judge,
    ):
        members = {"small": ["small-a"], "large": ["large-a"], "judge": ["judge-a"]}
        files = groups({"small-a": small, "large-a": large, "judge-a": judge}, members)
        more = "judge: {share: 1.0, group: judge, budget_per_day: 40}\ntarget: {quality_loss: {at_most: 0.02}}\n"
        async with running(folder, files, POLICY + more) as rig:
            for number in range(60):
                await rig.ask(f"question {number}", score=0.9 if number % 5 == 0 else 0.1)
                for _ in range(100):
                    if len(rig.gateway.judging.ledger.of("default")) >= min(number + 1, 40):
                        break
                    await asyncio.sleep(0.02)
            yield rig


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
async def test_quality_how_far_its_judging_has_come_and_alarms_are_shown(tmp_path: Path, width: int, scheme: str):
    async with judged(tmp_path) as rig, browser(color_scheme=scheme) as page:
        await page.set_viewport_size({"width": width, "height": 844})
        await page.goto(f"{rig.admin}/")
        await playwright.expect(page.locator("#alarms-none")).to_be_visible(timeout=WAIT_MS)
        await shows(page, "#estimates-table", "all requests")
        seen = (await quality(rig))["policies"][0]["estimates"][0]["to_large"]
        assert seen["difference"] < -0.1
        told = "{difference:+.3f} ({low:+.3f} to {high:+.3f})".format(**seen)
        await shows(page, "#estimates-table", told)
        await shows(page, "#estimates-table", "-0.02")
        await shows(page, "#estimates-table", f"{seen['needed']:,} for ±0.02")
        await shows(page, "#judging-table", "40 of 40")
        await shows(page, "#judging-table", "20 past the budget")
        await shows(page, "#judging-table", "no calibration")
        assert await page.locator("#judging-table meter").get_attribute("aria-label") is not None

        rig.gateway.judging.alarms.served({"small-a": 3})
        await shows(page, "#alarm-chip", "1 alarm")
        await shows(page, "#alarms-table", "Another model answers")
        await shows(page, "#alarms-table", "small-a")
        await page.locator("#alarm-chip").focus()
        await page.keyboard.press("Enter")
        await playwright.expect(page.locator("#alarms-title")).to_be_in_viewport(timeout=WAIT_MS)
        assert await page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
        for selector in ("#alarms-table tbody th", "#judging-table tbody th", "#estimates-table tbody th"):
            assert contrast(*await page.locator(selector).first.evaluate(COLOURS)) > 4.5
        rig.gateway.judging.alarms.served({"small-a": 3})
        await playwright.expect(page.locator("#alarms-none")).to_be_visible(timeout=WAIT_MS)
        assert not await page.locator("#alarm-chip").is_visible()


async def quality(rig: Rig) -> Any:
    async with httpx.AsyncClient(timeout=30) as client:
        return (await client.get(f"{rig.admin}/admin/quality")).json()


# An element's own colour, on that of its card.
COLOURS = """(one) => [getComputedStyle(one).color, getComputedStyle(one.closest(".card")).backgroundColor]"""


async def test_a_deployment_is_drained_and_taken_back_by_keyboard_and_the_page_says_so(tmp_path: Path):
    async with gateway(tmp_path) as rig, browser() as page:
        await page.goto(f"{rig.admin}/")
        button = page.locator("#deployments-table button").first
        await button.focus()
        await page.keyboard.press("Enter")
        await shows(page, "#notice", "small-a gets nothing new")
        await playwright.expect(button).to_have_attribute("aria-label", "Undrain small-a", timeout=WAIT_MS)
        assert rig.gateway.health.of("small-a", 0.0)["draining"]
        await playwright.expect(button).to_be_focused(timeout=WAIT_MS)
        await page.keyboard.press("Enter")
        await playwright.expect(button).to_have_attribute("aria-label", "Drain small-a", timeout=WAIT_MS)
        assert not rig.gateway.health.of("small-a", 0.0)["draining"]


async def test_a_prompt_is_tried_under_an_edited_policy_that_is_not_applied_and_a_wrong_one_is_refused_at_its_place(
    tmp_path: Path,
):
    async with gateway(tmp_path) as rig, browser() as page:
        await page.goto(f"{rig.admin}/")
        await page.wait_for_selector("body[data-loaded]")
        asked = len(await rig.records(1))
        await page.fill("#try-form textarea[name=prompt]", "What is a lock?")
        await page.fill("#try-form input[name=headers]", "x-score: 0.6")
        await page.select_option("#try-form select[name=policy]", "default.yaml")
        text = await page.input_value("#try-form textarea[name=text]")
        await page.fill("#try-form textarea[name=text]", text.replace("below: 0.5", "below: 0.7"))
        await page.click("#try-form button[type=submit]")
        await playwright.expect(page.locator(".results .verdict")).to_have_text(
            ["Group large", "Group small"], timeout=WAIT_MS
        )
        assert asked
        assert rig.gateway.snapshot.config.policies["default"].routes[0].score.bands[0].below == 0.5
        await page.fill("#try-form textarea[name=text]", text.replace("default: large", "default: big"))
        await page.click("#try-form button[type=submit]")
        await shows(page, "#try-result", "This policy would be refused")
        await shows(page, "#try-result", "default.yaml:6:10")


async def test_a_change_of_the_files_that_is_refused_is_said_and_one_that_is_taken_too(tmp_path: Path):
    async with gateway(tmp_path) as rig, browser() as page:
        await page.goto(f"{rig.admin}/")
        await shows(page, "#state", "serving")
        path = rig.config / "default.yaml"
        good = path.read_text()
        path.write_text(good.replace("default: large", "default: big"))
        await page.click("#reload")
        await shows(page, "#state", "last change refused")
        await shows(page, "#notice", "default.yaml:6:10")
        path.write_text(good.replace("below: 0.5", "below: 0.4"))
        await page.click("#reload")
        await shows(page, "#state", "serving")
        await shows(page, "#configuration", "generation 2")
        await shows(page, "#scores-body", "0.400")


async def test_with_a_token_the_page_asks_for_it_and_keeps_it_for_the_tab(tmp_path: Path):
    async with gateway(tmp_path) as rig, browser() as page:
        sock = bind("127.0.0.1", 0)
        guarded = listener(admin.build(rig.gateway, token="right-token"), 1)
        serving = asyncio.create_task(guarded.serve(sockets=[sock]))
        try:
            await page.goto(f"http://127.0.0.1:{sock.getsockname()[1]}/")
            await page.fill("#sign-in input", "wrong-token")
            await page.keyboard.press("Enter")
            await shows(page, "#sign-in-wrong", "not the token")
            await page.fill("#sign-in input", "right-token")
            await page.keyboard.press("Enter")
            await shows(page, "#state", "serving")
            await page.reload()
            await shows(page, "#state", "serving")
            assert not await page.locator("#sign-in").is_visible()
            assert await page.evaluate("() => [Object.values(localStorage).join(), document.cookie]") == ["", ""]
            await page.goto("about:blank")  # a page that goes on asking would complain of a port that is closed
        finally:
            guarded.should_exit = True
            await serving


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
async def test_it_fits_its_window_and_every_control_has_a_name_in_light_and_dark(
    tmp_path: Path, width: int, scheme: str
):
    async with gateway(tmp_path) as rig, browser(color_scheme=scheme) as page:
        await page.set_viewport_size({"width": width, "height": 844})
        await page.goto(f"{rig.admin}/")
        await page.wait_for_selector("body[data-loaded]")
        assert await page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
        colours = "() => [getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
        assert contrast(*await page.evaluate(colours)) > 7
        dark = luminance((await page.evaluate(colours))[0]) < 0.2
        assert dark == (scheme == "dark")
        await page.select_option("#theme", "light" if dark else "dark")
        assert (luminance((await page.evaluate(colours))[0]) < 0.2) != dark
        unnamed = """() => [...document.querySelectorAll("button, select, input, textarea")]
            .filter((one) => !one.textContent.trim() && !one.labels?.length && !one.getAttribute("aria-label"))
            .map((one) => one.outerHTML)"""
        assert await page.evaluate(unnamed) == []
        assert await page.locator("main section[aria-labelledby]").count() >= 8
        await page.keyboard.press("Tab")
        assert await page.evaluate("() => document.activeElement.tagName") != "BODY"


def luminance(colour: str) -> float:
    """Of a CSS rgb(), as WCAG has it."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)
