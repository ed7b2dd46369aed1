"""Pages as a browser shows them: nothing goes wrong, nothing is loaded, tables sort, texts can be read.

They need Chromium (`apt-get install chromium`, or its path in the variable CHROMIUM) and Playwright
(`pip install playwright`, one of the extra `dev`), which drives it.
"""

import importlib.util
import os
import shutil

import pytest
from pages import ODD, TOY, made

from jaxarch.lab import html_report
from jaxarch.lab.html_report import Reported

CHROMIUM = shutil.which(os.environ.get("CHROMIUM", "chromium"))

CONTRASTS = """() => {
  const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const linear = (part) => (part /= 255) <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const behind = (element) => {
    for (; element; element = element.parentElement) {
      const colour = parse(getComputedStyle(element).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    throw new Error("no background");
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const unseen = element.closest("script, style, noscript, button.disabled");
    if (!walker.currentNode.data.trim() || unseen) continue;
    const style = getComputedStyle(element);
    const drawn = element.closest("svg") !== null;
    const lights = [drawn ? style.fill : style.color].map(parse).concat([behind(element)]).map(luminance);
    const [low, high] = lights.sort((a, b) => a - b);
    found.push([(high + 0.05) / (low + 0.05), walker.currentNode.data.trim().slice(0, 40)]);
  }
  return found;
}"""

COLUMN = """([name, column]) => {
  const tables = [...document.querySelectorAll("table")];
  const table = tables.find((table) => table.getAttribute("aria-label") === name);
  return [...table.tBodies[0].rows].map((row) => row.cells[column].textContent);
}"""

WITHIN = "boxes => boxes.every((box) => box.scrollWidth <= box.clientWidth)"
MARKS = "#chart-1 svg g[class*='_0_marks'] path"

