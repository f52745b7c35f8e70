# SPDX-License-Identifier: Apache-2.0
"""Three kernels in Tilus, which nvcc compiles into libraries: vector add, a product by mma on tiles staged in shared
memory, and one by TMA and tcgen05. For a Blackwell GPU."""
import tempfile

import tilus
import torch
from tilus import float16, float32, int32, uint32
from tilus.utils import cdiv

tilus.option.cache_dir(tempfile.mkdtemp())


class VectorAdd(tilus.Script):
    def __call__(self, n: int32, a_ptr: ~float32, b_ptr: ~float32, c_ptr: ~float32):
        self.attrs.blocks = (cdiv(n, 512),)
        self.attrs.warps = 2
        offset: int32 = 512 * self.blockIdx.x
        ga = self.global_view(a_ptr, dtype=float32, shape=[n])
        gb = self.global_view(b_ptr, dtype=float32, shape=[n])
        gc = self.global_view(c_ptr, dtype=float32, shape=[n])
        total = self.load_global(ga, offsets=[offset], shape=[512]) + self.load_global(gb, offsets=[offset], shape=[512])
        self.store_global(gc, total, offsets=[offset])


class SharedMatmul(tilus.Script):
    def __call__(self, m: int32, n: int, k: int, a_ptr: ~float16, b_ptr: ~float16, c_ptr: ~float16):
        self.attrs.blocks = [cdiv(m, 64), cdiv(n, 64)]
        self.attrs.warps = 4
        row: int32 = 64 * self.blockIdx.x
        col: int32 = 64 * self.blockIdx.y
        ga = self.global_view(a_ptr, dtype=float16, shape=[m, k])
        gb = self.global_view(b_ptr, dtype=float16, shape=[k, n])
        sa = self.shared_tensor(dtype=float16, shape=[64, 32])
        sb = self.shared_tensor(dtype=float16, shape=[32, 64])
        acc = self.register_tensor(dtype=float32, shape=[64, 64], init=0.0)
        for inner in range(0, k, 32):
            self.store_shared(sa, self.load_global(ga, offsets=[row, inner], shape=[64, 32]))
            self.store_shared(sb, self.load_global(gb, offsets=[inner, col], shape=[32, 64]))
            self.sync()
            acc = self.dot(self.load_shared(sa), self.load_shared(sb), acc)
            self.sync()
        self.free_shared(sa)
        self.free_shared(sb)
        gc = self.global_view(c_ptr, dtype=float16, shape=[m, n])
        self.store_global(gc, self.cast(acc, dtype=float16), offsets=[row, col])


class TensorMemoryMatmul(tilus.Script):
    def __call__(self, m: int32, n: int, k: int, a_ptr: ~float16, b_ptr: ~float16, c_ptr: ~float16):
        self.attrs.blocks = [cdiv(m, 128), cdiv(n, 64)]
        self.attrs.warps = 4
        row: int32 = 128 * self.blockIdx.x
        col: int32 = 64 * self.blockIdx.y
        ga = self.global_view(a_ptr, dtype=float16, shape=[m, k])
        gb = self.global_view(b_ptr, dtype=float16, shape=[n, k])
        sa = self.shared_tensor(dtype=float16, shape=[128, 64])
        sb = self.shared_tensor(dtype=float16, shape=[64, 64])
        acc = self.tcgen05.alloc(dtype=float32, shape=[128, 64])
        loaded, computed = self.mbarrier.alloc(counts=[1, 1]).tolist()
        phase: uint32 = 0
        self.sync()
        for inner in range(0, k, 64):
            with self.single_warp():
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(loaded, transaction_bytes=sa.nbytes + sb.nbytes)
                self.tma.global_to_shared(src=ga, dst=sa, offsets=[row, inner], mbarrier=loaded)
                self.tma.global_to_shared(src=gb, dst=sb, offsets=[col, inner], mbarrier=loaded)
                self.mbarrier.wait(loaded, phase=phase)
                self.tcgen05.mma(sa, sb.transpose(), acc, enable_input_d=inner != 0)
                self.tcgen05.commit(mbarrier=computed)
                self.mbarrier.wait(computed, phase=phase)
            self.sync()
            phase ^= 1
        result = self.tcgen05.load(acc)
        self.tcgen05.wait_load()
        gc = self.global_view(c_ptr, dtype=float16, shape=[m, n])
        self.store_global(gc, result.to(float16), offsets=[row, col])
        self.sync()
        self.tcgen05.dealloc(acc)


def compare(got, wanted, tolerance):
    torch.cuda.synchronize()
    difference = (got.double() - wanted).abs().max().item()
    assert difference <= tolerance * wanted.abs().max().item(), difference


def vector_add():
    a, b = torch.randn(2, 2048, device="cuda")
    c = torch.full_like(a, float("nan"))
    VectorAdd()(a.numel(), a, b, c)
    compare(c, (a + b).double(), 0)


def shared_matmul():
    m, n, k = 130, 72, 80
    a = torch.randn(m, k, dtype=torch.float16, device="cuda")
    b = torch.randn(k, n, dtype=torch.float16, device="cuda")
    c = torch.full((m, n), float("nan"), dtype=torch.float16, device="cuda")
    SharedMatmul()(m, n, k, a, b, c)
    compare(c, a.double() @ b.double(), 1e-3)


def tensor_memory_matmul():
    m, n, k = 256, 128, 192
    a = torch.randn(m, k, dtype=torch.float16, device="cuda")
    b = torch.randn(n, k, dtype=torch.float16, device="cuda")
    c = torch.full((m, n), float("nan"), dtype=torch.float16, device="cuda")
    TensorMemoryMatmul()(m, n, k, a, b, c)
    compare(c, a.double() @ b.double().T, 1e-3)


for part in (vector_add, shared_matmul, tensor_memory_matmul):
    part()
    print(part.__name__, "ok", flush=True)
