"""One optimiser step over all processes, and its state to the bit."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from accelerate.utils import reduce
from torch import Tensor, nn

from paiq.errors import DataError
from paiq.training.config import Optimizer


@dataclass(frozen=True)
class Totals:
    """What a step adds up."""

    loss: float
    """Summed over the answer tokens."""
    tokens: int
    samples: int
    stop: int
    """How many processes were asked to stop."""

    @property
    def mean(self) -> float:
        return self.loss / self.tokens


class Stepper:
    """AdamW on the interface; gradients are means over the answer tokens of the whole step."""

    def __init__(self, interface: nn.Module, settings: Optimizer) -> None:
        self.interface = interface
        self.settings = settings
        self.names, parameters = zip(*interface.named_parameters(), strict=True)
        self.adam = torch.optim.AdamW(
            parameters,
            lr=settings.learning_rate,
            betas=(settings.beta1, settings.beta2),
            eps=settings.epsilon,
            weight_decay=settings.weight_decay,
        )

    @property
    def parameters(self) -> list[nn.Parameter]:
        return list(self.adam.param_groups[0]["params"])

    def step(self, tokens: int, rate: float) -> float:
        """The gradient's norm before clipping, once its sums are divided by the answer tokens."""
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        for gradient in gradients:
            gradient.div_(tokens)
        bound = self.settings.clip if self.settings.clip is not None else float("inf")
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, bound).item()
        self.adam.param_groups[0]["lr"] = rate * self.settings.learning_rate
        self.adam.step()
        self.adam.zero_grad()
        return float(norm)

    def state(self) -> dict[str, Tensor]:
        """The interface's weights and the optimiser's moments, by name."""
        tensors = {
            f"interface.{name}": tensor.detach().cpu()
            for name, tensor in self.interface.state_dict().items()
        }
        for name, parameter in zip(self.names, self.parameters, strict=True):
            for key, value in self.adam.state[parameter].items():
                tensors[f"optimizer.{name}.{key}"] = value.detach().cpu()
        return tensors

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Takes up a state; any name too many or too few is an error."""
        weights = _below("interface.", tensors)
        moments = {name: _below(f"optimizer.{name}.", tensors) for name in self.names}
        known = len(weights) + sum(map(len, moments.values()))
        if known != len(tensors) or weights.keys() != self.interface.state_dict().keys():
            raise DataError("the checkpoint's tensors are not those of this interface")
        self.interface.load_state_dict(weights)
        for name, parameter in zip(self.names, self.parameters, strict=True):
            # The step count stays on the processor, as AdamW itself keeps it.
            self.adam.state[parameter] = {
                key: value.clone() if key == "step" else value.to(parameter.device, copy=True)
                for key, value in moments[name].items()
            }


def exchange(parameters: Iterable[nn.Parameter], mine: Totals, processes: int) -> Totals:
    """The totals of all processes; their gradient sums are added up in one message."""
    if processes == 1:
        return mine
    held = list(parameters)
    for parameter in held:
        if parameter.grad is None:  # a process without a sample in a small last batch
            parameter.grad = torch.zeros_like(parameter)
    device = held[0].device
    flat = torch.cat([p.grad.flatten() for p in held if p.grad is not None])
    summed = reduce(flat, "sum")
    for parameter, part in zip(
        held, summed.split([parameter.numel() for parameter in held]), strict=True
    ):
        parameter.grad = part.view_as(parameter)
    numbers = torch.tensor(
        [mine.loss, mine.tokens, mine.samples, mine.stop], dtype=torch.float64, device=device
    )
    loss, tokens, samples, stop = reduce(numbers, "sum").tolist()
    return Totals(loss, int(tokens), int(samples), int(stop))


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
