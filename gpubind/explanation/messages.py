"""Known messages of programs that cannot use a GPU or a library (data/messages.json), found in a line or a log.

A message is known by its phrases. The search ignores case, quotes, colours and repeated blanks. In a phrase `*` matches
characters other than a blank, and `...` anything within the line. `{library}`, `{number}`, `{hip}`, `{xid}` and the
like match a name or number that chooses the message. A phrase that begins with `=` must match the whole query.
`gpu_codes.py` explains the codes that no message explains better.

A wrong answer costs more than no answer. These rules choose the message of a line:

1. A phrase of few words without a number and without a word of failure (`failure_words` of the data) only names a
   file, a function or a setting: its line must have a word of failure.
2. A match within the words of a longer match is ignored: `libfoo.so not found` in `Could not locate libfoo.so: pattern
   libfoo.so not found`. The words of harmless messages and of warnings include what their wildcards match.
3. A cause precedes a message whose cause is in another line. That precedes a warning, and a warning a harmless message.
4. Among equals the phrase with the most characters wins.

A phrase about a path ends with the error of the system (`permission denied`, `no such file`) where that decides on the
cause. The remedy depends on the vendor: a line of ROCm has another message than a line of CUDA. A line with words of
AMD or Intel and of no other vendor (`vendor_words` of the data) never gets advice about NVIDIA: `instead` names the
message of that vendor, and the remedy names that vendor's option of gpubind.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from math import sqrt
from typing import Any, Optional

from gpubind.explanation.gpu_codes import (
    Code,
    Rank,
    code_names,
    find_code_by_name,
    find_code_by_number,
    is_more_exact,
    may_have_codes,
    says_less,
)
from gpubind.formats.driver.names import driver_libraries
from gpubind.frozen import NamedTuple
from gpubind.model.data import table
from gpubind.model.host import Vendor
from gpubind.model.vendors import VENDOR_ROWS

_LINE = 8192
"""Bytes of a line that are searched together."""
_OVERLAP = 512
"""Bytes that two chunks of a long line have in common, so that a phrase at the cut is found: no phrase is longer."""
_HEADING = 320
"""Characters of the longest heading."""
_UNKNOWN = 4.0
"""The assumed frequency of a word that is in no message: some such words are plain English."""
_SOUGHT = 6
"""The number of words of a message that are used to find it in a long line."""
_LONGEST_NAME = 64
"""Characters of the longest name for which similar names are searched."""
_COMPLAINTS = 20
"""How many lines with a word of failure are kept, the last ones. They show the nearest messages if no message is
found.
"""
_PLACES = 3
"""Maximum matches of one phrase that are examined in a line, because the first may be within a harmless message."""
_CODES = "Codes"
"""The group of codes without a message."""
_NUMBER_KINDS = ("number", "hip", "xid")
"""Kinds of numbers that messages explain; other kinds have only codes."""
_FEW = 3
"""The most words of a phrase that may be only a name."""
_ATTEMPT_LIMIT = 1_000_000
"""Maximum attempts to match a phrase in one text: 2 s of processor time. Each line of an ordinary log needs only a
few.
"""
_OPTION = re.compile(r"--nv(?![a-z-]| --rocm)")
"""The option for NVIDIA in a command, unless the command is for both vendors."""
_SCAN = 16
"""Characters of a line that cost as much as one attempt, if the phrase may begin with any text."""
RANKS: tuple[Rank, ...] = ("cause", "general", "warning", "harmless")
"""How a message relates to the failure. `general`: the cause is in another line; `warning`: the program continues
without it; `harmless`: nothing is wrong.
"""
_COVERING: tuple[Rank, ...] = ("warning", "harmless")
"""Ranks of messages that cover other matches: a match within their words is not a failure."""

_LIBRARY = re.compile(r"(?<![A-Za-z0-9_+-])lib[A-Za-z0-9_+-]+\.so(?:\.[0-9]+)*")
_REQUIRING = re.compile(r"(?<=/)[A-Za-z0-9_.+-]+\.so(?:\.[0-9]+)*(?=\))")
_VERSION = re.compile(r"(?:GLIBC|GLIBCXX|CXXABI)_[A-Z0-9_.]*[A-Z0-9]")
_COLOUR = re.compile(
    rb"(?:\x1b|\\{1,8}(?:u001b|x1b|033|e))(?:\[[0-9;?]{0,40}[A-Za-z]|\][^\x07\x1b\n]{0,400}(?:\x07|\x1b\\))"
)
_BYTES_QUOTE = re.compile(rb"(?<![A-Za-z0-9_])b(?=['\"])")
_ESCAPED_QUOTE = re.compile(rb"\\u201[89a-f]")
_ESCAPED = re.compile(rb"\\(?:[nrt]|u[0-9a-f]{4})")
_TYPOGRAPHIC = re.compile(rb"\xe2\x80[\x98-\x9f]|\xc2\xb4")
_FOLDED = bytes(10 if byte == 10 else 32 if byte < 32 else byte for byte in range(256)).lower()
_QUOTES = b"\0'\"`\\"
_WORD = re.compile(rb"[a-z0-9_]{3,}")
_WORDS = re.compile(r"[A-Za-z0-9_]+")
_NO_WORD_BEFORE = rb"(?<![a-z0-9_])"
_WORD_CHARACTER = re.compile(rb"[a-z0-9_]")
_PART = re.compile(rb"(\{(?:library|number|hip|xid|nvml|nccl|hsa|ze|syn|vk|cl)\}|\*?\.\.\.|\*)")
_NUMBER = re.compile(rb"[ (=-][0-9]+(?![a-z_])")
_AROUND_ANYTHING = re.compile(rb" ?\.\.\. ?")
_PARTS = {
    b"{library}": rb"(?<![a-z0-9_.+-])(?P<library>[a-z0-9_.+-]{1,80}\.so[.0-9]{0,20})",
    b"{number}": rb"(?P<number>[0-9]{1,4})",
    b"{hip}": rb"(?P<hip>[0-9]{1,4})",
    b"{xid}": rb"(?P<xid>[0-9]{1,4})",
    b"{nvml}": rb"(?P<nvml>[0-9]{1,3})(?![0-9.])",
    b"{nccl}": rb"(?P<nccl>[0-9])(?![0-9.])",
    b"{hsa}": rb"(?P<hsa>0x[0-9a-f]{1,4}|[0-9]{1,4})(?![0-9a-f.])",
    b"{ze}": rb"(?P<ze>0x7[0-9a-f]{7}|[0-9]{10})(?![0-9a-f.])",
    b"{syn}": rb"(?P<syn>[0-9]{1,2})(?![0-9.])",
    b"{vk}": rb"(?P<vk>-[0-9]{1,10}(?![0-9.])|e?error_?[a-z_]{4,60})",
    b"{cl}": rb"(?P<cl>-[0-9]{1,4}(?![0-9.])|[a-z]{2,16}_[a-z0-9_]{2,60})",
    b"...": rb"[^\n]{0,160}",
    b"*": rb"[^ \n]{0,120}",
    b"*...": rb"[^\n]{0,160}",  # two patterns would have 120 times as many ways to match
}


class Message(NamedTuple):
    """A message of programs that cannot use a GPU or a library, and its meaning."""

    name: str
    group: str
    message: str
    means: str
    do: str
    codes: tuple[str, ...]
    """The codes of the findings that predict it."""
    seen: tuple[tuple[str, str, str], ...]
    """Real lines that contain it: the program, the line, and where the line was published."""
    rank: Rank = "cause"
    like: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    """The beginnings of the names of its libraries. `{driver}` means those of NVIDIA's driver, `*` any other
    library.
    """
    numbers: tuple[int, ...] = ()
    """The numbers of the CUDA errors that it explains."""
    hips: tuple[int, ...] = ()
    """The numbers of the HIP errors that it explains."""
    xids: tuple[str, ...] = ()


class Phrase(NamedTuple):
    """A phrase of a message, prepared for the search."""

    pattern: bytes
    """A regular expression; few are ever compiled."""
    words: frozenset[bytes]
    """Words that every matching line contains."""
    weight: int
    message: Optional[Message] = None
    """The message; None if a library or a number in the line determines it."""
    literals: tuple[bytes, ...] = ()
    """Texts that every matching line contains. The first one is empty if the phrase may begin with any text."""


class _Hit(NamedTuple):
    message: Message
    weight: int
    span: tuple[int, int]
    library: Optional[str]


class FoundMessage(NamedTuple):
    """A known message in a line."""

    line: int
    """Counted from 1."""
    text: str
    """The line; of a long one, the part around the message."""
    message: Message
    library: Optional[str] = None
    """The library that the line says is missing."""
    matched: str = ""
    """The matched part of the line, folded."""


class Log(NamedTuple):
    """The messages of a text."""

    found: tuple[FoundMessage, ...]
    """The first line of each known message, in the order of RANKS."""
    lines: int
    complaints: tuple[str, ...]
    """The last lines with a word of failure."""
    not_searched: Optional[int] = None
    """The first line that was not searched because the search of earlier lines cost too much; None if all were."""


class _Budget:
    def __init__(self) -> None:
        self.left = _ATTEMPT_LIMIT

    def spend(self, phrase: Phrase, line: bytes) -> None:
        head = phrase.literals[0]
        self.left -= 1 + (line.count(head) if head else len(line) // _SCAN)


@lru_cache(maxsize=1)
def messages() -> tuple[Message, ...]:
    """Return every known message."""
    rows: list[dict[str, Any]] = table("messages")["messages"]
    return tuple(Message(**{name: _frozen(value) for name, value in row.items()}) for row in rows)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def folded(text: bytes) -> bytes:
    """Return *text* in lower case, without colours and quotes, each run of blanks as one; line ends remain."""
    if b"\x1b" in text or b"\\" in text:
        text = _ESCAPED.sub(b" ", _ESCAPED_QUOTE.sub(b"", _COLOUR.sub(b"", text)))
    if b"b'" in text or b'b"' in text:
        text = _BYTES_QUOTE.sub(b"", text)
    if not text.isascii():
        text = _TYPOGRAPHIC.sub(b"", text).replace(b"\xc2\xa0", b" ")
    text = text.translate(_FOLDED, _QUOTES)
    while b"  " in text:
        text = text.replace(b"  ", b" ")
    return text


@lru_cache(maxsize=1)
def phrases() -> tuple[Phrase, ...]:
    """Return the phrases of all messages, and those whose name or number chooses the message."""
    data = table("messages")
    kinds = ("library_forms", "number_forms", "hip_forms", "xid_forms", "code_forms")
    forms = [form for kind in kinds for form in data[kind]]
    for kind, calls in data["calls"].items():
        forms += [f"{form.replace('*', call)}{{{kind}}}" for call in calls for form in data["call_forms"]]
    form_phrases = [_phrase(form) for form in forms if not form.startswith("=")]
    return (*form_phrases, *(_phrase(like, row) for row in messages() for like in row.like if not like.startswith("=")))


def _phrase(like: str, message: Optional[Message] = None) -> Phrase:
    parts = _PART.split(_AROUND_ANYTHING.sub(b"...", folded(like.encode())))
    # Whether a word may continue in the part before, and in the part after.
    before = [False, *(part in _PARTS and not part.endswith(b"...") for part in parts[:-1])]
    after = [*(part in _PARTS and not part.startswith(b"...") for part in parts[1:]), False]
    literals = list(zip(parts, before, after))
    pattern = b"".join(_PARTS.get(part) or _literal(part, before, after) for part, before, after in literals)
    words = (word for part, before, after in literals if part not in _PARTS for word in _words_in(part, before, after))
    weight = sum(len(part) for part in parts if part not in _PARTS)
    return Phrase(pattern, frozenset(words), weight, message, tuple(parts[::2]))


def _literal(part: bytes, before: bool, after: bool) -> bytes:
    """Return the pattern of *part*. A word may continue *before* or *after* the part only if these are set."""
    start = b"" if before or not _WORD_CHARACTER.match(part) else _NO_WORD_BEFORE
    end = b"" if after or not _WORD_CHARACTER.match(part[-1:]) else rb"(?![a-z0-9_])"
    return start + re.escape(part) + end


def _matches(pattern: bytes, line: bytes) -> Sequence[re.Match[bytes]]:
    # The search for a pattern that begins with characters is many times faster.
    is_whole = pattern.startswith(_NO_WORD_BEFORE)
    compiled = _compiled(pattern[len(_NO_WORD_BEFORE) :] if is_whole else pattern)
    if compiled.search(line) is None:
        return ()
    matches = compiled.finditer(line)
    begins = (match for match in matches if not _WORD_CHARACTER.match(line[max(match.start() - 1, 0) : match.start()]))
    return tuple(islice(begins if is_whole else matches, _PLACES))


def _words_in(part: bytes, before: bool, after: bool) -> Iterator[bytes]:
    for word in _WORD.finditer(part):
        if not (before and word.start() == 0) and not (after and word.end() == len(part)):
            yield word.group()


@lru_cache(maxsize=1024)
def _compiled(pattern: bytes) -> re.Pattern[bytes]:
    return re.compile(pattern)


@lru_cache(maxsize=1)
def _by_word() -> dict[bytes, tuple[Phrase, ...]]:
    frequency = Counter(word for phrase in phrases() for word in phrase.words)
    phrases_by_word: dict[bytes, tuple[Phrase, ...]] = {}
    for phrase in phrases():
        word = min(sorted(phrase.words), key=lambda word: frequency[word])
        phrases_by_word[word] = (*phrases_by_word.get(word, ()), phrase)
    return phrases_by_word


def search(blocks: Iterable[bytes]) -> Log:
    """Return the known messages in a text. Each of *blocks*, except the last, ends with a line end.

    The search takes linear time. Once hostile lines have used up its budget, further lines are only counted.
    """
    found_messages: dict[str, FoundMessage] = {}
    complaints: deque[bytes] = deque(maxlen=_COMPLAINTS)
    budget = _Budget()
    not_searched: Optional[int] = None
    count = 0
    is_within = False
    codes: set[bytes] = set()
    for raw in blocks:
        originals = raw.split(b"\n")
        block = folded(raw) if not_searched is None else b""
        if not codes and may_have_codes(block):
            codes = set(code_names())
        for number, line in ((number, line) for number, line in enumerate(block.split(b"\n")) if line):
            if budget.left < 0:
                not_searched = count + number + 1
                break
            for start, piece in _overlapping_chunks(line):
                line_words = frozenset(_WORD.findall(piece))
                if not line_words.isdisjoint(_failure_words()[0]):
                    complaints.append(piece[:_LINE])
                if line_words.isdisjoint(codes):
                    best = _best_hit(piece, line_words, found_messages, budget)
                else:
                    best = _best_hit_or_code(piece, line_words, codes, budget)
                best = best and best._replace(message=_adapt_to_vendor(best.message, piece))
                if best is not None and best.message.name not in found_messages:
                    text = originals[number][start : start + 2 * _LINE].decode("utf-8", "replace")
                    library = _as_written(best.library, text)
                    matched, at = piece[slice(*best.span)].decode("utf-8", "replace"), count + number + 1
                    found_messages[best.message.name] = FoundMessage(at, text, best.message, library, matched)
        count += len(originals) - 1
        is_within = not raw.endswith(b"\n")
    ranked = sorted(found_messages.values(), key=lambda found_message: RANKS.index(found_message.message.rank))
    texts = tuple(line.decode("utf-8", "replace") for line in dict.fromkeys(complaints))
    return Log(tuple(ranked), count + is_within, texts, not_searched)


def _overlapping_chunks(line: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield overlapping chunks of *line*, of at most `_LINE` bytes, with their offsets."""
    for start in range(0, max(len(line) - _OVERLAP, 1), _LINE - _OVERLAP):
        yield start, line[start : start + _LINE]


