"""The memo: the answer of the last equal question, and whether it still holds. `answer.serve` is the entry.

`answer` runs before everything and loads next to nothing: `questions` are the kinds of questions and how each is asked
again, `files` the directories of memos. `recorder` writes down what a command asks of this machine, with the reports of
`gpubind.machine.listener`, in a `trace`. `filesystems` decides whose times are true. `storing` keeps the answer with
its trace, `versions` what programs print as their version.
docs/decisions/0011-memo.md says why it is right.
"""
