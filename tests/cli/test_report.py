"""The report command: what it writes and where, and that names from files do no harm in it."""

import html.parser
import json
import os
import re
import xml.etree.ElementTree

import tool
from tool import DONE, ENVIRONMENT, USAGE, ToolTest

HOSTILE = ("</script><script>alert(1)</script>", "<!-- <script>",
           "a\"b'c&amp;<img src=x onerror=alert(1)>", "\u2028{{script}}]]>")


class Elements(html.parser.HTMLParser):
    """Elements of a page, and the text of its title and of its content."""

    def __init__(self, page):
        super().__init__()
        self.tags = []
        self.texts = {"title": "", "content": ""}
        self.inside = None
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        is_content = dict(attributes).get("id") == "content"
        self.inside = "content" if is_content else tag if tag == "title" else None

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside:
            self.texts[self.inside] += data


class Report(ToolTest):
    def page_of(self, plan):
        result = self.run_tool("report", plan, "-o", "page.html")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertEqual(result.stdout, "report written to page.html\n")
        return Elements((self.folder / "page.html").read_text(encoding="utf-8"))

    def content_of(self, plan):
        return json.loads(self.page_of(plan).texts["content"])

    def test_without_an_output_the_page_is_named_after_the_model(self):
        result = self.run_tool("report", self.make_plan())
        self.assertEqual(result.stdout, "report written to ./small.report.html\n")
        self.assertEqual(sorted(os.listdir(self.folder)),
                         ["2x2.json", "plan.json", "small.json", "small.report.html"])

    def test_a_figure_alone_writes_no_page(self):
        result = self.run_tool("report", self.make_plan(), "--svg", "figure.svg")
        self.assertEqual(result.stdout, "figure written to figure.svg\n")
        self.assertEqual(sorted(os.listdir(self.folder)),
                         ["2x2.json", "figure.svg", "plan.json", "small.json"])

    def test_stdout_gets_the_page_alone(self):
        plan = self.make_plan()
        result = self.run_tool("report", plan, "-o", "-")
        self.page_of(plan)
        self.assertEqual(result.stdout, (self.folder / "page.html").read_text(encoding="utf-8"))

    def test_wrong_use_is_refused(self):
        plan = self.make_plan()
        self.assert_error(self.run_tool("report"), USAGE, "expected one plan file, got 0")
        self.assert_error(self.run_tool("report", plan, "-o", plan), USAGE, "overwritten")
        self.assert_error(self.run_tool("report", plan, "-o", "x", "--svg", "x"), USAGE, "--svg")
        self.assert_error(self.run_tool("report", plan, "-o", "none/x"), ENVIRONMENT, "none")

    def test_the_page_has_every_action_of_the_timeline_at_its_time(self):
        plan = self.make_deep_plan()
        self.run_tool("simulate", plan, "--timeline", "timeline.json")
        content = self.content_of(plan)
        shown = set()
        for lane in content["lanes"]:
            stage, start, lengths = 0, 0, {}
            for i, number in enumerate(lane["kind"]):
                kind = content["kinds"][number]
                stage += lane["stage"][i]
                start += lane["start"][i]
                lengths[number] = lengths.get(number, 0) + lane["length"][i]
                index = lane["index"][i] if kind["numbered"] else ""
                shown.add((f"{stage}{kind['name']}{index}", start, start + lengths[number]))
        expected = {(action["action"], action["start_ns"], action["end_ns"])
                    for action in self.read("timeline.json")["actions"]}
        self.assertEqual(shown, expected)

    def test_the_page_has_the_memory_of_every_device_up_to_its_peak(self):
        plan = self.make_deep_plan()
        peaks = []
        for row in self.content_of(plan)["memory"]:
            held, most = 0, 0
            for change in row["held"]:
                held += change
                most = max(most, held)
            peaks.append(most)
        expected = {device["peak_memory_bytes"]
                    for device in self.read(plan)["predicted"]["devices"]}
        self.assertEqual(set(peaks), expected)

    def test_the_critical_path_and_the_idle_time_add_up_to_the_iteration(self):
        content = self.content_of(self.make_deep_plan())
        iteration = content["iteration"]
        self.assertEqual(sum(share["ns"] for share in content["path"]["shares"]), iteration)
        for lane in content["statistics"]["lanes"]:
            self.assertEqual(lane["busy"] + sum(lane["idle"]), iteration)

    def test_names_from_files_are_text_wherever_they_stand(self):
        for name in HOSTILE:
            profile = tool.small_profile(name=name)
            profile["layers"][0]["name"] = name
            topology = tool.small_topology(name=name)
            result = self.run_tool("--model", self.write("m.json", profile), "--topo",
                                   self.write("t.json", topology), "-o", "plan.json")
            self.assertEqual(result.returncode, DONE, result.stderr)
            page = self.page_of("plan.json")
            self.assertEqual(page.tags.count("script"), 2)
            self.assertNotIn("img", page.tags)
            shown = name.replace("\u2028", "?")  # a page shows nothing that is hidden
            self.assertEqual(page.texts["title"], f"{shown} on {shown}")
            content = json.loads(page.texts["content"])
            self.assertEqual(content["title"]["name"], shown)
            self.assertNotRegex(page.texts["content"], "[<>&]")
            self.run_tool("report", "plan.json", "--svg", "figure.svg")
            figure = xml.etree.ElementTree.parse(self.folder / "figure.svg").getroot()
            title = figure.find("{http://www.w3.org/2000/svg}title")
            self.assertTrue(title.text.startswith(f"{shown} on {shown}: "), title.text)

    def test_control_characters_reach_neither_page_nor_figure(self):
        profile = tool.small_profile(name="a\u0007b\u0085c")
        result = self.run_tool("--model", self.write("m.json", profile), "--topo",
                               self.write("t.json", tool.small_topology()), "-o", "plan.json")
        if result.returncode != DONE:  # refused already
            self.assertIn("name", result.stderr)
            return
        self.run_tool("report", "plan.json", "-o", "page.html", "--svg", "figure.svg")
        for name in ("page.html", "figure.svg"):
            text = (self.folder / name).read_text(encoding="utf-8")
            self.assertNotRegex(text, "[\\x00-\\x08\\x0b\\x0e-\\x1f\\x7f-\\x9f]")
            self.assertIn("a?b?c", text)


