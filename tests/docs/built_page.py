"""An HTML page of the documentation site or of a git host, reduced to links, anchors and outline."""

import re
from html.parser import HTMLParser
from typing import NamedTuple

OUTLINE = {
    "a", "blockquote", "code", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "img", "li", "ol", "pre", "strong",
    "table", "td", "th", "tr", "ul",
}  # fmt: skip
"""The elements that carry meaning. Paragraphs do not: renderers differ in which list items have them."""

LOADED = {"link": "href", "img": "src", "script": "src", "iframe": "src", "source": "srcset"}
"""The elements that make a browser load another file, with the attribute that names it."""


class Link(NamedTuple):
    """A link that a reader can follow, or a file that the browser loads."""

    target: str
    is_loaded: bool


class BuiltPage(HTMLParser):
    """The links, anchors and outline of a page."""

    def __init__(self, html: str, *, is_article: bool = False) -> None:
        super().__init__()
        self.links: list[Link] = []
        self.anchors: set[str] = set()
        self.outline: list[str] = []
        """The content from top to bottom: elements and text, for a comparison of two renderers."""
        self._is_content = is_article
        self._permalink = False
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(Link(values["href"], is_loaded=False))
        elif target := values.get(LOADED.get(tag, "")):
            self.links.append(Link(target, is_loaded=True))
        if tag == "article":
            self._is_content = True
        elif tag == "a" and (values.get("class") == "headerlink" or "href" not in values):
            self._permalink = True
        elif self._is_content and tag in OUTLINE:
            self.outline.append(f"<{tag}>")

    def handle_endtag(self, tag: str) -> None:
        if tag == "article":
            self._is_content = False
        elif tag == "a" and self._permalink:
            self._permalink = False
        elif self._is_content and tag in OUTLINE:
            self.outline.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        text = re.sub(r"\s+", "", data)
        if text and self._is_content and not self._permalink:
            if self.outline and not self.outline[-1].startswith("<"):
                self.outline[-1] += text
            else:
                self.outline.append(text)
