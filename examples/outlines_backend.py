"""Outlines' interface with our masks: ``python examples/outlines_backend.py MODEL`` (pip install outlines)."""

from __future__ import annotations

import sys

import outlines
from transformers import AutoModelForCausalLM, AutoTokenizer

from dotllm.outlines import DotllmBackend

if __name__ == "__main__":
    name = sys.argv[1]
    model = outlines.from_transformers(AutoModelForCausalLM.from_pretrained(name), AutoTokenizer.from_pretrained(name))
    processor = DotllmBackend(model).get_regex_logits_processor(r"(sun|rain), -?[0-9]{1,2} degrees")
    print(outlines.Generator(model, processor=processor)("The weather:", max_new_tokens=50))
