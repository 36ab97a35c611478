"""The memo: the answer of the last equal question, and whether it still holds.

`answer` stands in front of everything and loads next to nothing: `questions` are the kinds of question and how each is
asked again, `files` where memos lie. `recorder` writes down what a command asks of this machine: its `stand_ins` stand
where functions of `os` stand, and `asked` is what the rest of gpubind tells it; `trace` holds what was asked. `storing`
keeps the answer with its trace. docs/decisions/0011-memo.md says why it is right.
"""
