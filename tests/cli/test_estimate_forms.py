"""Profiles estimated from models' configurations, made a second time.

The layers, the variants and the optimizer of the profile that estimate writes are compared, to the
nanosecond and to the byte, with an implementation of docs/estimate.md in exact numbers that shares
no code with the program. The cases are drawn by seeds; DAPPLE_TEST_SCALE=N tries N times as many. A
case that differs is repeated by its seed alone with DAPPLE_TEST_CASE=SEED.
"""

import collections
import copy
import json
import math
import random
import re
from fractions import Fraction

import tool
from tool import DONE, USAGE, ToolTest

CASES = 360  # enough that every subject of SUBJECTS is met
MOST_BATCH = 1 << 20  # that a measurement above the launch floor is looked for
MOST_VARIANTS = 128  # of a layer
SECOND = 10**9  # nanoseconds
GPUS = tool.ROOT / "topologies" / "gpus.json"
CONFIGURATIONS = tool.ROOT / "profiles" / "configurations"

FAMILIES = ("bert", "gpt2", "gpt_neox", "llama", "mistral", "mixtral", "qwen2", "qwen2_moe",
            "qwen3", "qwen3_moe", "gemma", "gemma2", "gemma3_text", "llama4_text", "deepseek_v3",
            "t5", "vit")
OFTEN = ("qwen2_moe", "llama4_text", "deepseek_v3", "t5", "t5", "vit")  # have more to be about

# What a case can be about; a run has to meet each.
SUBJECTS = (
    *FAMILIES, "bf16", "fp16", "tf32", "fp32", "gradients of 2 bytes", "gradients of 4 bytes",
    "a framework", "gathered inputs that are kept", "activated gates that are kept",
    "an output of attention that is kept twice",
    "a GPU of the file", "a GPU with a calibration of its own", "a GPU with that of others",
    "fused attention", "unfused attention", "scores with dropout", "scores without dropout",
    "all layers with dropout", "a window within the sequence", "a window beyond the sequence",
    "layers with and without a window", "chunks within the sequence", "chunks beyond the sequence",
    "grouped queries", "one head of keys", "norms of queries and keys",
    "norms without parameters", "norms behind products", "compressed queries",
    "queries that are not compressed", "biases of projections", "a gated feed-forward layer",
    "a feed-forward layer that is not gated", "shared experts", "a gate of shared experts",
    "experts in some blocks", "experts in all blocks", "dense blocks before experts",
    "blocks without experts in between", "an imbalance", "a tied head", "a head of its own",
    "an encoder as deep as its decoder", "an encoder deeper than its decoder",
    "a decoder deeper than its encoder", "an encoder longer than its decoder",
    "a decoder longer than its encoder", "one block", "equal blocks", "equal blocks before others",
    "blocks of which the second is another", "no other forms", "tensor parallelism of 2",
    "tensor parallelism of 4", "tensor parallelism of 8", "sequence parallelism",
    "tensor parallelism without sequence parallelism", "a part of a vocabulary that is not even",
    "a padded vocabulary", "a padded vocabulary of tensor ranks",
    "copied heads of keys", "context parallelism", "context parallelism of a causal model",
    "context parallelism beside tensor parallelism", "tensor parallelism of images",
    "context parallelism of images", "tensor parallelism of a decoder",
    "context parallelism of a decoder", "context parallelism of latent attention",
    "context parallelism by all-gather", "context parallelism by ring",
    "context parallelism by all-to-all", "a ring of two", "a ring of more", "a ring of a decoder",
    "a ring once more for the core alone", "a ring once more for all", "all-to-alls of one size",
    "all-to-alls of several sizes", "experts with a dispatcher that merges",
    "experts recomputed with a dispatcher that merges",
    "an odd sequence", "expert parallelism", "expert parallelism beside tensor parallelism",
    "expert parallelism beside context parallelism",
    "shared experts under expert and tensor parallelism", "experts that tensors do not divide",
    "expert and tensor parallelism without sequence parallelism left out",
    "devices that share an expert", "tensor ranks that share an expert",
    "fewer devices than tensor ranks that share an expert",
    "more devices than tensor ranks that share an expert", "an imbalance of shared experts",
    "moe recomputed by devices that share an expert", "experts too narrow to be shared",
    "recomputed core_attn", "recomputed norm", "recomputed mlp", "recomputed moe",
    "recomputed moe_act", "recomputed full", "several recomputed parts", "nothing recomputed",
    "a recomputed part that a block lacks", "recomputed scores", "recomputed sums of attention",
    "a recomputed attention to an encoder", "recomputed norms behind products",
    "mlp recomputed with a collective", "moe recomputed with a collective",
    "moe recomputed without one beside sequence parallelism",
    "moe recomputed with expert parallelism", "full recomputed with collectives",
    "no floors", "a launch floor", "a collective floor", "a floor that hides no batch",
    "a floor that hides a forward alone", "a floor that hides a backward alone",
    "a backward hidden for more samples", "a forward hidden for more samples",
    "a batch as large as any that is looked for", "two measurements", "six measurements",
    "more variants than a layer may have")


def divide_up(a, b):
    return -(-a // b)


def exact(number):
    """A decimal number of a file or of an option, exactly."""
    return Fraction(number if isinstance(number, str) else repr(number))


UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "B/s": 1, "MB/s": 10**6, "GB/s": 10**9,
         "TB/s": 10**12, "MFLOP/s": 10**6, "GFLOP/s": 10**9, "TFLOP/s": 10**12, "ns": 1,
         "us": 10**3, "ms": 10**6}


def amount(quantity):
    """A quantity of a file in its base unit."""
    number, unit = quantity.split()
    return exact(number) * UNITS[unit]


# Work and its time.


class Work:
    """Operations and bytes for a sample, and bytes of weights whatever the batch."""

    def __init__(self, ops=0, moved=0, weights=0, core=0):
        self.ops, self.moved, self.weights, self.core = ops, moved, weights, core

    def __add__(self, other):
        return Work(self.ops + other.ops, self.moved + other.moved, self.weights + other.weights,
                    self.core + other.core)

    def __mul__(self, times):
        return Work(times * self.ops, times * self.moved, times * self.weights, times * self.core)


class Part:
    """What a part of a layer does in the forward and in the backward."""

    def __init__(self, forward=None, backward=None, products=None):
        self.forward = forward or Work()
        self.backward = backward or self.forward * 2
        self.products = products or Work()  # those of the forward

    def __add__(self, other):
        return Part(self.forward + other.forward, self.backward + other.backward,
                    self.products + other.products)


class Machine:
    """What a GPU reaches in one precision, and what a framework keeps in its memory."""

    def __init__(self, document, name, precision, framework=None):
        kept = next((one for one in document.get("frameworks", []) if one["name"] == framework), {})
        self.keeps_gathered = kept.get("keeps_gathered_inputs", False)
        self.keeps_gates = kept.get("keeps_activated_gates", False)
        self.keeps_output_twice = kept.get("keeps_core_output_twice", False)
        self.bytes_per_parameter = kept.get("bytes_per_parameter", 0)
        gpu = next(gpu for gpu in document["gpus"] if name in (gpu["name"], *gpu.get("also", [])))
        wanted = gpu.get("calibration", document["calibrations"][0]["name"])
        reached = next(one for one in document["calibrations"] if one["name"] == wanted)
        self.name = gpu["name"]
        self.rate, self.core_rate = (max(1, math.floor(
            amount(gpu["peak"][precision]) * exact(reached[key]) / SECOND))
            for key in ("matrix", "attention"))
        self.bandwidth = max(1, math.floor(
            amount(gpu["memory_bandwidth"]) * exact(reached["memory"])))
        self.launch_floor = int(amount(reached["launch_floor"]))
        self.collective_floor = int(amount(reached["collective_floor"]))

    def floor(self, launches, collectives):
        """The least time of a direction of a layer."""
        return launches * self.launch_floor + collectives * self.collective_floor

    def unfloored(self, work, samples):
        return (divide_up(samples * work.ops, self.rate)
                + divide_up(samples * work.core, self.core_rate)
                + divide_up((samples * work.moved + work.weights) * SECOND, self.bandwidth))

    def largest_batch(self, work, floor):
        """The largest batch that a floor hides."""
        if self.unfloored(work, 1) > floor:
            return 0
        low, high = 1, MOST_BATCH + 1
        while high - low > 1:
            middle = (low + high) // 2
            if self.unfloored(work, middle) <= floor:
                low = middle
            else:
                high = middle
        return low

    def batches(self, *directions):
        """The batches that have measurements, for works and their floors, and the largest ones
        that the floors hide."""
        hidden = [self.largest_batch(*direction) for direction in directions]
        beside = {batch + more for batch in hidden if batch > 0 for more in (0, 1)}
        return sorted({1, 2 * (max(hidden) + 1)} | beside), hidden


# Models.


class Attention:
    """An attention of a block: its heads, what of each other its tokens see, its parameters."""

    def __init__(self, heads, groups, width, value_width=None, causal=True, window=None,
                 chunk=None, bias_in=False, bias_out=False, norms=None, latent=None,
                 of_encoder=False, positions=0):
        self.heads, self.groups, self.width = heads, groups, width
        self.value_width = width if value_width is None else value_width
        self.causal, self.window, self.chunk = causal, window, chunk
        self.bias_in, self.bias_out = bias_in, bias_out
        self.norms = norms  # of queries and keys: none, "plain" without parameters or "learned"
        self.latent = latent  # ranks of queries and of keys and values, the width with a rotation
        self.of_encoder = of_encoder
        self.positions = positions  # relative ones with parameters


