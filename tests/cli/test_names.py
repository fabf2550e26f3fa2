"""Names in files are data: whatever a model, a layer, a cluster or a server is called, an export to a
program or a shell changes in comments and in strings, and nowhere else."""

import ast
import json
import random
import re
import subprocess
import sys

import tool
from tool import ARGUMENTS, BAD_INPUT, DONE, ROOT, ToolTest

FOUND = ROOT / "tests" / "found" / "names"
PYTHON = ("deepspeed", "torch-python", "colossalai")
SHELL = ("megatron", "torchtitan", "visible-devices")
OTHER = ("rankfile", "hostfile", "sailor", "pipedream", "torch-csv")
PLAIN = "plain"
# What ends strings, comments and lines, starts commands, escapes, declares encodings, is not shown,
# or is shown elsewhere.
TOKENS = ("$(touch ran)", "`touch ran`", "; touch ran;", "'; touch ran; '", "\"; touch ran; \"",
          "\\\"; touch ran; \\\"", "\\'", "\"\"\"", "'''", "\\nopen('ran', 'w').close() #",
          "\nopen('ran', 'w').close()\n", "\r", "\x0b", "\x0c", "\x1a", "\x7f", "\x85", "\u2028",
          "\u2029", "\u202e", "\u200b", "\ufeff", "coding: unicode_escape", "coding=utf-7",
          "+AAo-open('ran', 'w').close()", "-*- coding: raw_unicode_escape -*-",
          "\\u000aopen('ran', 'w').close()", "]]", ")", "}", "{0}", "%s", "$IFS", "!ran", "\\", "#",
          "a b", "=", ",", "\n)\ntouch ran\n(", "EOF", "<(touch ran)", "é", "模型", "😀")


def inputs_named(name):
    """The profile and the topology of small inputs; everything has the name in its own."""
    profile = tool.small_profile(name=name)
    figures = {key: value for key, value in profile["layers"][0].items() if key != "repeat"}
    layers = [f"{name} embedding", *(f"{name}.{i}" for i in range(4)), f"{name} head"]
    profile["layers"] = [{**figures, "name": layer} for layer in layers]
    topology = tool.small_topology(name=name)
    topology["servers"][0]["name"] = name
    return profile, topology


