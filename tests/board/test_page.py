"""The board as a user sees it, in Chromium."""

import json
import re
import time

import numpy as np
import pytest
from etils import epath

from kauldron.writers.event_file import EventFile
from tests.board.board_runs import write_runs
from tests.board.conftest import board
from tests.inspect.written_runs import append_values, write_run

pytestmark = pytest.mark.slow

CURVES = "section.card canvas[aria-label*='{metric}: {count} curves']"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_runs(tmp_path_factory.mktemp("board"))


@pytest.fixture(scope="module")
def address(folder):
    with board(folder) as url:
        yield url


def wait_for_curves(page, metric, count):
    page.wait_for_selector(CURVES.format(metric=metric, count=count))


def wait_until(page, expression):
    deadline = time.monotonic() + 30
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, expression
        page.wait_for_timeout(20)


def columns(page, selector):
    return [cell.inner_text() for cell in page.query_selector_all(selector)]


def test_curves_follow_the_chosen_runs_and_groups(page, address):
    page.goto(address)
    wait_for_curves(page, "train/loss", 4)
    page.click("#runs li:nth-child(1) label")
    wait_for_curves(page, "train/loss", 3)
    page.fill("#filter", "lr=0.01")
    wait_for_curves(page, "train/loss", 2)
    page.fill("#filter", "")
    page.click("#all")
    page.select_option("#group", "seed")
    wait_for_curves(page, "test/accuracy", 2)
    page.wait_for_selector("text=mean ± deviation, 2 groups")
    assert columns(page, ".keys .key") == ["lr 0.001", "lr 0.01"]
    color = "s => getComputedStyle(s).backgroundColor"
    swatches = [s.evaluate(color) for s in page.query_selector_all("#runs .swatch")]
    keys = [s.evaluate(color) for s in page.query_selector_all(".keys .swatch")]
    assert len(set(keys)) == 2 and set(swatches) == set(keys)
    page.fill("#filter", "lr=0.01")
    wait_for_curves(page, "test/accuracy", 1)
    assert columns(page, ".keys .key") == ["all runs"]


def test_metrics_that_no_chosen_run_has_take_no_room(page, tmp_path):
    write_run(tmp_path / "a", config={"seed": 0}, train=[{"losses/total": 1.0}] * 3)
    write_run(tmp_path / "b", config={"seed": 0}, train=[{"metrics/iou": 1.0}] * 3)
    with board(tmp_path) as address:
        page.goto(address)
        wait_for_curves(page, "train/iou", 1)
        page.click("#runs li:nth-child(2) label")
        wait_for_curves(page, "train/loss", 1)
        assert page.locator(".card:visible h3").all_inner_texts() == ["train/loss"]
        page.click("#all")
        wait_for_curves(page, "train/iou", 1)


def test_zoom_asks_for_finer_points_and_back(page, address):
    page.goto(address)
    wait_for_curves(page, "train/loss", 4)
    canvas = page.locator("canvas").first
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    with page.expect_response(lambda r: "first=" in r.url) as zoomed:
        page.mouse.move(box["x"] + 150, box["y"] + 60)
        page.mouse.down()
        page.mouse.move(box["x"] + 300, box["y"] + 60)
        page.mouse.up()
    xs = zoomed.value.json()["sweep/1"]["x"]
    assert 0 < xs[0] < xs[-1] < 299
    canvas.focus()
    for _ in range(2):  # out of what was loaded, but not to everything at once
        with page.expect_response(lambda r: "first=" in r.url) as wider:
            page.keyboard.press("-")
        assert wider.value.json()["sweep/1"]["x"][-1] < 299
    with page.expect_response(lambda r: "curves" in r.url and "first" not in r.url):
        page.keyboard.press("0")


def test_table_sorts_by_a_click_on_its_header(page, address):
    page.goto(f"{address}#table")
    page.click("#table th button:text-is('test/accuracy')")
    assert columns(page, "#table td:first-child")[0] == "sweep/4"
    page.click("#table th button:text-is('test/accuracy')")
    assert columns(page, "#table td:first-child")[0] == "sweep/1"