def _best_hit(
    line: bytes, line_words: frozenset[bytes], found_messages: Mapping[str, FoundMessage], budget: _Budget
) -> Optional[_Hit]:
    """Return the best hit in the folded *line*; None if there is none, or if all candidates are already in
    *found_messages*.
    """
    by_word = _by_word()
    phrases = [phrase for word in line_words & by_word.keys() for phrase in by_word[word] if phrase.words <= line_words]
    if all(each.message is not None and _is_already_found(each.message, line, found_messages) for each in phrases):
        return None
    for phrase in phrases:
        budget.spend(phrase, line)
    hits = [hit for phrase in phrases for hit in _hits(phrase, line, line_words)]
    budget.left -= len(hits) ** 2 // 8  # each is compared with each
    meant = [hit for hit in hits if not any(_is_within(hit, other_hit) for other_hit in hits)]
    return max(
        meant, key=lambda hit: (-RANKS.index(hit.message.rank), hit.weight, hit.message.name, hit.span), default=None
    )


def _is_already_found(message: Message, line: bytes, found_messages: Mapping[str, FoundMessage]) -> bool:
    replacements = _replacements().get(message.name, {})
    if message.name in found_messages or not any(other.name in found_messages for other in replacements.values()):
        return message.name in found_messages
    vendor_message = replacements.get(vendor_of(line))
    return vendor_message is not None and vendor_message.name in found_messages


