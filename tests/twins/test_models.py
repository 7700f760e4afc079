"""The stand-in models have what the routes need. Otherwise every request to them would fail, on both sides alike. And offline
calls use every field of the sampling parameters."""

from __future__ import annotations

from pathlib import Path

from transformers import AutoConfig, AutoTokenizer

from tests.twins import offline_script, servers


def test_the_speech_model_has_the_tokens_of_speech(demo_model: Path, tmp_path: Path) -> None:
    servers.KINDS["audio"].make(tmp_path / "audio", demo_model)
    tokenizer, config = (one.from_pretrained(tmp_path / "audio") for one in (AutoTokenizer, AutoConfig))
    asked = [
        "<|startoftranscript|>",
        "<|en|>",
        "<|yue|>",
        "<|transcribe|>",
        "<|translate|>",
        "<|notimestamps|>",
        "<|0.00|>",
    ]
    numbers = tokenizer.convert_tokens_to_ids(asked)
    assert None not in numbers and len({*numbers}) == len(asked)
    assert config.decoder_start_token_id == numbers[0] and config.vocab_size == len(tokenizer)
    assert tokenizer.convert_tokens_to_ids("<|30.00|>") - numbers[-1] == 1500  # each 0.02 s later


def test_offline_calls_use_every_field_of_sampling_parameters() -> None:
    from vllm import SamplingParams

    set_by_vllm = {"output_text_buffer_length"}
    fields = {name for name in SamplingParams.__struct_fields__ if not name.startswith("_")} - set_by_vllm
    assert fields == {name for given in offline_script.sampling().values() for name in given}
