"""The page in a browser: nothing is asked for, nothing complained about, and bars are where the
timeline says; mouse and keyboard do what the page promises."""

import json
import pathlib
import subprocess
import sys

import browser
import tool
from tool import DONE, ToolTest

NO_BROWSER = 77  # ctest's sign for a skipped test
MOST_BYTES = 20_000_000
MOST_SECONDS = 20  # far more than the 2 that are aimed at: a busy machine may be slow
LABELS = 168  # width of the labels left of a chart
CONTROL, SHIFT = 2, 8  # modifiers of the protocol


def deep_profile(layers, micro_batches):
    """Alike layers, the weights of each so large that a device of 1 GiB holds two at most."""
    profile = tool.small_profile(name="deep", global_batch_size=micro_batches)
    layer = profile["layers"][0]
    layer.update(repeat=layers, parameter_bytes=100 << 20)
    layer["measurements"][0].update(batch_size=1, stash_bytes=1 << 10)
    return profile


def cluster(servers, devices):
    topology = tool.small_topology(name=f"{servers}x{devices}")
    topology["servers"][0].update(count=servers, devices=devices)
    topology["servers"][0]["nics"][0]["bandwidth"] = "100 Gbit/s"
    topology["network"]["bandwidth"] = "100 Gbit/s"
    return topology


class PageTest(ToolTest):
    @classmethod
    def setUpClass(cls):
        cls.browser = browser.Browser().__enter__()
        cls.addClassCleanup(cls.browser.__exit__)

    def write_page(self, profile, topology, *more):
        result = self.run_tool("--model", profile, "--topo", topology, "-o", "plan.json", *more)
        self.assertEqual(result.returncode, DONE, result.stderr)
        result = self.run_tool("report", "plan.json", "-o", "page.html")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.run_tool("simulate", "plan.json", "--timeline", "timeline.json")

    def open_page(self, **options):
        url = (self.folder / "page.html").as_uri()
        page = browser.Page(self.browser, url, **options)
        self.addCleanup(page.close)
        return page

    def small_page(self, **options):
        """Two stages of one device each, four micro-batches."""
        self.write_page(self.write("m.json", tool.small_profile()),
                        self.write("t.json", cluster(1, 2)), "--micro-batch", "4", "--pin",
                        "stages=2")
        return self.open_page(**options)

    def large_page(self):
        """256 stages of one device each, 64 micro-batches."""
        self.write_page(self.write("m.json", deep_profile(256, 64)),
                        self.write("t.json", cluster(32, 8)), "--planner", "dapple",
                        "--no-baselines", "--micro-batch", "1")
        self.assertEqual(len(self.read("plan.json")["stages"]), 256)
        return self.open_page()

    def rectangle(self, page, name):
        found = page.evaluate(f"dapplePlan.rectangleOf({json.dumps(name)})")
        self.assertIsNotNone(found, name)
        return found

    def view(self, page):
        return page.evaluate("dapplePlan.view()")

    def tooltip(self, page):
        return page.evaluate("(() => { const box = document.getElementById('tooltip');"
                             "return box.hidden ? null : box.innerText; })()")

    def middle_of(self, page, name):
        box = self.rectangle(page, name)
        return box["left"] + box["width"] / 2, box["top"] + box["height"] / 2

    def check_quiet(self, page):
        """Nothing is asked for but the file itself, and nothing is complained about."""
        self.assertEqual(page.requests(), [(self.folder / "page.html").as_uri()])
        self.assertEqual(page.complaints(), [])
        size = (self.folder / "page.html").stat().st_size
        self.assertLessEqual(size, MOST_BYTES)
        self.assertLess(page.load_seconds, MOST_SECONDS)
        print(f"{self.id().rpartition('.')[2]}: {size:,} bytes, {page.load_seconds:.2f} s to load",
              file=sys.stderr)

    def check_bars(self, page, names):
        """Each bar begins and ends where its times lie on the axis, and has its colour there."""
        view = self.view(page)
        chart = page.evaluate("(() => { const box = document.querySelector('#gantt canvas')"
                              ".getBoundingClientRect();"
                              "return [box.left, box.right, box.top, box.bottom]; })()")
        left, right, top, bottom = chart
        plot = right - left - LABELS - 14
        times = {action["action"]: action for action in self.read("timeline.json")["actions"]}
        for name in names:
            box = self.rectangle(page, name)
            action = times[name]
            self.assertEqual((box["start"], box["end"]), (action["start_ns"], action["end_ns"]))
            scale = plot / (view["to"] - view["from"])
            expected = left + LABELS + (action["start_ns"] - view["from"]) * scale
            self.assertAlmostEqual(box["left"], expected, delta=0.5)
            length = (action["end_ns"] - action["start_ns"]) * scale
            self.assertAlmostEqual(box["width"], length, delta=0.5)
            self.assertTrue(top <= box["top"] <= bottom, name)
            if box["width"] >= 4 and box["height"] >= 4:
                color = [int(box["color"][i:i + 2], 16) for i in (1, 3, 5)]
                self.assertEqual(page.pixel(box["left"] + 2, box["top"] + 2), color, name)


