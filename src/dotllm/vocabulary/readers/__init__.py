"""Readers of tokenizers: from any tokenizer a server has in its hands to tokens as bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dotllm.errors import UnsupportedError
from dotllm.vocabulary.content import ids_of
from dotllm.vocabulary.readers import hugging_face, sentencepiece, tiktoken
from dotllm.vocabulary.readers.contents import TokenizerContents
from dotllm.vocabulary.readers.decoding import as_decoded

__all__ = ["TokenizerContents", "read_tokenizer"]

_READERS: tuple[tuple[Callable[[object], bool], Callable[[Any], TokenizerContents]], ...] = (
    (hugging_face.is_tokenizers, hugging_face.read_tokenizers),
    (hugging_face.is_slow_sentencepiece, hugging_face.read_slow_sentencepiece),
    (hugging_face.is_slow_byte_level, hugging_face.read_slow_byte_level),
    (tiktoken.is_tekken, tiktoken.read_tekken),
    (tiktoken.is_tiktoken, tiktoken.read_tiktoken),
    (sentencepiece.is_sentencepiece, sentencepiece.read_sentencepiece),
)
# Where wrappers keep what they wrap: transformers (_tokenizer, sp_model, tokenizer), Mistral's and vLLM's classes
# (instruct_tokenizer, tokenizer, _model), remote code around tiktoken (tokenizer, model, _tokenizer).
_INNER = ("_tokenizer", "sp_model", "instruct_tokenizer", "tokenizer", "model", "_model")
_MAX_LAYERS = 6


def read_tokenizer(tokenizer: Any) -> TokenizerContents:
    """Tokens as bytes, special tokens and EOS ids of any supported tokenizer.

    What wrappers and Python classes say is kept: their EOS ids, their special tokens, and the tokens they added.

    Raises:
        UnsupportedError: the tokens are not known to have bytes; the keyword is the tokenizer's class.
    """
    layers = list(_layers(tokenizer))
    for depth, layer in enumerate(layers):
        for recognises, read in _READERS:
            if recognises(layer):
                contents = read(layer)
                for outer in reversed(layers[: depth + 1]):
                    contents = _with_outer(contents, outer)
                return as_decoded(contents)
    name = type(tokenizer).__name__
    raise UnsupportedError(
        f"tokenizer class {name} is not supported: its tokens are not known to have bytes of their own; "
        "build the vocabulary with Vocabulary.from_bytes if you know them",
        keyword=name,
        code="tokenizer",
    )


def _layers(tokenizer: Any) -> Iterator[Any]:
    for _ in range(_MAX_LAYERS):
        yield tokenizer
        inner = [getattr(tokenizer, name, None) for name in _INNER]
        found = [value for value in inner if value is not None and not isinstance(value, (str, type))]
        if not found:
            return
        tokenizer = found[0]


def _with_outer(contents: TokenizerContents, outer: Any) -> TokenizerContents:
    """Contents with the added tokens, special tokens and EOS of the wrapper ``outer``."""
    tokens, special = list(contents.tokens), dict(contents.special_tokens)
    added = getattr(outer, "added_tokens_decoder", None)
    if not isinstance(added, Mapping):  # mistral_common's has a method of this name that raises
        added = {}
    named: dict[int, str] = {i: str(token) for i, token in added.items() if getattr(token, "special", True)}
    ids, names = getattr(outer, "all_special_ids", None), getattr(outer, "all_special_tokens", None)
    if ids is not None and names is not None:
        named.update(zip(ids, map(str, names), strict=False))
    size = max([len(tokens) - 1, *added, *named]) + 1
    tokens.extend([None] * (size - len(tokens)))
    for i, token in added.items():
        if i not in named and tokens[i] is None:  # tiktoken calls every added token special; the wrapper knows better
            tokens[i] = str(token).encode()
            special.pop(str(token), None)
    plain = contents.added_tokens | {str(token): i for i, token in added.items() if i not in named}
    for i, name in named.items():
        tokens[i] = None
        special.setdefault(name, i)
    eos = getattr(outer, "eos_token_id", None)
    eos_ids = contents.eos_token_ids if eos is None else ids_of(eos)
    plain = {name: i for name, i in plain.items() if i not in named and name not in special}
    return contents._replace(tokens=tokens, special_tokens=special, added_tokens=plain, eos_token_ids=eos_ids)
