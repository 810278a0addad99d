"""The report in a real browser: offline, silent, right, at every width, without a mouse."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Page

from pagewalk import Machine, Trace
from pagewalk.cli import main
from pagewalk.curves import count as count_curves
from pagewalk.curves import document as curves_document
from pagewalk.report import render
from pagewalk.report.curves import render as render_curves

pytestmark = pytest.mark.browser

LOOKS: list[tuple[int, Literal["light", "dark"]]] = [
    (360, "light"),
    (360, "dark"),
    (1280, "light"),
    (1280, "dark"),
]


@contextmanager
def opened(
    browser: Browser,
    path: Path,
    width: int = 1280,
    shade: Literal["light", "dark"] = "light",
    *,
    charts: bool = True,
) -> Iterator[Page]:
    """The report, its charts drawn if it has any; fails on a message, an error or a request."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=shade, offline=True
    )
    page = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    if charts:
        page.wait_for_selector("html[data-drawn]")
    yield page
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    context.close()


@pytest.mark.parametrize(("width", "shade"), LOOKS)
def test_it_loads_without_a_word_and_fits(
    browser: Browser, two_machines: Path, width: int, shade: Literal["light", "dark"]
) -> None:
    with opened(browser, two_machines, width, shade) as page:
        assert page.evaluate("document.documentElement.dataset.drawn") == shade
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        charts = page.locator(".chart")
        assert charts.count() == 1 + 2 * 4
        for index in range(charts.count()):
            box = charts.nth(index).locator("canvas").bounding_box()
            assert box is not None and box["height"] > 60
            assert 200 < box["width"] <= width


@pytest.mark.parametrize(("width", "shade"), LOOKS)
def test_without_javascript_every_chart_is_a_picture(
    browser: Browser, one_machine: Path, width: int, shade: Literal["light", "dark"]
) -> None:
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=shade, java_script_enabled=False
    )
    page = context.new_page()
    page.goto(one_machine.as_uri())
    pictures = page.locator("img.picture")
    assert pictures.count() == 4
    for index in range(4):
        box = pictures.nth(index).bounding_box()
        place = page.locator(".still").nth(index).bounding_box()
        assert box is not None and place is not None and box["height"] > 20
        # No smaller than its letters can be read: where the page is narrower it is moved sideways.
        assert box["width"] >= 576 and place["x"] + place["width"] <= width
        assert len(pictures.nth(index).get_attribute("alt") or "") > 60
    assert page.locator(".chart:visible").count() == 0
    context.close()


def test_the_map_stands_above_all_tables(browser: Browser, one_machine: Path) -> None:
    with opened(browser, one_machine) as page:
        heads = page.locator(".run h3").all_inner_texts()
        assert heads[:2] == ["Misses over address and time", "TLBs"]


def test_legends_are_whole_and_a_row_has_all_its_keys_where_a_page_is_narrow(
    browser: Browser, tmp_path: Path
) -> None:
    trace = "generate:join,table=4M,accesses=20k"
    commands = {
        "hat": ["hat", "--cpus", "1,2", "--work", "fault"],
        "managers": ["managers", trace],
        "sweep": ["sweep", trace, "--vary", "tlb.l2d.entries=64,256,1024", "--vary",
                  "page_table.format=x86-64,hashed"],
    }  # fmt: skip
    for name, command in commands.items():
        path = tmp_path / f"{name}.html"
        assert main([*command, "-q", "--html", str(path)]) == 0
        with opened(browser, path, 420) as page:
            first = page.locator("main > section").first
            assert len(first.locator(".advice").first.inner_text()) > 40
            cut = page.evaluate(
                """async () => {
                    const { charts } = JSON.parse(document.getElementById("data").textContent);
                    const cut = [];
                    for (const [name, spec] of Object.entries(charts)) {
                        const place = document.getElementById(name);
                        await vegaEmbed(place, spec, { actions: false, renderer: "svg" });
                        const right = place.getBoundingClientRect().right;
                        for (const label of place.querySelectorAll(".role-legend-label text"))
                            if (label.getBoundingClientRect().right > right + 1)
                                cut.push(`${name}: ${label.textContent}`);
                    }
                    return cut;
                }"""
            )
            assert cut == [], name
            if name == "sweep":
                names = page.locator("tbody th").all_inner_texts()
                assert "64, x86-64" in names and page.locator("td.key:visible").count() == 0


