"""The tokenizer of the world: one token a word, as a plain transformers folder."""

from pathlib import Path
from typing import Any

from paiq.world.language import BOS, CHAT_TEMPLATE, EOS, IMAGE, PAD, SPECIAL, UNKNOWN, WORDS


def build_tokenizer() -> Any:
    """A PreTrainedTokenizerFast over the world's words, padding on the left."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token=UNKNOWN)
    )
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.decoder = decoders.WordPiece(cleanup=True)  # joins, and closes up before , . and ?
    words.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    return PreTrainedTokenizerFast(
        tokenizer_object=words,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=PAD,
        unk_token=UNKNOWN,
        additional_special_tokens=[IMAGE, "<user>", "<assistant>"],
        padding_side="left",
        model_max_length=512,
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
    )


def save_tokenizer(folder: Path) -> None:
    build_tokenizer().save_pretrained(folder)
