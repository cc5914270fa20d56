"""Foreign text made inert: for HTML, Markdown, LaTeX and CSV.

Control and direction characters are shown as what they are (`\\u202e`), never obeyed.
"""

import html
import re
import unicodedata

HIDDEN_CATEGORIES = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
FORMULA_STARTS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
NUMBER = re.compile(r"[+-]?[0-9][0-9,]*(\.[0-9]+)?%?")
LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "`": r"\textasciigrave{}",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "±": r"$\pm$",
    "−": r"$-$",
    "–": r"\textendash{}",
}
MARKDOWN_ALWAYS = re.compile(r"([\\`*_~|<>&$@])")
MARKDOWN_AT_START = re.compile(r"^(\s*)([-+#=]|\d+(?=[.)](?:\s|$)))")
MARKDOWN_LINKS = re.compile(r"\][(\[:]")
MARKDOWN_ADDRESSES = re.compile(r"(?i)(https?|ftp|xmpp|mailto|www)([:.])")


def visible(text: str, *, keep_newlines: bool = False) -> str:
    """The text with every control, direction, surrogate and unassigned character spelled out."""
    return "".join(
        char if keep_newlines and char == "\n" else _spelled(char) if _hidden(char) else char
        for char in text
    )


def to_html(text: str) -> str:
    return html.escape(visible(text, keep_newlines=True), quote=True)


def to_markdown(text: str) -> str:
    """One line that renders as the text itself: no link, image, emphasis, cell border or tag."""
    shown = MARKDOWN_ALWAYS.sub(r"\\\1", visible(text))
    if MARKDOWN_LINKS.search(shown):
        shown = shown.replace("[", "\\[").replace("]", "\\]")
    shown = MARKDOWN_ADDRESSES.sub(r"\1\\\2", shown)
    start = MARKDOWN_AT_START.match(shown)
    if start and start[2].isdigit():
        return shown[: start.end()] + "\\" + shown[start.end() :]
    return f"{start[1]}\\{shown[start.end(1) :]}" if start else shown


def to_latex(text: str) -> str:
    return "".join(LATEX.get(char, char) for char in visible(text))


def to_csv_field(text: str) -> str:
    """The text, behind an apostrophe where a spreadsheet would run it."""
    shown = visible(text)
    if shown.lstrip().startswith(FORMULA_STARTS) and not NUMBER.fullmatch(shown):
        return "'" + shown
    return shown


def _hidden(char: str) -> bool:
    return unicodedata.category(char) in HIDDEN_CATEGORIES


def _spelled(char: str) -> str:
    code = ord(char)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