@lru_cache(maxsize=16)
def vendor_of(line: bytes) -> Optional[Vendor]:
    """Return the vendor whose words are in the folded *line*; None if there is none, or several."""
    vendors = {match.lastgroup for match in _vendor_pattern().finditer(line)}
    return next((vendor for vendor in VENDOR_ROWS if {vendor} == vendors), None)


def vendor_of_lines(lines: Iterable[str]) -> Optional[Vendor]:
    """Return the vendor whose words are in *lines*; None if there is none, or several."""
    return vendor_of(folded("\n".join(lines).encode("utf-8", "surrogateescape")))


@lru_cache(maxsize=1)
def _vendor_pattern() -> re.Pattern[bytes]:
    words: dict[str, list[str]] = table("messages")["vendor_words"]
    groups = "|".join(f"(?P<{vendor}>{'|'.join(patterns)})" for vendor, patterns in words.items())
    return re.compile(rf"(?<![a-z0-9_])(?:{groups.replace('*', '[a-z0-9_]*')})(?![a-z0-9_])".encode())


@lru_cache(maxsize=1)
def _replacements() -> dict[str, dict[Optional[str], Message]]:
    """Return the messages that replace a message for a vendor, by the name of the replaced one and the vendor."""
    by_name = {row.name: row for row in messages()}
    replacements: dict[str, dict[Optional[str], Message]] = {}
    for vendor, rows in table("messages")["instead"].items():
        for replacement, names in rows.items():
            for name in names:
                replacements.setdefault(name, {})[vendor] = by_name[replacement]
    return replacements


