"""One training step and one generation at the real widths, with random weights.

A 2B-shaped Qwen3.5 language model (hybrid attention, all 24 layers, its whole vocabulary) behind
ViT-L-shaped DINOv3 and SigLIP towers, in bfloat16. Ours beside a plain transformers loop in the
same process: the towers in every step, one padded batch, logits at every position, and the fusion
as the paper reports it.
"""

import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from paiq.bench.outcome import Outcome, markdown, short
from paiq.bench.references import papers_path
from paiq.bench.shapes import SHAPES, random_model, samples
from paiq.bench.timing import device_named, machine
from paiq.errors import ConfigError
from paiq.model import Rendered, collate
from paiq.progress import Report, silent
from paiq.towers.store import Features, readable
from paiq.training.config import Optimizer
from paiq.training.step import Stepper

NEW_TOKENS = 8


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What `paiq bench step` measures."""

    shape: str = "2b"
    """`2b`: a Qwen3.5-2B-shaped language model behind ViT-L-shaped towers; or `tiny`."""
    batch: int = 2
    """Samples per step."""
    micro: int | None = None
    """Samples per forward pass of ours: one on a processor, the batch on a GPU, or as given."""
    device: str | None = None
    """`cpu` or `cuda`; CUDA where there is one."""

    def __post_init__(self) -> None:
        if self.shape not in SHAPES:
            raise ConfigError(f"no shape {self.shape!r}; have {', '.join(SHAPES)}")
        if self.micro is not None and not 1 <= self.micro <= self.batch:
            raise ConfigError(f"micro must lie in 1 to batch={self.batch}, got {self.micro}")

    @property
    def steps(self) -> int:
        """How many pieces of work are reported."""
        return 5


QUICK = Settings(shape="tiny")


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One way to take the step."""

    seconds: float
    parts: Mapping[str, float]
    """Seconds by name; what is left of the step is reading and copying."""
    peak_bytes: int
    """The most memory beyond what was held before the first step."""
    loss: float


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """Both ways, over the same samples and weights."""

    settings: Settings
    micro: int
    machine: Mapping[str, Any]
    weight_bytes: int
    towers: float
    """Seconds for both towers over the batch; ours pays them once, not in every step."""
    ours: Measured
    plain: Measured
    generation: Mapping[str, float]

    @property
    def speedup(self) -> float:
        return self.plain.seconds / self.ours.seconds

    @property
    def memory_share(self) -> float:
        """Our peak beyond the weights as a share of the plain loop's."""
        return self.ours.peak_bytes / self.plain.peak_bytes

    @property
    def interface_share(self) -> float:
        """The interface's forward and backward as a share of our step."""
        mine = self.ours.parts["interface forward"] + self.ours.parts["interface backward"]
        return mine / self.ours.seconds


class Watch:
    """Seconds by name; a GPU is waited for at both ends."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.parts: dict[str, float] = defaultdict(float)

    def now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        started = self.now()
        yield
        self.parts[name] += self.now() - started

    @contextmanager
    def module(self, module: torch.nn.Module, name: str) -> Iterator[None]:
        """Times a module's forward passes."""
        started: list[float] = []
        before = module.register_forward_pre_hook(lambda *_: started.append(self.now()))
        after = module.register_forward_hook(lambda *_: self._add(name, started.pop()))
        yield
        before.remove()
        after.remove()

    def _add(self, name: str, started: float) -> None:
        self.parts[name] += self.now() - started

    def backward(self, loss: Tensor, tokens: Tensor) -> None:
        """Times the way back to the visual tokens, and from there through the interface."""
        started = self.now()
        reached: list[float] = []
        tokens.register_hook(lambda gradient: reached.append(self.now()))
        loss.backward()
        ended = self.now()
        self.parts["language backward"] += reached[0] - started
        self.parts["interface backward"] += ended - reached[0]