def test_pictures_histograms_texts_and_confusions_are_shown(page, address):
    page.goto(f"{address}#media")
    page.wait_for_selector(".pictures img")
    images = page.query_selector_all(".pictures img")
    assert len(images) == 2
    wait_until(page, "document.querySelector('.pictures img').naturalWidth == 8")
    assert page.inner_text("table.heat thead").strip() == "true \\ predicted\tcat\tdog"
    assert page.inner_text("table.heat tbody tr:nth-child(2)").strip() == "dog\t2\t7"
    slider = page.locator("input[aria-label='Step of test/summaries/said']")
    slider.fill("0")
    page.wait_for_selector("pre:has-text('step 0 <img')")


def test_chosen_runs_are_shown_side_by_side(page, address):
    page.goto(f"{address}#media")
    page.wait_for_selector(".pictures img")
    page.select_option("#run", "")
    page.click("#runs li:nth-child(1) label")
    page.wait_for_selector(".beside")
    titles = "section:has(h3:text-is('test/summaries/confusion')) .title"
    wait_until(page, "document.querySelectorAll('table.heat').length == 3")
    assert columns(page, titles) == ["sweep/2", "sweep/3", "sweep/4"]
    page.locator("input[aria-label='Step of test/summaries/said']").fill("0")
    wait_until(
        page,
        "[...document.querySelectorAll('pre')].filter("
        "p => p.textContent.startsWith('step 0')).length == 3",
    )
    page.click("#none")
    page.wait_for_selector("text=Choose runs on the left.")


def test_media_and_logs_follow_a_run_that_goes_on(hurried_page, tmp_path):
    page = hurried_page
    workdir = write_run(tmp_path / "a", train=[{"losses/total": 1.0}])
    events = EventFile(epath.Path(workdir / "test"))
    events.texts(0, {"summaries/said": "first words"})
    events.flush()
    (workdir / "logs").mkdir()
    log = workdir / "logs/train.log"
    log.write_text("".join(f"line {i}\n" for i in range(400)))
    with board(tmp_path) as address:
        page.goto(f"{address}#media")
        page.wait_for_selector("pre:text-is('first words')")
        events.texts(5, {"summaries/said": "more words"})
        events.flush()
        page.wait_for_selector("pre:text-is('more words')")
        page.wait_for_selector(".step:has-text('step 5')")
        page.locator("input[aria-label='Step of test/summaries/said']").fill("0")
        page.wait_for_selector("pre:text-is('first words')")
        events.texts(9, {"summaries/said": "last words"})
        events.images(9, {"summaries/digits": np.zeros((1, 8, 8, 3), np.uint8)})
        events.close()
        page.wait_for_selector(".pictures img")
        assert page.inner_text("pre") == "first words"
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("6")
        page.wait_for_selector("pre:has-text('line 399')")
        is_at_end = (
            "(p => p.scrollHeight - p.scrollTop - p.clientHeight < 8)"
            "(document.querySelector('pre'))"
        )
        wait_until(page, is_at_end)
        log.write_text(log.read_text() + "line 400\n")
        page.wait_for_selector("pre:has-text('line 400')")
        wait_until(page, is_at_end)
        page.evaluate("document.querySelector('pre').scrollTop = 50")
        log.write_text(log.read_text() + "line 401\n")
        page.wait_for_selector("pre:has-text('line 401')")
        assert page.evaluate("document.querySelector('pre').scrollTop") == 50
        (workdir / "logs/test.log").write_text("another job\n")
        page.wait_for_selector("pre:has-text('another job')")


def test_scripts_in_texts_and_logs_stay_texts(page, address):
    for view in ("media", "logs"):
        page.goto("about:blank")
        page.goto(f"{address}#{view}")
        page.wait_for_selector("pre:has-text('<script>')")
        assert page.evaluate("window.hacked") is None
        assert page.query_selector("img[src='x']") is None


