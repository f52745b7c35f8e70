# SPDX-License-Identifier: Apache-2.0
"""Several GPUs, one process per GPU: collectives, and products fused with them.

    ranks = imbrex.parallel.join()          # under torchrun, mpirun, srun or `imbrex launch`
    h = ranks.all_gather_matmul(x, w1.T)    # [x of all ranks] @ w1.T
    y = ranks.matmul_all_reduce(h, w2.T)    # the sum of all ranks' h @ w2.T

On CUDA GPUs arrays are those of PyTorch, CuPy or JAX. Where this machine has no GPU for each rank, the ranks have virtual
ones, with arrays of the host (NumPy), and races between ranks are found. docs/parallel.md tells of the rest.
"""
from __future__ import annotations

import atexit
import importlib
import os
import socket
import sys
import uuid
import weakref
from pathlib import Path
from typing import Any

from . import _imbrex

Array = Any
__all__ = ["Communicator", "ExpertExchange", "join"]


def join(
    group: Any = None,
    *,
    gpus: str = "auto",
    target: str = "sm_90a",
    patience: float = 60.0,
    seed: int = 0,
) -> Communicator:
    """This process as one of several ranks; returns when all have come.

    group: a process group of torch.distributed, whose ranks are taken; None: those of the environment's variables, as
        torchrun, mpirun, srun and `imbrex launch` set them; without any, rank 0 of 1. Ranks of a group on several servers meet at
        the IMBREX_ADDRESS (HOST:PORT) of the group's rank 0, or else at a port that it finds free.
    gpus: "cuda", each rank on the GPU of its number on this server; "virtual"; "auto", CUDA where this process sees a GPU
        for each rank, or exactly one.
    target, seed: of virtual GPUs: what they are, and in which order the ranks' kernels are interleaved. Other functions of
        this package, called with arrays of the host and this target, run on the rank's virtual GPU until it leaves.
    patience: seconds that a rank waits for another.

    Raises DeviceError naming the ranks that have not come, and LaunchError (a ValueError) for variables that make no sense.
    """
    place = {} if group is None else _place_in(group)
    return Communicator(_imbrex.RankGroup(gpus, target, patience, seed, **place), target)


def _place_in(group: Any) -> dict[str, Any]:
    """What RankGroup is told of this rank of a process group of torch.distributed."""
    import torch.distributed as dist

    rank, size = dist.get_rank(group), dist.get_world_size(group)
    servers: list[Any] = [None] * size
    dist.all_gather_object(servers, _this_server(), group=group)
    neighbours = [other for other in range(size) if servers[other] == servers[rank]]
    first = dist.get_global_rank(group, 0)
    said: list[Any] = [None, None]
    if rank == 0:
        said = [f"{os.getpid()} {uuid.uuid4()}", "" if len(neighbours) == size else _address_for_others(first)]
    dist.broadcast_object_list(said, src=first, group=group)
    return {
        "rank": rank,
        "size": size,
        "job": said[0],
        # A group may be some of a server's ranks, each of which has the GPU of its number there.
        "gpu": int(os.environ.get("LOCAL_RANK", neighbours.index(rank))),
        "ranks_of_server": len(neighbours),
        "address": said[1],
    }


def _this_server() -> str:
    """What tells this server from others."""
    return Path("/proc/sys/kernel/random/boot_id").read_text()


def _address_for_others(global_rank: int) -> str:
    """Where this process, rank 0 of a group, listens for ranks on other servers. MASTER_ADDR is where global rank 0 is, as the
    others know it."""
    address = os.environ.get("IMBREX_ADDRESS")
    if address:
        return address
    host = os.environ.get("MASTER_ADDR") if global_rank == 0 else None
    with socket.socket() as free:
        free.bind(("", 0))
        return f"{host or socket.gethostname()}:{free.getsockname()[1]}"