class Figure(ToolTest):
    SVG = "{http://www.w3.org/2000/svg}"

    def figure(self):
        """Of four micro-batches through two stages: boxes wide enough for their numbers."""
        plan = self.make_plan("plan.json", "--micro-batch", "4", "--pin", "stages=2")
        result = self.run_tool("report", plan, "--svg", "figure.svg")
        self.assertEqual(result.returncode, DONE, result.stderr)
        return self.read(plan), xml.etree.ElementTree.parse(self.folder / "figure.svg").getroot()

    def test_it_has_a_label_for_each_stage_an_axis_with_units_and_a_legend(self):
        plan, figure = self.figure()
        texts = [text.text for text in figure.iter(f"{self.SVG}text")]
        for stage in range(len(plan["stages"])):
            self.assertIn(f"stage {stage}", texts)
        for word in ("forward", "backward", "activations", "optimizer step", "time", "0 ms"):
            self.assertIn(word, texts)
        self.assertTrue(any(re.fullmatch(r"\d+ ms", text) for text in texts), texts)

    def test_boxes_lie_in_the_figure_and_a_computation_has_its_micro_batch(self):
        plan, figure = self.figure()
        width, height = (float(figure.get(side)) for side in ("width", "height"))
        boxes = list(figure.iter(f"{self.SVG}rect"))[1:]
        for box in boxes:
            self.assertGreater(float(box.get("width")), 0)
            self.assertLessEqual(float(box.get("x")) + float(box.get("width")), width)
            self.assertLessEqual(float(box.get("y")) + float(box.get("height")), height)
        numbers = [text.text for text in figure.iter(f"{self.SVG}text") if text.text.isdigit()]
        # A forward and a backward for each micro-batch on each stage.
        self.assertEqual(len(numbers), 2 * plan["num_micro_batches"] * len(plan["stages"]))

    def test_labels_of_lanes_with_several_stages_have_room_left_of_the_plot(self):
        profile = tool.small_profile()
        profile["layers"][0]["repeat"] = 24
        self.write("m.json", profile)
        self.write("t.json", tool.small_topology())
        result = self.run_tool("--model", "m.json", "--topo", "t.json", "--pin", "stages=4",
                               "--micro-batch", "4", "-o", "plan.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        result = self.run_tool("reschedule", "plan.json", "--schedule", "interleaved", "--chunks",
                               "6", "-o", "loop.json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.run_tool("report", "loop.json", "--svg", "loop.svg")
        figure = xml.etree.ElementTree.parse(self.folder / "loop.svg").getroot()
        labels = [text for text in figure.iter(f"{self.SVG}text")
                  if text.get("text-anchor") == "end" and text.text.startswith("stages ")]
        self.assertEqual([label.text for label in labels],
                         [f"stages {','.join(str(4 * c + d) for c in range(6))}"
                          for d in range(4)])
        boxes = [float(box.get("x")) for box in list(figure.iter(f"{self.SVG}rect"))[1:]]
        for label in labels:
            # Letters of 9 units are 4.9 wide on average, digits and commas for the most part less.
            self.assertGreaterEqual(float(label.get("x")) - 4.8 * len(label.text), 0)
            self.assertLess(float(label.get("x")), min(boxes))

    def test_the_same_plan_gives_the_same_bytes(self):
        plan = self.make_plan()
        first = self.run_tool("report", plan, "--svg", "-").stdout
        self.assertEqual(self.run_tool("report", plan, "--svg", "-").stdout, first)


if __name__ == "__main__":
    tool.main()