class Quiet(PageTest):
    def test_two_devices(self):
        page = self.small_page()
        self.check_quiet(page)
        plan = self.read("plan.json")
        self.check_bars(page, [f"{stage}{kind}{index}" for stage in range(2) for kind in "FB"
                               for index in range(plan["num_micro_batches"])])

    def test_sixteen_devices(self):
        self.write_page(tool.ROOT / "profiles" / "bert-48.json",
                        tool.ROOT / "topologies" / "2x8xV100.json")
        page = self.open_page(dark=True)
        self.check_quiet(page)
        self.check_bars(page, ["0F0", "0B7", "1F0", "1B3"])
        self.assertEqual(page.evaluate("document.querySelectorAll('.device').length"), 16)

    def test_two_hundred_and_fifty_six_devices(self):
        page = self.large_page()
        self.check_quiet(page)
        # All rows first, then each in full.
        self.check_bars(page, ["0F0", "100F63", "255B0"])
        page.evaluate("document.getElementById('all-rows').click()")
        page.wait_for_frame()
        self.check_bars(page, ["0F0", "3F1"])
        self.assertEqual(page.complaints(), [])

    def test_idle_devices_are_hollow(self):
        self.write_page(self.write("m.json", tool.small_profile()),
                        self.write("t.json", cluster(1, 3)), "--pin", "stages=2", "--pin",
                        "replicas=1")
        page = self.open_page()
        self.assertEqual(page.evaluate("document.querySelectorAll('.device.idle').length"), 1)
        self.check_quiet(page)

    def test_devices_of_several_stages_name_them_all(self):
        inputs = (self.write("m.json", tool.small_profile()), self.write("t.json", cluster(1, 2)))
        self.write_page(*inputs, "--micro-batch", "4", "--pin", "stages=2")
        for command in (("reschedule", "plan.json", "--schedule", "zb-v", "-o", "v.json"),
                        ("report", "v.json", "-o", "page.html")):
            result = self.run_tool(*command)
            self.assertEqual(result.returncode, tool.DONE, result.stderr)
        page = self.open_page()
        self.check_quiet(page)
        self.assertEqual(page.evaluate("[...document.querySelectorAll('.device')]"
                                       ".map((device) => device.textContent)"), ["0,3", "1,2"])
        chips = page.evaluate("[...document.querySelectorAll('#lanes tbody tr')]"
                              ".map((row) => [...row.querySelectorAll('.chip')].length)")
        self.assertEqual(chips, [2, 2])
        self.assertTrue(page.evaluate("document.getElementById('schedules-section').hidden"))

    def test_schedules_that_were_looked_at_say_why(self):
        self.write_page(self.write("m.json", tool.small_profile()),
                        self.write("t.json", cluster(1, 2)), "--micro-batch", "4", "--schedule",
                        "auto")
        page = self.open_page()
        self.check_quiet(page)
        rows = page.evaluate("[...document.querySelectorAll('#schedules tbody tr')]"
                             ".map((row) => row.cells[0].textContent)")
        self.assertEqual(rows, [row["family"] for row in self.read("plan.json")["schedules"]])
        self.assertEqual(page.evaluate("document.querySelectorAll('#schedules b').length"), 1)

    def test_hostile_names_stay_text(self):
        name = "</script><script>document.title = 'stolen'</script><img src=x>"
        profile = tool.small_profile(name=name)
        profile["layers"][0]["name"] = name
        topology = tool.small_topology(name=name)
        topology["servers"][0]["name"] = name
        self.write_page(self.write("m.json", profile), self.write("t.json", topology))
        page = self.open_page()
        self.check_quiet(page)
        self.assertEqual(page.evaluate("document.title"), f"{name} on {name}")
        self.assertEqual(page.evaluate("document.querySelector('h1').textContent"),
                         f"{name} on {name}")
        self.assertEqual(page.evaluate("document.images.length"), 0)