class Communicator:
    """The ranks, as one of them has them; join() makes it. A context manager: with it, the rank leaves.

    All ranks make the same calls in the same order, with the same shapes where not said otherwise, and on a GPU on one
    stream. Another call or shape on one rank is a DeviceError on all that names both.
    """

    def __init__(self, group: _imbrex.RankGroup, target: str):
        self._group = group
        self._target = target
        self._has_left = False
        if group.device.is_virtual:
            _imbrex.set_default_virtual_gpu(target, group.device)
        atexit.register(_leave_at_exit, weakref.ref(self))

    @property
    def rank(self) -> int:
        return self._group.rank

    @property
    def size(self) -> int:
        return self._group.size

    @property
    def device(self) -> _imbrex.Device:
        """The rank's own GPU."""
        return self._group.device

    def barrier(self) -> None:
        """Waits for the rank's GPU, then for the other ranks."""
        self._group.barrier()

    def gather(self, text: str) -> list[str]:
        """The texts of all ranks, by rank."""
        return self._group.gather(text)

    def synchronize(self) -> None:
        """Waits for the rank's GPU: on PyTorch's current stream at most for `patience`, after which it raises DeviceError
        and ends what the kernels wait for. Other ways of waiting have no such bound."""
        torch = sys.modules.get("torch")
        is_torch = torch is not None and not self.device.is_virtual and torch.cuda.is_initialized()
        self._group.synchronize(torch.cuda.current_stream().cuda_stream if is_torch else 0)

    def leave(self, why: str = "") -> None:
        """Tells the others that this rank has ended; `why`: the error by which it did. Rank 0 waits here for the others."""
        if self._has_left:
            return
        self._has_left = True
        if self.device.is_virtual:
            _imbrex.set_default_virtual_gpu(self._target, None)
        self._group.leave(why)

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, kind, error, traceback) -> None:
        self.leave("" if error is None else f"{kind.__name__}: {error}".splitlines()[0])

    def all_reduce(self, x: Array, *, out: Array | None = None) -> Array:
        """The sum of all ranks' x, in float32 in the order of the ranks: all get the same bits. Any type that converts to
        float32; `out` may be x."""
        return self._group.all_reduce(x, out)

    def all_gather(self, x: Array, *, out: Array | None = None) -> Array:
        """The x of all ranks, [n, ...], one after the other: [size * n, ...]."""
        return self._group.all_gather(x, out)

    def reduce_scatter(self, x: Array, *, out: Array | None = None) -> Array:
        """This rank's rows of the sum of all ranks' x: of [size * n, ...], [n, ...]."""
        return self._group.reduce_scatter(x, out)

    def all_gather_matmul(
        self,
        x: Array,
        w: Array,
        *,
        bias: Array | None = None,
        activation: str | None = None,
        rows: int | None = None,
        out: Array | None = None,
    ) -> Array:
        """activation([x of all ranks] @ w + bias), while the rows travel.

        x: [n, k], this rank's rows, float16 or bfloat16, dense; k a multiple of 8.
        w: [k, columns], its own, as a view of a dense [columns, k]: `weight.T`.
        rows: of all ranks together; None: size * n. They are dealt out evenly but for the last ranks.
        out: [rows, columns], of x's type.

        On GPUs that run sm_90a (Hopper). Raises LaunchError naming the argument.
        """
        return self._group.all_gather_matmul(x, w, bias, activation, rows, out)

    def matmul_reduce_scatter(
        self, x: Array, w: Array, *, bias: Array | None = None, activation: str | None = None, out: Array | None = None
    ) -> Array:
        """activation(this rank's rows of the sum of all ranks' x @ w, + bias), while the sums travel.

        x: [m, k] and w: [k, n], this rank's part of k; types and the rest as in all_gather_matmul().
        """
        return self._group.matmul_reduce_scatter(x, w, bias, activation, out)

    def matmul_all_reduce(
        self, x: Array, w: Array, *, bias: Array | None = None, activation: str | None = None, out: Array | None = None
    ) -> Array:
        """activation(the sum of all ranks' x @ w, + bias), on every rank, with the same bits; as matmul_reduce_scatter()."""
        return self._group.matmul_all_reduce(x, w, bias, activation, out)

    def expert_exchange(
        self, *, tokens: int, width: int, experts: int, chosen: int, dtype: Any = "bfloat16"
    ) -> ExpertExchange:
        """Sends rows to the ranks of their experts, and brings the results back. By all ranks alike.

        tokens: of one rank, at most.
        width: columns of a row.
        experts: of all ranks together, which the ranks divide: rank r has those from r * experts / size on.
        chosen: experts of a token.
        dtype: of rows and results.

        It takes twice size * tokens * chosen rows of memory on each rank.
        """
        return ExpertExchange(self._group.expert_exchange(tokens, width, experts, chosen, dtype))


class ExpertExchange:
    """A mixture's experts on several ranks; Communicator.expert_exchange() makes it.

        rows, first_row = exchange.dispatch(x, chosen)
        results = imbrex.grouped_matmul(rows, w.mT, first_row, out=exchange.results_like(x))
        y = exchange.combine(results, weights)

    One dispatch() and then one combine() at a time, on one stream.
    """

    def __init__(self, exchange: _imbrex.Exchange):
        self._exchange = exchange

    def dispatch(self, x: Array, chosen: Array) -> tuple[Array, Array]:
        """Sends x, [n, width], to the experts that `chosen`, int32 [n, chosen], names; -1 is none. Ranks may have different n.

        Returns the rows of this rank's experts, [size * tokens * chosen, width], and int32 [experts / size + 1]: local expert g
        has the rows first_row[g] ... first_row[g + 1] - 1, and behind the last expert's nothing is defined. On a GPU both are
        views of memory that the next dispatch() overwrites.
        """
        rows, first_row = self._exchange.dispatch(x, chosen)
        return _of_library(x, rows), _of_library(x, first_row)

    def results_like(self, x: Array) -> Array | None:
        """Where combine() takes results from without copying them, as an array of x's library; None on virtual GPUs."""
        results = self._exchange.results(x)
        return None if results is None else _of_library(x, results)

    def combine(self, results: Array, weights: Array, *, out: Array | None = None) -> Array:
        """For each token of the last dispatch() the sum of its experts' results, each times its weight, float32 [n, chosen]; in
        float32 in the order of `chosen`. results: row by row as dispatch() gave the rows."""
        return self._exchange.combine(results, weights, out)


def _of_library(like: Array, array: Any) -> Array:
    """A view of GPU memory as an array of the library that `like` is of; arrays of the host as they are."""
    name = type(like).__module__.split(".")[0]
    if type(array).__name__ == "PyCapsule":  # what some versions of nanobind make of a view
        array = _Capsule(array, like.__dlpack_device__())
    if not hasattr(array, "__dlpack__") or hasattr(array, "__array_interface__"):
        return array
    return importlib.import_module({"jaxlib": "jax.numpy", "jax": "jax.numpy"}.get(name, name)).from_dlpack(array)


class _Capsule:
    """A DLPack capsule as an object that array libraries take it from, once."""

    def __init__(self, capsule: Any, device: tuple[int, int]):
        self._capsule, self._device = capsule, device

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device


def _leave_at_exit(reference) -> None:
    communicator = reference()
    if communicator is None:
        return
    error = getattr(sys, "last_value", None)
    try:
        communicator.leave("" if error is None else f"{type(error).__name__}: {error}".splitlines()[0])
    except _imbrex.DeviceError:
        pass  # rank 0 is gone, and with it whoever would want to know
