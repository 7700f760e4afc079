"""The bytes of tokens, against what the tokenizers decode; the tests train small tokenizers."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from dotllm.errors import UnsupportedError
from dotllm.vocabulary import Vocabulary
from dotllm.vocabulary.readers import decode_tokens
from tests.vocabulary.texts import CORPUS, SENTENCES

tokenizers = pytest.importorskip("tokenizers")
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers  # noqa: E402


def byte_level_bpe() -> Tokenizer:
    """Like those of GPT-2, Llama 3 and Qwen."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=900, initial_alphabet=alphabet, special_tokens=["</s>"])
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens([AddedToken("<tool_call>", special=False), AddedToken(" <é>", special=False)])
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    return tokenizer


def byte_fallback_bpe() -> Tokenizer:
    """Like those of Llama 2 and Mistral 7B: converted from SentencePiece, with a dummy space before the text."""
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    trainer = trainers.BpeTrainer(vocab_size=1000, special_tokens=special, limit_alphabet=60)
    tokenizer.train_from_iterator(CORPUS, trainer)
    # The trainer adds only special tokens; in these models, the byte tokens are ordinary tokens.
    described = json.loads(tokenizer.to_str())
    described["added_tokens"] = [token for token in described["added_tokens"] if token["id"] < 3]
    tokenizer = Tokenizer.from_str(json.dumps(described))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


def metaspace_unigram() -> Tokenizer:
    """Like those of T5 and other Unigram models, with a space before each text."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    trainer = trainers.UnigramTrainer(vocab_size=400, special_tokens=["<unk>", "</s>"], unk_token="<unk>")
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


MAKERS: dict[str, Callable[[], Tokenizer]] = {
    "byte-level": byte_level_bpe,
    "byte fallback": byte_fallback_bpe,
    "metaspace": metaspace_unigram,
}


@pytest.fixture(scope="module", params=MAKERS.values(), ids=MAKERS.keys())
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return request.param()


def joined(vocabulary: Vocabulary, ids: list[int]) -> bytes:
    return b"".join(vocabulary.token_bytes(i) or b"" for i in ids)


def every_character_is_a_token(vocabulary: Vocabulary, text: bytes) -> bool:
    tokens = {vocabulary.token_bytes(i) for i in range(vocabulary.size)}
    return all(
        character.encode(errors="surrogateescape") in tokens for character in text.decode(errors="surrogateescape")
    )


def test_bytes_are_what_the_tokenizer_decodes(tokenizer: Tokenizer) -> None:
    """Random tokens after the beginning of a text decode to their bytes if these are UTF-8."""
    vocabulary = Vocabulary.from_tokenizer(tokenizer, eos_token_ids=tokenizer.token_to_id("</s>"))
    assert vocabulary.size == tokenizer.get_vocab_size()
    texts = [i for i in range(vocabulary.size) if vocabulary.token_bytes(i)]
    start = tokenizer.encode("a", add_special_tokens=False).ids
    rng = random.Random(1)
    compared = 0
    for _ in range(3000):
        ids = [*start, *rng.choices(texts, k=rng.randint(1, 3))]
        try:
            expected = joined(vocabulary, ids).decode()
        except UnicodeDecodeError:
            continue
        assert tokenizer.decode(ids, skip_special_tokens=False) == expected.removeprefix(" "), ids
        compared += 1
    assert compared > 500


@pytest.mark.parametrize("text", SENTENCES)
def test_round_trip(tokenizer: Tokenizer, text: str) -> None:
    """An encoded text decodes to itself, even if it is cut inside characters; special tokens' names are text, too."""
    vocabulary = Vocabulary.from_tokenizer(tokenizer, eos_token_ids=tokenizer.token_to_id("</s>"))
    for part in (text.encode(), text.encode()[1:-1]):
        if vocabulary.unspellable_bytes & {*part} and not every_character_is_a_token(vocabulary, part):
            with pytest.raises(ValueError, match="no token of the vocabulary spells byte"):
                vocabulary.encode(part)
        else:
            assert joined(vocabulary, vocabulary.encode(part)) == part