class Layout(PageTest):
    WIDTHS = (1280, 400)

    def box(self, page, selector):
        return page.evaluate(f"(() => {{ const box = document.querySelector({selector!r})"
                             ".getBoundingClientRect();"
                             "return [box.left, box.right, box.top, box.bottom]; })()")

    def test_the_memory_of_a_stage_is_seen_without_scrolling_sideways(self):
        self.write_page(tool.ROOT / "profiles" / "bert-48.json",
                        tool.ROOT / "topologies" / "2x8xV100.json")
        for width in self.WIDTHS:
            page = self.open_page(width=width)
            left, right, _, _ = self.box(page, "#stages .meter")
            self.assertTrue(0 <= left < right <= width, (width, left, right))
            left, right, _, _ = self.box(page, "#stages .share")
            self.assertTrue(0 <= left < right <= width, (width, left, right))
            overflow = page.evaluate("document.documentElement.scrollWidth"
                                     " - document.documentElement.clientWidth")
            self.assertLessEqual(overflow, 0, f"the page is wider than {width}")
            self.assertEqual(page.complaints(), [])

    def test_names_are_whole_at_any_width(self):
        self.write_page(tool.ROOT / "profiles" / "bert-48.json",
                        tool.ROOT / "topologies" / "2x8xV100.json")
        for width in self.WIDTHS:
            page = self.open_page(width=width)
            hidden = page.evaluate("[...document.querySelectorAll('.grid td')].filter((cell) =>"
                                   " cell.scrollWidth > cell.clientWidth + 1).length")
            self.assertEqual(hidden, 0, width)

    def test_the_legend_says_what_hue_and_lightness_mean_and_stays_while_searching(self):
        page = self.small_page()
        words = page.evaluate("document.getElementById('legend').innerText")
        self.assertRegex(words, r"Hue: the stage\s+0\s*1\s+Lightness: the work\s+forward\s+backward")
        before = self.box(page, "#legend"), self.box(page, "#gantt")
        page.press("/", text="/")
        for query in ("1", "F", "F1"):
            page.type(query)
            self.assertNotEqual(
                page.evaluate("document.getElementById('matches').textContent"), "")
            self.assertEqual((self.box(page, "#legend"), self.box(page, "#gantt")), before, query)

    def test_one_slow_baseline_does_not_make_all_others_alike(self):
        self.write_page(self.write("m.json", tool.small_profile()),
                        self.write("t.json", cluster(1, 2)), "--micro-batch", "4")
        plan = self.read("plan.json")
        slow, *others = plan["baselines"]
        slow["iteration_ns"] = 50 * plan["predicted"]["iteration_ns"]
        slow["time_parts"]["all_reduce_ns"] += (slow["iteration_ns"]
                                                - sum(slow["time_parts"].values()))
        self.write("slow.json", plan)
        result = self.run_tool("report", "slow.json", "-o", "page.html")
        self.assertEqual(result.returncode, DONE, result.stderr)
        page = self.open_page()
        widths = page.evaluate("[...document.querySelectorAll('#baselines .track i')]"
                               ".map((bar) => bar.getBoundingClientRect().width)")
        self.assertEqual(page.evaluate("document.querySelectorAll('#baselines .torn').length"), 1)
        # This plan's bar is a third of the outlier's, which is torn.
        self.assertAlmostEqual(widths[0] / widths[1], 1 / 3, delta=0.01)
        self.assertIn("torn ones are longer",
                      page.evaluate("document.getElementById('baselines-note').textContent"))


