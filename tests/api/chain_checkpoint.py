"""Checkpoints that say what a test wants them to say, through the same code as any other model.

Every projection that feeds the residual stream is zero, so the logits depend on the current token alone. A token of the
script has an embedding of its own (one dimension), and the head row of the token after it points there: greedy
decoding, and sampling at any usual temperature, follow the chain. A token can therefore occur only once in a script.

The prompt ends in a newline after an open think block, or in an empty line after a closed one; the chain starts there.
"""

import json
import pathlib
import shutil
import struct

HIDDEN = 256
EXPERTS = 8
INNER = 64
HEADS = 2
HEAD_DIM = 256
KEY_HEADS = 1
VALUE_HEADS = 2
LINEAR_DIM = 128
LAYERS = ["linear_attention", "full_attention"]

SOURCE = pathlib.Path(__file__).resolve().parents[2]
TINY = SOURCE / "models" / "tiny"

ADDED = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<tool_response>",
         "</tool_response>", "<think>", "</think>"]
SPECIAL = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}


def byte_alphabet():
    """GPT-2's printable stand-in for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {**{byte: chr(byte) for byte in plain}, **{byte: chr(256 + i) for i, byte in enumerate(others)}}


ALPHABET = byte_alphabet()


def spell(token):
    return "".join(ALPHABET[byte] for byte in token)


class Chain:
    """What follows what. Tokens are bytes, or the names of added tokens; the rest of the vocabulary is single bytes."""

    def __init__(self):
        self.next = {}

    def follow(self, *tokens):
        for token, successor in zip(tokens, tokens[1:]):
            assert token not in self.next, f"{token!r} has a successor already"
            self.next[token] = successor
        return self

    @classmethod
    def answer(cls, content, reasoning=(), end="<|im_end|>"):
        """With thinking on: the reasoning, the end of the block, the content. With thinking off: the content."""
        chain = cls().follow(b"\n", *reasoning, "</think>", b"\n\n")
        return chain.follow(b"\n\n", *content, end)

    @classmethod
    def forever(cls, words, thinking=True):
        """An answer that only a limit ends."""
        return cls().follow(b"\n" if thinking else b"\n\n", *words, words[0])


def bf16(value):
    return struct.pack("<f", value)[2:]


class Writer:
    """One model.safetensors, as MLX lays it out: no padding after the header."""

    def __init__(self):
        self.header = {"__metadata__": {"format": "mlx"}}
        self.data = bytearray()

    def add(self, name, dtype, shape, data):
        self.header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(self.data), len(self.data) + len(data)]}
        self.data += data

    def vector(self, name, shape, value):
        count = 1
        for size in shape:
            count *= size
        self.add(name, "BF16", shape, bf16(value) * count)

    def zeros(self, module, rows, inner, bits=4):
        count = 1
        for size in rows:
            count *= size
        self.add(module + ".weight", "U32", [*rows, inner * bits // 32], bytes(count * inner * bits // 8))
        for part in ("scales", "biases"):
            self.add(f"{module}.{part}", "BF16", [*rows, inner // 64], bytes(2 * count * inner // 64))

    def one_hot(self, module, rows, inner, hot, scale):
        """rows x inner, 4 bits: `scale` at the (row, column) pairs of `hot`, 0 elsewhere."""
        weight = bytearray(rows * inner // 2)
        scales = bytearray(2 * rows * inner // 64)
        for row, column in hot:
            weight[(row * inner + column) // 2] |= 1 << (4 * (column % 2))
            group = 2 * ((row * inner + column) // 64)
            scales[group : group + 2] = bf16(scale)
        self.add(module + ".weight", "U32", [rows, inner // 8], bytes(weight))
        self.add(module + ".scales", "BF16", [rows, inner // 64], bytes(scales))
        self.add(module + ".biases", "BF16", [rows, inner // 64], bytes(len(scales)))

    def write(self, path):
        header = json.dumps(self.header).encode()
        path.write_bytes(struct.pack("<Q", len(header)) + header + self.data)


def vocabulary(chain):
    """Token -> id: the single bytes under their values, the empty line, the script's words, and the added tokens behind them."""
    words = [bytes([byte]) for byte in range(256)] + [b"\n\n"]
    for token in [*chain.next, *chain.next.values()]:
        if isinstance(token, bytes) and token not in words:
            words.append(token)
    ids = {word: i for i, word in enumerate(words)}
    return {**ids, **{name: len(words) + i for i, name in enumerate(ADDED)}}


def write_tokenizer(folder, ids):
    tiny = json.loads((TINY / "tokenizer.json").read_text())
    tiny["model"]["vocab"] = {spell(token): i for token, i in ids.items() if isinstance(token, bytes)}
    tiny["model"]["merges"] = [["Ċ", "Ċ"]]
    template = tiny["added_tokens"][0]
    tiny["added_tokens"] = [{**template, "id": ids[name], "content": name, "special": name in SPECIAL} for name in ADDED]
    (folder / "tokenizer.json").write_text(json.dumps(tiny, ensure_ascii=False))
    shutil.copy(TINY / "chat_template.jinja", folder / "chat_template.jinja")


