# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own operators on the virtual GPU's tensors.

PyTorch's wheels carry their kernels as machine code, and the virtual GPU runs PTX. Its tensors live in the virtual GPU's
memory all the same, where Triton's kernels and those of extensions use them; the operators that a program applies to them
in between (to make inputs and to check results) are computed by PyTorch's CPU kernels, on a copy.
"""
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

aten = torch.ops.aten

# What needs no kernel: PyTorch allocates, or asks the driver to copy.
_NATIVE = {
    aten.empty.memory_format, aten.empty_strided.default, aten.empty_like.default, aten.new_empty.default,
    aten.new_empty_strided.default, aten.set_.source_Tensor, aten.set_.source_Storage,
    aten.set_.source_Storage_storage_offset, aten.resize_.default, aten.record_stream.default,
    aten._local_scalar_dense.default, aten.is_pinned.default, aten._pin_memory.default,
}


def _is_cuda(x):
    return isinstance(x, torch.Tensor) and x.device.type == "cuda"


def _is_view(func):
    returns = func._schema.returns
    return len(returns) > 0 and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def _is_plain_copy(to, source):
    return to.dtype == source.dtype and to.shape == source.shape and to.is_contiguous() and source.is_contiguous()


class _Copies:
    """CPU tensors that stand for a call's CUDA tensors, views of one storage for views of one storage."""

    def __init__(self):
        self.storages = {}  # by address: the CUDA storage, its copy
        self.tensors = []  # CUDA tensor, its stand-in

    def on_host(self, tensor):
        for ours, host in self.tensors:
            if ours is tensor:
                return host
        storage = tensor.untyped_storage()
        _, copy = self.storages.setdefault(storage.data_ptr(), (storage, None))
        if copy is None:
            copy = torch.UntypedStorage(storage.nbytes())
            copy.copy_(storage)
            self.storages[storage.data_ptr()] = (storage, copy)
        host = torch.empty(0, dtype=tensor.dtype)
        host.set_(copy, tensor.storage_offset(), tensor.size(), tensor.stride())
        self.tensors.append((tensor, host))
        return host

    def original(self, host):
        return next((tensor for tensor, one in self.tensors if one is host), None)

    def write_back(self, tensor):
        host = self.on_host(tensor)
        if host.shape != tensor.shape:  # an operator gave its `out` another shape
            tensor.resize_(host.shape)
            tensor.untyped_storage().copy_(host.contiguous().untyped_storage())
            return
        storage, copy = self.storages[tensor.untyped_storage().data_ptr()]
        storage.copy_(copy)


def _to_device(host, device):
    """A CUDA tensor of the same strides."""
    if host.layout != torch.strided:
        raise NotImplementedError("imbrex: sparse tensors of the virtual GPU's memory are not supported")
    nbytes = host.untyped_storage().nbytes()
    result = torch.empty(0, dtype=host.dtype, device=device)
    storage = torch.empty(nbytes, dtype=torch.uint8, device=device).untyped_storage()
    if nbytes > 0:
        storage.copy_(host.untyped_storage())
    return result.set_(storage, host.storage_offset(), host.size(), host.stride())


class OperatorsOnHost(TorchDispatchMode):
    """While entered, operators on CUDA tensors are computed by CPU kernels on copies."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        cuda = []
        tree_map_only(torch.Tensor, lambda x: cuda.append(x) if _is_cuda(x) else None, (args, kwargs))
        wanted = kwargs.get("device")
        wanted = torch.device(wanted) if wanted is not None else None
        makes_cuda = wanted.type == "cuda" if wanted is not None else bool(cuda)
        if not cuda and not makes_cuda:
            return func(*args, **kwargs)
        if func in _NATIVE or _is_view(func) or func.namespace not in ("aten", "prims", "prim"):
            return func(*args, **kwargs)
        if func is aten.copy_.default and _is_plain_copy(args[0], args[1]):
            return func(*args, **kwargs)
        return self.on_host(func, args, kwargs, cuda, wanted, makes_cuda)

    @staticmethod
    def on_host(func, args, kwargs, cuda, wanted, makes_cuda):
        copies = _Copies()
        device = wanted if makes_cuda and wanted is not None else cuda[0].device if cuda else wanted
        if wanted is not None:
            kwargs["device"] = torch.device("cpu")
        if isinstance(kwargs.get("generator"), torch.Generator):
            kwargs["generator"] = None
        if "pin_memory" in kwargs:
            kwargs["pin_memory"] = None
        substitute = lambda x: copies.on_host(x) if _is_cuda(x) else x
        host_args, host_kwargs = tree_map_only(torch.Tensor, substitute, (args, kwargs))
        result = func(*host_args, **host_kwargs)

        names = [argument.name for argument in func._schema.arguments]
        for argument, value in list(zip(func._schema.arguments, args)) + [
                (func._schema.arguments[names.index(name)], value) for name, value in kwargs.items()]:
            if argument.alias_info is not None and argument.alias_info.is_write:
                tree_map_only(torch.Tensor, lambda x: copies.write_back(x) if _is_cuda(x) else None, value)

        def back(x):
            original = copies.original(x)
            if original is not None:
                return original
            return _to_device(x, device) if makes_cuda else x

        return tree_map_only(torch.Tensor, back, result)


def activate():
    """From now on, in every thread that autograd starts too."""
    if not torch.cuda.is_available():
        return
    # Their operators exist for CUDA only.
    torch.backends.cudnn.enabled = False
    for name in ("enable_flash_sdp", "enable_mem_efficient_sdp", "enable_cudnn_sdp"):
        getattr(torch.backends.cuda, name, lambda _: None)(False)
    # What torch.empty() makes under torch.use_deterministic_algorithms() is filled by one of PyTorch's own kernels.
    torch.utils.deterministic.fill_uninitialized_memory = False
    OperatorsOnHost().__enter__()
    # Printing leaves all modes.
    printed = torch._tensor_str._tensor_str
    torch._tensor_str._tensor_str = lambda x, indent: printed(_Copies().on_host(x) if _is_cuda(x) else x, indent)