def _adapt_to_vendor(message: Message, line: bytes) -> Message:
    """Return *message*. For a folded *line* about AMD or Intel, return that vendor's message, or name its option
    instead.
    """
    replacements = _replacements().get(message.name, {})
    vendor = vendor_of(line) if replacements or _OPTION.search(message.do) else None
    if vendor is None:
        return message
    vendor_message = replacements.get(vendor, message)
    return vendor_message._replace(do=_OPTION.sub(vendor_option(vendor), vendor_message.do))


def vendor_option(vendor: Vendor) -> str:
    """Return the option of gpubind for GPUs of *vendor*."""
    return f"--{VENDOR_ROWS[vendor].option}"


def _best_hit_or_code(line: bytes, line_words: frozenset[bytes], codes: set[bytes], budget: _Budget) -> Optional[_Hit]:
    """Return the chosen phrase of the folded *line*, or its code, one of *codes*, if the code is more exact.

    A code of success is chosen only in a line without a word of failure. A reported code is removed from *codes*,
    because further lines with it add nothing.
    """
    hit = _best_hit(line, line_words, {}, budget)
    for code_name in sorted(line_words & codes, key=line.find):
        code = find_code_by_name(code_name)
        is_success = code.rank == "harmless"
        if is_success or hit is None or hit.message.rank not in _COVERING:
            codes.discard(code_name)
        is_meant = not is_success or not _says_failure(line.replace(code_name, b" "), line_words - {code_name})
        if is_meant and (hit is None or is_more_exact(code_name, hit.message.name, hit.message.like)):
            start = line.find(code_name)
            return _Hit(_code_message(code), len(code_name), (start, start + len(code_name)), None)
    return hit