@pytest.mark.parametrize("text", ["fox jumps", " fox jumps", "the quick", "  if x:\n", "\n", "cœur", "булок, да", "😀"])
def test_spelling_is_the_tokenizers_own(tokenizer: Tokenizer, text: str) -> None:
    """The oracle spells the text after another one, whose tokens are cut off."""
    vocabulary = Vocabulary.from_tokenizer(tokenizer, eos_token_ids=tokenizer.token_to_id("</s>"))
    unknown = tokenizer.token_to_id("<unk>")
    before = tokenizer.encode("\n", add_special_tokens=False).ids
    whole = tokenizer.encode("\n" + text, add_special_tokens=False).ids
    if whole[: len(before)] != before or unknown in whole:
        pytest.skip("no spelling after a newline to compare with")
    assert vocabulary.encode(text.encode()) == whole[len(before) :]


def test_special_and_added_tokens() -> None:
    tokenizer = byte_level_bpe()
    vocabulary = Vocabulary.from_tokenizer(tokenizer, eos_token_ids=tokenizer.token_to_id("<|im_end|>"), size=1024)
    assert vocabulary.size == 1024 and vocabulary.token_bytes(1023) is None
    named = {name: tokenizer.token_to_id(name) for name in ("</s>", "<|im_start|>", "<|im_end|>")}
    assert vocabulary.special_tokens == named
    assert vocabulary.added_tokens == {name: tokenizer.token_to_id(name) for name in ("<tool_call>", " <é>")}
    assert all(vocabulary.token_bytes(i) is None for i in named.values())
    assert vocabulary.token_bytes(tokenizer.token_to_id("<tool_call>")) == b"<tool_call>"
    assert vocabulary.token_bytes(tokenizer.token_to_id(" <é>")) == " <é>".encode()
    assert vocabulary.unspellable_bytes == frozenset()
    # The name of a special token, as text, is spelled with ordinary tokens.
    assert not set(vocabulary.encode(b"<|im_end|>")) & set(named.values())


def test_spelling_of_bytes_that_are_no_text() -> None:
    vocabulary = Vocabulary.from_tokenizer(byte_level_bpe(), eos_token_ids=0)
    for text in (b"\xff", "né".encode()[:-1], "é".encode()[1:] + b" the fox", b"", b"the \xf0\x9f"):
        assert joined(vocabulary, vocabulary.encode(text)) == text


def test_the_tokenizer_given_is_left_alone() -> None:
    tokenizer = byte_level_bpe()
    tokenizer.enable_truncation(3)
    vocabulary = Vocabulary.from_tokenizer(tokenizer, eos_token_ids=0)
    text = b"The quick brown fox jumps over the lazy dog."
    assert joined(vocabulary, vocabulary.encode(text)) == text
    assert tokenizer.truncation["max_length"] == 3 and not tokenizer.encode_special_tokens


def test_eos_must_be_known() -> None:
    with pytest.raises(ValueError, match="eos_token_ids"):
        Vocabulary.from_tokenizer(byte_level_bpe())


