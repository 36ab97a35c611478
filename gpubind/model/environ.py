"""The environment of a process, with the names of the variables that differ from the caller's."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType


class Environ(Mapping[str, str]):
    """The variables of a process. `changed_names`: the names changed, added or unset since the caller's environment."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)
        self.changed_names: frozenset[str] = frozenset()

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter([*self._values])

    def __len__(self) -> int:
        return len(self._values)

    def plain(self) -> dict[str, str]:
        """Return all variables. Subclasses that record reads do not record this one."""
        return dict(self._values)

    def changed(self, unset: Collection[str], values: Mapping[str, str]) -> Environ:
        """Return a copy without the names in *unset* and with *values* set. The other variables are not read."""
        clone = type(self).__new__(type(self))
        clone.__dict__.update(self.__dict__)
        clone.changed_names = self.changed_names | {*unset, *values}
        clone._values = {**{name: value for name, value in self._values.items() if name not in unset}, **values}
        return clone


def changed(
    environ: Mapping[str, str], *, unset: Collection[str] = (), values: Mapping[str, str] = MappingProxyType({})
) -> Mapping[str, str]:
    """Return *environ* as `Environ.changed`."""
    return (environ if isinstance(environ, Environ) else Environ(environ)).changed(unset, values)
