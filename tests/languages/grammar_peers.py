"""Other engines as judges of texts: llguidance, xgrammar and, for plain Lark, the `lark` library itself.

All get a vocabulary of single bytes, so each text has one tokenisation, and only grammars are compared.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from tests.languages.grammar_cases import Case

Verdict = Callable[[str], bool]
END = 256


class Refused(Exception):
    """The peer refuses the grammar."""


class _Bytes:
    """A tokenizer whose tokens are the bytes, with the interface that llguidance expects."""

    eos_token_id = END
    bos_token_id = None
    tokens = (*(bytes([byte]) for byte in range(256)), b"<end>")
    special_token_ids = (END,)

    def __call__(self, text: bytes | str) -> list[int]:
        return list(text if isinstance(text, bytes) else text.encode())


@lru_cache(maxsize=1)
def _llguidance_tokenizer() -> Any:
    from llguidance import LLTokenizer
    from llguidance._tokenizer import TokenizerWrapper

    return LLTokenizer(TokenizerWrapper(_Bytes()), n_vocab=END + 1, eos_token=END)


def llguidance(case: Case) -> Verdict:
    from llguidance import LLMatcher, grammar_from

    try:
        grammar = grammar_from("lark" if case.notation == "lark" else "ebnf", case.grammar)
    except ValueError as error:
        raise Refused(str(error)) from None
    problem = LLMatcher.validate_grammar(grammar, _llguidance_tokenizer())
    if problem:
        raise Refused(problem)

    compiled = LLMatcher(_llguidance_tokenizer(), grammar, log_level=0)

    def verdict(text: str) -> bool:
        matcher = compiled.deep_copy()
        for byte in text.encode():
            if matcher.is_stopped() or not matcher.consume_token(byte):
                return False
        return bool(matcher.is_accepting())

    return verdict


@lru_cache(maxsize=1)
def _xgrammar_compiler() -> Any:
    import xgrammar

    vocabulary = [bytes([byte]) for byte in range(256)] + [b"<end>"]
    info = xgrammar.TokenizerInfo(vocabulary, xgrammar.VocabType.RAW, stop_token_ids=[END])
    return xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)


def xgrammar(case: Case) -> Verdict:
    from xgrammar import GrammarMatcher

    try:
        compiler = _xgrammar_compiler()
        compile_it = compiler.compile_lark if case.notation == "lark" else compiler.compile_grammar
        compiled = compile_it(case.grammar)
    except RuntimeError as error:
        raise Refused(str(error)) from None

    def verdict(text: str) -> bool:
        matcher = GrammarMatcher(compiled)
        return all(matcher.accept_token(byte) for byte in text.encode()) and bool(matcher.accept_token(END))

    return verdict


def lark(case: Case) -> Verdict:
    """Lark's Earley parser without a lexer: the language of the grammar over characters."""
    from lark import Lark
    from lark.exceptions import LarkError

    if case.notation != "lark":
        raise Refused("not Lark")
    try:
        parser = Lark(case.grammar, parser="earley", lexer="dynamic_complete", ambiguity="resolve")
    except (LarkError, KeyError, AssertionError) as error:
        raise Refused(str(error)) from None

    def verdict(text: str) -> bool:
        try:
            parser.parse(text)
        except LarkError:
            return False
        return True

    return verdict


def prepare() -> None:
    """Load all peers before a fork asks them."""
    import xgrammar
    from lark import Lark

    assert Lark and xgrammar.GrammarMatcher
    _llguidance_tokenizer()
    _xgrammar_compiler()


PEERS: dict[str, Callable[[Case], Verdict]] = {"llguidance": llguidance, "xgrammar": xgrammar, "lark": lark}
