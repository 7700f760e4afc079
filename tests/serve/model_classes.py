"""Tiny models with random weights that are not plain and dense: mixtures, hybrids, images, audio, LoRA."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

HIDDEN, LAYERS, HEADS = 128, 2, 4
LINEAR = {f"linear_{name}": value for name, value in (
    ("num_value_heads", 4), ("num_key_heads", 2), ("key_head_dim", 64), ("value_head_dim", 64),
)}  # fmt: skip
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2}
SMALL_EXPERTS = {**EXPERTS, "moe_intermediate_size": 64, "shared_expert_intermediate_size": 64}
IMAGE_SIZE, QUERIES = 56, 4
START = "<|startoftranscript|>"
KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {  # transformers' configuration, vLLM's class, other fields
    "MoE": ("Qwen2MoeConfig", "Qwen2MoeForCausalLM", SMALL_EXPERTS),
    "Mixtral": ("MixtralConfig", "MixtralForCausalLM", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "Qwen3-Next": (
        "Qwen3NextConfig", "Qwen3NextForCausalLM",
        {"num_hidden_layers": 4, "head_dim": 32, **SMALL_EXPERTS, **LINEAR},
    ),
    "Falcon-H1": (
        "FalconH1Config", "FalconH1ForCausalLM",
        {"mamba_d_ssm": 128, "mamba_n_heads": 4, "mamba_d_head": 32, "mamba_n_groups": 1, "mamba_d_state": 16},
    ),
    "Jamba": (
        "JambaConfig", "JambaForCausalLM",
        {"num_hidden_layers": 4, "attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2,
         "expert_layer_offset": 1, "use_mamba_kernels": False, **EXPERTS},
    ),
    "Mamba-2": (
        "Mamba2Config", "Mamba2ForCausalLM",
        {"num_heads": 8, "head_dim": 32, "n_groups": 1, "state_size": 16, "expand": 2},
    ),
    "gpt-oss": ("GptOssConfig", "GptOssForCausalLM", {"head_dim": 32, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "image": ("Blip2Config", "Blip2ForConditionalGeneration", {}),
    "audio": (
        "WhisperConfig", "WhisperForConditionalGeneration",
        {"d_model": HIDDEN, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": HEADS,
         "decoder_attention_heads": HEADS, "encoder_ffn_dim": 256, "decoder_ffn_dim": 256, "max_target_positions": 448},
    ),
    "LoRA": ("LlamaConfig", "LlamaForCausalLM", {}),
}  # fmt: skip


def make(folder: Path, demo_model: Path, kind: str) -> dict[str, Any]:
    """Make the model of ``kind`` in ``folder``, without weights (vLLM makes them up). Returns options for ``LLM``."""
    import transformers
    from transformers import AutoTokenizer

    shutil.copytree(demo_model, folder, ignore=shutil.ignore_patterns("*.safetensors", "generation_config.json"))
    special = {"image": ["<image>"], "audio": _of_speech()}.get(kind, [])
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": special})
    tokenizer.save_pretrained(folder)
    name, architecture, fields = KINDS[kind]
    ends = {"bos_token_id": None, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    text = {
        "vocab_size": len(tokenizer), "hidden_size": HIDDEN, "intermediate_size": 2 * HIDDEN,
        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": 2,
        "max_position_embeddings": 2048, "tie_word_embeddings": False, **ends,
    }  # fmt: skip
    if kind == "image":
        fields = _image(folder, tokenizer, text)
    elif kind == "audio":
        fields = {
            **fields,
            "vocab_size": len(tokenizer),
            **ends,
            "decoder_start_token_id": tokenizer.convert_tokens_to_ids(START),
        }
        transformers.WhisperFeatureExtractor(processor_class="WhisperProcessor").save_pretrained(folder)
    elif kind == "Mamba-2":
        fields = {**fields, "vocab_size": len(tokenizer), "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, **ends}
    else:
        fields = {**text, **fields}
    config = getattr(transformers, name)(**fields).to_dict()
    config = {name: value for name, value in config.items() if name != "quantization_config"}
    (folder / "config.json").write_text(json.dumps({**config, "architectures": [architecture]}, default=str))
    return {
        "image": {"limit_mm_per_prompt": {"image": 1}},
        "LoRA": {"enable_lora": True, "max_loras": 2, "max_lora_rank": 8},
    }.get(kind, {})


def _of_speech() -> list[str]:
    """Whisper's own tokens. vLLM lets the model choose a language from them, and reads times from them."""
    from transformers.models.whisper.tokenization_whisper import LANGUAGES

    tasks = ("translate", "transcribe", "notimestamps")
    return [START, *(f"<|{name}|>" for name in (*LANGUAGES, *tasks)), *(f"<|{at / 50:.2f}|>" for at in range(1501))]


def _image(folder: Path, tokenizer: Any, text: dict[str, Any]) -> dict[str, Any]:
    """BLIP-2: one of vLLM's image models that need no torchvision."""
    import transformers

    size = {"height": IMAGE_SIZE, "width": IMAGE_SIZE}
    processor = transformers.BlipImageProcessor(size=size)
    transformers.Blip2Processor(processor, tokenizer, num_query_tokens=QUERIES).save_pretrained(folder)
    seen = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
    language = {"model_type": "opt", "architectures": ["OPTForCausalLM"], "word_embed_proj_dim": HIDDEN, **text}
    return {
        "text_config": {**language, "ffn_dim": language.pop("intermediate_size")},
        "vision_config": {**seen, "image_size": IMAGE_SIZE, "patch_size": 14},
        "qformer_config": {**seen, "vocab_size": len(tokenizer), "encoder_hidden_size": 64},
        "num_query_tokens": QUERIES,
        "image_token_index": tokenizer.convert_tokens_to_ids("<image>"),
        **{name: text[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id")},
    }


def adapters(folder: Path) -> list[Path]:
    """Two LoRA adapters for the model "LoRA"."""
    import torch
    from safetensors.torch import save_file

    made = [folder / "first", folder / "second"]
    for seed, adapter in enumerate(made):
        adapter.mkdir(parents=True)
        generator = torch.Generator().manual_seed(seed)
        weights = {}
        for layer in range(LAYERS):
            for name, width in (("q_proj", HIDDEN), ("v_proj", HIDDEN // 2)):
                place = f"base_model.model.model.layers.{layer}.self_attn.{name}"
                weights[f"{place}.lora_A.weight"] = torch.randn(8, HIDDEN, generator=generator) * 0.3
                weights[f"{place}.lora_B.weight"] = torch.randn(width, 8, generator=generator) * 0.3
        save_file(weights, adapter / "adapter_model.safetensors")
        config = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj", "v_proj"]}
        (adapter / "adapter_config.json").write_text(json.dumps({**config, "bias": "none", "task_type": "CAUSAL_LM"}))
    return made
