"""Small models for a first look and for tests, and a server for them on this machine's CPU.

trained   SmolLM2-135M-Instruct, from the package index; gguf: reads its file
model     random weights, made on the spot in seconds with a `tokenizer`: no download, but meaningless words
server    a ``dotllm serve`` process; process_group: ends it
example   the demo's requests
"""