class Names(ToolTest):
    def exports_named(self, name):
        """What each target makes of a plan for inputs of that name; nothing if such names are refused
        where they are read."""
        profile, topology = inputs_named(name)
        made = self.run_tool("--model", self.write("model.json", profile), "--topo",
                             self.write("topo.json", topology), "--pin", "depths=least", "--pin",
                             "stages=2", "--pin", "replicas=2", "-o", "plan.json")
        if made.returncode == BAD_INPUT:
            return None
        self.assertEqual(made.returncode, DONE, made.stderr)
        texts = {}
        for target in (*PYTHON, *SHELL, *OTHER):
            result = subprocess.run(
                [ARGUMENTS.binary, "export", "plan.json", "--to", target, "-o", "-"],
                cwd=self.folder, capture_output=True, timeout=tool.SECONDS, check=False)
            self.assertIn(result.returncode, (DONE, BAD_INPUT), result.stderr)
            texts[target] = result.stdout if result.returncode == DONE else None
        return texts

    def shell_words(self, target, text):
        """The words that a shell makes of an export, as it is used; no command has run."""
        (self.folder / "export.sh").write_bytes(text)
        before = sorted(path.name for path in self.folder.iterdir())
        if target == "visible-devices":
            command = ["sh", "export.sh", "sh", "-c", "printf %s \"$CUDA_VISIBLE_DEVICES\""]
        else:
            command = ["bash", "-c", ". ./export.sh; printf '%s\\0' \"${PIPELINE_ARGS[@]}\""]
        result = subprocess.run(command, cwd=self.folder, capture_output=True, timeout=60, check=False,
                                env={"PATH": "/usr/bin:/bin", "RANK": "1", "LC_ALL": "C.UTF-8"})
        self.assertEqual(result.returncode, 0, (target, text, result.stderr))
        self.assertEqual(result.stderr, b"", (target, text))
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), before, (target, text))
        return result.stdout.split(b"\0")

    def check(self, name, texts, plain):
        for target in PYTHON:
            with self.subTest(target=target, name=name):
                self.assertEqual(ast.dump(ast.parse(texts[target])), ast.dump(ast.parse(plain[target])))
        for target in SHELL:
            if texts[target] is None:
                continue  # blocks that it does not know by their names
            with self.subTest(target=target, name=name):
                words = self.shell_words(target, texts[target])
                if target == "torchtitan":
                    place = words.index(b"--parallelism.module_fqns_per_model_part") + 1
                    names = [layer for part in json.loads(words[place]) for layer in part]
                    self.assertEqual(names, [layer["name"] for layer in inputs_named(name)[0]["layers"]])
                    words[place] = b""
                    expected = self.shell_words(target, plain[target])
                    expected[place] = b""
                else:
                    expected = self.shell_words(target, plain[target])
                self.assertEqual(words, expected)
        for target in OTHER:
            if texts[target] is None:
                continue
            with self.subTest(target=target, name=name):
                self.assertEqual(texts[target].count(b"\n"), plain[target].count(b"\n"))
                if target == "sailor":
                    json.loads(texts[target])

    def test_only_data_changes_with_names(self):
        plain = self.exports_named(PLAIN)
        self.assertTrue(all(plain[target] for target in PYTHON))
        dice = random.Random(1701)
        names = list(TOKENS)
        names += ["".join(dice.choice((*TOKENS, " ", "x")) for _ in range(dice.randint(2, 5)))
                  for _ in range(8 if ARGUMENTS.sanitized else 40)]
        if ARGUMENTS.sanitized:
            names = dice.sample(names, 12)
        tried = 0
        for name in names:
            texts = self.exports_named(name)
            if texts is not None:
                tried += 1
                self.check(name, texts, plain)
        self.assertGreater(tried, len(names) / 4)

    def test_no_hidden_character_of_a_name_is_in_what_is_made_to_be_read(self):
        name = "x\u202e\u200by\ufeff\U000e0041\u2066"
        texts = self.exports_named(name)
        made = {target: text.decode() for target, text in texts.items() if text is not None}
        for words in (("simulate", "plan.json", "--trace", "-"),
                      ("simulate", "plan.json", "--timeline", "-"),
                      ("schedule", "plan.json", "--format", "json"),
                      ("diff", "plan.json", "plan.json", "--json"), ("diff", "plan.json", "plan.json"),
                      ("report", "plan.json", "-o", "-"), ("report", "plan.json", "--svg", "-")):
            result = self.run_tool(*words)
            self.assertEqual(result.returncode, DONE, result.stderr)
            made[" ".join(words)] = result.stdout
            if "json" in words[-1] or words[-2] in ("--trace", "--timeline"):
                text = result.stdout
                if words[0] != "diff":  # the same values all the same
                    self.assertIn(json.dumps(name)[1:-1], text)
                    self.assertIn(name, json.dumps(json.loads(text), ensure_ascii=False))
        for target in ("torchtitan", "sailor", "pipedream"):
            self.assertIn(json.dumps(name)[1:-1], made[target])
        for what, text in made.items():
            with self.subTest(what):
                self.assertEqual([hex(ord(c)) for c in name[1:] if c != "y" and c in text], [])

    def test_names_that_ran_are_text(self):
        made = self.run_tool("--model", FOUND / "pep263.profile.json", "--topo",
                             FOUND / "pep263.topo.json", "--pin", "depths=least", "--pin",
                             "recompute=off", "--micro-batch", "8", "-o", "plan.json")
        self.assertEqual(made.returncode, DONE, made.stderr)
        for target in PYTHON:
            with self.subTest(target=target):
                result = self.run_tool("export", "plan.json", "--to", target, "-o", "exported.py")
                self.assertEqual(result.returncode, DONE, result.stderr)
                subprocess.run([sys.executable, "-c", "import exported"], cwd=self.folder,
                               capture_output=True, timeout=60, check=False)
                self.assertFalse((self.folder / "names_ran_code").exists())
                first = (self.folder / "exported.py").read_text().splitlines()[0]
                self.assertTrue(re.fullmatch(r"# -\*- coding: utf-8 -\*-", first), first)

    def test_a_server_s_name_may_be_as_long_as_names_may_be(self):
        topology = tool.small_topology()
        topology["servers"][0]["name"] = "n" * 200
        inputs = ("--model", self.write("small.json", tool.small_profile()),
                  "--topo", self.write("long.json", topology))
        run = self.run_tool(*inputs, "-o", "plan.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        for command in ("validate", "verify", "simulate"):
            run = self.run_tool(command, "plan.json")
            self.assertEqual(run.returncode, DONE, run.stderr)


if __name__ == "__main__":
    tool.main()
