"""What the stages of pipelines keep for their backwards, by the general form of that memory.

The general form is written out here from what a transformer block computes, in exact numbers, and
shares no code with the program. The figures of every stage that simulate gives for layouts of models
from 22 billion to a trillion parameters are compared with it, to the byte; what Korthikanti et al.
(2022) state in table 2 for these models follows from it.
"""

import itertools
import unittest
from fractions import Fraction

import tool
from tool import DONE, ToolTest

BYTES = 2  # of an activation in fp16
SCORE_BYTES = 4  # of a logit, which the loss takes in single precision
RECOMPUTED = {"none": (), "selective": ("core_attn",), "full": ("full",)}


def divide_up(a, b):
    return -(-a // b)


class Model:
    """A transformer: its sizes, and which tensors its blocks make."""

    def __init__(self, name, hidden, heads, blocks, vocabulary, groups=None, feed=None,
                 gated=False, dropout=True):
        self.name, self.hidden, self.heads, self.blocks = name, hidden, heads, blocks
        self.vocabulary, self.gated, self.dropout = vocabulary, gated, dropout
        self.groups = groups or heads  # of keys and values
        self.width = hidden // heads  # of a head
        self.feed = feed or 4 * hidden

    def configuration(self, sequence):
        if not self.gated:
            rates = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"),
                                  0.1 if self.dropout else 0)
            return {"model_type": "gpt2", "n_embd": self.hidden, "n_head": self.heads,
                    "n_layer": self.blocks, "n_positions": sequence,
                    "vocab_size": self.vocabulary, **rates}
        return {"model_type": "llama", "hidden_size": self.hidden,
                "num_attention_heads": self.heads, "num_key_value_heads": self.groups,
                "num_hidden_layers": self.blocks, "intermediate_size": self.feed,
                "vocab_size": self.vocabulary, "max_position_embeddings": sequence}


class Way:
    """How a model is trained."""

    def __init__(self, sequence, tensor=1, divides_sequence=False, context=1, fused=False,
                 recomputed="none"):
        self.sequence, self.tensor, self.context = sequence, tensor, context
        self.divides_sequence, self.fused = divides_sequence, fused
        self.recomputed = recomputed

    @property
    def divided(self):
        """Among so many ranks what tensor parallelism leaves whole."""
        return self.tensor if self.divides_sequence else 1

    def keeping(self):
        """The same with nothing recomputed."""
        return Way(self.sequence, self.tensor, self.divides_sequence, self.context, self.fused)


def core_of_block(model, way):
    """Bytes for a token of a context rank that the core of attention keeps: scores, what the softmax
    makes of them and the mask of its dropout, or a number for each head."""
    if way.fused:
        return Fraction(4 * model.heads, way.tensor)
    of_score = 2 * BYTES + 1 if model.dropout else BYTES
    return Fraction(of_score * model.heads * way.sequence, way.tensor)


def of_block(model, way):
    """Bytes for a token of a context rank that a block keeps."""
    h, t = model.hidden, way.tensor
    if way.recomputed == "full":
        return Fraction(BYTES * h, way.divided)  # its input
    # Inputs of two norms and of what is behind them, and masks of two dropouts.
    whole = Fraction(4 * BYTES * h + (2 * h if model.dropout else 0), way.divided)
    # Queries, keys and values, what the heads make of them, and the tensors of the feed-forward.
    heads = model.heads + 2 * divide_up(model.groups, t) * t
    tensors = 3 if model.gated else 2
    shared = Fraction(BYTES * (heads * model.width + model.heads * model.width
                               + tensors * model.feed), t)
    core = 0 if way.recomputed == "selective" else core_of_block(model, way)
    return whole + shared + core


def of_stage(model, way, samples, begin, end):
    """Bytes that a stage keeps of a micro-batch; layers 0 and blocks + 1 are embedding and head."""
    tokens = samples * way.sequence // way.context
    last = model.blocks + 1
    total = (min(end, last) - max(begin, 1)) * of_block(model, way)
    if begin == 0 and model.dropout:
        total += Fraction(model.hidden, way.divided)  # a mask
    if end > last:  # the last norm's input and output, and the logits
        total += Fraction(2 * BYTES * model.hidden, way.divided)
        total += SCORE_BYTES * divide_up(model.vocabulary, way.tensor)
    total *= tokens
    assert total.denominator == 1
    return int(total)


# Table 3 of the paper, with its pipelines: ranks, stages of a rank, samples of a micro-batch.
PUBLISHED = (
    (Model("22B", 6144, 64, 48, 51200), (1, 1, 4)),
    (Model("175B", 12288, 96, 96, 51200), (8, 3, 1)),
    (Model("530B", 20480, 128, 105, 51200), (35, 3, 1)),
    (Model("1T", 25600, 160, 128, 51200), (64, 1, 1)),
)


