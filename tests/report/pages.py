"""Reads a page as a browser would: which elements, which attributes, which text."""

from html.parser import HTMLParser

VOID = {"meta", "img", "br", "input", "image", "use", "rect", "path", "link", "hr"}


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.comments: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("style", "script"):
            self.texts.append(data)

    def handle_comment(self, data):
        self.comments.append(data)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def tags(self) -> set[str]:
        return {tag for tag, _ in self.elements}

    def values(self, attribute: str) -> list[str]:
        return [a[attribute] or "" for _, a in self.elements if attribute in a]


def assert_self_contained(text: str) -> Page:
    """Balanced, one strict policy, no address that leaves the page, no handler, no own script."""
    page = Page(text)
    assert not page.open
    policies = [
        a["content"]
        for tag, a in page.elements
        if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy"
    ]
    assert len(policies) == 1
    assert "default-src 'none'" in policies[0]
    for attribute in ("src", "href", "xlink:href", "action", "srcset", "poster", "data"):
        for value in page.values(attribute):
            assert value.startswith(("#", "data:image/")), value
    handlers = [name for _, a in page.elements for name in a if name.startswith("on")]
    assert not handlers
    assert not page.tags() & {"iframe", "object", "embed", "base", "link", "form"}
    assert "@import" not in text
    assert "url(http" not in text
    return page


HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "</style><script>alert(1)</script>",
    "</td></tr></table><iframe src=//evil.example>",
    "{{ 7*7 }}{% for x in y %}",
    "<!-- --><b>",
    "[click](javascript:alert(1)) ![x](http://evil.example/p.png)",
    '=HYPERLINK("http://evil.example","x")',
    "+1+cmd|' /C calc'!A0",
    "@SUM(1)",
    "\x1b[31mred\x1b]8;;http://evil.example\x07link",
    "left\u202eright\u2066x\u200b",
    "a\rb\tc\x00d",
    "\\input{/etc/passwd} $x$ 50% a_b #1 ~ ^ &",
    "|---| cell | border |",
    "&lt;script&gt; &#60;b&#62;",
    "`code` *bold* _it_ ~~x~~ <http://evil.example> www.evil.example",
)