@lru_cache(maxsize=256)
def _code_message(code: Code) -> Message:
    message = next((row for row in messages() if code.name.lower() in row.like and not says_less(row.name)), None)
    if message is not None:
        return message
    name = re.sub(r"[^a-z0-9]+", "-", code.name.lower())
    return Message(name, _CODES, code.name, code.means, code.do, (), (), code.rank)


def _may_match(phrase: Phrase, line: bytes, words: frozenset[bytes]) -> bool:
    if any(part not in line for part in phrase.literals):
        return False
    if phrase.message is None or phrase.message.rank in _COVERING or len(phrase.words) > _FEW:
        return True
    return not _is_name(phrase.pattern, phrase.words) or _says_failure(line, words)


@lru_cache(maxsize=1024)
def _is_name(pattern: bytes, words: frozenset[bytes]) -> bool:
    like = pattern.replace(b"\\", b"")
    return not _NUMBER.search(like) and not _says_failure(like, words)


def _says_failure(text: bytes, text_words: frozenset[bytes]) -> bool:
    whole_words, parts = _failure_words()
    return not text_words.isdisjoint(whole_words) or any(part in text for part in parts)


@lru_cache(maxsize=1)
def _failure_words() -> tuple[frozenset[bytes], tuple[bytes, ...]]:
    """Return the words of failure, and the texts that may be part of such a word."""
    entries = [word.encode() for word in table("messages")["failure_words"]]
    parts = tuple(word.strip(b"*") for word in entries if b"*" in word)
    return frozenset(word for word in entries if b"*" not in word), parts