def write_config(folder, vocab_size, eos, context, generation):
    text = {
        "model_type": "qwen3_5_moe_text", "hidden_size": HIDDEN, "num_hidden_layers": len(LAYERS), "layer_types": LAYERS,
        "full_attention_interval": 2, "num_attention_heads": HEADS, "num_key_value_heads": 1, "head_dim": HEAD_DIM,
        "attn_output_gate": True, "attention_bias": False, "linear_num_key_heads": KEY_HEADS,
        "linear_num_value_heads": VALUE_HEADS, "linear_key_head_dim": LINEAR_DIM, "linear_value_head_dim": LINEAR_DIM,
        "linear_conv_kernel_dim": 4, "num_experts": EXPERTS, "num_experts_per_tok": 2, "moe_intermediate_size": INNER,
        "shared_expert_intermediate_size": INNER, "hidden_act": "silu", "rms_norm_eps": 1e-6, "vocab_size": vocab_size,
        "max_position_embeddings": context, "partial_rotary_factor": 0.25, "tie_word_embeddings": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25,
                            "mrope_section": [11, 11, 10], "mrope_interleaved": True},
    }
    quantization = {"group_size": 64, "bits": 4, "mode": "affine"}
    config = {"architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe", "eos_token_id": eos,
              "tie_word_embeddings": False, "quantization": quantization, "text_config": text}
    (folder / "config.json").write_text(json.dumps(config))
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))


def write_layer(out, at, kind):
    if kind == "linear_attention":
        values = VALUE_HEADS * LINEAR_DIM
        channels = 2 * KEY_HEADS * LINEAR_DIM + values
        out.vector(at + "linear_attn.conv1d.weight", [channels, 4, 1], 0)
        for name, rows in {"qkv": channels, "z": values, "b": VALUE_HEADS, "a": VALUE_HEADS}.items():
            out.zeros(f"{at}linear_attn.in_proj_{name}", [rows], HIDDEN)
        out.vector(at + "linear_attn.dt_bias", [VALUE_HEADS], 0)
        out.vector(at + "linear_attn.A_log", [VALUE_HEADS], 0)
        out.vector(at + "linear_attn.norm.weight", [LINEAR_DIM], 1)
        out.zeros(at + "linear_attn.out_proj", [HIDDEN], values)
    else:
        out.zeros(at + "self_attn.q_proj", [2 * HEADS * HEAD_DIM], HIDDEN)
        out.zeros(at + "self_attn.k_proj", [HEAD_DIM], HIDDEN)
        out.zeros(at + "self_attn.v_proj", [HEAD_DIM], HIDDEN)
        out.zeros(at + "self_attn.o_proj", [HIDDEN], HEADS * HEAD_DIM)
        out.vector(at + "self_attn.q_norm.weight", [HEAD_DIM], 1)
        out.vector(at + "self_attn.k_norm.weight", [HEAD_DIM], 1)
    out.vector(at + "input_layernorm.weight", [HIDDEN], 1)
    out.vector(at + "post_attention_layernorm.weight", [HIDDEN], 1)
    out.zeros(at + "mlp.gate", [EXPERTS], HIDDEN)
    out.zeros(at + "mlp.shared_expert_gate", [1], HIDDEN)
    for part in ("gate_proj", "up_proj"):
        out.zeros(f"{at}mlp.switch_mlp.{part}", [EXPERTS, INNER], HIDDEN)
        out.zeros(f"{at}mlp.shared_expert.{part}", [INNER], HIDDEN)
    out.zeros(at + "mlp.switch_mlp.down_proj", [EXPERTS, HIDDEN], INNER)
    out.zeros(at + "mlp.shared_expert.down_proj", [HIDDEN], INNER)


def write_chain(folder, chain, eos=("<|im_end|>", "<|endoftext|>"), context=4096, generation=None, certainty=2.0):
    """Writes the checkpoint; tokens in `eos` and `generation` go by name. Logits are 16 * certainty for the next token of the chain and 0 for the others."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    ids = vocabulary(chain)
    vocab_size = (len(ids) + 63) // 64 * 64
    assert len(chain.next) <= HIDDEN, "a dimension a token"
    stop_ids = [ids[name] for name in eos]
    write_tokenizer(folder, ids)
    if generation and "eos_token_id" in generation:
        generation = {**generation, "eos_token_id": ids[generation["eos_token_id"]]}
    write_config(folder, vocab_size, stop_ids if len(stop_ids) > 1 else stop_ids[0], context, generation)
    dimension = {token: i for i, token in enumerate(chain.next)}
    out = Writer()
    out.one_hot("language_model.model.embed_tokens", vocab_size, HIDDEN,
                [(ids[token], column) for token, column in dimension.items()], 1.0)
    for i, kind in enumerate(LAYERS):
        write_layer(out, f"language_model.model.layers.{i}.", kind)
    out.vector("language_model.model.norm.weight", [HIDDEN], 1)
    out.one_hot("language_model.lm_head", vocab_size, HIDDEN,
                [(ids[successor], dimension[token]) for token, successor in chain.next.items()], certainty)
    out.write(folder / "model.safetensors")
    return folder
