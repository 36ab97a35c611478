"""Read an HTML page of gpubind's as a browser does, as far as its tests need it."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any, NamedTuple, Optional

VOID = ("meta", "input", "br", "path", "rect", "circle", "line")


class Element(NamedTuple):
    """An element with its attributes and the text in it."""

    tag: str
    attributes: dict[str, Optional[str]]
    texts: list[str]

    @property
    def text(self) -> str:
        """The text in it, without what is between words."""
        return " ".join("".join(self.texts).split())


class Page(HTMLParser):
    """The elements of a page; it fails where one is closed that was not opened."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[Element] = []
        self._open: list[Element] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, Optional[str]]]) -> None:
        element = Element(tag, dict(attrs), [])
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.texts.append(data)

    def all(self, tag: str, **attributes: str) -> list[Element]:
        """The elements *tag* with these attributes; `kind` stands for one of the classes."""
        kind = attributes.pop("kind", None)
        return [
            element
            for element in self.elements
            if element.tag == tag
            and {*attributes.items()} <= {*element.attributes.items()}
            and (kind is None or kind in (element.attributes.get("class") or "").split())
        ]

    @property
    def data(self) -> Any:
        """What the script of the page reads."""
        (found,) = self.all("script", type="application/json")
        return json.loads("".join(found.texts))
