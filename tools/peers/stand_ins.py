"""Stand-ins for the models and adapters of a hub that vLLM's tests name: small, of the same kind, with random weights.

Each is a folder of the hub's name, in the folder where the tests run. A test that asks what a trained model says fails
on them, on plain vLLM too, so the pairs do not count it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from dotllm.demo import model
from tests.serve import api_model, drafting_models, model_classes

LONGEST = 200
"""The tokens of an answer. A random model would use its whole context, which takes minutes."""
DIMENSIONS = 384
"""Those of intfloat/multilingual-e5-small, the embedding model that most tests use."""
NAMES: dict[str, tuple[str, ...]] = {
    "plain": ("gpt2", "openai-community/gpt2", "distilbert/distilgpt2", "facebook/opt-125m", "meta-llama/Llama-3.2-1B"),
    "chat": (
        "Qwen/Qwen3-0.6B", "Qwen/Qwen3-1.7B", "Qwen/Qwen3-8B", "Qwen/Qwen2-1.5B-Instruct", "Qwen/Qwen2.5-1.5B-Instruct",
        "meta-llama/Llama-3.2-1B-Instruct", "TinyLlama/TinyLlama-1.1B-Chat-v1.0", "HuggingFaceTB/SmolLM2-135M-Instruct",
        "hmellor/tiny-random-LlamaForCausalLM", "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B",
        "HuggingFaceH4/zephyr-7b-beta", "ibm-granite/granite-4.0-h-tiny", "unsloth/llama-3.2-1b-Instruct",
    ),
    "embeddings": (
        "intfloat/multilingual-e5-small", "intfloat/e5-small", "BAAI/bge-base-en-v1.5",
        "sentence-transformers/all-MiniLM-L12-v2", "Snowflake/snowflake-arctic-embed-m-v1.5",
    ),
    "classes": ("jason9693/Qwen2.5-1.5B-apeach",),
    "scores": ("BAAI/bge-reranker-base", "BAAI/bge-reranker-v2-m3", "tomaarsen/Qwen3-Reranker-0.6B-seq-cls"),
    "drafts/llama": (
        "meta-llama/Meta-Llama-3-8B-Instruct", "meta-llama/Meta-Llama-3.1-8B-Instruct",
        "meta-llama/Llama-3.1-8B-Instruct", "amd/PARD-Llama-3.2-1B",
    ),
    "drafts/eagle": ("yuhuili/EAGLE-LLaMA3-Instruct-8B", "yuhuili/EAGLE-LLaMA3.1-Instruct-8B"),
    "drafts/eagle3": ("yuhuili/EAGLE3-LLaMA3.1-Instruct-8B",),
    "drafts/mimo": ("XiaomiMiMo/MiMo-7B-Base",),
    "experts": ("TitanML/tiny-mixtral",),
    "speech": ("openai/whisper-large-v3", "openai/whisper-small"),
    "pictures": ("llava-hf/llava-1.5-7b-hf", "Qwen/Qwen2.5-VL-3B-Instruct"),
    "adapter": (
        "typeof/zephyr-7b-beta-lora", "charent/self_cognition_Alice", "charent/self_cognition_Bob",
        "minpeter/LoRA-Llama-3.2-1B-tool-vllm-ci", "jekunz/smollm-135m-lora-fineweb-faroese",
        "Jackmin108/Qwen3-0.6B-Meow-LoRA", "Jackmin108/Qwen3-0.6B-Woof-LoRA",
        "peft-internal-testing/opt-125m-dummy-lora",
    ),
}  # fmt: skip


def make(folder: Path, cache: Path) -> None:
    """Link the stand-ins, which are made in ``cache`` once, into ``folder`` under the names of the hub."""
    demo = model.make(cache / "model")
    for kind, names in NAMES.items():
        made = demo if kind == "plain" else cache / "stand-ins" / kind
        if not made.exists():
            made.parent.mkdir(parents=True, exist_ok=True)
            _MAKERS[kind](made, demo)
        for name in names:
            place = folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.unlink(missing_ok=True)
            place.symlink_to(made, target_is_directory=True)


def _chat(made: Path, demo: Path) -> None:
    api_model.make(made, demo)
    file = made / "generation_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"max_new_tokens": LONGEST}))


def _embeddings(made: Path, demo: Path) -> None:
    from transformers import LlamaConfig, LlamaModel

    shutil.copytree(demo, made, ignore=shutil.ignore_patterns("generation_config.json", "*.safetensors"))
    LlamaModel(LlamaConfig.from_pretrained(demo, hidden_size=DIMENSIONS)).save_pretrained(made)
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}  # makes vLLM choose the pooling runner
    modules = [
        {"idx": at, "name": str(at), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for at, (path, kind) in enumerate(kinds.items())
    ]
    (made / "modules.json").write_text(json.dumps(modules))
    (made / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": DIMENSIONS, "pooling_mode_lasttoken": True}
    (made / "1_Pooling" / "config.json").write_text(json.dumps(pooling))


def _labels(number: int) -> Callable[[Path, Path], None]:
    def make(made: Path, demo: Path) -> None:
        from transformers import LlamaConfig, LlamaForSequenceClassification

        shutil.copytree(demo, made, ignore=shutil.ignore_patterns("generation_config.json", "*.safetensors"))
        config = LlamaConfig.from_pretrained(demo, num_labels=number)
        LlamaForSequenceClassification(config).save_pretrained(made)

    return make


def _pictures(made: Path, demo: Path) -> None:
    model_classes.make(made, demo, "image")  # (without weights: the tests only read its configuration)


def _with_weights(kind: str) -> Callable[[Path, Path], None]:
    def make(made: Path, demo: Path) -> None:
        import transformers

        model_classes.make(made, demo, kind)
        config = transformers.AutoConfig.from_pretrained(made)
        getattr(transformers, config.architectures[0])(config).save_pretrained(made)

    return make


def _drafts(made: Path, _: Path) -> None:
    drafting_models.make(made.parent)  # (all of this kind)


def _adapter(made: Path, _: Path) -> None:
    model_classes.adapters(made.parent / "adapters")[0].rename(made)


_MAKERS: dict[str, Callable[[Path, Path], object]] = {
    "chat": _chat, "embeddings": _embeddings, "classes": _labels(2), "scores": _labels(1), "pictures": _pictures,
    **dict.fromkeys(("drafts/llama", "drafts/eagle", "drafts/eagle3", "drafts/mimo"), _drafts),
    "experts": _with_weights("Mixtral"), "speech": _with_weights("audio"), "adapter": _adapter,
}  # fmt: skip