class Mouse(PageTest):
    def test_the_wheel_zooms_around_the_pointer_and_dragging_pans(self):
        page = self.small_page()
        x, y = self.middle_of(page, "1F1")
        page.wheel(x, y, -400)
        self.assertEqual(self.view(page)["from"], 0, "without Ctrl the page is scrolled")
        page.evaluate("scrollTo(0, 0)")
        page.wheel(x, y, -400, CONTROL)
        view = self.view(page)
        self.assertLess(view["to"] - view["from"], 0.6 * view["total"])
        self.assertAlmostEqual(self.middle_of(page, "1F1")[0], x, delta=1)
        self.check_bars(page, ["1F1"])
        page.drag(x, y, 50)
        self.assertAlmostEqual(self.middle_of(page, "1F1")[0], x + 50, delta=1)
        page.wheel(x, y, 5000)  # the click has given it the focus
        self.assertEqual(self.view(page)["to"], view["total"])

    def test_hovering_says_what_an_action_is(self):
        page = self.small_page()
        page.mouse("mouseMoved", *self.middle_of(page, "1B2"))
        self.assertRegex(self.tooltip(page), r"^1B2\s*backward of micro-batch 2, stage 1")
        self.assertIn("1 device: node0:1", self.tooltip(page))
        corner = page.evaluate("document.querySelector('#gantt').getBoundingClientRect().left")
        page.mouse("mouseMoved", corner + 20, self.middle_of(page, "1B2")[1])
        self.assertIsNone(self.tooltip(page))

    def test_the_tooltip_tells_what_is_below_the_pointer_after_zooming_too(self):
        page = self.small_page()
        x, y = self.middle_of(page, "1B2")
        page.mouse("mouseMoved", x, y)
        self.assertRegex(self.tooltip(page), "^1B2")
        page.evaluate("document.querySelector('#gantt .scroller').focus()")
        page.press("+")
        page.press("ArrowRight")
        page.press("ArrowRight")
        left, right = (self.rectangle(page, name)["left"] for name in ("1B2", "1F3"))
        self.assertFalse(left <= x < right, "1B2 is no longer there")
        shown = self.tooltip(page)
        if shown is not None:
            box = self.rectangle(page, shown.split()[0])
            self.assertTrue(box["left"] - 4 <= x <= box["left"] + box["width"] + 4, shown)

    def test_charts_are_zoomed_together(self):
        page = self.small_page(height=2000)
        box = page.evaluate("(() => { const box = document.querySelector('#memory canvas')"
                            ".getBoundingClientRect(); return [box.left, box.top]; })()")
        page.wheel(box[0] + 400, box[1] + 20, -400, CONTROL)
        view = self.view(page)
        self.assertLess(view["to"] - view["from"], 0.6 * view["total"])
        page.mouse("mouseMoved", box[0] + 400, box[1] + 20)
        self.assertRegex(self.tooltip(page), "(?s)holds.*limit.*peak")

    def test_a_double_click_zooms_to_an_action(self):
        page = self.small_page()
        x, y = self.middle_of(page, "0F2")
        for count in (1, 2):
            page.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=count)
            page.mouse("mouseReleased", x, y, button="left", clickCount=count)
        page.wait_for_frame()
        box, view = self.rectangle(page, "0F2"), self.view(page)
        self.assertAlmostEqual((view["to"] - view["from"]) / (box["end"] - box["start"]), 6,
                               delta=0.01)


