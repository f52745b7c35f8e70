#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What only a Hopper GPU with PyTorch can show of the Python package: run it there with the wheel installed.

    python3 on_gpu.py [--libimbrex libimbrex.so] [--only "host time"]

Checks results against float64, and bit for bit against the C++ library by its C interface; streams, torch.compile, CUDA
graphs, gradients, CuPy and JAX where they are installed; and times the host's part of a call beside torch.mm's. One line
for each check; exit code 1 if one fails."""
from __future__ import annotations

import argparse
import ctypes
import statistics
import sys
import time
import traceback

import torch

import imbrex

failures = 0
only = ""


def check(name):
    """Runs the function now; what it returns is printed."""

    def run(body):
        global failures
        if only not in name:
            return body
        try:
            print(f"ok      {name}: {body() or ''}", flush=True)
        except Exception:  # the other checks go on
            failures += 1
            print(f"FAILED  {name}\n{traceback.format_exc()}", flush=True)
        return body

    return run


def normal(*shape, dtype=torch.bfloat16, seed=0):
    generator = torch.Generator("cuda").manual_seed(seed + sum(shape))
    return torch.randn(*shape, device="cuda", generator=generator).to(dtype)


def error(got, expected):
    return ((got.double() - expected.double()).abs().max() / expected.double().abs().max()).item()


def poisoned(*shape, dtype=torch.bfloat16):
    return torch.full(shape, float("nan"), device="cuda", dtype=dtype)


class Tensor(ctypes.Structure):
    _fields_ = [
        ("address", ctypes.c_uint64),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
    ]

    CODES = {torch.float16: 9, torch.bfloat16: 10, torch.float32: 12}

    @classmethod
    def of(cls, tensor):
        shape = (ctypes.c_int64 * tensor.dim())(*tensor.shape)
        return cls(tensor.data_ptr(), cls.CODES[tensor.dtype], tensor.dim(), shape, None)


class CLibrary:
    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.imbrex_last_error.restype = ctypes.c_char_p
        self.device = ctypes.c_void_p()
        self.call("imbrex_device_open_cuda", 0, ctypes.byref(self.device))

    def call(self, name, *arguments):
        if getattr(self.library, name)(*arguments) != 0:
            raise RuntimeError(self.library.imbrex_last_error().decode())

    def stream(self):
        return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)

    def matmul(self, a, b_nk, c):
        tensors = [Tensor.of(t) for t in (a, b_nk, c)]
        self.call("imbrex_matmul", self.device, *map(ctypes.byref, tensors), None, self.stream(), None)

    def attention(self, q, k, v, o, causal):
        tensors = [Tensor.of(t) for t in (q, k, v, o)]
        self.call(
            "imbrex_attention", self.device, *map(ctypes.byref, tensors), int(causal), ctypes.c_float(0), self.stream(), None
        )


def microseconds_a_call(call, calls=200, rounds=15):
    """The host's time: calls are queued, few enough that the queue is never full."""
    call()
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        times.append((time.perf_counter() - begin) / calls * 1e6)
    torch.cuda.synchronize()
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--libimbrex", help="libimbrex.so, for the comparison bit for bit")
    parser.add_argument("--only", default="", help="the checks with these words in their names")
    options = parser.parse_args()
    global only
    only = options.only
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Python {sys.version.split()[0]}, imbrex {imbrex.__version__}")
    c_library = CLibrary(options.libimbrex) if options.libimbrex else None

    @check("matmul against float64")
    def _():
        worst = 0  # of what tensor cores may lose: a bit of a float32 sum for each 16 of k
        for m, n, k in [(1, 8, 64), (127, 129 * 8, 256), (1024, 1024, 1024), (4096, 512, 8192)]:
            for dtype in (torch.float16, torch.bfloat16):
                a, w = normal(m, k, dtype=dtype), normal(n, k, dtype=dtype, seed=1)
                expected = a.double() @ w.double().T
                for b in (w.T, w.T.contiguous()):
                    out = poisoned(m, n, dtype=torch.float32)
                    imbrex.matmul(a, b, out=out)
                    worst = max(worst, error(out, expected) / (k / 16 * 2**-24 + 1e-6))
                    assert error(imbrex.matmul(a, b), expected) < 1e-2
        assert worst < 1, worst
        return f"in float32, {worst:.2f} of the error allowed"

    @check("attention, softmax, layer_norm against torch in float64")
    def _():
        q, k, v = (normal(2, heads, 300, 128, seed=heads + i) for i, heads in enumerate([8, 2, 2]))
        for causal in (False, True):
            expected = torch.nn.functional.scaled_dot_product_attention(
                q.double(), k.double().repeat_interleave(4, 1), v.double().repeat_interleave(4, 1), is_causal=causal
            )
            assert error(imbrex.attention(q, k, v, causal=causal), expected) < 2e-2
        x, w, b = normal(5, 7, 1000, dtype=torch.float32), normal(1000, dtype=torch.float32), normal(1000, dtype=torch.float32, seed=1)
        assert error(imbrex.softmax(x), torch.softmax(x.double(), -1)) < 1e-6
        expected = torch.nn.functional.layer_norm(x.double(), (1000,), w.double(), b.double())
        assert error(imbrex.layer_norm(x, w, b), expected) < 1e-5

    @check("bit for bit the C++ library's")
    def _():
        if c_library is None:
            return "NOT RUN: give --libimbrex"
        for m, n, k in [(64, 64, 64), (1000, 1024, 512), (8192, 4096, 1024)]:
            a, w, c = normal(m, k), normal(n, k, seed=1), poisoned(m, n)
            c_library.matmul(a, w, c)
            assert torch.equal(c, imbrex.matmul(a, w.T)), (m, n, k)
        q, k, v = (normal(8, 500, 128, seed=i) for i in range(3))
        o = torch.empty_like(q)
        c_library.attention(q, k, v, o, True)
        assert torch.equal(o, imbrex.attention(q, k, v, causal=True))

    @check("torch's current stream")
    def _():
        a, w = normal(512, 512), normal(512, 512, seed=1)
        expected = imbrex.matmul(a, w.T).clone()
        torch.cuda.synchronize()
        side = torch.cuda.Stream()
        late = poisoned(512, 512)
        with torch.cuda.stream(side):
            torch.cuda._sleep(200_000_000)  # some 0.1 s
            late.copy_(a)
            got = imbrex.matmul(late, w.T)  # right only behind the copy, which waits
        begin = time.perf_counter()
        imbrex.matmul(a, w.T)
        torch.cuda.current_stream().synchronize()
        ahead = time.perf_counter() - begin
        side.synchronize()
        assert torch.equal(got, expected)
        assert ahead < 0.05, f"the default stream waited {ahead:.3f} s for the side stream"

    @check("torch.compile, fullgraph")
    def _():
        def layer(x, w, bias):
            return torch.nn.functional.silu(imbrex.matmul(x, w.T, bias=bias, activation="relu")) * 2

        x, w, bias = normal(256, 512), normal(384, 512, seed=1), normal(384, dtype=torch.float32)
        compiled = torch.compile(layer, fullgraph=True)
        assert error(compiled(x, w, bias), layer(x, w, bias)) < 1e-2
        q = normal(4, 200, 64)
        attention = torch.compile(lambda q: imbrex.attention(q, q, q, causal=True) + 1, fullgraph=True)
        assert error(attention(q), imbrex.attention(q, q, q, causal=True) + 1) < 1e-2

    @check("gradients")
    def _():
        a, w = normal(256, 512).requires_grad_(), normal(128, 512, seed=1).requires_grad_()
        weights = normal(256, 128, seed=2)
        got = torch.autograd.grad((imbrex.matmul(a, w.T) * weights).sum(), (a, w))
        da, dw = weights.double() @ w.double(), weights.double().T @ a.double()
        assert error(got[0], da) < 1e-2 and error(got[1], dw) < 1e-2
        q, k, v = (normal(2, heads, 300, 64, seed=heads + i).requires_grad_() for i, heads in enumerate([8, 2, 2]))
        weights = normal(2, 8, 300, 64, seed=7)
        got = torch.autograd.grad((imbrex.attention(q, k, v, causal=True) * weights).sum(), (q, k, v))
        doubles = [t.detach().double().requires_grad_() for t in (q, k, v)]
        exact = torch.nn.functional.scaled_dot_product_attention(
            doubles[0], *(t.repeat_interleave(4, 1) for t in doubles[1:]), is_causal=True
        )
        for g, e in zip(got, torch.autograd.grad((exact * weights.double()).sum(), doubles)):
            assert error(g, e) < 2e-2

    @check("CUDA graph")
    def _():
        x, w1, w2 = normal(256, 512), normal(1024, 512, seed=1), normal(512, 1024, seed=2)

        def block(x):
            return imbrex.matmul(imbrex.matmul(x, w1.T, activation="gelu"), w2.T)

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            block(x)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = block(x)
        for seed in (5, 6):
            x.copy_(normal(256, 512, seed=seed))
            expected = block(x).clone()
            out.fill_(float("nan"))
            graph.replay()
            assert torch.equal(out, expected)
        fresh = normal(24, 48)
        try:
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                imbrex.matmul(fresh, fresh.T, activation="silu", out_dtype="float32")
        except imbrex.LaunchError as error:
            assert "captured" in str(error)
        else:
            raise AssertionError("a call that must compile was captured")

    @check("a kernel of one's own")
    def _():
        source = """
        #include "imbrex/lang.h"
        using namespace imbrex;
        struct Scale {
          int block = 128;
          static auto space() { return Space<Scale>().choose<&Scale::block>({128, 256, 512}); }
          void operator()(Int32 n, Float32 factor, Ptr<float32> x_ptr, Ptr<float32> y_ptr) const {
            grid(cdiv(n, block));
            warps(4);
            auto x = global_view(x_ptr, {n});
            auto y = global_view(y_ptr, {n});
            Int32 first = block * block_idx.x;
            store_global(y, load_global(x, {first}, {block}) * factor, {first});
          }
        };
        """
        begin = time.perf_counter()
        kernel = imbrex.Kernel(source, "Scale")
        compiled = time.perf_counter() - begin
        x, y = normal(100003, dtype=torch.float32), poisoned(100003, dtype=torch.float32)
        kernel(100003, 2.5, x, y)
        assert torch.equal(y, 2.5 * x)
        best = kernel.tune(100003, 2.5, x, y)
        return f"compiled in {compiled:.1f} s; tuned: {best.tuned}"

    @check("rows and groups in a CUDA graph")
    def _():
        x, norm, w_in, w_out = normal(96, 512), normal(512), normal(3, 1024, 512, seed=1) / 32, normal(3, 512, 512, seed=2) / 32
        first = torch.tensor([0, 40, 40, 96], dtype=torch.int32, device="cuda")

        def experts():
            h = imbrex.grouped_matmul(imbrex.rms_norm(x, norm), w_in.mT, first)
            return imbrex.softmax(imbrex.grouped_matmul(imbrex.gated(h[:, :512], h[:, 512:]), w_out.mT, first))

        experts()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = experts()
        for sizes in ([0, 40, 40, 96], [0, 0, 90, 96]):  # other sizes of the groups at each replay
            first.copy_(torch.tensor(sizes))
            expected = experts().clone()
            out.fill_(float("nan"))
            graph.replay()
            assert torch.equal(out, expected)
            d = x.double() * torch.rsqrt((x.double() ** 2).mean(-1, keepdim=True) + 1e-6) * norm.double()
            of_row = [sum(row >= end for end in sizes[1:3]) for row in range(96)]
            h = torch.einsum("mk,mnk->mn", d, w_in.double()[of_row])
            h = torch.nn.functional.silu(h[:, :512]) * h[:, 512:]
            exact = torch.softmax(torch.einsum("mk,mnk->mn", h, w_out.double()[of_row]), -1)
            assert error(out, exact) < 5e-2, error(out, exact)

    @check("decoding in a CUDA graph")
    def _():
        q, k, v = normal(4, 16, 1, 128), normal(4, 4, 3000, 128, seed=1), normal(4, 4, 3000, 128, seed=2)
        lengths = torch.tensor([3000, 1, 700, 64], dtype=torch.int32, device="cuda")
        imbrex.attention_decode(q, k, v, lengths)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = imbrex.attention_decode(q, k, v, lengths)
        for step in range(3):
            out.fill_(float("nan"))
            graph.replay()
            for i, n in enumerate(lengths.tolist()):
                keys, values = (t[i, :, :n].double().repeat_interleave(4, 0) for t in (k, v))
                exact = torch.nn.functional.scaled_dot_product_attention(q[i].double(), keys, values)
                assert error(out[i], exact) < 2e-2, (step, i)
            lengths -= torch.tensor([1, 0, 1, 1], dtype=torch.int32, device="cuda")

    @check("CuPy, on its current stream")
    def _():
        try:
            import cupy
        except ImportError:
            return "NOT RUN: no CuPy"
        a, b = cupy.random.randn(64, 128).astype("float16"), cupy.random.randn(128, 96).astype("float16")
        expected = a.astype("float64") @ b.astype("float64")
        with cupy.cuda.Stream(non_blocking=True) as stream:
            c = imbrex.matmul(a, b)
            stream.synchronize()
        assert isinstance(c, cupy.ndarray) and float(abs(c - expected).max() / abs(expected).max()) < 1e-2

    @check("JAX")
    def _():
        try:
            import jax
        except ImportError:
            return "NOT RUN: no JAX"
        a = jax.random.normal(jax.random.key(0), (64, 128)).astype("bfloat16")
        out = poisoned(64, 64)
        imbrex.matmul(a, a.T, out=out)  # from JAX's memory into torch's
        torch.cuda.synchronize()
        expected = torch.from_dlpack(a).double() @ torch.from_dlpack(a).double().T
        assert error(out, expected) < 1e-2

    @check("bad input")
    def _():
        a = normal(64, 64)

        class Raw:
            """Memory of the GPU, as others describe it."""

            def __init__(self, address, read_only=False, shape=(64, 64), strides=None):
                self.__cuda_array_interface__ = {
                    "shape": shape, "typestr": "<f4", "data": (address, read_only), "strides": strides, "version": 3
                }  # fmt: skip

        x = a.float()
        at = x.data_ptr()

        part, row = x[:, :48], x[0, :48]

        def captured():  # a call that must compile first
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                imbrex.layer_norm(part, row, row)

        for call, words in [
            (lambda: imbrex.softmax(x[:, ::2]), "has a stride of 2 along its rows"),
            (lambda: imbrex.softmax(x, out=Raw(at, read_only=True)), "out is read-only"),
            (lambda: imbrex.softmax(Raw(at + 2), out=x), "not a multiple of 4"),
            (lambda: imbrex.softmax(Raw(0x7000_0000_0000), out=x), "not memory that CUDA allocated"),
            (lambda: imbrex.softmax(x, out=x.double()), "out is float64"),
            (captured, "captured"),
            (lambda: imbrex.matmul(a, a.cpu()), "b is on the host, a on CUDA device 0"),
            (lambda: imbrex.matmul(a, a.float()), "b is float32"),
            (lambda: imbrex.matmul(a, a[1:]), "inner sizes 64 and 63 differ"),
        ]:
            try:
                call()
            except imbrex.LaunchError as error:
                assert words in str(error), str(error)
            else:
                raise AssertionError(words)

    @check("host time of a call")
    def _():
        a, w, out = normal(64, 64), normal(64, 64, seed=1), poisoned(64, 64)
        b = w.T
        rows = {
            "torch.mm(a, b)": lambda: torch.mm(a, b),
            "imbrex.matmul(a, b)": lambda: imbrex.matmul(a, b),
            "torch.ops.imbrex.matmul(a, b)": lambda: torch.ops.imbrex.matmul(a, b),
            "torch.mm(a, b, out=out)": lambda: torch.mm(a, b, out=out),
            "imbrex.matmul(a, b, out=out)": lambda: imbrex.matmul(a, b, out=out),
            "a.new_empty((64, 64))": lambda: a.new_empty((64, 64)),
        }
        # In turns, so that all see the same machine.
        times = {name: [] for name in rows}
        for _ in range(5):
            for name, call in rows.items():
                times[name].append(microseconds_a_call(call))
        medians = {name: statistics.median(all) for name, all in times.items()}
        for name, median in medians.items():
            print(f"        {median:7.2f} us  {median / medians['torch.mm(a, b)']:5.2f}x  {name}")
        return ""

    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
