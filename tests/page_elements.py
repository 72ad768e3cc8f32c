"""What a page of HTML consists of, and a text that would like to be more than text."""

from __future__ import annotations

from html.parser import HTMLParser

HOSTILE = (
    "</script><script>alert(1)</script></pre><img src=x onerror=alert(2)>\x1b[31m\u202e{{ 7 * 7 }}"
    "\x1b[31m\u202e\u2028'\"&{{ 7 * 7 }}"
)
"""Markup, script, control and bidirectional characters, and a template's code."""


class Elements(HTMLParser):
    """Elements of a page with their attributes, the texts of its scripts, and all other text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.elements and self.elements[-1][0] == "script" and self.lasttag == "script":
            self.scripts.append(data)
        else:
            self.text += data

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.elements]

    @property
    def ids(self) -> list[str]:
        return [str(attributes["id"]) for _, attributes in self.elements if "id" in attributes]

    @property
    def links(self) -> list[str]:
        """Where its links lead."""
        return [str(attrs["href"]) for name, attrs in self.elements if name == "a" and "href" in attrs]
