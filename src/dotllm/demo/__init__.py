"""Small models for a first look and for tests, and a server for them on this machine's CPU.

trained   SmolLM2-135M-Instruct, from the package index; gguf: reads its file
model     random weights, made on the spot in seconds with a `tokenizer`: no download, and meaningless words server    a
``dotllm serve`` process; process_group: how it ends
example   what the demo asks
"""