class Keyboard(PageTest):
    def focused_page(self):
        page = self.small_page()
        page.evaluate("document.querySelector('#gantt .scroller').focus()")
        return page

    def test_the_focus_is_seen(self):
        page = self.small_page()
        style = "getComputedStyle(document.getElementById('gantt')).outlineStyle"
        self.assertEqual(page.evaluate(style), "none")
        for _ in range(30):
            page.press("Tab")
            if page.evaluate("document.activeElement.classList.contains('scroller')"):
                break
        self.assertEqual(page.evaluate(style), "solid")

    def test_keys_zoom_pan_and_show_the_whole(self):
        page = self.focused_page()
        total = self.view(page)["total"]
        page.press("+")
        page.press("+")
        view = self.view(page)
        self.assertAlmostEqual(view["to"] - view["from"], total / 1.5**2, delta=1)
        page.press("ArrowRight")
        self.assertAlmostEqual(self.view(page)["from"], view["from"] + 0.15 * total / 1.5**2,
                               delta=1)
        page.press("ArrowLeft")
        self.assertAlmostEqual(self.view(page)["from"], view["from"], delta=1)
        page.press("-")
        page.press("Home")
        self.assertEqual(self.view(page), {"from": 0, "to": total, "total": total})

    def test_shift_and_arrows_go_from_action_to_action_and_say_what_they_are(self):
        page = self.focused_page()
        announced = "document.getElementById('announcement').textContent"
        page.press("ArrowRight", modifiers=SHIFT)
        self.assertTrue(page.evaluate(announced).startswith("0F0, forward of micro-batch 0"))
        page.press("ArrowRight", modifiers=SHIFT)
        self.assertTrue(page.evaluate(announced).startswith("0F1"))
        self.assertRegex(self.tooltip(page), "^0F1")
        page.press("ArrowDown", modifiers=SHIFT)
        self.assertTrue(page.evaluate(announced).startswith("1"))
        page.press("Escape")
        self.assertIsNone(self.tooltip(page))

    def test_the_tooltip_of_a_selected_action_goes_where_it_goes(self):
        page = self.focused_page()
        for _ in range(3):
            page.press("ArrowRight", modifiers=SHIFT)
        name = self.tooltip(page).split()[0]
        panel = "document.querySelector('#gantt canvas').getBoundingClientRect()"
        states = set()
        for key in ["+", "+", "+", "Home", "+", "ArrowLeft", "ArrowLeft", *["ArrowRight"] * 8]:
            page.press(key)
            box = self.rectangle(page, name)
            left = page.evaluate(f"{panel}.left") + LABELS
            is_seen = box["left"] + box["width"] >= left and box["left"] <= page.evaluate(f"{panel}.right")
            states.add(is_seen)
            if not is_seen:
                self.assertIsNone(self.tooltip(page), key)
                continue
            self.assertRegex(self.tooltip(page), f"^{name}")
            shown = page.evaluate("document.getElementById('tooltip').getBoundingClientRect().left")
            self.assertAlmostEqual(shown, max(box["left"], left) + 4 + 14, delta=1, msg=key)
        self.assertEqual(states, {True, False})

    def test_the_search_box_highlights_what_it_finds(self):
        page = self.small_page()
        plan = self.read("plan.json")
        count = plan["num_micro_batches"]
        forward = self.rectangle(page, "0F1")
        corner = forward["left"] + 2, forward["top"] + 2
        color = page.pixel(*corner)
        page.press("/", text="/")
        self.assertEqual(page.evaluate("document.activeElement.id"), "search")
        for query, found in (("1F2", "1 action"), ("F1", "2 actions"), ("1B", f"{count} actions"),
                             ("nothing", "0 actions"), ("", "")):
            page.evaluate("document.getElementById('search').select()")
            page.press("Backspace")
            page.type(query)
            matches = page.evaluate("document.getElementById('matches').textContent")
            self.assertEqual(matches, found, query)
            is_faint = query in ("1F2", "1B")
            self.assertEqual(page.pixel(*corner) != color, is_faint, query)
        page.type("1F2")
        page.press("Enter")
        self.assertRegex(self.tooltip(page), "^1F2")

    def test_the_theme_follows_the_system_until_it_is_chosen(self):
        page = self.small_page(dark=True)
        ground = "document.documentElement.dataset.ground"
        self.assertEqual(page.evaluate(ground), "dark")
        dark = self.rectangle(page, "0F0")["color"]
        page.evaluate("document.querySelector('button[data-theme=light]').click()")
        page.wait_for_frame()
        self.assertEqual(page.evaluate(ground), "light")
        self.assertNotEqual(self.rectangle(page, "0F0")["color"], dark)
        self.check_bars(page, ["0F0", "1B0"])


def main():
    program = browser.find_chromium()
    if not program:
        print("skipped: chromium is not installed (tools/setup --tests)")
        sys.exit(NO_BROWSER)
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    print(version.stdout.strip(), pathlib.Path(program), file=sys.stderr)
    tool.main()


if __name__ == "__main__":
    main()