def test_configs_are_compared_side_by_side(page, address):
    page.goto(f"{address}#config")
    page.select_option("#right", "sweep/4")
    page.wait_for_selector("#diff th:text-is('sweep/4')")
    rows = page.inner_text("#diff tbody").splitlines()
    assert rows == ["seed\t0\t1", "lr\t0.001\t0.01"]
    page.uncheck("#only")
    page.wait_for_selector("#diff td:text-is('model')")


def test_sweep_draws_fields_and_a_scatter_plot(page, address):
    page.goto(f"{address}#sweep")
    page.select_option("#sweep-x", "lr")
    page.wait_for_selector("canvas[aria-label='test/accuracy by lr']")
    is_drawn = """() => [...document.querySelectorAll('canvas')].every(c =>
        c.width && c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(Boolean))"""
    wait_until(page, is_drawn)


def test_keys_switch_views_and_reach_the_filter(page, address):
    page.goto(address)
    page.wait_for_selector("#runs li")
    page.keyboard.press("2")
    page.wait_for_selector("#table")
    page.keyboard.press("/")
    page.keyboard.type("seed=1")
    wait_until(page, "document.querySelectorAll('#table tbody tr').length == 2")


def test_page_follows_a_run_that_goes_on_and_new_runs(hurried_page, tmp_path):
    page = hurried_page
    with board(tmp_path) as address:
        page.goto(address)
        page.wait_for_selector("text=No runs yet")
        workdir = write_run(tmp_path / "first", train=[{"losses/total": 1.0}])
        wait_for_curves(page, "train/loss", 1)
        page.keyboard.press("2")
        append_values(workdir / "train", [{"losses/total": 0.125}], first=7)
        page.wait_for_selector("#table td:text-is('0.125')")
        write_run(tmp_path / "second", train=[{"losses/total": 3.0}])
        page.wait_for_selector("#runs li[data-run='second']")


def test_broken_files_hide_nothing_else(page, tmp_path):
    write_runs(tmp_path)
    broken = tmp_path / "broken"
    (broken / "train").mkdir(parents=True)
    (broken / "run_info.json").write_text("[1, 2")
    (broken / "config.json").write_bytes(b"\xff\xfe")
    (broken / "train/scalars.jsonl").write_bytes(b"\x00garbage\n{}\n[]\n")
    (broken / "train/events.out.tfevents.1.a.1").write_bytes(b"\x01" * 100)
    with board(tmp_path) as address:
        page.goto(address)
        wait_for_curves(page, "train/loss", 4)
        assert page.locator("#runs li").count() == 5
        page.keyboard.press("3")  # pictures and texts
        page.select_option("#run", "broken")
        page.wait_for_selector("text=This run has written no pictures")


def test_200_runs_are_shown(page, tmp_path):
    for index in range(200):
        values = [{"losses/total": index + step} for step in range(30)]
        write_run(tmp_path / f"{index}", config={"seed": index}, train=values)
    with board(tmp_path) as address:
        page.goto(address)
        wait_for_curves(page, "train/loss", 200)
        assert page.locator("#runs li").count() == 200
        page.keyboard.press("2")
        page.wait_for_selector("#table")
        assert page.locator("#table tbody tr").count() == 200


def test_report_shows_the_same_without_a_server(page, folder, tmp_path):
    from kauldron.board import write_report

    path = write_report(tmp_path / "report.html", folder)
    text = path.read_text()
    assert not re.search(r"(src|href)=.?https?:", text)
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(path.as_uri())
    wait_for_curves(page, "train/loss", 4)
    page.select_option("#by", "time")
    wait_for_curves(page, "train/loss", 4)
    for key, selector in (
        ("2", "#table td:text-is('sweep/3')"),
        ("3", "table.heat"),
        ("4", "canvas[aria-label*='by lr']"),
        ("5", "#diff"),
        ("6", "pre:has-text('of run 0')"),
    ):
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press(key)
        page.wait_for_selector(selector)
    assert page.evaluate("window.hacked") is None
    assert {url.split(":")[0] for url in requests} <= {"file", "data"}
    assert json.dumps("<script>window") not in text