class Dense:
    """A feed-forward layer."""

    def __init__(self, width, matrices, biases=False):
        self.width, self.matrices, self.biases = width, matrices, biases


class Experts:
    """Experts in the place of a feed-forward layer."""

    def __init__(self, count, used, width, shared=0, gate=False):
        self.count, self.used, self.width = count, used, width
        self.shared, self.gate = shared, gate
        self.matrices = 2


class Block:
    """A block; its norms stand before products or behind them."""

    def __init__(self, attentions, feed, before=2, behind=0, shift=False, decodes=False):
        self.attentions, self.feed = attentions, feed
        self.before, self.behind, self.shift = before, behind, shift
        self.additions = len(attentions) + 1
        self.decodes = decodes  # for which the sequence is that of a decoder

    @property
    def has_experts(self):
        return isinstance(self.feed, Experts)


class Model:
    """What a configuration says of a model."""

    def __init__(self, family, hidden, vocabulary, blocks, decoder=(), shift=False, dropout=False,
                 tied=False, positions=0, embedding_norm=False, transformation=False,
                 head_bias=False, patches=None, classes=0):
        self.family, self.hidden, self.vocabulary = family, hidden, vocabulary
        self.blocks, self.decoder = list(blocks), list(decoder)
        self.shift = shift  # of the last norm
        self.dropout, self.tied = dropout, tied
        self.positions = positions  # with learned vectors, and kinds of tokens
        self.embedding_norm, self.transformation = embedding_norm, transformation
        self.head_bias = head_bias
        self.patches, self.classes = patches, classes  # of images: how many, numbers of each


def dropout_of(config, *keys, otherwise=False):
    """Whether there is dropout; `otherwise` says of a configuration that does not."""
    stated = [config[key] for key in keys if config.get(key) is not None]
    return any(rate > 0 for rate in stated) if stated else otherwise


