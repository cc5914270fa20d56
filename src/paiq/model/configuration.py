"""What a composite model consists of, as transformers' configuration."""

from typing import Any

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, PreTrainedConfig

from paiq.interfaces import INTERFACES, Sizes, split_settings
from paiq.towers import Selection

DEFAULTS = {
    "spatial_config": "dinov3_vit",
    "semantic_config": "siglip_vision_model",
    "text_config": "llama",
}
PAPER_SPATIAL = {"layer": "last", "skip_tokens": 5, "num_tokens": 196, "image_size": 224}
PAPER_SEMANTIC = {"layer": "last", "skip_tokens": 0, "num_tokens": 576, "image_size": 384}


@strict
class PaiqConfig(PreTrainedConfig):
    """Two towers, an interface and a language model; the frozen three by reference.

    A `*_source` says where a frozen part comes from (name, revision, digest of its weights). A
    merged folder holds every weight itself.
    """

    model_type = "paiq"
    sub_configs = {  # noqa: RUF012 transformers reads this attribute of the class
        "spatial_config": AutoConfig,
        "semantic_config": AutoConfig,
        "text_config": AutoConfig,
    }

    spatial_config: dict | PreTrainedConfig | None = None
    semantic_config: dict | PreTrainedConfig | None = None
    text_config: dict | PreTrainedConfig | None = None
    spatial_selection: dict | None = None
    semantic_selection: dict | None = None
    spatial_source: dict | None = None
    semantic_source: dict | None = None
    language_source: dict | None = None
    interface: str = "paiq"
    interface_options: dict | None = None
    interface_digest: str | None = None
    folded: bool = False
    merged: bool = False
    image_token_id: int = 0
    head_bias: bool = False
    tie_word_embeddings: bool = False

    def __post_init__(self, **kwargs: Any) -> None:
        for name, default in DEFAULTS.items():
            values = getattr(self, name) or {}
            if isinstance(values, dict):
                values = dict(values)
                values = AutoConfig.for_model(values.pop("model_type", default), **values)
            setattr(self, name, values)
        self.spatial_selection = self.spatial_selection or PAPER_SPATIAL
        self.semantic_selection = self.semantic_selection or PAPER_SEMANTIC
        self.interface_options = self.interface_options or {}
        super().__post_init__(**kwargs)
        self.tie_word_embeddings = bool(self._text.tie_word_embeddings)

    def to_dict(self) -> dict[str, Any]:
        """As the parent's, without the places of the parts' folders on this machine."""
        values = super().to_dict()
        for part in (values, *(values[name] for name in DEFAULTS)):
            part.pop("_name_or_path", None)
        return values

    @property
    def _text(self) -> Any:
        return self.text_config

    def selection(self, stream: str) -> Selection:
        """Which tokens of a tower's output are the stream's features."""
        return Selection(**getattr(self, f"{stream}_selection"))

    def interface_settings(self) -> dict[str, Any]:
        """Everything `paiq.interfaces.create` needs besides the name."""
        spatial, semantic = self.selection("spatial"), self.selection("semantic")
        sizes = Sizes(
            hidden_size=self._text.hidden_size,
            spatial_size=self.spatial_config.hidden_size,  # type: ignore[union-attr]  # set above
            semantic_size=self.semantic_config.hidden_size,  # type: ignore[union-attr]  # set above
            spatial_tokens=spatial.num_tokens,
            semantic_tokens=semantic.num_tokens,
        )
        return {**vars(sizes), **(self.interface_options or {})}

    @property
    def num_image_tokens(self) -> int:
        """Placeholders per image, by the interface's formula."""
        sizes, options = split_settings(self.interface, self.interface_settings())
        return INTERFACES[self.interface].count_tokens(sizes, options)


AutoConfig.register("paiq", PaiqConfig, exist_ok=True)