class Bench:
    """A model of real widths and a batch for it."""

    features: Features
    """What the towers make of the batch, as the store would hand it over."""

    def __init__(self, settings: Settings, device: torch.device) -> None:
        self.device = device
        # A GPU starves on single samples; a processor is busy with one, and saves the memory.
        whole = settings.batch if device.type == "cuda" else 1
        self.micro = settings.micro or whole
        self.model = random_model(SHAPES[settings.shape], device)
        self.samples = samples(self.model, settings.batch)
        self.first = {name: t.clone() for name, t in self.model.interface.state_dict().items()}
        config = self.model.config
        sizes = [config.selection(stream).image_size for stream in ("spatial", "semantic")]
        generator = torch.Generator().manual_seed(2)
        self.pixels = [
            torch.randn(settings.batch, 3, size, size, generator=generator).to(device)
            for size in sizes
        ]

    def reset(self) -> None:
        """Gives the interface its first weights again."""
        self.model.interface.load_state_dict(self.first)

    def encode(self, rows: slice) -> Features:
        """Both towers over some of the pictures."""
        spatial, semantic = self.model.model.encode(*(pixels[rows] for pixels in self.pixels))
        return Features(spatial, semantic)

    def ours(self, count: int, watch: Watch) -> float:
        """The mean loss of one step over so many samples: few at a time, logits of answers only."""
        model, total, tokens = self.model, 0.0, 0
        stepper = Stepper(model.interface, Optimizer())
        order = sorted(range(count), key=lambda row: len(self.samples[row]["input_ids"]))
        fused: list[Tensor] = []
        keep = model.interface.register_forward_hook(lambda _, __, out: fused.append(out.tokens))
        timed = watch.module(model.interface, "interface forward")
        with timed, watch.module(model.model.language_model, "language forward"):
            for start in range(0, count, self.micro):
                rows = order[start : start + self.micro]
                loss, answered = model.answer_loss(
                    **self.padded(rows),
                    spatial_features=self.features.spatial[rows],
                    semantic_features=self.features.semantic[rows],
                )
                watch.backward(loss, fused.pop())
                total, tokens = total + loss.item(), tokens + answered
        keep.remove()
        with watch.part("optimiser"):
            stepper.step(tokens, rate=1.0)
        return total / tokens

    def padded(self, rows: Sequence[int]) -> dict[str, Tensor]:
        """The texts of these samples side by side."""
        chosen = [self.samples[row] for row in rows]
        texts = [Rendered(s["input_ids"].tolist(), s["labels"].tolist()) for s in chosen]
        return {name: t.to(self.device) for name, t in collate(texts, pad_id=0).items()}

    def plain(self, count: int, watch: Watch) -> float:
        """The same step as it is usually written."""
        model = self.model
        adam = torch.optim.AdamW(model.interface.parameters(), lr=1e-4, weight_decay=0.0)
        texts = self.padded(range(count))
        with watch.part("towers"):
            spatial, semantic = self.encode(slice(count))
        with watch.part("interface forward"):
            tokens = papers_path(model.interface, spatial.float(), semantic.float())
        with watch.part("language forward"):
            text = model.get_input_embeddings()(texts["input_ids"])
            slots = (texts["input_ids"] == model.config.image_token_id).unsqueeze(-1)
            hidden = model.model.language_model(
                inputs_embeds=text.masked_scatter(slots, tokens.to(text.dtype)),
                attention_mask=texts["attention_mask"],
                use_cache=False,
            ).last_hidden_state
        with watch.part("logits and loss"):
            logits = model.logits(hidden).float()
            loss = cross_entropy(logits[:, :-1].flatten(0, 1), texts["labels"][:, 1:].flatten())
        watch.backward(loss, tokens)
        with watch.part("optimiser"):
            adam.step()
            adam.zero_grad()
        return loss.item()

    @torch.no_grad()
    def generate(self) -> dict[str, float]:
        """Seconds to the first token, and for each after it."""
        inputs = {
            **self.padded([0]),
            "spatial_features": self.features.spatial[:1],
            "semantic_features": self.features.semantic[:1],
        }
        inputs.pop("labels")
        self.model.generate(**inputs, max_new_tokens=2, min_new_tokens=2, do_sample=False)
        seconds = {}
        for count in (1, 1 + NEW_TOKENS):
            watch = Watch(self.device)
            with watch.part("all"):
                self.model.generate(
                    **inputs, max_new_tokens=count, min_new_tokens=count, do_sample=False
                )
            seconds[count] = watch.parts["all"]
        each = (seconds[1 + NEW_TOKENS] - seconds[1]) / NEW_TOKENS
        return {"first token": seconds[1], "each further token": each}


