"""A small model and its drafters, all with random weights: an EAGLE and an EAGLE-3 head, MiMo's MTP layer.

Random models agree on nothing, so no draft would be kept. Here all share an output layer that strongly prefers some
tokens: these are often drafted, often allowed, and sometimes kept.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from dotllm.demo import model

VOCABULARY = 1000
LIKED = ('"', "a", "b", "c", "1", "2", "0")
HOW_MUCH = 8.0
DRAFTS = 3
HIDDEN = 128
MIMO_CONFIG = """\
from transformers import Qwen2Config


class MiMoConfig(Qwen2Config):
    model_type = "mimo"
"""
"""transformers has no such class: it comes with the model, as MiMo's makers ship it."""


def make(folder: Path) -> dict[str, tuple[Path, dict[str, Any] | None]]:
    """The model and vLLM's ``speculative_config``, by kind of speculation."""
    plain, llama, mimo = folder / "plain", folder / "llama", folder / "mimo"
    model.make(plain, vocabulary_size=VOCABULARY)
    _llama(llama, plain)
    ngram = {"method": "ngram", "num_speculative_tokens": DRAFTS, "prompt_lookup_min": 1, "prompt_lookup_max": 3}
    return {
        "none": (llama, None),
        "ngram": (llama, ngram),
        "eagle": (llama, _head(folder / "eagle", llama, "eagle", 2 * HIDDEN)),
        "eagle3": (llama, _head(folder / "eagle3", llama, "eagle3", 2 * HIDDEN)),
        "no MTP": (_mimo(mimo, plain), None),
        "MTP": (mimo, {"method": "mtp", "num_speculative_tokens": 1}),
    }


def _config(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return config


def _save(folder: Path, source: Path, config: dict[str, Any], weights: dict[str, Any]) -> None:
    from safetensors.torch import save_file

    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    (folder / "config.json").write_text(json.dumps(config))
    save_file({name: tensor.clone() for name, tensor in weights.items()}, folder / "model.safetensors")


def _llama(folder: Path, source: Path) -> None:
    from safetensors.torch import load_file

    weights = {name: tensor.float() for name, tensor in load_file(source / "model.safetensors").items()}
    _like(weights["lm_head.weight"], source)
    _save(folder, source, _config(source) | {"torch_dtype": "float32", "dtype": "float32"}, weights)


def _like(output_layer: Any, source: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(source)
    output_layer[[tokenizer.convert_tokens_to_ids(piece) for piece in LIKED]] *= HOW_MUCH


def _head(folder: Path, target: Path, method: str, inputs: int) -> dict[str, Any]:
    """A layer of the target's shape, after a layer that maps ``inputs`` numbers to its input."""
    import torch
    from safetensors.torch import load_file

    weights = {
        name.removeprefix("model."): tensor
        for name, tensor in load_file(target / "model.safetensors").items()
        if "layers.0." in name
    }
    weights["fc.weight"] = torch.randn(HIDDEN, inputs, generator=torch.Generator().manual_seed(1)) / inputs**0.5
    config = _config(target) | {"num_hidden_layers": 1}
    if method == "eagle":
        del weights["layers.0.input_layernorm.weight"]  # EAGLE heads have none
    else:
        config |= {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": config["vocab_size"]}
        config["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": [0, 1]}
        for name in ("q_proj", "k_proj", "v_proj"):
            weight = weights[f"layers.0.self_attn.{name}.weight"]
            weights[f"layers.0.self_attn.{name}.weight"] = torch.cat([weight, weight], dim=1)
        whole = load_file(target / "model.safetensors")
        weights["layers.0.hidden_norm.weight"] = weights["norm.weight"] = torch.ones(HIDDEN)
        weights["lm_head.weight"] = whole["lm_head.weight"]
    _save(folder, target, config, weights)
    return {"method": method, "model": str(folder), "num_speculative_tokens": DRAFTS}


def _mimo(folder: Path, source: Path) -> Path:
    """A model of Qwen2's shape with an additional layer that predicts one more token."""
    import torch
    from safetensors.torch import load_file

    torch.manual_seed(2)
    weights = {name: tensor.float() for name, tensor in load_file(source / "model.safetensors").items()}
    _like(weights["lm_head.weight"], source)
    for name in [name for name in weights if name.endswith("_proj.weight") and "self_attn" in name]:
        if "o_proj" not in name:
            weights[name.replace(".weight", ".bias")] = torch.zeros(len(weights[name]))
    for name in [name for name in weights if "layers.0." in name]:
        weights[name.replace("layers.0.", "mtp_layers.0.")] = weights[name]
    for norm in ("token_layernorm", "hidden_layernorm", "final_layernorm"):
        weights[f"model.mtp_layers.0.{norm}.weight"] = torch.ones(HIDDEN)
    weights["model.mtp_layers.0.input_proj.weight"] = torch.randn(HIDDEN, 2 * HIDDEN) / (2 * HIDDEN) ** 0.5
    config = _config(source) | {
        "architectures": ["MiMoForCausalLM"], "model_type": "mimo", "num_nextn_predict_layers": 1,
        "auto_map": {"AutoConfig": "configuration_mimo.MiMoConfig"},
        "torch_dtype": "float32", "dtype": "float32",
    }  # fmt: skip
    _save(folder, source, config, weights)
    (folder / "configuration_mimo.py").write_text(MIMO_CONFIG)
    return folder
