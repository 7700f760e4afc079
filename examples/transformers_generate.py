"""JSON from a transformers model: ``python examples/transformers_generate.py [MODEL]``.

Without MODEL, it makes the demo model on the spot, which writes nonsense that fits the schema.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from transformers import AutoModelForCausalLM, AutoTokenizer, LogitsProcessorList

from dotllm import Index, Vocabulary
from dotllm.demo import model as demo
from dotllm.transformers import StructuredLogitsProcessor

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 8},
        "degrees": {"type": "integer", "minimum": -60, "maximum": 60},  # without a minimum, it may have endless digits
    },
    "required": ["city", "degrees"],
    "additionalProperties": False,
}
PROMPTS = ["The weather in Paris:", "The weather in Rome, as JSON:"]


def main(name: str) -> list[str]:
    """Print and return three documents for each prompt."""
    tokenizer = AutoTokenizer.from_pretrained(name, padding_side="left")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(name)
    vocabulary = Vocabulary.from_tokenizer(tokenizer, size=model.config.get_text_config().vocab_size)
    index = Index.from_json_schema(SCHEMA, vocabulary, any_whitespace=False)
    inputs = tokenizer(PROMPTS, padding=True, return_tensors="pt")
    out = model.generate(
        **inputs,
        max_new_tokens=150,  # every text of SCHEMA has fewer bytes, so no document is cut
        do_sample=True,
        num_return_sequences=3,
        pad_token_id=tokenizer.pad_token_id,
        logits_processor=LogitsProcessorList([StructuredLogitsProcessor(index)]),
    )
    answers: list[str] = tokenizer.batch_decode(out[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    for answer in answers:
        print(json.loads(answer))
    return answers


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as directory:
            main(str(demo.make(Path(directory) / "model")))