def measure(settings: Settings, report: Report = silent) -> StepResult:
    """Both ways over the same samples and weights, each after one sample to warm up."""
    device = device_named(settings.device)
    must_have_room(SHAPES[settings.shape].gigabytes, device)
    bench = Bench(settings, device)
    report(1, "model built")
    bench.encode(slice(1))
    watch = Watch(device)
    with watch.part("towers"):
        bench.features = bench.encode(slice(None))
    report(2, "towers")
    held = held_bytes(device)
    ours = measured(bench, bench.ours, held)
    report(3, "our step")
    generation = bench.generate()
    report(4, "generation")
    plain = measured(bench, bench.plain, held)
    report(5, "plain step")
    return StepResult(
        settings=settings,
        micro=bench.micro,
        machine=machine(device),
        weight_bytes=sum(p.numel() * p.element_size() for p in bench.model.parameters()),
        towers=watch.parts["towers"],
        ours=ours,
        plain=plain,
        generation=generation,
    )


def measured(bench: Bench, step: Callable[[int, Watch], float], held: int) -> Measured:
    """A whole step, from the first weights."""
    step(1, Watch(bench.device))
    bench.reset()
    reset_peak(bench.device)
    watch = Watch(bench.device)
    with watch.part("step"):
        loss = step(len(bench.samples), watch)
    seconds = watch.parts.pop("step")
    peak = peak_bytes(bench.device) - held
    return Measured(seconds=seconds, parts=dict(watch.parts), peak_bytes=peak, loss=loss)


STATUS = Path("/proc/self/status")
CLEAR = Path("/proc/self/clear_refs")
RESET_PEAK = "5"


def reset_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    else:
        CLEAR.write_text(RESET_PEAK)


def peak_bytes(device: torch.device) -> int:
    return torch.cuda.max_memory_allocated() if device.type == "cuda" else _status("VmHWM")


def held_bytes(device: torch.device) -> int:
    return torch.cuda.memory_allocated() if device.type == "cuda" else _status("VmRSS")


def must_have_room(gigabytes: int, device: torch.device) -> None:
    """Stops before a comparison that would drive the machine out of memory."""
    if device.type == "cuda":
        return
    if not CLEAR.exists():
        raise ConfigError("peak memory of the processor is read from /proc, which is not here")
    text = Path("/proc/meminfo").read_text()
    free = _kilobytes(text, "MemAvailable") * 1024
    if free < gigabytes * 2**30:
        raise ConfigError(f"this needs {gigabytes} GiB of free memory, there are {readable(free)}")


def _status(name: str) -> int:
    return _kilobytes(STATUS.read_text(), name) * 1024


def _kilobytes(text: str, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
    assert found, name
    return int(found[1])


def run(settings: Settings, report: Report = silent) -> Outcome:
    result = measure(settings, report)
    return Outcome(name="step", table=table_of(result), numbers=asdict(result))


def table_of(result: StepResult) -> str:
    """The result for people, in Markdown."""
    ours, plain, settings = result.ours, result.plain, result.settings
    names = dict.fromkeys([*plain.parts, *ours.parts])
    rows = [[name, short(ours.parts.get(name)), short(plain.parts.get(name))] for name in names]
    rows += [
        ["whole step", short(ours.seconds), short(plain.seconds)],
        ["samples per second", *(short(settings.batch / way.seconds) for way in (ours, plain))],
        ["peak beyond the weights", *(readable(way.peak_bytes) for way in (ours, plain))],
        ["loss", f"{ours.loss:.4f}", f"{plain.loss:.4f}"],
    ]
    about, made = result.machine, result.generation
    head = (
        f"Shape {settings.shape}, {readable(result.weight_bytes)} of weights in bfloat16, one step "
        f"of {settings.batch} samples ({result.micro} per pass in ours), on {about['name']} "
        f"({about['device']}), torch {about['torch']}, {about['threads']} threads.\n"
    )
    tail = (
        f"Ours is {result.speedup:.2f} times as fast with {result.memory_share:.0%} of the memory; "
        f"the interface takes {result.interface_share:.1%} of our step. The towers take "
        f"{result.towers:.2f} s for these samples, once for the store; with them in every step "
        f"ours would take {ours.seconds + result.towers:.2f} s. Greedy generation: "
        f"{made['first token']:.2f} s to the first token, "
        f"{made['each further token']:.3f} s for each further one.\n"
    )
    return f"{head}\n{markdown(['seconds', 'ours', 'plain loop'], rows)}\n{tail}"
