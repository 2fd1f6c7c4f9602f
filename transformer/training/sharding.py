"""A module on several devices: a copy on each (DDP), or a shard of its weights on each (FSDP2).

FSDP2 is for models that do not fit one device (Zhao et al. 2023, "PyTorch FSDP"). Each matrix is cut by rows into as
many shards as there are processes (torch's DTensor). A layer's weights are gathered before the layer computes and freed
after it, forward and backward; its gradients are averaged and cut again in one operation (reduce-scatter).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeGuard

import torch
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

from transformer.files import Mistake
from transformer.model.transformer import Transformer
from transformer.model.weights import cpu_copy
from transformer.training.distributed import World

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def wants_shards(setting: str) -> bool:
    """Whether a value of SHARDING in the environment requests shards: full does; none and nothing do not.

    Raises Mistake for other values.
    """
    if setting not in ("", "none", "full"):
        raise Mistake(
            f"SHARDING={setting!r} is not a way to hold the weights. Set SHARDING to full, for a share of them on each "
            "device, or unset it."
        )
    return setting == "full"


def replicate(module: nn.Module, compression: str) -> DistributedDataParallel:
    """The module with equal weights on all processes. Each backward pass averages its gradients over them.

    compression: bfloat16 sends and sums gradients in bfloat16, half the bytes of float32; none: in their own precision.
    """
    copies = DistributedDataParallel(module, forward_sync_buffers=False, gradient_as_bucket_view=True)
    if compression == "bfloat16":
        # In a lambda, because DDP refuses this hook, by its name, without NCCL, although gloo sums bfloat16.
        copies.register_comm_hook(None, lambda group, bucket: bf16_compress_hook(group, bucket))
    return copies


def shard(module: nn.Module, model: Transformer, world: World, compression: str) -> None:
    """Cut the weights of a module that holds `model` into shards, in place. Each process has one on its device.

    The weights must be equal on all processes. Each backward pass averages the gradients. compression: see `replicate`.
    """
    # imported here and below, since it takes two seconds
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh(world.device.type, (world.size,))
    # torch's caches keep the mesh until Python exits, and so would keep the process group and its threads, which may
    # then abort the process (see distributed.py). Without this entry the mesh finds the group by its name.
    mesh._pg_registry.clear()
    precision = MixedPrecisionPolicy(
        reduce_dtype=torch.bfloat16 if compression == "bfloat16" else None, cast_forward_inputs=False
    )
    for unit in (*model.encoder, *model.decoder, module):  # the module last: it holds what is in no layer
        fully_shard(unit, mesh=mesh, mp_policy=precision)
    for unit in module.modules():
        if isinstance(unit, FSDPModule):
            # gloo gives the sum, in silence, when torch asks it for a mean (pytorch/pytorch#162338)
            unit.set_force_sum_reduction_for_comms(True)


def in_shards(tensor: Tensor) -> TypeGuard[DTensor]:
    """Whether a tensor is torch's DTensor. Plain tensors have no mesh of devices."""
    return hasattr(tensor, "device_mesh")


def full_tensor(tensor: Tensor) -> Tensor:
    """A tensor with all its rows. One that is in shards is gathered, so all processes must call this."""
    return tensor.full_tensor() if in_shards(tensor) else tensor


def own_shard(tensor: Tensor, like: Tensor) -> Tensor:
    """A tensor cut as `like` is: the shard of this process. The tensor itself if `like` is not in shards."""
    if not in_shards(like):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def full_copies(tensors: Mapping[str, Tensor], world: World) -> dict[str, Tensor]:
    """Complete tensors as copies on the CPU of the leader (see `cpu_copy`); nothing on the other processes.

    All processes must call this. One tensor at a time is gathered on the devices.
    """
    copies: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        gathered = full_tensor(tensor.detach())
        copies |= cpu_copy({name: gathered}) if world.is_leader else {}
    return copies


def full_model(model: Transformer) -> Transformer:
    """A copy of a model in shards with all weights on each device, for validation. All processes must call this.

    Processes may call the copy a different number of times, as they do when they decode.
    """
    with torch.device("meta"):  # without memory and random numbers
        copy = Transformer(model.config)
    copy.load_state_dict(
        {name: full_tensor(tensor.detach()) for name, tensor in model.state_dict().items()}, assign=True
    )
    copy.sinusoids, copy.compute = model.sinusoids, model.compute
    return copy.eval()