def _hits(phrase: Phrase, line: bytes, line_words: frozenset[bytes]) -> Iterator[_Hit]:
    matches = _matches(phrase.pattern, line)
    for match in matches if matches and _may_match(phrase, line, line_words) else ():
        names = match.groupdict()
        message = phrase.message or _choose_message(names)
        if message is not None:
            library = names.get("library")
            yield _Hit(message, phrase.weight, match.span(), None if library is None else library.decode())


def _is_within(hit: _Hit, other_hit: _Hit) -> bool:
    """Return whether *hit* is within the words of *other_hit* (rule 2)."""
    (start, end), (first, last) = hit.span, other_hit.span
    if not (first <= start and end <= last and end - start < last - first):
        return False
    return other_hit.message.rank in _COVERING or other_hit.weight == last - first


def _choose_message(names: dict[str, Optional[bytes]]) -> Optional[Message]:
    (kind, value), *_ = ((kind, value.decode()) for kind, value in names.items() if value is not None)
    if kind == "library":
        return _about_library(value)
    by_number = _by_number(kind) if kind in _NUMBER_KINDS else {}
    if value in by_number:
        return by_number[value]
    code = find_code_by_number(kind, value)
    return by_number.get("*") if code is None else _code_message(code)


@lru_cache(maxsize=1024)
def _about_library(name: str) -> Message:
    starts, is_driver = _by_library()
    start = max((start for start in starts if name.startswith(start)), key=len, default="")
    return starts.get(start) or starts["{driver}" if name.startswith(is_driver) else "*"]


@lru_cache(maxsize=1)
def _by_library() -> tuple[dict[str, Message], tuple[str, ...]]:
    return {start: row for row in messages() for start in row.libraries}, tuple(map(str.lower, driver_libraries()))


@lru_cache(maxsize=3)
def _by_number(kind: str) -> dict[str, Message]:
    """Return the messages by number; *kind* is a placeholder, whose plural is the field."""
    return {str(number): row for row in messages() for number in getattr(row, f"{kind}s")}


def _as_written(library: Optional[str], text: str) -> Optional[str]:
    match = re.search(re.escape(library), text, re.IGNORECASE) if library else None
    return match.group() if match else library


def find_named_message(seen: str) -> Optional[Message]:
    """Return the message with the name or number *seen*: `999`, `xid 79`, `GLIBC_2.34`."""
    folded_text = folded(seen.encode("utf-8", "surrogateescape")).strip()
    for row in messages():
        for like in row.like:
            if like.startswith("=") and _compiled(_phrase(like[1:]).pattern).fullmatch(folded_text):
                return row
    for form in table("messages")["xid_forms"]:
        match = _compiled(_phrase(form[1:]).pattern).fullmatch(folded_text) if form.startswith("=") else None
        if match is not None:
            return _choose_message(match.groupdict())
    return _by_number("number").get(folded_text.decode("utf-8", "replace"))


def find_message(seen: str) -> tuple[FoundMessage, ...]:
    """Return the known messages of *seen*: a line of a log, a part of it, or several lines."""
    message = find_named_message(seen)
    if message is not None:
        return (FoundMessage(1, seen, message),)
    raw = seen.encode("utf-8", "surrogateescape")
    return search([raw]).found or search([b" ".join(raw.split())]).found


