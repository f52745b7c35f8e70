#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench_attention beside cuDNN's attention through PyTorch, in turns: each turn times every contender of a problem once.

    bench/attention_rivals.py BENCH_ATTENTION PROBLEM[+PROBLEM...] ...

Problems are bench_attention's of attention() and its gradients: call/HEADS,Q,KV,D,GROUP,CAUSAL, forward/... with a configuration,
backward/..., adding/..., and packback/..., whose rival is FlashAttention 2, as PyTorch has it. Those that `+` joins are contenders for one problem of cuDNN's, that of the first. Device time
in microseconds: medians of the turns, each the median of 10 launches behind a kernel that keeps the device busy, after twice
the L2 has been read; in brackets the least and the most of the turns. Ratios above 1: faster than the rival.
"""
import os
import statistics
import subprocess
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

TURNS, LAUNCHES = int(os.environ.get("TURNS", "5")), 10
flushed = torch.zeros(2 * torch.cuda.get_device_properties(0).L2_cache_size // 4, device="cuda", dtype=torch.int32)


class Cudnn:
    def __init__(self, problem):
        kind, numbers = problem.split(":")[0].strip().split("/")
        heads, rows, columns, d, group, causal = (int(n) for n in numbers.split(",")[:6])
        if causal and rows != columns:
            raise RuntimeError("PyTorch has no causal attention with other rows than columns")
        self.is_backward = kind in ("backward", "adding", "dall", "dq", "dkv")

        def tensor(h, n):
            return torch.randn(1, h, n, d, device="cuda", dtype=torch.bfloat16).requires_grad_(self.is_backward)

        self.q, self.k, self.v = tensor(heads, rows), tensor(heads // group, columns), tensor(heads // group, columns)
        self.options = {"is_causal": bool(causal), "enable_gqa": group > 1}
        if self.is_backward:
            with sdpa_kernel([SDPBackend.CUDNN_ATTENTION]):
                self.o = self.forward()
            self.d_o = torch.randn_like(self.o)
        self.time()  # plans are made

    def forward(self):
        return torch.nn.functional.scaled_dot_product_attention(self.q, self.k, self.v, **self.options)

    def launch(self):
        if self.is_backward:
            torch.autograd.grad(self.o, (self.q, self.k, self.v), self.d_o, retain_graph=True)
        else:
            self.forward()

    def time(self):
        times = []
        with sdpa_kernel([SDPBackend.CUDNN_ATTENTION]):
            for _ in range(LAUNCHES):
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                torch.cuda._sleep(2_000_000 if self.is_backward else 300_000)  # autograd needs the host for longer
                flushed.max()
                begin.record()
                self.launch()
                end.record()
                end.synchronize()
                times.append(1000 * begin.elapsed_time(end))
        return statistics.median(times)


def random_begins(rows, sequences):
    """Where bench_attention's sequences begin: by std::mt19937_64 with seed 7."""
    whole, state = (1 << 64) - 1, [7]
    for i in range(1, 312):
        state.append((6364136223846793005 * (state[-1] ^ (state[-1] >> 62)) + i) & whole)
    ends = []
    for i in range(sequences - 1):  # fewer than 312
        x = (state[i] & (whole << 31)) | (state[i + 1] & ((1 << 31) - 1))
        state[i] = x = state[(i + 156) % 312] ^ (x >> 1) ^ (0xB5026F5AA96619E9 if x & 1 else 0)
        x ^= (x >> 29) & 0x5555555555555555
        x ^= (x << 17) & 0x71D67FFFEDA60000
        x ^= (x << 37) & 0xFFF7EEE000000000
        ends.append((x ^ (x >> 43)) % rows)
    return [0, *sorted(ends), rows]


class FlashAttention(Cudnn):
    """Gradients of packed sequences."""

    def __init__(self, problem):
        heads, rows, sequences, d, group, causal = (int(n) for n in problem.split("/")[1].split(",")[:6])
        begins = random_begins(rows, sequences)
        self.is_backward = True
        longest = max(end - begin for begin, end in zip(begins, begins[1:]))

        def tensor(h):
            return torch.randn(rows, h, d, device="cuda", dtype=torch.bfloat16).requires_grad_()

        self.q, self.k, self.v = tensor(heads), tensor(heads // group), tensor(heads // group)
        at = torch.tensor(begins, device="cuda", dtype=torch.int32)
        self.o = torch.ops.aten._flash_attention_forward(
            self.q, self.k, self.v, at, at, longest, longest, 0.0, bool(causal), False)[0]
        self.d_o = torch.randn_like(self.o)
        self.time()


class Imbrex:
    def __init__(self, program):
        self.process = subprocess.Popen([program, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def time(self, problem):
        print(problem, file=self.process.stdin, flush=True)
        line = self.process.stdout.readline().strip()
        words = line[len(problem):].split()
        if len(words) < 2 or words[1] != "us":
            raise RuntimeError(line)
        return float(words[0])


def told(times):
    return f"{statistics.median(times):9.1f} [{min(times):.1f}, {max(times):.1f}]"


def main():
    imbrex = Imbrex(sys.argv[1])
    for problem in sys.argv[2:]:
        contenders = problem.split("+")
        try:
            rival = (FlashAttention if contenders[0].startswith("packback") else Cudnn)(contenders[0])
            for contender in contenders:
                imbrex.time(contender)  # compiled
            rivals, times = [], {contender: [] for contender in contenders}
            for _ in range(TURNS):
                for contender in contenders:
                    times[contender].append(imbrex.time(contender))
                rivals.append(rival.time())
            for contender in contenders:
                ratio = statistics.median(rivals) / statistics.median(times[contender])
                print(f"{contender:<58} {told(times[contender])}  rival {told(rivals)}  {ratio:.3f}", flush=True)
        except Exception as error:  # the next problem may do
            print(problem, " ".join(str(error).split())[:300], flush=True)
        rival = None


print(torch.cuda.get_device_name(), f"cuDNN {torch.backends.cudnn.version()} by PyTorch {torch.__version__}", flush=True)
main()