class TestTransformers:
    transformers = pytest.importorskip("transformers")

    def test_fast(self) -> None:
        inner = byte_fallback_bpe()
        fast = self.transformers.PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="</s>", unk_token="<unk>")
        fast.add_tokens(["<tool_call>"])
        fast.add_special_tokens({"additional_special_tokens": ["<|end|>"]})
        vocabulary = Vocabulary.from_tokenizer(fast)
        assert vocabulary.eos_token_ids == (2,)
        assert vocabulary.size == len(fast)
        assert vocabulary.special_tokens == {"<unk>": 0, "<s>": 1, "</s>": 2, "<|end|>": len(fast) - 1}
        assert vocabulary.added_tokens == {"<tool_call>": len(fast) - 2}
        # `add_tokens` makes it a normalised token, and this normaliser puts a space before every text
        assert vocabulary.token_bytes(len(fast) - 2) == b" <tool_call>"
        assert vocabulary.token_bytes(inner.token_to_id("<0x0A>")) == b"\n"
        assert Vocabulary.from_tokenizer(fast, eos_token_ids=[2, len(fast) - 1]).eos_token_ids == (2, len(fast) - 1)
        # the end tokens that a generation config names, without text tokens and ids that do not exist
        further = [len(fast) - 1, 2, len(fast) - 2, len(fast) + 5, -1]
        assert Vocabulary.from_tokenizer(fast, further_eos_token_ids=further).eos_token_ids == (2, len(fast) - 1)

    def test_wrappers_of_vllm(self) -> None:
        hf = pytest.importorskip("vllm.tokenizers.hf")
        fast = self.transformers.PreTrainedTokenizerFast(tokenizer_object=byte_level_bpe(), eos_token="</s>")
        expected = Vocabulary.from_tokenizer(fast).fingerprint
        cached = hf.get_cached_tokenizer(fast)
        assert Vocabulary.from_tokenizer(cached).fingerprint == expected
        assert Vocabulary.from_tokenizer(hf.maybe_make_thread_pool(cached)).fingerprint == expected


@pytest.fixture(scope="module")
def sentencepiece_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SentencePiece BPE model with byte fallback, like Llama 2's."""
    sentencepiece = pytest.importorskip("sentencepiece")
    prefix = tmp_path_factory.mktemp("sentencepiece") / "model"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line for text in CORPUS for line in text.split("\n") if "\0" not in line),
        model_prefix=str(prefix),
        vocab_size=600,
        model_type="bpe",
        byte_fallback=True,
        character_coverage=0.98,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        user_defined_symbols=["<tool▁call>"],
        minloglevel=2,
    )
    return prefix.with_suffix(".model")


def check_sentencepiece(vocabulary: Vocabulary, model: Any) -> None:
    assert vocabulary.size == model.get_piece_size()
    assert vocabulary.special_tokens == {"<unk>": 0, "<s>": 1, "</s>": 2}
    assert vocabulary.eos_token_ids == (2,)
    assert vocabulary.token_bytes(model.piece_to_id("<0x0A>")) == b"\n"
    assert vocabulary.token_bytes(model.piece_to_id("<tool▁call>")) == b"<tool call>"
    for text in SENTENCES:
        ids = vocabulary.encode(text.encode())
        assert joined(vocabulary, ids) == text.encode()
        assert model.decode([model.piece_to_id("a"), *ids]) == "a" + text


def test_sentencepiece(sentencepiece_file: Path) -> None:
    model = __import__("sentencepiece").SentencePieceProcessor(model_file=str(sentencepiece_file))
    check_sentencepiece(Vocabulary.from_tokenizer(model), model)


def test_mistral_sentencepiece(sentencepiece_file: Path) -> None:
    mistral = pytest.importorskip("mistral_common.tokens.tokenizers.sentencepiece")
    versions = pytest.importorskip("mistral_common.tokens.tokenizers.base").TokenizerVersion
    tokenizer = mistral.SentencePieceTokenizer(sentencepiece_file, tokenizer_version=versions.v1)
    check_sentencepiece(Vocabulary.from_tokenizer(tokenizer), tokenizer._model)


def test_slow_sentencepiece_of_transformers(sentencepiece_file: Path) -> None:
    """The ids of the Python class differ from those of the model."""
    backend = pytest.importorskip("transformers.tokenization_utils_sentencepiece").SentencePieceBackend

    class Shifted(backend):  # type: ignore[misc, valid-type]
        """Like XLM-R and others that adopted fairseq's ids."""

        vocab_files_names: ClassVar = {"vocab_file": "model"}

        def _convert_token_to_id(self, token: str) -> int:
            return self.sp_model.piece_to_id(token) + 1

        def _convert_id_to_token(self, index: int) -> str:
            return self.sp_model.id_to_piece(index - 1) if index else "<s>"

        def convert_tokens_to_string(self, tokens: list[str]) -> str:
            text: str = self.sp_model.decode(tokens)
            return text

        @property
        def vocab_size(self) -> int:
            return self.sp_model.get_piece_size() + 1

    tokenizer = Shifted(vocab_file=str(sentencepiece_file), eos_token="</end>", legacy=True)
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    model = tokenizer.sp_model
    assert vocabulary.eos_token_ids == (tokenizer.eos_token_id,)
    assert {"<unk>": 1, "<s>": 2, "</s>": 3}.items() <= vocabulary.special_tokens.items()
    assert vocabulary.token_bytes(model.piece_to_id("<0x0A>") + 1) == b"\n"
    for text in SENTENCES[:5]:
        assert joined(vocabulary, vocabulary.encode(text.encode())) == text.encode()


