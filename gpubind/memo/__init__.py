"""The memo: the answer of the last equal question, and whether it still holds.

`reading` stands in front of everything and imports next to nothing; `trace` writes down what a command asks of this
machine; `storing` keeps the answer with its trace. docs/decisions/0011-memo.md says why it is right.
"""
