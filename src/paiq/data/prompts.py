"""How a question and its options become the text a model is asked, and back."""

import re
import string
from collections.abc import Sequence

from paiq.errors import ConfigError

OPTION_CONTENT = "{question}\nOptions:\n{options}\n(Answer with the option content)"
"""The layout of Granulon's conversions, whose evaluation the paper follows; the answer is the
text of an option, not its letter. The picture is placed by the model's own prompt."""

DESCRIBE = "Describe this image in detail."
"""Ours: the paper does not print the instruction of its descriptions."""

FIELD = re.compile(r"\{(question|options)\}")
LETTERED = re.compile(r"([A-Z])\. (.*)", re.DOTALL)


def check_template(template: str) -> str:
    """The template itself, where it has exactly one place for the question."""
    if template.count("{question}") != 1:
        raise ConfigError(f"a question template needs one {{question}}, got {template!r}")
    return template


def lettered(options: Sequence[str]) -> str:
    if len(options) > len(string.ascii_uppercase):
        raise ConfigError(f"{len(options)} options are more than there are letters")
    pairs = zip(string.ascii_uppercase, options, strict=False)
    return "\n".join(f"{letter}. {text}" for letter, text in pairs)


def ask(question: str, options: Sequence[str] = (), template: str = OPTION_CONTENT) -> str:
    """The prompt; a question without options is asked as it is.

    Filled in one pass, so that a question holding `{options}` stays what it is.
    """
    if not options:
        return question
    values = {"question": question, "options": lettered(options)}
    return FIELD.sub(lambda field: values[field[1]], template)


def take_apart(prompt: str) -> tuple[str, tuple[str, ...]]:
    """Question and options of a prompt in the default layout, or the prompt and no options."""
    head, options_line, rest = prompt.partition("\nOptions:\n")
    lines, ending, after = rest.rpartition("\n(Answer with the option content)")
    if not options_line or not ending or after.strip():
        return prompt, ()
    found = [LETTERED.fullmatch(line) for line in lines.split("\n")]
    letters = "".join(match[1] if match else "?" for match in found)
    if letters != string.ascii_uppercase[: len(letters)]:
        return prompt, ()
    return head, tuple(match[2] for match in found if match)