def read_bert(config):
    h, a = config["hidden_size"], config["num_attention_heads"]
    block = Block([Attention(a, a, h // a, causal=False, bias_in=True, bias_out=True)],
                  Dense(config["intermediate_size"], 1, True), shift=True)
    return Model("bert", h, config["vocab_size"], [block] * config["num_hidden_layers"],
                 positions=config["max_position_embeddings"] + config["type_vocab_size"],
                 shift=True, embedding_norm=True, transformation=True, head_bias=True, tied=True,
                 dropout=dropout_of(config, "hidden_dropout_prob", "attention_probs_dropout_prob",
                                    otherwise=True))


def read_gpt2(config):
    h, a = config["n_embd"], config["n_head"]
    block = Block([Attention(a, a, h // a, bias_in=True, bias_out=True)],
                  Dense(config.get("n_inner") or 4 * h, 1, True), shift=True)
    return Model("gpt2", h, config["vocab_size"], [block] * config["n_layer"], shift=True,
                 positions=config["n_positions"], tied=config.get("tie_word_embeddings", True),
                 dropout=dropout_of(config, "resid_pdrop", "embd_pdrop", "attn_pdrop",
                                    otherwise=True))


def read_gpt_neox(config):
    h, a = config["hidden_size"], config["num_attention_heads"]
    biases = config.get("attention_bias", True)
    block = Block([Attention(a, a, h // a, bias_in=biases, bias_out=biases)],
                  Dense(config["intermediate_size"], 1, True), shift=True)
    return Model("gpt_neox", h, config["vocab_size"], [block] * config["num_hidden_layers"],
                 shift=True, tied=config.get("tie_word_embeddings", False),
                 dropout=dropout_of(config, "hidden_dropout", "attention_dropout"))


def read_vit(config):
    h, a = config["hidden_size"], config["num_attention_heads"]
    side = config["image_size"] // config["patch_size"]
    block = Block([Attention(a, a, h // a, causal=False, bias_in=config.get("qkv_bias", True),
                             bias_out=True)],
                  Dense(config["intermediate_size"], 1, True), shift=True)
    return Model("vit", h, 0, [block] * config["num_hidden_layers"], shift=True,
                 patches=(side * side, config["num_channels"] * config["patch_size"]**2),
                 classes=len(config["id2label"]) if "id2label" in config else config["num_labels"],
                 dropout=dropout_of(config, "hidden_dropout_prob", "attention_probs_dropout_prob"))


def read_t5(config):
    h, a = config["d_model"], config["num_heads"]
    matrices = 2 if config.get("feed_forward_proj", "relu").startswith("gated-") else 1
    buckets = config["relative_attention_num_buckets"]

    def block(number, decodes):
        own = Attention(a, a, config["d_kv"], causal=decodes, positions=0 if number else buckets)
        other = Attention(a, a, config["d_kv"], causal=False, of_encoder=True)
        return Block([own, other] if decodes else [own], Dense(config["d_ff"], matrices),
                     before=3 if decodes else 2, decodes=decodes)

    return Model("t5", h, config["vocab_size"],
                 [block(number, False) for number in range(config["num_layers"])],
                 [block(number, True) for number in range(
                     config.get("num_decoder_layers") or config["num_layers"])],
                 tied=config.get("tie_word_embeddings", True),
                 dropout=dropout_of(config, "dropout_rate", otherwise=True))


class Rotary:
    """Models whose blocks are like Llama's."""

    def __init__(self, config):
        self.config = config
        self.family = config["model_type"]
        self.hidden, self.heads = config["hidden_size"], config["num_attention_heads"]
        self.groups = config.get("num_key_value_heads", self.heads)
        usual = {"qwen3": 128, "gemma": 256}.get(self.family[:5], self.hidden // self.heads)
        self.width = config.get("head_dim") or usual

    def window(self, layer):
        """How many tokens a layer sees, if not all."""
        window = self.config.get("sliding_window", 4096 if self.family == "mistral" else None)
        if self.family in ("mistral", "mixtral"):
            return window
        if "layer_types" in self.config:
            sees_all = self.config["layer_types"][layer] == "full_attention"
            return window if not sees_all and self.config.get("use_sliding_window", True) else None
        if self.family in ("qwen2", "qwen2_moe", "qwen3", "qwen3_moe"):
            slides = self.config.get("use_sliding_window", False)
            return window if slides and layer >= self.config["max_window_layers"] else None
        if self.family == "gemma2":
            return window if layer % 2 == 0 else None
        if self.family == "gemma3_text":
            period = self.config.get("sliding_window_pattern",
                                     self.config.get("_sliding_window_pattern", 6))
            return window if (layer + 1) % period else None
        return None

    def attention(self, layer):
        config = self.config
        if self.family == "deepseek_v3":
            plain, rotated = config["qk_nope_head_dim"], config["qk_rope_head_dim"]
            biases = config.get("attention_bias", False)
            return Attention(self.heads, self.heads, plain + rotated, config["v_head_dim"],
                             bias_in=biases, bias_out=biases,
                             latent=(config["q_lora_rank"] or 0, config["kv_lora_rank"], rotated))
        biases = config.get("attention_bias", False)
        bias_in, bias_out, norms, chunk = biases, biases, None, None
        if self.family in ("qwen2", "qwen2_moe"):
            bias_in, bias_out = True, False
        if self.family in ("qwen3", "qwen3_moe", "gemma3_text"):
            norms = "learned"
        turns = (layer + 1) % 4
        if config.get("no_rope_layers"):
            turns = config["no_rope_layers"][layer]
        if self.family == "llama4_text" and turns:
            chunk = config["attention_chunk_size"]
            norms = "plain" if config["use_qk_norm"] else None
        return Attention(self.heads, self.groups, self.width, window=self.window(layer),
                         chunk=chunk, bias_in=bias_in, bias_out=bias_out, norms=norms)

    def feed(self, layer):
        config, family = self.config, self.family
        if family == "mixtral":
            return Experts(config["num_local_experts"], config["num_experts_per_tok"],
                           config["intermediate_size"])
        if family in ("qwen2_moe", "qwen3_moe"):
            if (layer in config.get("mlp_only_layers", [])
                    or (layer + 1) % config.get("decoder_sparse_step", 1)):
                return Dense(config["intermediate_size"], 2)
            shared = config["shared_expert_intermediate_size"] if family == "qwen2_moe" else 0
            return Experts(config["num_experts"], config["num_experts_per_tok"],
                           config["moe_intermediate_size"], shared, shared > 0)
        if family == "llama4_text":
            if (layer + 1) % config["interleave_moe_layer_step"]:
                return Dense(config["intermediate_size_mlp"], 2)
            return Experts(config["num_local_experts"], config["num_experts_per_tok"],
                           config["intermediate_size"], config["intermediate_size"])
        if family == "deepseek_v3":
            if layer < config["first_k_dense_replace"]:
                return Dense(config["intermediate_size"], 2)
            return Experts(config["n_routed_experts"], config["num_experts_per_tok"],
                           config["moe_intermediate_size"],
                           config["n_shared_experts"] * config["moe_intermediate_size"])
        return Dense(config["intermediate_size"], 2, config.get("mlp_bias", False))

    def model(self):
        behind = 2 if self.family in ("gemma2", "gemma3_text") else 0
        blocks = [Block([self.attention(layer)], self.feed(layer), behind=behind)
                  for layer in range(self.config["num_hidden_layers"])]
        ties = self.family.startswith("gemma")
        return Model(self.family, self.hidden, self.config["vocab_size"], blocks,
                     tied=self.config.get("tie_word_embeddings", ties),
                     dropout=dropout_of(self.config, "attention_dropout"))


def read_model(config):
    """The model of a configuration, or of the text model in it."""
    config = config.get("text_config", config)
    readers = {"bert": read_bert, "gpt2": read_gpt2, "gpt_neox": read_gpt_neox, "t5": read_t5,
               "vit": read_vit}
    family = config["model_type"]
    return readers[family](config) if family in readers else Rotary(config).model()


# Forms.


class Form:
    """Degrees of parallelism, and the parts that are recomputed."""

    def __init__(self, tensor=1, context=1, experts=1, sequence=False, recomputed=(), sharing=1):
        self.tensor, self.context, self.experts = tensor, context, experts
        self.sharing = sharing  # so many devices have a part each of an expert
        self.sequence = sequence and tensor > 1
        self.divided = tensor if self.sequence else 1  # among so many what tensors leave whole
        self.recomputed = frozenset(recomputed)

    def key(self):
        return (self.tensor, self.sequence, self.context, self.experts, self.sharing,
                self.recomputed)

    def recomputing(self, parts):
        return Form(self.tensor, self.context, self.experts, self.sequence, parts, self.sharing)


class Options:
    """What an estimate is asked for, with the program's defaults."""

    def __init__(self, sequence=None, decoder_sequence=None, precision="bf16", fused=True,
                 sequence_parallel=True, max_tensor=8, max_context=1, max_experts=64,
                 recompute=(("full",),), gradient_bytes=4, imbalance="1", framework=None,
                 vocabulary_multiple=1, max_expert_tensor=1, context_kind="all-gather",
                 merges=False):
        self.sequence = sequence
        self.decoder_sequence = decoder_sequence
        self.precision, self.fused = precision, fused
        self.sequence_parallel = sequence_parallel
        self.max_tensor, self.max_context, self.max_experts = max_tensor, max_context, max_experts
        self.recompute = recompute
        self.gradient_bytes = gradient_bytes
        self.imbalance = exact(imbalance)
        self.framework = framework
        self.vocabulary_multiple = vocabulary_multiple
        self.max_expert_tensor = max_expert_tensor
        self.context_kind = context_kind
        self.merges = merges  # as a runtime has it, and no option

    def arguments(self):
        """As the program takes them."""
        words = ["--precision", self.precision, "--attention",
                 "fused" if self.fused else "unfused", "--max-tensor", self.max_tensor,
                 "--max-context", self.max_context, "--max-experts", self.max_experts,
                 "--recompute", ",".join("+".join(parts) for parts in self.recompute) or "none",
                 "--gradient-bytes", self.gradient_bytes,
                 "--imbalance", str(float(self.imbalance))]
        if self.vocabulary_multiple != 1:
            words += ["--vocabulary-multiple", self.vocabulary_multiple]
        if self.max_expert_tensor != 1:
            words += ["--max-expert-tensor", self.max_expert_tensor]
        if self.context_kind != "all-gather":
            words += ["--context-kind", self.context_kind]
        if self.framework:
            words += ["--framework", self.framework]
        if self.sequence is not None:
            words += ["--sequence", self.sequence]
        if self.decoder_sequence is not None:
            words += ["--decoder-sequence", self.decoder_sequence]
        return words if self.sequence_parallel else [*words, "--no-sequence-parallel"]


class Collectives:
    """Those of a forward or of a backward."""

    def __init__(self):
        self.count = collections.Counter()  # by kind, ranks, bytes and what is said of some kinds

    def add(self, kind, size, over="tensor", count=1, said=None):
        if count:
            self.count[kind, over, size, said] += count

    def merge(self, other):
        self.count.update(other.count)


class Figures:
    """A layer in one form, before it has times."""

    def __init__(self):
        self.part = Part()
        self.more = Work()  # what the backward recomputes
        self.parameters = self.expert_parameters = 0
        self.kept = self.workspace = self.output = 0
        self.launches = 2
        self.forward, self.backward = Collectives(), Collectives()
        self.cores = []  # of attentions whose keys and values pass around a ring


class Estimate:
    """The layers of a model by the closed forms."""

    def __init__(self, model, options, machine):
        self.model, self.options, self.machine = model, options, machine
        self.bytes = 2 if options.precision in ("bf16", "fp16") else 4
        self.tokens = model.patches[0] + 1 if model.patches else options.sequence
        self.decoded = options.decoder_sequence or self.tokens
        self.met = set()  # subjects that times were about
        self.forms = self.allowed_forms()

    # Work.

    def product(self, m, n, k):
        x = self.bytes
        work = Work(2 * m * n * k, x * (m * k + m * n), x * k * n)
        return Part(work, products=work)

    def pass_through(self, size):
        return Part(Work(0, size))

    def once(self, size):
        """A pass that the backward does not take twice."""
        return Part(Work(0, size), Work(0, size))

    def length(self, block):
        return self.decoded if block.decodes else self.tokens

    # Attention.

    def pairs(self, attention, block, form):
        """Pairs of a query and a key of each head."""
        s, c = self.length(block), form.context
        if attention.of_encoder:
            return divide_up(s * self.tokens, c)
        if not (attention.causal and self.options.fused):
            return divide_up(s * s, c)
        if attention.chunk:
            return divide_up(min(attention.chunk, s) * s, 2 * c)
        w = min(attention.window or s, s)
        return divide_up(w * (2 * s - w), 2 * c)

    def add_attention(self, figures, attention, block, form):
        """Adds an attention to a block; returns its core, what is kept for the core, and what the core
        needs of other ranks where only it is computed once more."""
        x, h, t = self.bytes, self.model.hidden, form.tensor
        s = self.length(block)
        n = s // form.context
        whole = n // form.divided
        heads, d, d_v = attention.heads // t, attention.width, attention.value_width
        groups = divide_up(attention.groups, t)
        of_keys = self.tokens if attention.of_encoder else s
        keys = of_keys // form.context
        columns = heads * d
        # Work.
        part = Part()
        if attention.latent:
            queries, values, rotated = attention.latent
            if queries:
                part += self.product(whole, queries, h) + self.product(n, columns, queries)
            else:
                part += self.product(n, columns, h)
            part += (self.product(whole, values + rotated, h)
                     + self.product(n, heads * (d - rotated + d_v), values)
                     + self.pass_through(2 * x * whole * (queries + values)))
        elif attention.of_encoder:
            part += self.product(n, columns, h) + self.product(keys, groups * (d + d_v), h)
        else:
            part += self.product(n, columns + groups * (d + d_v), h)
        part += self.pass_through(2 * x * n * columns)
        if attention.norms:
            part += self.pass_through(2 * x * n * (heads + groups) * d)
        part += self.product(n, h, heads * d_v)
        pairs = self.pairs(attention, block, form)
        core = Work(moved=x * (n * heads * (d + d_v) + keys * groups * (d + d_v)),
                    core=2 * pairs * heads * (d + d_v))
        if self.options.fused:
            core = Part(core, Work(moved=2 * core.moved, core=divide_up(5 * core.core, 2)))
        else:
            scores = heads * divide_up(s * of_keys, form.context)
            core = Part(core) + self.pass_through((6 * x + 1) * scores)
        figures.part += part + core
        # Parameters.
        if attention.latent:
            figures.parameters += (h * queries + queries + queries * columns if queries
                                   else h * columns)
            figures.parameters += (h * (values + rotated) + values
                                   + values * heads * (d - rotated + d_v) + heads * d_v * h)
            if attention.bias_in:
                figures.parameters += queries + values + rotated
        else:
            figures.parameters += h * (columns + groups * (d + d_v)) + heads * d_v * h
            if attention.bias_in:
                figures.parameters += columns + groups * (d + d_v)
        if attention.bias_out:
            figures.parameters += h
        if attention.norms == "learned":
            figures.parameters += 2 * d
        figures.parameters += attention.heads * attention.positions
        # What is kept.
        figures.kept += x * (n * columns + keys * groups * (d + d_v) + n * heads * d_v)
        if attention.norms:
            figures.kept += x * n * (heads + groups) * d
        if attention.latent:
            figures.kept += x * whole * (2 * queries + 2 * values + rotated)
        if attention.of_encoder:
            figures.kept += x * (keys // form.divided) * h
            figures.kept += self.kept_of_gathered(x * keys * h, form)
        if self.options.fused:
            for_core = 4 * heads * n
            if self.machine.keeps_output_twice:
                for_core += x * n * heads * d_v
        else:
            for_core = scores * (2 * x + 1 if self.model.dropout else x)
        figures.kept += for_core
        # Collectives.
        gathered = x * n * h
        if attention.latent and attention.latent[0]:
            gathered = x * n * sum(attention.latent)
        self.around(figures, x * n * h, form, gathered)
        if attention.of_encoder and form.sequence:
            figures.forward.add("all-gather", x * keys * h)
            figures.backward.add("reduce-scatter", x * keys * h)
        again = Collectives()
        if form.context > 1 and self.options.context_kind == "all-gather":
            size = x * of_keys * groups * (d + d_v)
            figures.forward.add("all-gather", size, "context")
            figures.backward.add("all-gather", size, "context")
            figures.backward.add("reduce-scatter", size, "context")
        elif form.context > 1 and self.options.context_kind == "ring":
            # Hops of the own keys and values: each of c steps of the core has one beside it, or in
            # the backward one of keys, values and both gradients, but for those at the ends.
            size, c = x * keys * groups * (d + d_v), form.context
            for passing in figures.forward, again:
                passing.add("send-receive", size, "context", c - 1, "forward_core")
            for step in range(c):
                sent = (step < c - 1) + (step > 0)
                figures.backward.add("send-receive", sent * size, "context", 1, "backward_core")
            figures.backward.add("send-receive", size, "context")
            figures.cores.append(core)
        elif form.context > 1:
            for width, length in ((heads * d, n), (groups * d, keys), (groups * d_v, keys),
                                  (heads * d_v, n)):
                for passing in figures.forward, figures.backward:
                    passing.add("all-to-all", x * length * width, "context")
        return core.forward, for_core, again

    def kept_of_gathered(self, size, form):
        """What a framework keeps of a gathered input beside the device's own part."""
        if not form.sequence or not self.machine.keeps_gathered:
            return 0
        return size - size // form.tensor

    def around(self, figures, size, form, gathered=None):
        """Collectives over tensor ranks of an attention or of what follows it."""
        if form.tensor == 1:
            return
        if not form.sequence:
            figures.forward.add("all-reduce", size)
            figures.backward.add("all-reduce", size)
            return
        gathered = size if gathered is None else gathered
        figures.kept += self.kept_of_gathered(gathered, form)
        figures.forward.add("all-gather", gathered)
        figures.forward.add("reduce-scatter", size)
        figures.backward.add("all-gather", size)
        figures.backward.add("reduce-scatter", gathered)

    # Feed-forward layers and experts.

    def feed_forward(self, rows, inner, matrices):
        h = self.model.hidden
        return (self.product(rows, matrices * inner, h) + self.product(rows, h, inner)
                + self.pass_through(self.bytes * rows * inner * (matrices + 1)))

    def kept_tensors(self, matrices):
        """How many tensors of the inner width are kept, and how many of these are computed by the
        activation function."""
        activated = 2 if matrices == 2 and self.machine.keeps_gates else 1
        return matrices + activated, activated

    def add_dense(self, figures, feed, n, form):
        """Adds a feed-forward layer; returns its work and what it keeps."""
        inner, h, p = feed.width // form.tensor, self.model.hidden, feed.matrices
        part = self.feed_forward(n, inner, p)
        kept = self.bytes * n * inner * self.kept_tensors(p)[0]
        figures.part += part
        figures.kept += kept
        figures.parameters += (p + 1) * h * inner + (p * inner + h if feed.biases else 0)
        self.around(figures, self.bytes * n * h, form)
        return part.forward, kept + self.kept_of_gathered(self.bytes * n * h, form)

    def add_experts(self, figures, feed, n, form):
        """Adds experts; returns their work and what they keep, all and for activations alone."""
        x, h, p = self.bytes, self.model.hidden, feed.matrices
        whole = n // form.divided
        if form.experts == 1:
            tokens, inner, held = n, feed.width // form.tensor, feed.count
        else:
            tokens, inner = whole, feed.width // form.sharing
            held = feed.count // form.experts
        rows = tokens * feed.used
        if form.experts > 1:
            rows = math.ceil(rows * self.options.imbalance)
        sent = rows
        rows *= form.sharing
        first, second = self.product(rows, p * inner, h), self.product(rows, h, inner)
        part = self.product(whole, feed.count, h) + self.pass_through(
            x * rows * inner * (p + 1)) + self.pass_through(4 * x * rows * h)
        products = first.forward + second.forward
        products.weights *= held
        part += Part(products, products=products)
        tensors, activated = self.kept_tensors(p)
        kept = x * rows * inner * tensors + x * rows * h
        if feed.shared:
            width = feed.shared // form.tensor
            part += self.feed_forward(n, width, p)
            kept += x * n * width * tensors
            figures.parameters += (p + 1) * h * width + (h if feed.gate else 0)
        figures.part += part
        figures.kept += kept
        figures.expert_parameters += (p + 1) * h * inner * held
        figures.parameters += (p + 1) * h * inner * held + h * feed.count
        if form.experts == 1 or feed.shared:
            self.around(figures, x * n * h, form)
            kept += self.kept_of_gathered(x * n * h, form)
        if form.experts > 1:
            for one in figures.forward, figures.backward:
                one.add("all-to-all", x * sent * h, "experts", 2,
                        (feed.used, feed.count) if self.options.merges else None)
                if form.sharing > 1:
                    one.add("all-gather", x * rows * h, "expert-tensor")
                    one.add("reduce-scatter", x * rows * h, "expert-tensor")
        return (part.forward, kept, Work(0, x * rows * inner * (p + 1)),
                x * rows * inner * activated)

    # Layers.

    def block(self, block, form):
        """A block, and what it recomputes."""
        figures = Figures()
        x, h = self.bytes, self.model.hidden
        n = self.length(block) // form.context
        whole = n // form.divided
        norms = block.before + block.behind
        figures.output = x * whole * h
        figures.part += self.pass_through(x * whole * h * (2 * norms + 3 * block.additions + 1))
        figures.kept += x * whole * h * (2 * block.before + block.behind)
        figures.kept += block.additions * whole * h if self.model.dropout else 0
        figures.parameters += norms * h * (2 if block.shift else 1)
        recomputed, size = form.recomputed, x * n * h
        more, spared = Work(), 0
        for attention in block.attentions:
            core, kept, again = self.add_attention(figures, attention, block, form)
            if "core_attn" in recomputed:
                more, spared = more + core, spared + kept
                figures.backward.merge(again)
        if "norm" in recomputed:
            more += Work(0, 2 * x * whole * h) * block.before
            spared += x * whole * h * block.before
        if block.has_experts:
            work, kept, activations, of_activations = self.add_experts(
                figures, block.feed, n, form)
            if "moe" in recomputed:
                more, spared = more + work, spared + kept
                if form.sequence and (form.experts == 1 or block.feed.shared):
                    figures.backward.add("all-gather", size)
                for (kind, over, exchanged, said), count in figures.forward.count.items():
                    if over in ("experts", "expert-tensor") and kind != "send-receive":
                        figures.backward.add(kind, exchanged, over, count, said)
            if "moe_act" in recomputed:
                more, spared = more + activations, spared + of_activations
        else:
            work, kept = self.add_dense(figures, block.feed, n, form)
            if "mlp" in recomputed:
                more, spared = more + work, spared + kept
                if form.sequence:
                    figures.backward.add("all-gather", size)
        if "full" in recomputed:
            given = whole
            if block.decodes:
                given += self.tokens // form.context // form.divided
            more, spared = figures.part.forward, figures.kept - x * given * h
            figures.backward.merge(figures.forward)
            figures.launches = 3
        figures.more = more
        figures.kept -= spared
        figures.workspace += spared
        return figures

    def embedding(self, form, decodes=False):
        figures = Figures()
        model, x, h = self.model, self.bytes, self.model.hidden
        n = (self.decoded if decodes else self.tokens) // form.context
        whole = n // form.divided
        figures.output = x * whole * h
        figures.part = self.once(10 * x * n * h)
        figures.kept = whole * h if model.dropout else 0
        if model.patches:
            count, numbers = model.patches
            here = divide_up(count, form.context)
            work = self.product(here, h, numbers).forward
            figures.part += Part(work, work, work)
            figures.kept += x * here * numbers
            figures.parameters = h * numbers + h + (count + 1) * h + h
            return figures
        if form.tensor > 1:
            figures.forward.add("reduce-scatter" if form.sequence else "all-reduce", x * n * h)
            if form.sequence:
                figures.backward.add("all-gather", x * n * h)
        if not decodes:
            figures.parameters = (h * self.part_of_vocabulary(form)
                                  + h * model.positions + (2 * h if model.embedding_norm else 0))
        return figures

    def part_of_vocabulary(self, form):
        """Columns of each tensor rank, of a vocabulary padded as Megatron-LM does: to a multiple of the
        ranks times what each has a multiple of."""
        multiple = form.tensor * self.options.vocabulary_multiple
        padded = self.model.vocabulary
        padded += -padded % multiple
        return padded // form.tensor

    def encoder_norm(self, form):
        figures = Figures()
        size = self.bytes * (self.tokens // form.context // form.divided) * self.model.hidden
        figures.part = self.pass_through(2 * size)
        figures.parameters = self.model.hidden
        figures.kept = figures.output = size
        return figures

    def head(self, form):
        figures = Figures()
        model, x, h = self.model, self.bytes, self.model.hidden
        n = (self.decoded if model.decoder else self.tokens) // form.context
        whole, columns = n // form.divided, self.part_of_vocabulary(form)
        if model.patches:
            n, columns = 1, model.classes
        figures.part = (self.product(n, columns, h) + self.pass_through(2 * x * whole * h)
                        + self.once(11 * n * columns))
        figures.kept = 2 * x * whole * h + n * columns * 4
        figures.workspace = x * n * columns
        figures.parameters = h * (2 if model.shift else 1)
        if not model.tied:
            figures.parameters += h * columns
        if model.head_bias or model.patches:
            figures.parameters += columns
        if model.transformation:
            figures.part += self.product(whole, h, h)
            figures.kept += x * whole * h
            figures.parameters += h * h + h  # Its norm is the last one.
        if form.tensor > 1 and not model.patches:
            figures.forward.add("all-reduce", 4 * n, count=3)
            if form.sequence:
                figures.forward.add("all-gather", x * n * h)
                figures.kept += self.kept_of_gathered(x * n * h, form)
            figures.backward.add("reduce-scatter" if form.sequence else "all-reduce", x * n * h)
        return figures

    # Forms.

    def allows(self, form):
        """Whether all blocks can be divided so."""
        t, c, e, h = form.tensor, form.context, form.experts, self.model.hidden
        sparse = e * form.sharing
        if e > 1 and t > 1 and not form.sequence or t * c % sparse and sparse % (t * c):
            return False
        for block in [*self.model.blocks, *self.model.decoder]:
            for attention in block.attentions:
                s = self.length(block)
                lengths = [s, self.tokens] if attention.of_encoder else [s]
                spread = self.options.context_kind == "all-to-all"
                if spread and divide_up(attention.groups, t) % c:
                    return False
                chunks = 2 * c if c > 1 and attention.causal and not spread else c
                if (attention.heads % t or h % t or attention.groups % t and t % attention.groups
                        or any(length % chunks or length // c % form.divided
                               for length in lengths)):
                    return False
            feed = block.feed
            widths = [feed.width]
            if block.has_experts:
                widths = [feed.width] * (e == 1) + [feed.shared]
                if feed.count % e or feed.width % form.sharing:
                    return False
            if any(width % t for width in widths):
                return False
        return True

    def allowed_forms(self):
        """Those without recomputation."""
        def powers(most):
            return [1 << bits for bits in range(most.bit_length())]

        options = self.options
        most = options.max_experts if any(
            block.has_experts for block in self.model.blocks) else 1
        forms = [Form(t, c, e, options.sequence_parallel, sharing=u)
                 for t in powers(options.max_tensor)
                 for c in powers(options.max_context) for e in powers(most)
                 for u in (powers(options.max_expert_tensor) if e > 1 else [1])]
        return [form for form in forms if self.allows(form)]

    # What a case is about.

    def subjects(self):
        """Which of SUBJECTS the model and the options are about."""
        model, options = self.model, self.options
        blocks = [*model.blocks, *model.decoder]
        attentions = [(self.length(block), attention) for block in blocks
                      for attention in block.attentions]
        windows = [(s, one.window) for s, one in attentions if one.window]
        chunks = [(s, one.chunk) for s, one in attentions if one.chunk]
        latent = [one.latent for _, one in attentions if one.latent]
        expert = [block.has_experts for block in model.blocks]
        depths = len(model.blocks), len(model.decoder)
        return {
            model.family: True, options.precision: True,
            f"gradients of {options.gradient_bytes} bytes": True,
            "a framework": options.framework is not None,
            "gathered inputs that are kept": self.machine.keeps_gathered
            and options.sequence_parallel and options.max_tensor > 1,
            "an output of attention that is kept twice": self.machine.keeps_output_twice
            and options.fused and attentions,
            "activated gates that are kept": self.machine.keeps_gates
            and any(block.feed.matrices == 2 for block in blocks),
            "fused attention": options.fused, "unfused attention": not options.fused,
            "scores with dropout": not options.fused and model.dropout,
            "scores without dropout": not options.fused and not model.dropout,
            "all layers with dropout": model.dropout,
            "a window within the sequence": options.fused and any(w < s for s, w in windows),
            "a window beyond the sequence": options.fused and any(w > s for s, w in windows),
            "layers with and without a window": 0 < len(windows) < len(attentions),
            "chunks within the sequence": options.fused and any(w < s for s, w in chunks),
            "chunks beyond the sequence": options.fused and any(w > s for s, w in chunks),
            "grouped queries": any(1 < one.groups < one.heads for _, one in attentions),
            "one head of keys": any(one.groups == 1 < one.heads for _, one in attentions),
            "norms of queries and keys": any(one.norms == "learned" for _, one in attentions),
            "norms without parameters": any(one.norms == "plain" for _, one in attentions),
            "norms behind products": any(block.behind for block in blocks),
            "compressed queries": any(queries for queries, _, _ in latent),
            "queries that are not compressed": any(not queries for queries, _, _ in latent),
            "biases of projections": any(one.bias_in for _, one in attentions),
            "a gated feed-forward layer": any(block.feed.matrices == 2 for block in blocks),
            "a feed-forward layer that is not gated": any(
                block.feed.matrices == 1 for block in blocks),
            "shared experts": any(b.has_experts and b.feed.shared for b in blocks),
            "a gate of shared experts": any(b.has_experts and b.feed.gate for b in blocks),
            "experts in some blocks": any(expert) and not all(expert),
            "experts in all blocks": all(expert),
            "dense blocks before experts": not expert[0] and any(expert),
            "blocks without experts in between": [True, False, True] in (
                expert[at:at + 3] for at in range(len(expert))),
            "an imbalance": any(expert) and options.imbalance > 1,
            "a tied head": model.tied, "a head of its own": not model.tied,
            "an encoder as deep as its decoder": depths[0] == depths[1],
            "an encoder deeper than its decoder": depths[0] > depths[1] > 0,
            "a decoder deeper than its encoder": depths[0] < depths[1],
            "an encoder longer than its decoder": depths[1] and self.tokens > self.decoded,
            "a decoder longer than its encoder": depths[1] and self.tokens < self.decoded,
            "an odd sequence": self.tokens % 2,
            "several recomputed parts": any(len(parts) > 1 for parts in options.recompute),
            "nothing recomputed": not options.recompute,
            "recomputed norms behind products": any(block.behind for block in blocks) and any(
                "norm" in parts for parts in options.recompute),
            "recomputed sums of attention": options.fused and any(
                "core_attn" in parts for parts in options.recompute),
            "recomputed scores": not options.fused and any(
                "core_attn" in parts for parts in options.recompute),
            "a recomputed attention to an encoder": depths[1] and any(
                "core_attn" in parts for parts in options.recompute),
            **{f"recomputed {part}": True for parts in options.recompute for part in parts},
            "a recomputed part that a block lacks": any(
                {"mlp"} & set(parts) and block.has_experts
                or {"moe", "moe_act"} & set(parts) and not block.has_experts
                for parts in options.recompute for block in blocks),
            "no floors": not (self.machine.launch_floor or self.machine.collective_floor),
            "a launch floor": self.machine.launch_floor > 0,
            "a collective floor": self.machine.collective_floor > 0,
        }

    def subjects_of_form(self, form):
        """The same of a form of which there is a variant."""
        model, t = self.model, form.tensor
        blocks = [*model.blocks, *model.decoder]
        experts = [block.feed for block in blocks if block.has_experts]
        causal = any(one.causal for block in blocks for one in block.attentions)
        latent = any(one.latent for block in blocks for one in block.attentions)
        both = form.sequence and "moe" in form.recomputed and experts
        ring = form.context > 1 and self.options.context_kind == "ring"
        spread = form.context > 1 and self.options.context_kind == "all-to-all"
        return {
            f"tensor parallelism of {t}": t > 1,
            "sequence parallelism": form.sequence,
            "tensor parallelism without sequence parallelism": t > 1 and not form.sequence,
            "a part of a vocabulary that is not even": model.vocabulary % t,
            "a padded vocabulary": (not model.patches and self.options.vocabulary_multiple > 1
                                    and model.vocabulary % self.options.vocabulary_multiple),
            "a padded vocabulary of tensor ranks": (
                not model.patches and t > 1 and self.options.vocabulary_multiple > 1
                and model.vocabulary % (t * self.options.vocabulary_multiple)),
            "copied heads of keys": any(
                t > one.groups for block in blocks for one in block.attentions),
            "context parallelism": form.context > 1,
            "context parallelism of a causal model": form.context > 1 and causal,
            "context parallelism beside tensor parallelism": form.context > 1 and t > 1,
            "tensor parallelism of images": model.patches and t > 1,
            "context parallelism of images": model.patches and form.context > 1,
            "tensor parallelism of a decoder": model.decoder and t > 1,
            "context parallelism of a decoder": model.decoder and form.context > 1,
            "context parallelism of latent attention": latent and form.context > 1,
            **{f"context parallelism by {self.options.context_kind}": form.context > 1},
            "a ring of two": ring and form.context == 2, "a ring of more": ring and form.context > 2,
            "a ring of a decoder": ring and model.decoder,
            "a ring once more for the core alone": ring and "core_attn" in form.recomputed,
            "a ring once more for all": ring and "full" in form.recomputed,
            "all-to-alls of one size": spread and any(
                one.groups == one.heads for block in blocks for one in block.attentions),
            "all-to-alls of several sizes": spread and any(
                one.groups < one.heads for block in blocks for one in block.attentions),
            "experts with a dispatcher that merges": form.experts > 1 and self.options.merges,
            "experts recomputed with a dispatcher that merges":
                form.experts > 1 and self.options.merges and "moe" in form.recomputed,
            "expert parallelism": form.experts > 1,
            "expert parallelism beside tensor parallelism": form.experts > 1 and t > 1,
            "expert parallelism beside context parallelism":
                form.experts > 1 and form.context > 1,
            "shared experts under expert and tensor parallelism":
                form.experts > 1 and t > 1 and any(feed.shared for feed in experts),
            "experts that tensors do not divide":
                form.experts > 1 and any(feed.width % t for feed in experts),
            "expert and tensor parallelism without sequence parallelism left out":
                experts and t > 1 and not form.sequence and self.options.max_experts > 1,
            "devices that share an expert": form.sharing > 1,
            "tensor ranks that share an expert": form.sharing == t > 1,
            "fewer devices than tensor ranks that share an expert": 1 < form.sharing < t,
            "more devices than tensor ranks that share an expert": form.sharing > t,
            "an imbalance of shared experts": form.sharing > 1 and self.options.imbalance > 1,
            "moe recomputed by devices that share an expert":
                form.sharing > 1 and "moe" in form.recomputed,
            "experts too narrow to be shared": form.experts > 1 and any(
                feed.width % self.options.max_expert_tensor for feed in experts),
            "mlp recomputed with a collective": form.sequence and "mlp" in form.recomputed and any(
                not block.has_experts for block in blocks),
            "moe recomputed with a collective":
                both and (form.experts == 1 or any(feed.shared for feed in experts)),
            "moe recomputed without one beside sequence parallelism":
                both and form.experts > 1 and any(not feed.shared for feed in experts),
            "moe recomputed with expert parallelism":
                form.experts > 1 and "moe" in form.recomputed,
            "full recomputed with collectives": t > 1 and "full" in form.recomputed,
        }

    # As the profile has them.

    def measurements(self, figures):
        work = figures.part.forward
        back = figures.part.backward + figures.more
        floor, back_floor = (
            self.machine.floor(launches, sum(collectives.count.values()))
            for launches, collectives in ((1, figures.forward), (figures.launches, figures.backward)))
        written = []
        batches, hidden = self.machine.batches((work, floor), (back, back_floor))
        self.met |= {subject for subject, is_met in {
            "a floor that hides no batch": floor > 0 and hidden == [0, 0],
            "a floor that hides a forward alone": hidden[0] > hidden[1] == 0,
            "a floor that hides a backward alone": hidden[1] > hidden[0] == 0,
            "a backward hidden for more samples": hidden[1] > hidden[0] > 0,
            "a forward hidden for more samples": hidden[0] > hidden[1] > 0,
            "a batch as large as any that is looked for": MOST_BATCH in hidden,
            "two measurements": len(batches) == 2, "six measurements": len(batches) == 6,
        }.items() if is_met}
        for batch in batches:
            forward = max(floor, self.machine.unfloored(work, batch))
            backward = max(back_floor, self.machine.unfloored(back, batch))
            weights = min(backward, self.machine.unfloored(figures.part.products, batch))
            one = {"batch_size": batch, "forward_ns": forward, "backward_ns": backward,
                   "input_gradient_ns": backward - weights, "weight_gradient_ns": weights,
                   "output_bytes": batch * figures.output, "stash_bytes": batch * figures.kept}
            for way in ("forward", "backward"):
                times = [self.machine.unfloored(getattr(core, way), batch)
                         for core in figures.cores]
                if times and min(times):
                    one[f"{way}_core_ns"] = min(times)
            if figures.workspace:
                one["workspace_bytes"] = batch * figures.workspace
            written.append(one)
        return written

    def variant(self, figures, form):
        written = {"tensor_parallel": form.tensor,
                   "parameter_bytes": self.bytes * figures.parameters,
                   "measurements": self.measurements(figures)}
        if form.sequence:
            written["sequence_parallel"] = True
        if form.context > 1:
            written["context_parallel"] = form.context
        if form.experts > 1:
            written["expert_parallel"] = form.experts
            written["expert_tensor_parallel"] = form.sharing
        if form.recomputed:
            written["recompute"] = form.recomputed
        if figures.expert_parameters:
            written["expert_parameter_bytes"] = self.bytes * figures.expert_parameters
        for way, collectives in ("forward", figures.forward), ("backward", figures.backward):
            if collectives.count:
                written[f"{way}_collectives"] = dict(collectives.count)
        return written

    def layer(self, make, recomputes, has_experts):
        """A layer without its name."""
        forms = self.forms
        if not has_experts:
            forms = list({(form.tensor, form.context): Form(
                form.tensor, form.context, 1, self.options.sequence_parallel)
                          for form in forms}.values())
        if recomputes:
            forms = [form.recomputing(parts) for form in forms
                     for parts in [(), *self.options.recompute]]
        figures = make(Form())
        variants = {form.key(): self.variant(make(form), form) for form in forms
                    if form.key() != Form().key()}
        written = {"parameter_bytes": self.bytes * figures.parameters,
                   "measurements": self.measurements(figures)}
        return {**written, "variants": variants} if variants else written

    def layers(self):
        """All of them, as they stand in the profile."""
        model = self.model

        def blocks(given, name, more=lambda number: {}):
            made, known = [], {}
            for number, block in enumerate(given):
                if id(block) not in known:
                    known[id(block)] = self.layer(
                        lambda form, block=block: self.block(block, form), True, block.has_experts)
                made.append({**known[id(block)], **more(number)})
            first = next((number for number, layer in enumerate(made) if layer != made[0]),
                         len(made))
            if first == 1:
                first = 0
            together = [{"name": name, "repeat": first, **made[0]}] if first else []
            return together + [{"name": f"{name}.{number}", **made[number]}
                               for number in range(first, len(made))]

        def plain(name, make, **more):
            return [{"name": name, **self.layer(make, False, False), **more}]

        written = plain("embedding", self.embedding)
        written += blocks(model.blocks, "encoder" if model.decoder else "block")
        if model.decoder:
            written += plain("encoder_norm", self.encoder_norm)
            written += plain("decoder_embedding", lambda form: self.embedding(form, True),
                             tied_to="embedding")
            written += blocks(model.decoder, "decoder", lambda number: {"inputs": [
                "encoder_norm", f"decoder.{number - 1}" if number else "decoder_embedding"]})
        return written + plain("head", self.head, **(
            {"tied_to": "embedding"} if model.tied else {}))

    def optimizer(self):
        x, gradient = self.bytes, self.options.gradient_bytes

        def rounded(number):
            return Fraction(math.ceil(number * SECOND), SECOND)

        kept = self.machine.bytes_per_parameter
        return {"name": "adam",
                **({"framework_bytes_per_parameter_byte": rounded(Fraction(kept, x))} if kept else {}),
                "state_bytes_per_parameter_byte": rounded(Fraction(12 if x == 2 else 8, x)),
                "gradient_bytes_per_parameter_byte": rounded(Fraction(gradient, x)),
                "step_ns_per_parameter_byte": Fraction(
                    divide_up(28 * SECOND**2, x * self.machine.bandwidth), SECOND)}

    def parameters(self):
        """The number of the whole model, whose vocabulary is not padded."""
        plain = copy.copy(self.options)
        plain.vocabulary_multiple = 1
        return sum(layer.get("repeat", 1) * layer["parameter_bytes"]
                   for layer in type(self)(self.model, plain, self.machine).layers()) // self.bytes


# Random cases.


class Draw:
    """A configuration, options and figures of GPUs, all by one seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.family = [*FAMILIES, *OFTEN][seed % len([*FAMILIES, *OFTEN])]
        self.divides = self.chance(0.6)  # whether degrees of parallelism divide most of it
        self.draw_sizes()
        self.config = getattr(self, f"draw_{self.family}", self.draw_rotary)()
        if self.family == "llama4_text" and self.chance(0.3):
            self.config = {"model_type": "llama4", "text_config": self.config}
        self.gpus, self.gpu = None, self.choice("H100", "A100-80GB", "B200", "RTX-4090")
        if self.chance(0.5):
            self.gpus, self.gpu = self.draw_gpus(), self.choice("card", "board")
        self.options = self.draw_options()

    def choice(self, *choices):
        return self.random.choice(choices)

    def chance(self, probability):
        return self.random.random() < probability

    def number(self, low, high):
        """A number, small ones as likely as large ones."""
        return min(high, int(2**self.random.uniform(math.log2(low), math.log2(high + 1))))

    def even(self, low, high):
        """A number of which powers of two are likely to be factors."""
        bits = self.random.randint(3, 5) if self.divides else self.random.randint(0, 5)
        return self.number(low, high) >> bits << bits or min(high, 1 << bits)

    # Configurations.

    def draw_sizes(self):
        self.heads = self.choice(4, 8, 8, 16) if self.divides else self.choice(*range(1, 17))
        self.groups = self.random.choice(
            [groups for groups in range(1, self.heads + 1) if self.heads % groups == 0])
        self.width = 2 * self.number(1, 512 // self.heads // 2)
        self.hidden = self.heads * self.width
        self.inner = self.even(1, 1000)
        self.layers = self.random.randint(1, 5)
        self.vocabulary = self.number(1, 3000)
        self.tokens = self.even(1, 4096)

    def draw_dropout(self, *keys):
        value = self.choice(0, 0.1)
        return {key: self.choice(value, value, 0.0) for key in keys if self.chance(0.8)}

    def draw_bert(self):
        return {"model_type": "bert", "hidden_size": self.hidden,
                "num_attention_heads": self.heads, "num_hidden_layers": self.layers,
                "intermediate_size": self.inner, "vocab_size": self.vocabulary,
                "max_position_embeddings": self.tokens + self.random.randint(0, 50),
                "type_vocab_size": self.random.randint(1, 3),
                **self.draw_dropout("hidden_dropout_prob", "attention_probs_dropout_prob")}

    def draw_gpt2(self):
        config = {"model_type": "gpt2", "n_embd": self.hidden, "n_head": self.heads,
                  "n_layer": self.layers, "vocab_size": self.vocabulary,
                  "n_positions": self.tokens + self.random.randint(0, 50),
                  **self.draw_dropout("resid_pdrop", "embd_pdrop", "attn_pdrop")}
        if self.chance(0.5):
            config["n_inner"] = self.choice(None, self.inner)
        if self.chance(0.3):
            config["tie_word_embeddings"] = self.chance(0.5)
        return config

    def draw_gpt_neox(self):
        config = {"model_type": "gpt_neox", "hidden_size": self.hidden,
                  "num_attention_heads": self.heads, "num_hidden_layers": self.layers,
                  "intermediate_size": self.inner, "vocab_size": self.vocabulary,
                  "max_position_embeddings": self.tokens, "rotary_pct": 0.25,
                  "use_parallel_residual": self.chance(0.5),
                  **self.draw_dropout("hidden_dropout", "attention_dropout")}
        if self.chance(0.3):
            config["tie_word_embeddings"] = self.chance(0.5)
        if self.chance(0.3):
            config["attention_bias"] = self.chance(0.5)
        return config

    def draw_vit(self):
        patch = self.random.randint(1, 8)
        config = {"model_type": "vit", "hidden_size": self.hidden,
                  "num_attention_heads": self.heads, "num_hidden_layers": self.layers,
                  "intermediate_size": self.inner, "patch_size": patch,
                  "image_size": patch * self.random.randint(1, 20),
                  "num_channels": self.random.randint(1, 4),
                  **self.draw_dropout("hidden_dropout_prob", "attention_probs_dropout_prob")}
        if self.chance(0.5):
            config["id2label"] = {str(number): "thing" for number in range(self.number(1, 100))}
        else:
            config["num_labels"] = self.number(1, 100)
        if self.chance(0.5):
            config["qkv_bias"] = self.chance(0.5)
        return config

    def draw_t5(self):
        config = {"model_type": "t5", "d_model": self.choice(self.hidden, 8 * self.number(1, 64)),
                  "d_kv": self.width, "num_heads": self.heads, "num_layers": self.layers,
                  "d_ff": self.inner, "vocab_size": self.vocabulary, "is_encoder_decoder": True,
                  "feed_forward_proj": self.choice("relu", "gated-gelu", "gated-silu"),
                  "relative_attention_num_buckets": self.random.randint(1, 32),
                  **self.draw_dropout("dropout_rate")}
        if self.chance(0.7):
            config["num_decoder_layers"] = self.random.randint(1, 4)
        if self.chance(0.6):
            config["tie_word_embeddings"] = self.chance(0.5)
        return config

    def draw_rotary(self):
        config = {"model_type": self.family, "hidden_size": self.hidden,
                  "num_attention_heads": self.heads, "num_key_value_heads": self.groups,
                  "num_hidden_layers": self.layers, "intermediate_size": self.inner,
                  "vocab_size": self.vocabulary, "max_position_embeddings": 2 * self.tokens,
                  **self.draw_dropout("attention_dropout")}
        family, takes_width = self.family, self.family not in ("qwen2", "qwen2_moe")
        if takes_width and (self.chance(0.5) or family.startswith(("qwen3", "gemma"))):
            if not family.startswith(("qwen3", "gemma")) or self.chance(0.9):
                config["head_dim"] = self.width
            config["hidden_size"] = 8 * self.number(1, 64)
        if self.chance(0.6) or family in ("mistral", "llama4_text"):
            config["tie_word_embeddings"] = self.chance(0.5)
        if family in ("llama", "qwen3", "qwen3_moe", "gemma", "gemma2", "gemma3_text",
                      "llama4_text") and self.chance(0.4):
            config["attention_bias"] = self.chance(0.7)
        if family == "llama" and self.chance(0.3):
            config["mlp_bias"] = self.chance(0.7)
        window = self.number(1, 2 * self.tokens)
        if family in ("mistral", "mixtral"):
            config["sliding_window"] = self.choice(None, window, window)
            if self.chance(0.2):
                del config["sliding_window"]
        if family.startswith("qwen"):
            config |= {"sliding_window": window, "use_sliding_window": self.chance(0.6),
                       "max_window_layers": self.random.randint(0, self.layers)}
        if family in ("gemma2", "gemma3_text"):
            config["sliding_window"] = window
        if family == "gemma3_text":
            for key in self.choice((), ("sliding_window_pattern",), ("_sliding_window_pattern",)):
                config[key] = self.random.randint(1, 6)
        if family.startswith(("qwen", "gemma2", "gemma3")) and self.chance(0.3):
            config["layer_types"] = [self.choice("sliding_attention", "full_attention")
                                     for _ in range(self.layers)]
        self.add_experts(config)
        return config

    def add_experts(self, config):
        """Adds what families with experts have."""
        family = self.family
        count = self.choice(2, 3, 4, 6, 8, 8, 16, 16, 32)
        inner = self.choice(self.even(1, 300), self.even(1, 300), self.number(1, 300))
        used = self.random.randint(1, min(count, 4))
        if family == "mixtral":
            config |= {"num_local_experts": count, "num_experts_per_tok": used}
        if family in ("qwen2_moe", "qwen3_moe"):
            config |= {"num_experts": count, "num_experts_per_tok": used,
                       "moe_intermediate_size": inner}
            if self.chance(0.6):
                config["decoder_sparse_step"] = self.choice(1, 1, 2, 3)
            if self.chance(0.5):
                config["mlp_only_layers"] = self.random.sample(
                    range(self.layers), self.random.randint(0, self.layers))
        if family == "qwen2_moe":
            config["shared_expert_intermediate_size"] = self.even(1, 300)
        if family == "llama4_text":
            config |= {"num_local_experts": count, "num_experts_per_tok": used,
                       "intermediate_size_mlp": self.even(1, 300),
                       "interleave_moe_layer_step": self.random.randint(1, 3),
                       "attention_chunk_size": self.number(1, 4 * self.tokens),
                       "use_qk_norm": self.chance(0.5)}
            if self.chance(0.3):
                config["no_rope_layers"] = [self.choice(0, 1) for _ in range(self.layers)]
        if family == "deepseek_v3" and self.chance(0.4):
            config["attention_bias"] = self.chance(0.7)
        if family == "deepseek_v3":
            config |= {"n_routed_experts": count, "num_experts_per_tok": used,
                       "moe_intermediate_size": inner, "n_shared_experts": self.choice(0, 1, 1, 2),
                       "first_k_dense_replace": self.random.randint(0, self.layers),
                       "q_lora_rank": self.choice(None, self.number(1, 100)),
                       "kv_lora_rank": self.number(1, 100), "v_head_dim": self.number(1, 64),
                       "qk_nope_head_dim": self.number(1, 64),
                       "qk_rope_head_dim": 2 * self.number(1, 16),
                       "num_key_value_heads": self.heads}

    # GPUs and options.

    def draw_gpus(self):
        """Two GPUs, of which one has no calibration of its own, and none is as good as drawn."""
        def calibration(name):
            floors = {key: self.choice("0 us", "1 us", "12 us", f"{self.number(1, 10**6)} ns")
                      for key in ("launch_floor", "collective_floor")}
            return {"name": name, "matrix": self.choice(1, 0.5, 0.123456789, 0.81),
                    "attention": self.choice(1, 0.4, 0.2468, 0.987654321),
                    "memory": self.choice(1, 0.25, 0.672, 0.987654321), **floors,
                    "source": "drawn"}

        def gpu(name, **more):
            return {"name": name, **more, "memory": "80 GiB",
                    "memory_bandwidth": f"{self.number(10, 4000)} GB/s",
                    "peak": {form: f"{self.number(1, 10**4) / 10} TFLOP/s"
                             for form in ("fp32", "tf32", "bf16", "fp16")}, "source": "drawn"}

        return {"schema": "dapple-gpus/1", "source": "drawn",
                "calibrations": [calibration("first"), calibration("second")],
                "frameworks": [{"name": "drawn", "keeps_gathered_inputs": self.chance(0.7),
                                "keeps_activated_gates": self.chance(0.5),
                                "keeps_core_output_twice": self.chance(0.5),
                                "bytes_per_parameter": self.choice(0, 1, 3, 64),
                                "source": "drawn"}],
                "gpus": [gpu("card"), gpu("big-board", also=["board"], calibration="second")]}

    def draw_options(self):
        model = read_model(self.config)
        parts = ["core_attn", "norm"]
        if not all(block.has_experts for block in model.blocks):
            parts.append("mlp")
        if any(block.has_experts for block in model.blocks):
            parts += ["moe", "moe_act"]
        sets = {("full",): None} if self.chance(0.5) else {}
        for _ in range(self.choice(0, 0, 1, 1, 2, 3, 4)):
            drawn = sorted(self.random.sample(parts, self.random.randint(1, len(parts))))
            sets[tuple(part for part in drawn if part != "moe_act" or "moe" not in drawn)] = None
        recompute = list(sets)
        self.random.shuffle(recompute)
        options = Options(
            sequence=None if model.patches else self.tokens,
            decoder_sequence=self.even(1, 4096) if model.decoder and self.chance(0.6) else None,
            precision=self.choice("bf16", "bf16", "fp16", "tf32", "fp32"),
            fused=self.chance(0.6), sequence_parallel=self.chance(0.7),
            max_tensor=self.choice(1, 2, 3, 4, 8, 8), max_context=self.choice(1, 1, 2, 2, 4, 7, 8),
            max_experts=self.choice(1, 2, 4, 8, 64), recompute=tuple(recompute),
            gradient_bytes=self.choice(2, 4), imbalance=self.choice("1", "1", "1.3", "2.123456789"),
            framework=self.choice(None, "drawn" if self.gpus else "nanotron"),
            vocabulary_multiple=self.choice(1, 1, 2, 3, 64, 128),
            max_expert_tensor=self.choice(1, 1, 2, 4, 4, 8),
            context_kind=self.choice("all-gather", "ring", "all-to-all"),
            merges=self.gpus is None and any(block.has_experts for block in model.blocks)
            and self.chance(0.7))
        if options.merges:
            options.max_tensor = 8  # which plan has for all
        return options


def differences(ours, theirs, place=""):
    """Where two documents differ, a line each."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        lines = [f"{place}/{key}: expected {'it' if key in ours else 'none'}"
                 for key in ours.keys() ^ theirs.keys()]
        return lines + [line for key in ours if key in theirs
                        for line in differences(ours[key], theirs[key], f"{place}/{key}")]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return [line for number, (one, other) in enumerate(zip(ours, theirs))
                for line in differences(one, other, f"{place}/{number}")]
    return [] if ours == theirs else [f"{place}: expected {ours}, the file says {theirs}"]


def keyed_collectives(entries):
    """Collectives of a file by kind, ranks and bytes, where no two entries are alike in these."""
    def said(one):
        merged = one.get("merged")
        return (merged["copies"], merged["experts"]) if merged else one.get("beside")

    keyed = {(one["kind"], one.get("over", "tensor"), one["bytes_per_sample"], said(one)):
             one.get("count", 1) for one in entries}
    return keyed if len(keyed) == len(entries) else entries


def keyed_variant(variant):
    """A variant of a file as Estimate makes it, and its key."""
    variant = dict(variant)
    parts = frozenset(variant["recompute"].split("+")) if "recompute" in variant else frozenset()
    if parts:
        variant["recompute"] = parts
    for way in ("forward_collectives", "backward_collectives"):
        if way in variant:
            variant[way] = keyed_collectives(variant[way])
    return (variant["tensor_parallel"], variant.get("sequence_parallel", False),
            variant.get("context_parallel", 1), variant.get("expert_parallel", 1),
            variant.get("expert_tensor_parallel", 1), parts), variant


def keyed_layers(layers):
    """Layers of a file as Estimate makes them."""
    made = []
    for layer in layers:
        layer = dict(layer)
        if "variants" in layer:
            keyed = dict(map(keyed_variant, layer["variants"]))
            layer["variants"] = keyed if len(keyed) == len(layer["variants"]) else "some twice"
        made.append(layer)
    return made


class EstimateForms(ToolTest):
    def estimate(self, config, options, gpu, gpus=None):
        if options.merges:
            return self.estimate_for_runtime(config, options, gpu)
        more = ["--gpus", self.write("gpus.json", gpus)] if gpus else []
        return self.run_tool("estimate", self.write("config.json", config), "--gpu", gpu, "-o",
                             "profile.json", *options.arguments(), *more)

    def estimate_for_runtime(self, config, options, gpu):
        """The same for a runtime whose dispatcher merges, as a plan for one GPU has it."""
        device = next(each["name"] for each in json.loads(GPUS.read_text())["gpus"]
                      if gpu in (each["name"], *each.get("also", [])))
        runtime = {"schema": "dapple-runtime/1", "name": "own", "source": "drawn",
                   "transfers": "overlapped", "gradient_overlap": "buckets", "depths": "any",
                   "dispatcher": "merging"}
        topology = {"schema": "dapple-topology/1", "name": "one", "source": "drawn",
                    "devices": {device: {"memory": "80 GiB", "reserved": "0 B"}},
                    "servers": [{"name": "node", "count": 1, "device": device, "devices": 1}]}
        run = self.run_tool("plan", "--model", self.write("config.json", config), "--topo",
                            self.write("topology.json", topology), "--runtime",
                            self.write("runtime.json", runtime), "--global-batch", "1",
                            "--unlimited-memory", "-o", "plan.json", *options.arguments())
        if run.returncode == DONE:
            self.write("profile.json", self.read("plan.json")["model"]["profile"])
        return run

    def compare(self, seed):
        """What differs in the case of a seed, and the subjects that it is about."""
        draw = Draw(seed)
        run = self.estimate(draw.config, draw.options, draw.gpu, draw.gpus)
        machine = Machine(draw.gpus or json.loads(GPUS.read_text()), draw.gpu,
                          draw.options.precision, draw.options.framework)
        ours = Estimate(read_model(draw.config), draw.options, machine)
        layers = ours.layers()
        met = collections.Counter(self.subjects(draw, ours, layers))
        if max(len(layer.get("variants", [])) for layer in layers) > MOST_VARIANTS:
            met["more variants than a layer may have"] += 1
            refused = run.returncode == USAGE and f"at most {MOST_VARIANTS} ways" in run.stderr
            return [] if refused else [f"exit code {run.returncode}: {run.stderr}"], met
        if run.returncode != DONE:
            return [f"exit code {run.returncode}: {run.stderr.strip()}"], met
        document = self.read("profile.json")
        theirs = keyed_layers(document["layers"])
        names = [layer["name"] for layer in layers], [layer["name"] for layer in theirs]
        faults = differences(*names, "/names")
        for one, other in zip(layers, theirs):
            faults += differences(one, other, f"/{one['name']}")
        optimizer = {key: value if key == "name" else exact(value) for key, value in
                     {"gradient_bytes_per_parameter_byte": 1, **document["optimizer"]}.items()}
        faults += differences(ours.optimizer(), optimizer, "/optimizer")
        faults += differences(machine.name, document["device"], "/device")
        faults += differences(ours.parameters(), self.parameters_of(document), "/source")
        return faults, met

    def subjects(self, draw, ours, layers):
        """Which of SUBJECTS a case is about. Its layers have to be asked for before."""
        about = [ours.subjects()]
        keys = {key for layer in layers for key in layer.get("variants", {})}
        about += [ours.subjects_of_form(Form(tensor, context, experts, sequence, parts, sharing))
                  for tensor, sequence, context, experts, sharing, parts in keys]
        names = [layer["name"] for layer in layers]
        repeats = {layer["name"] for layer in layers if "repeat" in layer} - {"decoder"}
        first = repeats and any(f"{name}.{number}" in names for name in repeats
                                for number in range(draw.layers))
        about.append({
            "a GPU of the file": draw.gpus is None,
            "a GPU with a calibration of its own": draw.gpu == "board",
            "a GPU with that of others": draw.gpu == "card",
            "one block": draw.layers == 1,
            "equal blocks": repeats and not first, "equal blocks before others": first,
            "blocks of which the second is another": not repeats and draw.layers > 1,
            "no other forms": not keys,
        })
        return ours.met | {subject for found in about for subject, is_met in found.items()
                           if is_met}

    def parameters_of(self, document):
        """The number of parameters that a profile says its model has."""
        return int(re.search(r" (\d+) parameters", document["source"]).group(1))

    def test_layers_of_random_configurations(self):
        def words_of(seed):
            draw = Draw(seed)
            return (f"{json.dumps(draw.config)} --gpu {draw.gpu} "
                    + " ".join(map(str, draw.options.arguments())))

        self.assert_cases_agree(CASES, SUBJECTS, self.compare, words_of)

    # Published figures.

    def published(self):
        """Published configurations, by name, with the parameters that their models have."""
        known = json.loads((CONFIGURATIONS / "parameters.json").read_text())
        return {name: (json.loads((CONFIGURATIONS / name).read_text()), count)
                for name, count in known.items()}

    def test_parameters_of_published_models(self):
        for name, (config, count) in self.published().items():
            model = read_model(config)
            options = Options(None if model.patches else 128, max_tensor=1, max_experts=1)
            with self.subTest(name=name):
                run = self.estimate(config, options, "A100-80GB")
                self.assertEqual(run.returncode, DONE, run.stderr)
                document = self.read("profile.json")
                self.assertEqual(self.parameters_of(document), count["parameters"])
                of_layers = sum(layer.get("repeat", 1) * layer["parameter_bytes"]
                                for layer in document["layers"])
                self.assertEqual(of_layers, 2 * count["parameters"])
                # Where everything is recomputed, a layer has a variant that names its experts.
                of_experts = sum(
                    layer.get("repeat", 1) * variant.get("expert_parameter_bytes", 0)
                    for layer in document["layers"] for variant in layer.get("variants", []))
                self.assertEqual(of_experts, 2 * count["experts"])
                machine = Machine(json.loads(GPUS.read_text()), "A100-80GB", "bf16")
                ours = Estimate(model, options, machine)
                self.assertEqual(ours.parameters(), count["parameters"])

    def test_operations_are_those_that_megatron_counts(self):
        """Megatron-LM counts the products of matrices of dense models, with all pairs of attention,
        three times for a forward and a backward."""
        gpus = {
            "schema": "dapple-gpus/1", "source": "made up",
            "calibrations": [{"name": "exact", "matrix": 1, "attention": 1, "memory": 1, "launch_floor": "0 us",
                              "collective_floor": "0 us", "source": "made up"}],
            # An operation takes a nanosecond, and next to no time passes for memory.
            "gpus": [{"name": "counter", "memory": "80 GiB", "memory_bandwidth": "1000 TB/s",
                      "peak": {"bf16": "1 GFLOP/s"}, "source": "made up"}]}
        gpt3 = {"model_type": "gpt2", "n_embd": 12288, "n_head": 96, "n_layer": 96,
                "n_positions": 2048, "vocab_size": 51200}
        models = [("GPT-3", gpt3, 2048)]
        models += [(name, self.published()[f"{name}.json"][0], 8192)
                   for name in ("llama-3-8b", "llama-3-70b")]
        options = {"fused": False, "max_tensor": 1, "recompute": ()}
        for name, config, s in models:
            h = config.get("hidden_size", config.get("n_embd"))
            layers = config.get("num_hidden_layers", config.get("n_layer"))
            heads, groups = (config.get(key, 1) for key in (
                "num_attention_heads", "num_key_value_heads"))
            f = Fraction(3, 2) * config["intermediate_size"] if name != "GPT-3" else 4 * h
            megatron = (12 * s * layers * h * h * (1 + Fraction(groups, heads) + Fraction(f, h)
                                                   + Fraction(s, h))
                        + 6 * s * h * config["vocab_size"])
            with self.subTest(name=name):
                run = self.estimate(config, Options(s, **options), "counter", gpus)
                self.assertEqual(run.returncode, DONE, run.stderr)
                time = sum(layer.get("repeat", 1) * (one["forward_ns"] + one["backward_ns"])
                           for layer in self.read("profile.json")["layers"]
                           for one in layer["measurements"] if one["batch_size"] == 1)
                self.assertLess(abs(time - megatron), megatron / 1000)
                ours = Estimate(read_model(config), Options(s, **options),
                                Machine(gpus, "counter", "bf16"))
                parts = [ours.embedding(Form()).part, ours.head(Form()).part, *(
                    ours.block(block, Form()).part for block in ours.model.blocks)]
                self.assertEqual(sum(work.ops + work.core for part in parts
                                     for work in (part.forward, part.backward)),
                                 megatron)


if __name__ == "__main__":
    tool.main()