def test_slow_byte_level_of_transformers(tmp_path: Path) -> None:
    """Python tokenizers with GPT-2's table, which transformers 4 has and remote code still uses."""
    python = pytest.importorskip("transformers.tokenization_python").PythonBackend
    inner = byte_level_bpe()

    class Slow(python):  # type: ignore[misc, valid-type]
        byte_decoder: ClassVar = {"any": 0}
        vocab_size = property(lambda self: inner.get_vocab_size(with_added_tokens=False))

        def get_vocab(self) -> dict[str, int]:
            return inner.get_vocab(with_added_tokens=False) | self.added_tokens_encoder

        def _tokenize(self, text: str) -> list[str]:
            return inner.encode(text, add_special_tokens=False).tokens

        def _convert_token_to_id(self, token: str) -> int | None:
            return inner.get_vocab(with_added_tokens=False).get(token)

        def _convert_id_to_token(self, index: int) -> str | None:
            return inner.id_to_token(index)

        def convert_tokens_to_string(self, tokens: list[str]) -> str:
            return inner.decoder.decode(tokens)

    tokenizer = Slow(eos_token="</s>")
    tokenizer.add_tokens(["<tool_call>"])
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    fast = Vocabulary.from_tokenizer(inner, eos_token_ids=0)
    assert vocabulary.eos_token_ids == (0,) and vocabulary.special_tokens == {"</s>": 0}
    words = inner.get_vocab_size(with_added_tokens=False)
    assert all(vocabulary.token_bytes(i) == fast.token_bytes(i) for i in range(words))
    assert vocabulary.token_bytes(tokenizer.convert_tokens_to_ids("<tool_call>")) == b"<tool_call>"
    assert vocabulary.encode(b"The quick brown") == fast.encode(b"The quick brown")


def ranks() -> dict[bytes, int]:
    pieces = [bytes([byte]) for byte in range(256)] + [b"th", b"the", b" the", b"qu", b"\n\n", "é".encode()]
    return {piece: rank for rank, piece in enumerate(pieces)}


def test_tiktoken() -> None:
    tiktoken = pytest.importorskip("tiktoken")
    special = {"<|endoftext|>": 300, "<|im_end|>": 301}
    encoding = tiktoken.Encoding("small", pat_str=r"\s?\w+|\s+|.", mergeable_ranks=ranks(), special_tokens=special)
    vocabulary = Vocabulary.from_tokenizer(encoding)
    assert vocabulary.size == 302 and vocabulary.eos_token_ids == (300,)
    assert vocabulary.special_tokens == special
    assert vocabulary.token_bytes(258) == b" the" and vocabulary.token_bytes(299) is None
    text = b"the the <|im_end|>"
    assert vocabulary.encode(text) == encoding.encode_ordinary(text.decode())

    class Remote:
        """Remote code around an encoding that calls a text token special (as Kimi's does)."""

        def __init__(self) -> None:
            self.tokenizer = encoding
            self.eos_token_id = 301
            self.added_tokens_decoder = {
                300: AddedToken("<|endoftext|>", special=False),
                301: AddedToken("<|im_end|>", special=True),
            }

    vocabulary = Vocabulary.from_tokenizer(Remote())
    assert vocabulary.eos_token_ids == (301,)
    assert vocabulary.special_tokens == {"<|im_end|>": 301}
    assert vocabulary.token_bytes(300) == b"<|endoftext|>"
    assert vocabulary.added_tokens == {"<|endoftext|>": 300}


