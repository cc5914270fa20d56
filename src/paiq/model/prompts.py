"""Conversations behind an image as token ids, with the supervision mask built on the way.

A conversation is cut into the fixed text of the model's own chat template and the parts of the
sample; each part is tokenised once and labelled as it is placed. Training and generation place
the same parts, so a prompt is the same in both.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from jinja2 import TemplateError
from torch import Tensor

from paiq.errors import ConfigError, DataError
from paiq.model.language import LanguageConfig
from paiq.model.losses import IGNORED
from paiq.records import Sample

Side = Literal["left", "right"]


@dataclass(frozen=True, kw_only=True)
class ImageBlock:
    """What stands in the prompt where the picture is."""

    placeholder: str
    start: str = ""
    end: str = ""
    separator: str = ""

    @property
    def text(self) -> str:
        """The block with one placeholder and what parts it from the prompt."""
        return f"{self.start}{self.placeholder}{self.end}{self.separator}"


FAMILIES = (
    ImageBlock(start="<img>", placeholder="<IMG_CONTEXT>", end="</img>", separator="\n"),
    ImageBlock(start="<|vision_start|>", placeholder="<|image_pad|>", end="<|vision_end|>"),
    ImageBlock(placeholder="<image>", separator="\n"),
    ImageBlock(placeholder="<|image|>", separator="\n"),
    ImageBlock(placeholder="<|reserved_special_token_0|>", separator="\n"),
    ImageBlock(placeholder="<file_sep>", separator="\n"),
)
"""InternVL, Qwen, models with an image token, Llama-3.1, SmolLM; the first whose tokens exist."""


@dataclass(frozen=True)
class Rendered:
    """Token ids and, at supervised positions, the same ids as labels."""

    input_ids: list[int] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.input_ids)

    @property
    def answer_tokens(self) -> int:
        return sum(label != IGNORED for label in self.labels)

    def add(self, ids: Sequence[int], *, supervised: bool = False) -> None:
        self.input_ids.extend(ids)
        self.labels.extend(ids if supervised else [IGNORED] * len(ids))


class Renderer:
    """Samples to token ids, in one language model's own format."""

    def __init__(self, tokenizer: Any, language: LanguageConfig, num_tokens: int) -> None:
        self.tokenizer = tokenizer
        self.language = language
        self.num_tokens = num_tokens
        self.block = image_block(tokenizer, language)
        self.image_token_id = token_id(tokenizer, self.block.placeholder)
        self.pad_id = pad_id(tokenizer)
        self._glue = _Glue(tokenizer, language)
        self._special = re.compile("|".join(map(re.escape, special_tokens(tokenizer))))

    def for_training(self, sample: Sample) -> Rendered:
        """Every turn with its answer; answers and their end tokens are supervised."""
        unanswered = [turn.prompt for turn in sample.turns if turn.answer is None]
        if unanswered:
            raise DataError(f"sample {sample.id!r} has no answer to {unanswered[0]!r}")
        return self._render(sample, len(sample.turns))

    def for_generation(self, sample: Sample) -> Rendered:
        """Everything before the first answer that is to be generated, or before the last one."""
        open_turns = [i for i, turn in enumerate(sample.turns) if turn.answer is None]
        return self._render(sample, open_turns[0] if open_turns else len(sample.turns) - 1)

    def _render(self, sample: Sample, answered: int) -> Rendered:
        rendered = Rendered()
        for index, turn in enumerate(sample.turns[: answered + 1]):
            self._check(sample, turn.prompt)
            self._check(sample, turn.answer or "")
            before, after = self._glue.first if index == 0 else self._glue.later
            prompt = self._glue.clean(turn.prompt)
            if index == 0:
                rendered.add(self._ids(before))
                rendered.add(self._image())
                before, prompt = self.block.separator, self._glue.clean_end(turn.prompt)
            rendered.add(self._ids(before + prompt + after))
            if index < answered and turn.answer is not None:
                answer = self._glue.clean(turn.answer)
                rendered.add(self._ids(answer), supervised=True)
                rendered.add([self.end_id], supervised=True)
        return rendered

    @property
    def end_id(self) -> int:
        """The token that ends an answer in this template."""
        return self._glue.end_id

    def decode(self, ids: Sequence[int]) -> str:
        """The exact text of generated ids, end and other special tokens left out."""
        text: str = self.tokenizer.decode(
            ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text

    def _check(self, sample: Sample, text: str) -> None:
        if self.block.placeholder in text:
            raise DataError(
                f"the text of sample {sample.id!r} holds {self.block.placeholder!r} itself; "
                "remove it, the image block is placed once by the renderer"
            )
        if found := self._special.search(text):
            raise DataError(
                f"the text of sample {sample.id!r} holds {found[0]!r}, which the language model "
                "would read as a control token; remove it"
            )

    def _image(self) -> list[int]:
        markers = [
            token_id(self.tokenizer, text) if text else None
            for text in (self.block.start, self.block.end)
        ]
        start, end = ([] if marker is None else [marker] for marker in markers)
        return [*start, *[self.image_token_id] * self.num_tokens, *end]

    def _ids(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False)["input_ids"] if text else []


USER, ANSWER = "\ue000user\ue000", "\ue000answer\ue000"


class _Glue:
    """The fixed text that a chat template puts around prompts and answers."""

    def __init__(self, tokenizer: Any, language: LanguageConfig) -> None:
        self.tokenizer = tokenizer
        self.language = language
        head = self._apply([USER])
        before, after = _split(head, USER)
        self.first = before, after
        self.trims = self._apply([f" {USER} "]) == head
        self.end_id, self.later = self._second_turn(after)

    def clean(self, text: str) -> str:
        """The text as the template would place it."""
        return text.strip() if self.trims else text

    def clean_end(self, text: str) -> str:
        """The same for text that follows the image block inside its message."""
        return text.rstrip() if self.trims else text

    def _second_turn(self, after: str) -> tuple[int, tuple[str, str]]:
        whole = self._apply([USER, ANSWER, USER])
        _, tail = _split(whole, ANSWER)
        between, again = _split(tail, USER)
        if again != after:
            raise ConfigError("the chat template opens the second answer unlike the first")
        ids = self.tokenizer(between, add_special_tokens=False)["input_ids"]
        if ids and ids[0] in self.tokenizer.all_special_ids:
            # The end token itself is supervised; what follows it opens the next turn.
            token = self.tokenizer.convert_ids_to_tokens(ids[0])
            return int(ids[0]), (between.removeprefix(token), again)
        if self.tokenizer.eos_token_id is None:
            raise ConfigError("neither the chat template nor the tokenizer ends an answer")
        return int(self.tokenizer.eos_token_id), (between, again)

    def _apply(self, contents: Sequence[str]) -> str:
        roles = ("user", "assistant")
        messages = [
            {"role": roles[index % 2], "content": content} for index, content in enumerate(contents)
        ]
        if self.language.system is not None:
            messages.insert(0, {"role": "system", "content": self.language.system})
        return apply_template(self.tokenizer, messages, self.language.template_options)


def apply_template(
    tokenizer: Any, messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any]
) -> str:
    """The conversation as text, ready for the next answer."""
    if not tokenizer.chat_template:
        raise ConfigError("the language model's tokenizer has no chat template; use a chat model")
    try:
        return tokenizer.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=True, **options
        )
    except (TemplateError, ValueError, TypeError) as error:
        raise ConfigError(f"the chat template refuses a plain conversation: {error}") from error


