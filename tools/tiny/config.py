"""Shape: the tiny model's sizes, and config.json in the form of the published checkpoint."""

from dataclasses import dataclass

CONTROL = (  # name, special: in the order of the published tokenizer
    [(t, True) for t in "<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> <|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|>".split()]
    + [(t, False) for t in "<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|> <tool_response> </tool_response> <think> </think>".split()]
    + [(t, True) for t in "<|audio_start|> <|audio_end|> <tts_pad> <tts_text_bos> <tts_text_eod> <tts_text_bos_single> <|audio_pad|>".split()]
)


@dataclass(frozen=True)
class Shape:
    """H hidden, L layers, N query heads, G kv heads, K linear key heads, V linear value heads, E experts."""

    vocab: int = 2048  # rows of embedding and head
    base_vocab: int = 2000  # tokens of the BPE; the control tokens follow, then rows without a token
    hidden: int = 256
    layers: int = 8
    heads: int = 4
    kv_heads: int = 1
    linear_key_heads: int = 2
    linear_value_heads: int = 4
    experts: int = 16
    top_k: int = 4
    expert_width: int = 128
    shared_width: int = 256
    # fixed by the family
    head_dim: int = 256
    rotary: int = 64
    theta: float = 1e7
    linear_dim: int = 128
    conv: int = 4
    eps: float = 1e-6
    interval: int = 4
    max_positions: int = 8192

    @property
    def key_dim(self):
        return self.linear_key_heads * self.linear_dim

    @property
    def value_dim(self):
        return self.linear_value_heads * self.linear_dim

    @property
    def conv_dim(self):
        return 2 * self.key_dim + self.value_dim

    def is_full(self, layer):
        return (layer + 1) % self.interval == 0

    @property
    def layer_types(self):
        return ["full_attention" if self.is_full(i) else "linear_attention" for i in range(self.layers)]

    def control_id(self, token):
        return self.base_vocab + [t for t, _ in CONTROL].index(token)


def text_config(s: Shape):
    """The text_config block."""
    return {
        "attention_bias": False, "attention_dropout": 0.0, "attn_output_gate": True, "bos_token_id": s.control_id("<|endoftext|>"), "dtype": "bfloat16", "eos_token_id": s.control_id("<|endoftext|>"), "full_attention_interval": s.interval,
        "head_dim": s.head_dim, "hidden_act": "silu", "hidden_size": s.hidden, "initializer_range": 0.02, "layer_types": s.layer_types, "linear_conv_kernel_dim": s.conv, "linear_key_head_dim": s.linear_dim, "linear_num_key_heads": s.linear_key_heads,
        "linear_num_value_heads": s.linear_value_heads, "linear_value_head_dim": s.linear_dim, "mamba_ssm_dtype": "float32", "max_position_embeddings": s.max_positions, "model_type": "qwen3_5_moe_text", "moe_intermediate_size": s.expert_width, "num_attention_heads": s.heads,
        "num_experts": s.experts, "num_experts_per_tok": s.top_k, "num_hidden_layers": s.layers, "num_key_value_heads": s.kv_heads, "output_router_logits": False, "pad_token_id": None, "partial_rotary_factor": s.rotary / s.head_dim, "rms_norm_eps": s.eps,
        "rope_parameters": {"mrope_interleaved": True, "mrope_section": [11, 11, 10], "partial_rotary_factor": s.rotary / s.head_dim, "rope_theta": int(s.theta), "rope_type": "default"}, "router_aux_loss_coef": 0.001,
        "shared_expert_intermediate_size": s.shared_width, "tie_word_embeddings": False, "use_cache": True, "vocab_size": s.vocab,
    }


def model_config(s: Shape):
    """The whole config.json."""
    quantization = {"group_size": 64, "bits": 4, "mode": "affine"}
    for layer in range(s.layers):
        for gate in ("gate", "shared_expert_gate"):
            quantization[f"language_model.model.layers.{layer}.mlp.{gate}"] = {"group_size": 64, "bits": 8}
    ids = {k: s.control_id(t) for k, t in (("image_token_id", "<|image_pad|>"), ("video_token_id", "<|video_pad|>"), ("vision_start_token_id", "<|vision_start|>"), ("vision_end_token_id", "<|vision_end|>"))}
    eos = [s.control_id("<|im_end|>"), s.control_id("<|endoftext|>")]
    return dict(sorted({"architectures": ["Qwen3_5MoeForConditionalGeneration"], "eos_token_id": eos, "model_type": "qwen3_5_moe", "quantization": quantization, "quantization_config": quantization, "text_config": text_config(s), "tie_word_embeddings": False, "transformers_version": "5.17.0", **ids}.items()))


def generation_config(s: Shape):
    return {"bos_token_id": s.control_id("<|endoftext|>"), "do_sample": True, "eos_token_id": [s.control_id("<|im_end|>"), s.control_id("<|endoftext|>")], "pad_token_id": s.control_id("<|endoftext|>"), "temperature": 0.7, "top_k": 20, "top_p": 0.8, "transformers_version": "5.17.0"}


def tokenizer_config(s: Shape):
    return {"add_prefix_space": False, "bos_token": None, "clean_up_tokenization_spaces": False, "eos_token": "<|im_end|>", "errors": "replace", "model_max_length": s.max_positions, "pad_token": "<|endoftext|>", "split_special_tokens": False, "tokenizer_class": "TokenizersBackend", "unk_token": None}