def test_tekken_of_mistral(tmp_path: Path) -> None:
    tekken = pytest.importorskip("mistral_common.tokens.tokenizers.tekken")
    versions = pytest.importorskip("mistral_common.tokens.tokenizers.base").TokenizerVersion
    vocab = [
        {"rank": rank, "token_bytes": base64.b64encode(piece).decode(), "token_str": None}
        for piece, rank in ranks().items()
    ]
    names = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"]
    names += ["[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]"]
    names += ["[PREFIX]", "[MIDDLE]", "[SUFFIX]"]
    first = len(names)
    described = [{"rank": i, "token_str": name, "is_control": True} for i, name in enumerate(names)]
    tokenizer = tekken.Tekkenizer(
        vocab,
        described,
        pattern=r"\s?\w+|\s+|.",
        vocab_size=len(vocab) + first,
        num_special_tokens=first,
        version=versions.v3,
    )

    config = {"pattern": r"\s?\w+|\s+|.", "num_vocab_tokens": len(vocab), "default_vocab_size": len(vocab) + first}
    config |= {"default_num_special_tokens": first, "version": "v3"}
    written = {"config": config, "vocab": vocab, "special_tokens": described}
    (tmp_path / "tekken.json").write_text(json.dumps(written))
    common = pytest.importorskip("transformers.tokenization_mistral_common")
    backend = common.MistralCommonBackend(tokenizer_path=tmp_path / "tekken.json", mode="test")
    vllms = pytest.importorskip("vllm.tokenizers.mistral").MistralTokenizer(backend)
    for given in (tokenizer, backend.tokenizer, backend, vllms):
        vocabulary = Vocabulary.from_tokenizer(given)
        assert vocabulary.size == first + len(vocab) and vocabulary.eos_token_ids == (2,)
        assert list(vocabulary.special_tokens) == names
        assert vocabulary.token_bytes(first + 258) == b" the"
        assert vocabulary.encode(b"the the") == [first + 257, first + 258]


def refused(tokenizer: Any) -> str:
    with pytest.raises(UnsupportedError) as caught:
        Vocabulary.from_tokenizer(tokenizer, eos_token_ids=0)
    return caught.value.keyword


def test_tokens_without_bytes_of_their_own_are_refused_by_name() -> None:
    assert refused(Tokenizer(models.WordPiece({"[UNK]": 0, "##a": 1}, unk_token="[UNK]"))) == "WordPiece"
    bare = Tokenizer(models.BPE({"a": 0}, []))
    assert refused(bare) == "decoder"
    for decoder, keyword in (
        (decoders.BPEDecoder(), "BPEDecoder"),
        (decoders.CTC(), "CTC"),
        (decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 0, 1)]), "Strip"),
        (decoders.Replace(tokenizers.Regex("a+"), "b"), "Replace"),
    ):
        bare.decoder = decoder
        assert refused(bare) == keyword
    assert refused(object()) == "object"


def test_decoders_that_strip_every_token() -> None:
    """Without a Fuse before it, Strip removes the spaces of each token. The library is the oracle."""
    tokens = ["  a ", "a", "b  ", "  c", "   d   "]  # the library panics on a token of spaces only
    for start, stop in ((1, 0), (0, 1), (2, 2)):
        described = {"type": "Strip", "content": " ", "start": start, "stop": stop}
        expected = [decoders.Strip(" ", start, stop).decode([token]) for token in tokens]
        assert [text.decode() for text in decode_tokens(tokens, described)] == expected


def test_byte_level_token_outside_the_alphabet_is_its_own_text() -> None:
    tokens = ["Ġa", "", "a b", "é", "｜", "Ċ", "Ġ\u0145"]
    found = decode_tokens(tokens, {"type": "ByteLevel"})
    assert found == [b" a", b"", b"a b", b"\xe9", "｜".encode(), b"\n", "Ġ\u0145".encode()]
    for token, text in zip(tokens, found, strict=True):
        assert decoders.ByteLevel().decode([token]) == text.decode(errors="replace")