def _split(text: str, mark: str) -> tuple[str, str]:
    parts = text.split(mark)
    if len(parts) != 2:
        raise ConfigError("the chat template must place every message exactly once, unchanged")
    return parts[0], parts[1]


def image_block(tokenizer: Any, language: LanguageConfig) -> ImageBlock:
    """The family's image block, found by which tokens exist; single parts can be set."""
    chosen = {
        "placeholder": language.placeholder,
        "start": language.image_start,
        "end": language.image_end,
        "separator": language.separator,
    }
    given = {name: text for name, text in chosen.items() if text is not None}
    block = ImageBlock(**given) if "placeholder" in given else None
    for family in FAMILIES if block is None else ():
        if all(_is_token(tokenizer, text) for text in _tokens(family)):
            block = ImageBlock(**{**vars(family), **given})
            break
    if block is None:
        raise ConfigError(
            "the tokenizer has no token that could stand for an image; name a reserved one "
            "with language.placeholder"
        )
    for text in _tokens(block):
        token_id(tokenizer, text)
    if language.separator is None:
        own = template_separator(tokenizer, block, language.template_options)
        block = block if own is None else replace(block, separator=own)
    return block


def template_separator(tokenizer: Any, block: ImageBlock, options: Mapping[str, Any]) -> str | None:
    """What the chat template itself puts between an image and text; None if it knows no images."""
    content = [{"type": "image"}, {"type": "text", "text": USER}]
    try:
        text = apply_template(tokenizer, [{"role": "user", "content": content}], options)
    except ConfigError:
        return None
    _, mark, after = text.partition(block.placeholder)
    between, user, _ = after.partition(USER)
    return between.removeprefix(block.end) if mark and user else None


def _tokens(block: ImageBlock) -> list[str]:
    return [text for text in (block.start, block.placeholder, block.end) if text]


def _is_token(tokenizer: Any, text: str) -> bool:
    return tokenizer(text, add_special_tokens=False)["input_ids"] == [
        tokenizer.convert_tokens_to_ids(text)
    ]


def token_id(tokenizer: Any, text: str) -> int:
    """The id of a single existing token; no token is ever added."""
    if not _is_token(tokenizer, text):
        raise ConfigError(f"{text!r} is no single token of the language model's tokenizer")
    return int(tokenizer.convert_tokens_to_ids(text))


def special_tokens(tokenizer: Any) -> list[str]:
    """Control tokens as they are written, the longest first."""
    added = (str(token) for token in tokenizer.added_tokens_decoder.values() if token.special)
    return sorted({*added, *tokenizer.all_special_tokens}, key=len, reverse=True)


def pad_id(tokenizer: Any) -> int:
    """Any id will do for padding: it is masked everywhere."""
    for candidate in (tokenizer.pad_token_id, tokenizer.eos_token_id):
        if candidate is not None:
            return int(candidate)
    raise ConfigError("the tokenizer has neither a padding nor an end token")


def collate(
    rendered: Sequence[Rendered], pad_id: int, pad_side: Side = "right"
) -> dict[str, Tensor]:
    """`input_ids`, `attention_mask`, `labels` of one batch, padded to its longest."""
    longest = max(len(item) for item in rendered)

    def pad(values: Sequence[int], filler: int) -> list[int]:
        padding = [filler] * (longest - len(values))
        return [*padding, *values] if pad_side == "left" else [*values, *padding]

    rows = {
        "input_ids": [pad(item.input_ids, pad_id) for item in rendered],
        "attention_mask": [pad([1] * len(item), 0) for item in rendered],
        "labels": [pad(item.labels, IGNORED) for item in rendered],
    }
    return {name: torch.tensor(values) for name, values in rows.items()}