def test_charts_can_be_saved(browser: Browser, one_machine: Path, tmp_path: Path) -> None:
    with opened(browser, one_machine) as page:
        assert page.locator(".save").count() == 4
        for kind, begins in (("SVG", b"<svg"), ("PNG", b"\x89PNG")):
            with page.expect_download() as download:
                page.get_by_role("button", name=f"Save as {kind}").first.click()
            file = tmp_path / download.value.suggested_filename
            download.value.save_as(file)
            assert file.suffix == f".{kind.lower()}" and begins in file.read_bytes()[:200]


def test_the_advice_stands_first_and_numbers_of_few_events_are_grey(
    browser: Browser, tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    spec = "generate:join,table=64M,accesses=60k"
    assert main(["run", spec, "-m", "epyc-9005", "-q", "--html", str(path)]) == 0
    with opened(browser, path) as page:
        advice = page.locator(".advice")
        assert (advice.text_content() or "").startswith("Use ")
        few = page.locator("data.few")
        assert few.count() > 0
        document = json.loads(page.locator("#results").text_content() or "")[0]
        regions = [one for one in document["regions"] if 0 < one["misses"] < 100]
        shares = page.get_by_role("region", name="The regions").locator("data.few")
        assert shares.count() == len(regions) > 0


def test_charts_follow_the_reader_from_light_to_dark(browser: Browser, one_machine: Path) -> None:
    with opened(browser, one_machine) as page:
        before = page.locator(".chart canvas").first.screenshot()
        page.emulate_media(color_scheme="dark")
        page.wait_for_selector("html[data-drawn=dark]")
        assert page.locator(".chart canvas").first.screenshot() != before
        assert page.locator(".chart canvas").count() == 4


def at(document: Any, pointer: str) -> Any:
    for step in pointer.strip("/").split("/"):
        document = document[int(step)] if isinstance(document, list) else document[step]
    return document


def check_numbers(page: Page, documents: list[dict[str, Any]]) -> int:
    """Every number with a place in the document is that of the document; returns how many."""
    assert json.loads(page.locator("#results").text_content() or "") == documents
    checked = 0
    for index, document in enumerate(documents):
        found = page.locator(f"[data-run='{index}'] data[data-at]").evaluate_all(
            "all => all.map(one => [one.dataset.at, one.value, one.textContent])"
        )
        for pointer, value, shown in found:
            assert float(value) == at(document, pointer), pointer
            assert shown.strip(), pointer
            checked += 1
    return checked


def test_it_shows_the_numbers_of_the_document(browser: Browser, two_machines: Path) -> None:
    with opened(browser, two_machines) as page:
        documents = json.loads(page.locator("#results").text_content() or "")
        assert check_numbers(page, documents) > 200


def test_it_shows_the_numbers_of_a_real_run(browser: Browser, tmp_path: Path) -> None:
    results = [
        Machine(name).run("generate:uniform,size=64M,accesses=300k")
        for name in ("opteron-2008", "tlb-only")
    ]
    path = tmp_path / "report.html"
    path.write_text(render(results), encoding="utf-8")
    with opened(browser, path) as page:
        assert check_numbers(page, [result.data for result in results]) > 40


def test_all_of_it_is_reached_by_the_keyboard(browser: Browser, one_machine: Path) -> None:
    with opened(browser, one_machine, 360) as page:
        wanted = page.locator(".scroll:visible, .chart, summary, a, button").count()
        seen = set()
        for _ in range(2 * wanted):
            page.keyboard.press("Tab")
            seen.add(
                page.evaluate(
                    """() => {
                        const all = [...document.querySelectorAll('*')];
                        const here = document.activeElement;
                        return here === document.body ? -1 : all.indexOf(here);
                    }"""
                )
            )
        assert len(seen - {-1}) == wanted
        # A table that is wider than the window is moved by the arrow keys.
        table = page.get_by_role("region", name="Lookups and misses of each TLB")
        table.focus()
        for _ in range(4):
            page.keyboard.press("ArrowRight")
        page.wait_for_function("document.activeElement.scrollLeft > 0")


def test_names_and_caption_stay_where_a_wide_table_is_moved(
    browser: Browser, one_machine: Path
) -> None:
    with opened(browser, one_machine, 390) as page:
        wide = page.evaluate(
            """() => [...document.querySelectorAll('.scroll')]
                .filter((box) => box.scrollWidth > box.clientWidth + 100)
                .map((box) => {
                    box.scrollLeft = 90;
                    const left = box.getBoundingClientRect().left;
                    const at = (part) => part.getBoundingClientRect();
                    const caption = at(box.querySelector('caption span'));
                    return {
                        names: [...box.querySelectorAll('th:first-child')]
                            .map((name) => at(name).left - left),
                        second: at(box.querySelector('th:nth-child(2)')).left - left,
                        caption: [caption.left - left, caption.width - box.clientWidth],
                    };
                })"""
        )
        assert len(wide) > 2
        for table in wide:
            assert table["names"] == [0] * len(table["names"])
            assert table["second"] < 120
            assert table["caption"][0] == 0 and table["caption"][1] <= 0


def test_every_chart_has_words_and_numbers(browser: Browser, one_machine: Path) -> None:
    with opened(browser, one_machine) as page:
        charts = page.locator(".chart")
        for index in range(charts.count()):
            label = charts.nth(index).get_attribute("aria-label") or ""
            assert len(label) > 60
        for summary in page.locator("summary").all():
            summary.press("Enter")
        for table in page.locator("figure table").all():
            assert table.is_visible()


def test_headings_descend_one_level_at_a_time(browser: Browser, two_machines: Path) -> None:
    with opened(browser, two_machines) as page:
        levels = page.locator("h1, h2, h3, h4").evaluate_all(
            "all => all.map(one => Number(one.tagName[1]))"
        )
        assert levels[0] == 1 and levels.count(1) == 1
        assert all(b - a <= 1 for a, b in pairwise(levels))


def test_text_stands_out_from_its_ground(browser: Browser, one_machine: Path) -> None:
    for shade in ("light", "dark"):
        with opened(browser, one_machine, shade=shade) as page:  # type: ignore[arg-type]
            for selector in ("body", ".lead", ".brand", "thead th", ".cards dt", "figcaption"):
                assert contrast(page, selector) >= 4.5, (shade, selector)


def contrast(page: Page, selector: str) -> float:
    """The contrast ratio of the first such element's text, by WCAG 2.2."""
    text, ground = page.evaluate(
        """selector => [
            getComputedStyle(document.querySelector(selector)).color,
            getComputedStyle(document.body).backgroundColor,
        ].map(color => color.match(/[0-9.]+/g).slice(0, 3).map(Number))""",
        selector,
    )

    def luminance(color: list[float]) -> float:
        linear = [
            c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4
            for c in (channel / 255 for channel in color)
        ]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(text), luminance(ground)))
    return (high + 0.05) / (low + 0.05)


