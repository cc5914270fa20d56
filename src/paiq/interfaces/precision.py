"""In which precision an interface computes, and what a hand-written backward refuses."""

from contextlib import AbstractContextManager

import torch
from torch import Tensor

from paiq.errors import ConfigError


def working_dtype(*tensors: Tensor) -> torch.dtype:
    """float32, or float64 where one of the tensors is that."""
    dtype = torch.float32
    for tensor in tensors:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype


def full_precision(tensor: Tensor) -> AbstractContextManager[object]:
    """A block that no outer autocast reaches (paper, app. B.1)."""
    return torch.autocast(tensor.device.type, enabled=False)


def refuse_second_order(what: str) -> None:
    """Stops a backward that is itself to be differentiated; autograd records only then."""
    if torch.is_grad_enabled():
        raise ConfigError(
            f"{what} has gradients of first order only; call backward or autograd.grad "
            "without create_graph=True"
        )
