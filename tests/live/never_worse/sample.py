"""Deals starts from the tables: each row of a table comes once before any comes twice."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from typing import Generic, NamedTuple, Optional, TypeVar

from tests.live.never_worse.recipes import IMAGES, Image
from tests.live.never_worse.tables import (
    CALLERS,
    CREATED_OPTIONS,
    CREATED_SITES,
    ENVIRONMENTS,
    OPTIONS,
    REQUESTS,
    SITES,
    Caller,
)
from tests.live.never_worse.ways import CREATED, DOCKERS, INSTANCE, WAYS

T = TypeVar("T")

DEFAULT_SEED, DEFAULT_STARTS = 1, 400
SEED = int(os.environ.get("NEVER_WORSE_SEED") or DEFAULT_SEED)
STARTS = int(os.environ.get("NEVER_WORSE_STARTS") or DEFAULT_STARTS)

SHARES = {"exec": 10, "wrap": 3, "bubblewrap": 2, CREATED: 2}
"""How many cards a way has in its deck; the others one each."""
INSTALLED = "as installed"
_ROOTS_OPTIONS = ("--no-privs",)
"""Root of the rig may lack capabilities that Apptainer would give to root of the container."""


class Start(NamedTuple):
    """One start of a container, and the way of gpubind's that shall be no worse."""

    image: Image
    kind: str
    caller: Caller
    options: tuple[tuple[str, ...], ...]
    environments: tuple[int, ...]
    """Rows of the table of environments."""
    site: str
    way: str

    @property
    def words(self) -> tuple[str, ...]:
        """The user's options."""
        own = () if self.caller.user or self.way == CREATED else _ROOTS_OPTIONS
        return (*own, *(word for group in self.options for word in group))

    @property
    def variables(self) -> dict[str, str]:
        """What the caller's environment has beside the plain one."""
        return {name: value for row in self.environments for name, value in ENVIRONMENTS[row].items()}

    def __str__(self) -> str:
        who = "user" if self.caller.user else "root"
        parts = [f"{self.way}: {self.image.name} ({self.kind}), {who} in {self.caller.directory}"]
        parts += [" ".join(group) for group in self.options]
        parts += [f"{name}={value}" for name, value in self.variables.items()]
        return ", ".join([*parts, *([f"site: {self.site}"] if self.site != INSTALLED else [])])


def starts(seed: int, way: Optional[str] = None) -> Iterator[Start]:
    """Starts without end; the same for the same seed. All go one *way*, if it is named."""
    dice = random.Random(seed)
    images = Deck(dice, [(image, kind) for image in IMAGES for kind in _weighted(image)])
    options = Deck(dice, OPTIONS)
    environments = Deck(dice, range(len(ENVIRONMENTS)))
    callers = Deck(dice, (CALLERS[0], *CALLERS))
    sites = Deck(dice, [INSTALLED] * (3 * len(SITES)) + list(SITES))
    ways = Deck(dice, [way for way in WAYS for _ in range(SHARES.get(way, 1))])
    created_options, created_sites = Deck(dice, CREATED_OPTIONS), Deck(dice, CREATED_SITES)
    requests = {engine: Deck(dice, rows) for engine, rows in REQUESTS.items()}
    named = way
    while True:
        way = named or ways.card()
        (image, kind), caller, site = images.card(), callers.card(), sites.card()
        chosen = tuple(options.card() for _ in range(dice.choice((0, 1, 1, 2))))
        rows = tuple(environments.card() for _ in range(dice.choice((0, 1, 1, 2))))
        if way in ("bubblewrap", CREATED):  # know nothing of Apptainer's options, variables, sites and files
            chosen, site = (), INSTALLED
            rows = tuple(row for row in rows if not _is_for_apptainer(row))
            kind = image.kinds[0]
        if way in (INSTANCE, CREATED) and caller.user:
            # whose container needs a /proc of its own, which the made-up driver prevents
            caller = next(one for one in CALLERS if not one.user)
        if way == CREATED:
            site = created_sites.card()
            engine = site.split()[0]
            words = (
                requests[engine].card().split(),
                *(created_options.card() for _ in range(dice.choice((0, 1, 1, 2)))),
            )
            chosen = tuple(tuple(group) for group in words)
            if engine == "docker":
                image, kind = next((one, one.kinds[0]) for one in IMAGES if f":{one.name}" in DOCKERS)
        yield Start(image, kind, caller, chosen, rows, site, way)


class Deck(Generic[T]):
    """Cards in the order of chance, shuffled anew when all were dealt."""

    def __init__(self, dice: random.Random, cards: Sequence[T]) -> None:
        self.dice, self.cards, self.left = dice, list(cards), list[T]()

    def card(self) -> T:
        if not self.left:
            self.left = self.dice.sample(self.cards, len(self.cards))
        return self.left.pop()


def _weighted(image: Image) -> tuple[str, ...]:
    """Few images are SIF files, but most starts in the field are of such."""
    return (*image.kinds, *(("SIF",) if image.sif else ()))


def _is_for_apptainer(row: int) -> bool:
    return any(name.startswith(("APPTAINER", "SINGULARITY")) for name in ENVIRONMENTS[row])
