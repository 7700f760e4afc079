"""A model for the tests of tools and reasoning: the demo's, with the special tokens and a chat template for both.

Its generation config names a second end, like those of most chat models. Its weights are random, so its answers show
the constraint and nothing else. It "reasons" if the request's ``chat_template_kwargs`` say so; otherwise the template
closes the reasoning before the answer begins, like Qwen3's.
"""

from __future__ import annotations

import json
from pathlib import Path

from dotllm.demo import model

MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
"""Tokens, but not special ones, as in Qwen3's and DeepSeek-R1's tokenizers."""
ENDS = ("<|im_end|>", "<|endoftext|>")
_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% for tool in tools or [] %}{{ tool | tojson }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)


def make(directory: Path, demo_model: Path) -> Path:
    """Make the model in ``directory`` from the demo model."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(demo_model / "tokenizer.json"))
    tokenizer.add_tokens(list(MARKS))
    made = model.make_with_tokenizer(directory, tokenizer.to_str().encode(), eos_token="<|im_end|>")
    path = made / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": _TEMPLATE}))
    ends = [tokenizer.token_to_id(name) for name in ENDS]
    (made / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    return made
