"""A frozen language model split over the processes, layer by layer (FSDP2).

Each layer's weights are gathered for its forward pass and again for its backward pass. The
interface, embeddings and head stay whole in every process: gradients of the interface are added
up by the loop itself, the same with and without sharding.
"""

from typing import Any

from accelerate import PartialState
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from paiq.errors import ConfigError
from paiq.training.last_layer import decoder_layers


def shard(decoder: Any, processes: PartialState) -> None:
    """Splits the decoder's layers, in place."""
    if processes.num_processes == 1:
        raise ConfigError(
            "memory.shard=true needs several processes; start with "
            "`torchrun --nproc-per-node N -m paiq train ...`, or set memory.shard=false"
        )
    layers = decoder_layers(decoder)
    split = {parameter for layer in layers for parameter in layer.parameters()}
    whole = set(decoder.parameters()) - split
    mesh = init_device_mesh(processes.device.type, (processes.num_processes,))
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(decoder, mesh=mesh, ignored_params=whole)