def test_curves_are_drawn_and_fit(browser: Browser, tmp_path: Path) -> None:
    trace = Trace("generate:zipf,size=8M,accesses=60k")
    counted = count_curves(trace, lookups=["data", "all"])
    made = curves_document(trace, counted)
    path = tmp_path / "curves.html"
    path.write_text(render_curves(made, counted), encoding="utf-8")
    for width, shade in LOOKS:
        with opened(browser, path, width, shade) as page:
            assert page.locator(".chart canvas").count() == 2
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert json.loads(page.locator("#results").text_content() or "") == made


def test_a_sweep_is_drawn_and_fits(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "sweep.html"
    vary = "--vary=cache.l2.size=16K,64K,1M", "--vary=tlb.l2d.entries=2^5..2^8"
    spec = "generate:join,table=64M,accesses=60k"
    assert main(["sweep", spec, "-m", "opteron-2008", *vary, "--html", str(path)]) == 0
    for width, shade in LOOKS:
        with opened(browser, path, width, shade) as page:
            assert page.locator(".chart canvas").count() >= 2
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            made = json.loads(page.locator("#results").text_content() or "")
            assert len(made["designs"]) == 12


def test_several_traces_are_facets_whose_points_say_what_they_are(
    browser: Browser, tmp_path: Path
) -> None:
    path = tmp_path / "sweep.html"
    specs = [f"generate:{kind}=8M,accesses=40k" for kind in ("join,table", "uniform,size")]
    vary = "--vary=cache.l2.size=16K,64K,256K", "--vary=tlb.l2d.entries=2^5..2^8"
    assert main(["sweep", *specs, "-m", "opteron-2008", *vary, "--html", str(path)]) == 0
    for width, shade in LOOKS:
        with opened(browser, path, width, shade) as page:
            figures = page.locator("section").filter(has=page.locator(".facets"))
            charts = figures.first.locator(".facets .chart canvas")
            assert charts.count() == 3
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            places = [charts.nth(at).bounding_box() or {} for at in range(3)]
            # Beside each other where there is room, else below each other.
            assert len({round(place["y"]) for place in places}) == (3 if width < 500 else 1)
    with opened(browser, path) as page:
        rows = json.loads(page.locator("#results").text_content() or "")["comparison"]["designs"]
        second = page.locator("#figure-1-0 canvas")
        second.scroll_into_view_if_needed()
        box = second.bounding_box()
        assert box is not None
        told = set()
        for x in range(60, int(box["width"]), 8):
            for y in range(50, int(box["height"]) - 40, 8):
                page.mouse.move(box["x"] + x, box["y"] + y)
                if page.locator("#vg-tooltip-element.visible").count():
                    told.add(tuple(page.locator("#vg-tooltip-element td.value").all_inner_texts()))
        values = {
            (row["cache.l2.size"], str(row["tlb.l2d.entries"])): row["references"]
            for row in rows
            if row["trace"] == specs[0]
        }
        assert {entries for _, entries, _ in told} == {"32", "64", "128", "256"}
        for size, entries, value in told:
            assert abs(float(value) - values[size, entries]) < 1e-3


@pytest.mark.parametrize("on", ["model", "host"])
def test_processors_under_locks_are_drawn_and_fit(
    browser: Browser, tmp_path: Path, on: str
) -> None:
    path = tmp_path / "hat.html"
    many = ["--cpus", "1,2,4"] if on == "model" else ["--threads", "1", "--rounds", "1"]
    schemes = ["--locking", "global,monitor,embedded"]
    asked = ["hat", "--on", on, *many, *schemes, "--work", "fault", "--html", str(path)]
    assert main(asked) == 0
    for width, shade in LOOKS:
        with opened(browser, path, width, shade, charts=on == "model") as page:
            # Throughput, and where the time goes.
            assert page.locator(".chart canvas").count() == (2 if on == "model" else 0)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            made = json.loads(page.locator("#results").text_content() or "")
            assert made["on"] == on
            assert len(made["runs"]) == (9 if on == "model" else 4)


def test_reproduced_experiments_are_drawn_and_fit(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "reproduced.html"
    names = ["B10/table4.2", "E99/fig9"]
    assert main(["reproduce", *names, "--cache", str(tmp_path), "--html", str(path)]) == 0
    for width, shade in LOOKS:
        with opened(browser, path, width, shade) as page:
            # The figure is drawn; the table, whose columns share no axis, lies open.
            assert page.locator(".chart canvas").count() == 1
            assert page.get_by_role("rowheader", name="UPTC, paper").is_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            documents = json.loads(page.locator("#results").text_content() or "")
            assert [document["name"] for document in documents] == names
            claims = sum(len(document["claims"]) for document in documents)
            assert page.locator(".claims li").count() == claims
