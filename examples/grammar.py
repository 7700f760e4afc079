"""Context-free grammars, in Lark's and in EBNF notation: ``python examples/grammar.py``."""

from __future__ import annotations

from loop import vocabulary, write

from dotllm import Index

SQL = r"""
start: "SELECT " columns " FROM " TABLE [" WHERE " COLUMN " = " NUMBER] ";"
columns: "*" | COLUMN (", " COLUMN)~0..2
TABLE: "cities" | "people"
COLUMN: "id" | "name" | "population"
NUMBER: /[1-9][0-9]{0,5}/
"""
BRACKETS = """
root ::= pair pair?
pair ::= "(" pair? ")"
"""

if __name__ == "__main__":
    for grammar in (SQL, BRACKETS):
        index = Index.from_grammar(grammar, vocabulary())
        print(write(index))
