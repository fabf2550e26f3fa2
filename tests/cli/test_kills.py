"""What is there after a signal has ended the program while it wrote: the old files or the new ones,
whole and together, and nothing beside them."""

import os
import random
import shutil
import signal
import subprocess
import time

import tool
from tool import ARGUMENTS, DONE, SCALE, ToolTest

# Each of these leaves nothing; SIGKILL cannot be heard, and what it leaves goes with the next run.
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
KILLS = 5 * SCALE  # of each kind of output


def content_of(path):
    """All of a file, or of the files of a folder; nothing where neither is there."""
    if path.is_dir():
        return {name.name: name.read_bytes() for name in path.iterdir()}
    return path.read_bytes() if path.exists() else None


class Kills(ToolTest):
    def inputs(self):
        """Two plans whose timelines are long enough to be caught while they are written."""
        for name, batch in (("old.json", 4096), ("new.json", 8192)):
            made = self.run_tool(*self.small_inputs(), "--micro-batch", "4", "--pin", "stages=2",
                                 "--pin", "replicas=2", "--global-batch", batch,
                                 "--no-baselines", "-o", name)
            self.assertEqual(made.returncode, DONE, made.stderr)

    def contents(self):
        return [content_of(path) for path in self.outputs]

    def made_by(self, plan):
        """What a run that nothing interrupts makes, and how long it takes."""
        before = time.monotonic()
        result = self.run_tool(*self.command(plan), cwd=self.folder / "out")
        self.assertEqual(result.returncode, DONE, result.stderr)
        return self.contents(), time.monotonic() - before

    def run_tool(self, *arguments, cwd=None, **options):
        if cwd is None:
            return super().run_tool(*arguments, **options)
        return subprocess.run([ARGUMENTS.binary, *map(str, arguments)], cwd=cwd, text=True,
                              capture_output=True, timeout=tool.SECONDS, check=False)

    def kill(self, plan, number, delay):
        """Whether the signal has ended it, which it may have been too late for."""
        process = subprocess.Popen([ARGUMENTS.binary, *map(str, self.command(plan))],
                                   cwd=self.folder / "out", stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        time.sleep(delay)
        process.send_signal(number)
        code = process.wait(tool.SECONDS)
        self.assertIn(code, (DONE, -number))
        return code != DONE

    def check_kills(self, command, names):
        self.inputs()
        folder = self.folder / "out"
        folder.mkdir()
        self.outputs = [folder / name for name in names]
        self.command = command
        new, duration = self.made_by("../new.json")
        old, _ = self.made_by("../old.json")
        self.assertNotEqual(old, new)
        dice = random.Random(1904)
        ended, states = 0, {"old": 0, "new": 0, "absent": 0}
        for number in range(KILLS):
            is_absent = number % 3 == 0
            if is_absent:
                shutil.rmtree(folder)
                folder.mkdir()
            else:
                self.assertEqual(self.made_by("../old.json")[0], old)
            before = [None] * len(names) if is_absent else old
            how = (*SIGNALS, signal.SIGKILL)[number % 4]
            ended += self.kill("../new.json", how, dice.uniform(0.3, 1.05) * duration)
            if how == signal.SIGKILL:
                # Of several files it may have come between two.
                for path, one, other in zip(self.outputs, before, new):
                    self.assertIn(content_of(path), (one, other))
                self.assertEqual(self.made_by("../new.json")[0], new)
            else:
                self.assertIn(self.contents(), (before, new))
                states["new" if self.contents() == new else "absent" if is_absent else "old"] += 1
                there = sorted(names) if self.contents() != [None] * len(names) else []
                self.assertEqual(sorted(os.listdir(folder)), there)
            self.assertLessEqual(set(os.listdir(folder)), set(names))
        print(f"{names[0]}: {ended} of {KILLS} runs were ended by the signal; then {states}")
        self.assertGreater(ended, 0)

    def test_of_a_folder_of_traces(self):
        self.check_kills(lambda plan: ("export", plan, "--to", "chakra", "-o", "traces"), ["traces"])

    def test_of_a_trace_and_a_timeline(self):
        self.check_kills(lambda plan: ("simulate", plan, "--trace", "trace.json", "--timeline",
                                       "timeline.json"), ["trace.json", "timeline.json"])

    def test_of_a_page_and_a_figure(self):
        self.check_kills(lambda plan: ("report", plan, "-o", "page.html", "--svg", "figure.svg"),
                         ["page.html", "figure.svg"])


if __name__ == "__main__":
    tool.main()