class ActivationMemory(ToolTest):
    def make_profile(self, model, sequence, divides_sequence, fused=False, context=1):
        more = [] if divides_sequence else ["--no-sequence-parallel"]
        run = self.run_tool("estimate", self.write("c.json", model.configuration(sequence)),
                            "--gpu", "A100-80GB", "--sequence", sequence, "--precision", "fp16",
                            "--attention", "fused" if fused else "unfused", "--max-context",
                            context, "--recompute", "full,core_attn", "-o", "m.json", *more)
        self.assertEqual(run.returncode, DONE, run.stderr)

    def stages(self, way, ranks, chunks, samples, *words):
        """The layers of every stage, the bytes that it keeps of a micro-batch, and those that the
        first device of the stage holds all the time."""
        servers = divide_up(ranks * way.tensor * way.context, 8)
        topology = tool.small_topology(memory="80 GiB")
        topology["devices"] = {"A100-80GB": topology["devices"]["card"]}
        link = {"bandwidth": "100 GB/s", "latency": "1 us", "source": "made up"}
        topology["servers"][0] |= {"count": servers, "devices": 8, "device": "A100-80GB",
                                   "nics": [link], "links": {"kind": "switch", **link}}
        topology["network"] = {"kind": "switch", **link}
        # Ranks with several stages take as many micro-batches at a time as there are ranks.
        batch = samples * (ranks if chunks > 1 else 2)
        layout = ",".join([
            f"tp={way.tensor}", f"cp={way.context}", f"pp={ranks}", f"vpp={chunks}", "dp=1",
            f"mbs={samples}", f"gbs={batch}",
            f"sp={'on' if way.divides_sequence else 'off'}",
            f"recompute={'+'.join(RECOMPUTED[way.recomputed]) or 'none'}", *words])
        run = self.run_tool("import", "plan", "--layout", layout, "--model", "m.json", "--topo",
                            self.write("t.json", topology), "--unlimited-memory", "-o",
                            "plan.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        run = self.run_tool("simulate", "plan.json", "--timeline", "timeline.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        of_device = {held["device"]: held for held in self.read("timeline.json")["memory"]}
        for number, stage in enumerate(self.read("plan.json")["stages"]):
            held = of_device[stage["devices"][0]]
            kept = next((part["bytes_per_micro_batch"] for part in held.get("stages", [])
                         if part["stage"] == number), held["bytes_per_micro_batch"])
            yield stage["layers"], kept, held["fixed_bytes"]

    def check_stages(self, model, way, ranks, chunks, samples, *words):
        """Compares every stage, and returns what devices with blocks alone hold all the time."""
        stages = list(self.stages(way, ranks, chunks, samples, *words))
        self.assertEqual(len(stages), ranks * chunks)
        self.assertEqual([begin for (begin, _), _, _ in stages],
                         [0, *(end for (_, end), _, _ in stages[:-1])])
        self.assertEqual(stages[-1][0][1], model.blocks + 2)
        for number, ((begin, end), kept, _) in enumerate(stages):
            self.assertEqual(kept, of_stage(model, way, samples, begin, end), f"stage {number}")
        return [fixed for _, _, fixed in stages[1:-1]]

    def test_stages_keep_what_the_general_form_says(self):
        cases = 0
        for model, (ranks, chunks, samples) in PUBLISHED:
            for divides_sequence in (False, True):
                self.make_profile(model, 2048, divides_sequence)
                of_kept = None  # the same where nothing is recomputed
                for recomputed in RECOMPUTED:
                    way = Way(2048, 8, divides_sequence, recomputed=recomputed)
                    with self.subTest(model=model.name, sequence=divides_sequence,
                                      recomputed=recomputed):
                        self.check_stages(model, way, ranks, chunks, samples)
                        counts = [3, 5, model.blocks - 16, 6, 2]
                        fixed = self.check_stages(model, way, 5, 1, samples,
                                                  f"layers={':'.join(map(str, counts))}")
                        of_kept = of_kept or fixed
                        tokens = samples * way.sequence
                        for held, kept in zip(fixed, of_kept, strict=True):
                            # While a block is computed again, what is not kept of it is whole.
                            self.assertEqual(held - kept, tokens * (
                                of_block(model, way.keeping()) - of_block(model, way)))
                        cases += 1
        self.assertEqual(cases, 24)

    def test_stages_of_other_models_do_so_too(self):
        """Gated blocks without dropout, fewer heads of keys and values than ranks, fused attention
        and parts of sequences."""
        model = Model("70B", 8192, 64, 80, 128256, groups=4, feed=28672, gated=True, dropout=False)
        for fused, divides_sequence in itertools.product((False, True), repeat=2):
            self.make_profile(model, 8192, divides_sequence, fused, context=2)
            for context, tensor in ((1, 8), (2, 4), (2, 8)):
                for recomputed in RECOMPUTED:
                    way = Way(8192, tensor, divides_sequence, context, fused, recomputed)
                    with self.subTest(**vars(way)):
                        self.check_stages(model, way, 4, 1, 2)


class GeneralForm(unittest.TestCase):
    def test_of_published_models_it_is_what_is_published(self):
        s = 2048
        for (model, _), t in itertools.product(PUBLISHED, (1, 2, 8)):
            h, a = model.hidden, model.heads
            scores = Fraction(5 * a * s, h)
            for way, published in (
                    (Way(s, t), 10 + Fraction(24, t) + scores / t),
                    (Way(s, t, True), Fraction(34, t) + scores / t),
                    (Way(s, t, recomputed="selective"), 10 + Fraction(24, t)),
                    (Way(s, t, True, recomputed="selective"), Fraction(34, t)),
                    (Way(s, t, recomputed="full"), 2),
                    (Way(s, t, True, recomputed="full"), Fraction(2, t))):
                with self.subTest(model=model.name, **vars(way)):
                    self.assertEqual(of_block(model, way), published * h)

    def test_a_gated_block_without_dropout_keeps_37_times_its_input_in_bytes(self):
        h = 4096
        model = Model("gated", h, 32, 1, 1, feed=7 * h // 2, gated=True, dropout=False)
        self.assertEqual(of_block(model, Way(2048, recomputed="selective")), 37 * h)


if __name__ == "__main__":
    tool.main()