def heading(found_message: FoundMessage) -> str:
    """Return the original line without colours and repeated blanks; of a long one, the part around the message."""
    text = _COLOUR.sub(b"", found_message.text.encode("utf-8", "surrogateescape"))
    line = " ".join(text.decode("utf-8", "replace").split())
    if len(line) <= _HEADING:
        return line
    matched_words = re.findall(r"[a-z0-9_]+", found_message.matched)[:_SOUGHT]
    place = re.search(r"[^A-Za-z0-9_]{1,20}".join(map(re.escape, matched_words)), line, re.IGNORECASE)
    start = max(place.start() - _HEADING // 4, 0) if place else 0
    cut = line[start : start + _HEADING]
    return ("..." if start else "") + cut + ("..." if start + _HEADING < len(line) else "")


def example(found_message: FoundMessage) -> Optional[str]:
    """Return the known message with the version and the library of the line, if the line has only a part of the
    message.

    None if the line contains as much: facts of an example (addresses, numbers) are not those of the line. None also for
    a code, because its meaning already contains its name and number.
    """
    if found_message.message.group == _CODES:
        return None
    known_message = _fill_example(found_message)
    texts = (text.encode("utf-8", "surrogateescape") for text in (found_message.text, known_message))
    seen, folded_message = (folded(text).strip() for text in texts)
    numbers = {word for word in _WORDS.findall(found_message.matched) if word.isdigit()}
    is_named = (
        seen in folded_message
        or not numbers.isdisjoint(_WORDS.findall(known_message))
        or find_named_message(found_message.text) is not None
    )
    return known_message if is_named and folded_message not in seen else None


def _fill_example(found_message: FoundMessage) -> str:
    message = found_message.message.message
    required = _REQUIRING.search(found_message.text) or _LIBRARY.search(found_message.text)
    name = found_message.library or (required and required.group())
    version = _VERSION.search(found_message.text)
    for pattern, value in ((_VERSION, version and version.group()), (_LIBRARY, name)):
        placeholder = pattern.search(message)
        if placeholder is not None and value is not None:
            message = message.replace(placeholder.group(), value)
    return message


def nearest_messages(seen: Iterable[str], count: int = 2) -> tuple[str, ...]:
    """Return up to *count* known messages that have most in common with a line of *seen*.

    Rare words weigh more, and a near message must share some of them: `slurmstepd: error:` is in many lines.
    """
    seen = tuple(seen)
    vendor = vendor_of_lines(seen)
    is_any = vendor in (None, "nvidia")
    rows = [row for row in messages() if is_any or vendor_of_lines([row.message]) == vendor]
    message_lines = [(row.message, [row.message, *(line for _, line, _ in row.seen)]) for row in rows]
    sets = [(message, [_words(line) for line in lines]) for message, lines in message_lines]
    frequency: dict[bytes, float] = {}
    for _, lines in sets:
        for word in frozenset().union(*lines):
            frequency[word] = frequency.get(word, 0) + 1
    best: dict[str, float] = {}
    for query_words in map(_words, seen):
        query_words = query_words if query_words & frequency.keys() else _similar(query_words, frequency)
        rare = _weight(query_words, frequency)
        for message, lines in sets:
            for line in lines:
                common = _weight(line & query_words, frequency)
                share = min(common / rare / 2, common / _weight(line, frequency)) if common else 0.0
                best[message] = max(best.get(message, share), share)
    ranked = sorted(best, key=lambda message: -best[message])
    return tuple(message for message in ranked[:count] if best[message] >= 0.25)


def _weight(words: Iterable[bytes], frequency: Mapping[bytes, float]) -> float:
    return sum(1 / sqrt(frequency.get(word, _UNKNOWN)) for word in words if not word[:1].isdigit())


def _similar(words: frozenset[bytes], frequency: Mapping[bytes, float]) -> frozenset[bytes]:
    from difflib import get_close_matches  # only where a name means nothing

    if len(words) != 1:
        return words
    name = next(iter(words)).decode()
    if not 8 <= len(name) <= _LONGEST_NAME:
        return words
    near = get_close_matches(name, [word.decode() for word in frequency], n=1, cutoff=0.85)
    return frozenset(word.encode() for word in near) or words


def _words(text: str) -> frozenset[bytes]:
    return frozenset(_WORD.findall(folded(text.encode("utf-8", "surrogateescape"))))
