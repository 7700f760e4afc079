"""Hostile grammars: an answer or a named error, in bounded time, from the text to the masks."""

from __future__ import annotations

import itertools
import string

import pytest

from dotllm import Index, Vocabulary
from dotllm.errors import BudgetExceededError, InvalidSpecError
from dotllm.languages.cfg import grammar_to_grammar
from tests.effort import at_most

SECONDS = 20.0  # each takes well below two on an idle machine
DEEP = 30_000


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    words = [bytes((byte,)) for byte in range(256)] + [b"aa", b"((", b"))", b", ", b"a,", b"a+a"]
    return Vocabulary.from_bytes([*words, None], eos_token_ids=[len(words)])


def follow(grammar: str, vocabulary: Vocabulary, text: str) -> bool:
    """Whether the engine accepts ``text``, read byte by byte with a mask at every step."""
    with at_most(SECONDS):
        guide = Index.from_grammar(grammar, vocabulary).guide()
        verdict = True
        for byte in text.encode():
            assert guide.mask_row >= 0
            if not guide.advance(byte):
                verdict = False
                break
        verdict = verdict and guide.can_finish
    return verdict


NESTED = {
    "parentheses": ("root ::= " + "(" * DEEP + '"a"' + ")" * DEEP, "a"),
    "groups": ("root ::= " + '("a" ' * DEEP + ")" * DEEP, "a" * DEEP),
    "optional groups": ("root ::= " + '("a" ' * DEEP + ")?" * DEEP, "a" * 500),
    "stars": ("root ::= " + "(" * DEEP + '"a"' + ")*" * DEEP, "a" * 500),
    "Lark groups": ("start: " + '("a" ' * DEEP + ")" * DEEP, "a" * DEEP),
    "negations": ("start: A\nA: " + "~" * 20_000 + "/a/", "a"),
}


@pytest.mark.parametrize("name", NESTED)
def test_deep_nesting_of_the_grammar(name: str, vocabulary: Vocabulary) -> None:
    assert follow(*(NESTED[name][0], vocabulary, NESTED[name][1]))


def test_deep_nesting_of_the_text(vocabulary: Vocabulary) -> None:
    assert follow('root ::= "(" root ")" | ""', vocabulary, "(" * 20_000 + ")" * 20_000)


@pytest.mark.parametrize(
    "grammar",
    [
        "root ::= root",
        "start: start",
        'root ::= a\na ::= b "x"\nb ::= c\nc ::= a "y"',
        'start: a | b\na: "x" b\nb: a "y"',
        'root ::= "x" root',
        "root ::= (root | root)* root",
    ],
)
def test_recursion_without_a_base(grammar: str, vocabulary: Vocabulary) -> None:
    with pytest.raises(InvalidSpecError, match="can never be completed"):
        Index.from_grammar(grammar, vocabulary)


def chain(rules: int) -> str:
    body = "\n".join(f'r{i} ::= "(" r{i + 1} ")" | "a"' for i in range(rules))
    return f'root ::= r0\n{body}\nr{rules} ::= "z"'


def ring(rules: int, tail: str) -> str:
    body = "\n".join(f'r{i} ::= r{(i + 1) % rules} "a" {tail.format((i * 7) % rules)} | "b"' for i in range(rules))
    return f"root ::= r0\n{body}"


def test_a_thousand_rules(vocabulary: Vocabulary) -> None:
    assert follow(chain(1_000), vocabulary, "(" * 1_000 + "z" + ")" * 1_000)
    assert follow(ring(1_000, ""), vocabulary, "b" + "a" * 2_500)
    choices = " | ".join(f"r{i}" for i in range(1_000))
    rules = "\n".join(f'r{i} ::= "k{i}=" [a-z]+ ";"' for i in range(1_000))
    assert follow(f"root ::= ({choices})*\n{rules}", vocabulary, "k1=abc;k999=z;" * 20)


def test_a_thousand_rules_all_left_recursive_and_called_from_everywhere(vocabulary: Vocabulary) -> None:
    with at_most(SECONDS), pytest.raises(BudgetExceededError, match=r"rules 'r0', 'r1', .* and 995 more"):
        Index.from_grammar(ring(1_000, '| "(" r{} ")"'), vocabulary)


def test_long_literals(vocabulary: Vocabulary) -> None:
    length = 100_000
    assert follow('root ::= "' + "a" * length + '"', vocabulary, "a" * 3_000) is False  # not at its end yet
    assert follow('start: "' + "a" * length + '"i', vocabulary, "aA" * 500) is False
    many = "".join(chr(0x4E00 + 2 * (i % 5_000)) for i in range(length))
    assert follow(f"root ::= [{many}]+", vocabulary, "一丂" * 5)