# A test that is skipped fails CI, and Chromium is no Python package: without it there is none.
if CHROMIUM and importlib.util.find_spec("playwright"):
    from playwright.sync_api import expect, sync_playwright

    pytestmark = pytest.mark.long

    @pytest.fixture(scope="module")
    def browser():
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            yield browser
            browser.close()

    @pytest.fixture(scope="module")
    def paths(tmp_path_factory):
        """The page of a folder, and that of its comparison with another."""
        folder = made(tmp_path_factory.mktemp("pages") / "first", seeds=30)
        other = made(folder.parent / "second", offset=0.5)
        one, two = (Reported.on(of, TOY) for of in (folder, other))
        html_report.write(html_report.report_page(one), folder / html_report.NAME)
        compared = html_report.compare(one, two)
        html_report.write(html_report.comparison_page(compared), folder / compared.file_name)
        return folder / html_report.NAME, folder / compared.file_name

    @pytest.fixture(scope="module")
    def opened(browser, paths):
        """Open a page in a window of a width and a colour scheme; what went wrong is in its list."""
        contexts = []

        def open_(which=0, width=1280, scheme="light"):
            contexts.append(
                browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
            )
            page = contexts[-1].new_page()
            page.wrong = []
            page.on("console", lambda message: page.wrong.append(message.text))
            page.on("pageerror", lambda error: page.wrong.append(str(error)))
            page.on("dialog", lambda dialog: (page.wrong.append(dialog.message), dialog.dismiss()))
            page.on(
                "request", lambda request: page.wrong.append(request.url) if _remote(request.url) else None
            )
            page.goto(paths[which].as_uri())
            page.wait_for_selector("html[data-charts=ready]", state="attached")
            return page

        yield open_
        for context in contexts:
            context.close()

    def _remote(url):
        return not url.startswith(("file:", "data:", "blob:"))

    @pytest.mark.parametrize("which", [0, 1], ids=["report", "comparison"])
    @pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark")])
    def test_a_page_is_shown_without_an_error_a_request_or_a_script_of_a_user_s(opened, which, width, scheme):
        assert opened(which, width, scheme).wrong == []

    @pytest.mark.parametrize("which", [0, 1], ids=["report", "comparison"])
    def test_nothing_is_wider_than_a_telephone_but_what_scrolls_in_a_box_of_its_own(opened, which):
        page = opened(which, 360)
        for details in page.query_selector_all("details:not(.vega-embed *)"):
            details.evaluate("element => { element.open = true }")
        assert page.evaluate("document.documentElement.scrollWidth") == 360

    @pytest.mark.parametrize("which", [0, 1], ids=["report", "comparison"])
    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_every_text_has_a_contrast_of_at_least_4_5_to_what_is_behind_it(opened, which, scheme):
        page = opened(which, 1280, scheme)
        page.evaluate("document.querySelectorAll('details').forEach((of) => { of.open = true })")
        contrasts = page.evaluate(CONTRASTS)
        assert len(contrasts) > 50
        assert min(contrasts)[0] >= 4.5, min(contrasts)

    def column(page, table, position):
        return page.evaluate(COLUMN, [table, position])

    def test_a_click_on_a_heading_sorts_by_its_numbers_and_another_turns_the_order_round(opened):
        page = opened()
        table = page.locator("table[aria-label='results.csv']")
        page.get_by_text("results.csv", exact=True).click()
        heading = table.locator("thead th", has_text="accuracy")
        heading.click()
        expect(heading).to_have_attribute("aria-sort", "ascending")
        heading.click()
        expect(heading).to_have_attribute("aria-sort", "descending")
        expect(table.locator("tbody tr").first.locator("th, td").nth(4)).to_have_text("1")
        shown = [float(text) for text in column(page, "results.csv", 4) if text]
        assert len(shown) == 25
        assert shown == sorted(shown, reverse=True)

    def test_a_long_table_is_searched(opened):
        page = opened()
        page.get_by_text("results.csv", exact=True).click()
        page.locator("div[aria-label='results.csv'] input[type=search]").fill("dense")
        expect(page.locator("div[aria-label='results.csv']")).to_contain_text("filtered from")
        assert set(column(page, "results.csv", 1)) == {"dense"}

    def test_a_click_sorts_a_table_of_the_report_by_name(opened):
        page, label = opened(), f"accuracy of {ODD}"
        before = column(page, label, 0)
        heading = page.locator("#results table thead th").first
        heading.click()
        expect(heading).to_have_attribute("aria-sort", "ascending")
        heading.click()
        expect(heading).to_have_attribute("aria-sort", "descending")
        assert column(page, label, 0) == sorted(before, reverse=True)

    def test_charts_are_drawn_with_a_mark_for_every_run_and_a_text_for_who_cannot_see_them(opened):
        page = opened()
        assert page.locator(".drawn svg.marks").count() == 2
        marks = page.locator(MARKS)
        assert marks.count() == 2 * 3 * 30 - 1
        assert ODD in page.locator("#chart-1 [role=graphics-document]").get_attribute("aria-label")

    def test_a_mark_says_which_run_it_is_when_it_is_pointed_at(opened):
        page = opened()
        page.locator(MARKS).first.hover(force=True)
        told = page.locator("#vg-tooltip-element")
        told.wait_for()
        assert {"strategy", "density", "accuracy", "seed"} <= set(told.locator(".key").all_inner_texts())

    def test_a_series_that_is_picked_in_the_legend_stands_out(opened):
        page = opened()
        page.locator("#chart-1 svg .role-legend-symbol path").first.click(force=True)
        expect(page.locator(f"{MARKS}[opacity='0.04']")).to_have_count(2 * 30 * 3 // 2)
        opacities = page.locator(MARKS).evaluate_all(
            "marks => [...new Set(marks.map((mark) => mark.getAttribute('opacity')))].sort()"
        )
        assert opacities == ["0.04", "0.55"]

    def test_every_image_has_a_text_and_has_its_pixels(opened):
        for which in (0, 1):
            images = opened(which).locator("img")
            assert images.count() == which + 1
            assert all(
                images.evaluate_all(
                    "of => of.map((image) => image.alt.length > 10 && image.naturalWidth > 0)"
                )
            )

    def test_in_print_a_dark_page_is_light_and_nothing_is_cut_off(opened):
        page = opened(0, 700, "dark")
        page.emulate_media(media="print")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert page.locator("header nav").is_hidden()
        assert page.locator("#results .box").evaluate_all(WITHIN)
        assert min(page.evaluate(CONTRASTS))[0] >= 4.5

    def test_on_paper_a_table_that_is_shown_in_parts_has_all_its_rows(opened):
        page = opened()
        page.get_by_text("results.csv", exact=True).click()
        rows = page.locator("div[aria-label='results.csv'] tbody tr")
        assert rows.count() == 25
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert rows.count() == 2 * 3 * 30
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert rows.count() == 25
