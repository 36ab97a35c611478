"""The memo: the answer of the last equal command, and whether it still holds. Entry: `answer.serve`.

`answer` runs before everything else and loads next to nothing. `questions` has the kinds of questions, and how each is
asked again. `files` has the directories of memos. `recorder` records a command's queries of this machine in a `trace`.
`filesystems` decides which file systems have true times. `storing` stores the answer with its trace, and `versions` the
versions that programs print. docs/decisions/0011-memo.md explains why a memo's answer is right.
"""