@pytest.mark.parametrize(
    ("grammar", "unit"),
    [
        ('root ::= "a" ("," root)?', "a,"),
        ('root ::= root ",a" | "a,a"', "a,"),
        ('root ::= e\ne ::= e "+" t | t\nt ::= t "*" f | f\nf ::= "a" | "(" e ")"', "a+a*(a+a)*"),
        ('root ::= e\ne ::= t "+" e | t\nt ::= f "*" t | f\nf ::= "a" | "(" e ")"', "a+a*(a+a)*"),
        ('root ::= e\ne ::= e "+" e | e "*" e | "(" e ")" | "a"', "a+a*(a+a)*"),
        ('start: e\ne: e "+" e | NAME\nNAME: /a+/\n%ignore " "', "aa + a+"),
    ],
    ids=[
        "right list",
        "left list",
        "left expression",
        "right expression",
        "ambiguous expression",
        "ambiguous, ignored",
    ],
)
def test_lists_and_expressions_do_not_grow(grammar: str, unit: str, vocabulary: Vocabulary) -> None:
    """After 20,000 bytes, the automaton is as large as it was after the first 2,000."""
    index = Index.from_grammar(grammar, vocabulary)
    guide = index.guide()
    text = (unit * (20_000 // len(unit) + 1)).encode()
    sizes = []
    for i, byte in enumerate(text):
        assert guide.mask_row >= 0
        assert guide.advance(byte)
        if i in (2_000, 20_000 - 1):
            sizes.append(index.nbytes)
    assert sizes[1] <= sizes[0] * 1.05


def test_as_many_stacks_as_tokens() -> None:
    """Each token leads to a different stack, all of one symbol on the same bottom. They were once compared one by one,
    so this mask took 34 s."""
    letters = string.digits + string.ascii_letters[:30]
    words = ["".join(word) for n in (1, 2, 3) for word in itertools.product(letters, repeat=n)]
    vocabulary = Vocabulary.from_bytes([*(word.encode() for word in words), None], eos_token_ids=[len(words)])
    palindromes = "root ::= " + " | ".join(f'"{letter}" root "{letter}" | "{letter}"' for letter in letters)
    with at_most(SECONDS / 4):
        guide = Index.from_grammar(palindromes, vocabulary).guide()
        assert len(list(guide.allowed_tokens())) == len(words)


def test_sizes_that_double(vocabulary: Vocabulary) -> None:
    terminals = "\n".join(f"T{i}: T{i + 1} T{i + 1}" for i in range(40))
    assert not follow(f'start: T0\n{terminals}\nT40: "abc"', vocabulary, "abc" * 100)
    rules = "\n".join(f"r{i} ::= r{i + 1} r{i + 1}" for i in range(40))
    assert not follow(f'root ::= r0\n{rules}\nr40 ::= "abc"', vocabulary, "abc" * 100)


def test_counts_are_not_unrolled(vocabulary: Vocabulary) -> None:
    assert follow('root ::= ("a"{2,1000000000} ","){1,1000000000}', vocabulary, "aaaa," * 500)
    assert follow('root ::= ((("ab"{1,100} "c"){1,100} "d"){1,100} "e"){1,100}', vocabulary, "ababcabcdababcde" * 50)


def test_automata_that_explode(vocabulary: Vocabulary) -> None:
    pattern = "/(a|b)*a(a|b){20}/"
    with pytest.raises(BudgetExceededError, match="automaton"):
        Index.from_grammar(f"start: A\nA: {pattern} & ~/c/", vocabulary)
    assert follow(f"start: A\nA: {pattern}", vocabulary, "ab" * 50 + "a")


def test_templates_that_grow(vocabulary: Vocabulary) -> None:
    with pytest.raises(BudgetExceededError, match="different arguments"):
        Index.from_grammar('start: g{"x"}\ng{e}: e | g{(e "y")}', vocabulary)


@pytest.mark.parametrize("text", ['start: "a"\n  | "\ud800"', 'root ::= "a"\n  | "\udfff"', "start: a\na: /\ud800/"])
def test_halves_of_surrogate_pairs_are_named_with_their_place(text: str) -> None:
    with pytest.raises(InvalidSpecError, match="surrogate") as refusal:
        grammar_to_grammar(text)
    assert refusal.value.place.startswith("line 2, column ")


def test_rules_that_call_each_other_from_everywhere(vocabulary: Vocabulary) -> None:
    """A rule ends with hundreds of frames and is called at hundreds of places. Merging these one after another once
    took 15 s."""
    rules = "\n".join(
        f'r{i} ::= r{(i + 1) % 20} r{(3 * i + 1) % 20} "a"? | "b"? r{(7 * i + 2) % 20}?' for i in range(20)
    )
    with at_most(SECONDS / 4):
        assert follow(f"root ::= r0\n{rules}", vocabulary, "ab" * 9)
