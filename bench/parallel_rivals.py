#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What bench_parallel_matmul competes with beside cuBLASLt and NCCL, for the same cases: PyTorch's asynchronous tensor parallelism,
which cannot be captured and is timed by events; and PyTorch's matmul and NCCL one after the other, in CUDA graphs.

    torchrun --nproc-per-node 2 bench/parallel_rivals.py [SECONDS]

Device time per call in microseconds, of the slowest rank, medians of 5 turns; three copies of the weights take turns.
"""
import os
import sys
import time

import torch
import torch.distributed as dist

CASES = [("AG", 8192, 8192, 8192), ("AG", 8192, 28672, 8192), ("AG", 4096, 28672, 8192), ("AG", 1024, 8192, 8192),
         ("AG", 256, 8192, 8192), ("AG", 64, 8192, 8192), ("RS", 8192, 8192, 28672), ("RS", 8192, 8192, 8192),
         ("RS", 4096, 8192, 28672), ("RS", 1024, 8192, 8192), ("RS", 256, 8192, 8192), ("RS", 64, 8192, 8192)]
TURNS, COPIES = 5, 3


def slowest(microseconds):
    told = torch.tensor([microseconds], device="cuda")
    dist.all_reduce(told, op=dist.ReduceOp.MAX)
    return told.item()


def median(run, calls):
    times = []
    for turn in range(TURNS + 1):
        torch.cuda.synchronize()
        dist.barrier()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        run()  # the ranks begin together behind this one
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        if turn > 0:
            times.append(1000 * begin.elapsed_time(end) / calls)
    return slowest(sorted(times)[TURNS // 2])


def in_graph(call, calls):
    for i in range(3):
        call(i)
    torch.cuda.synchronize()
    dist.barrier()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(calls):
            call(i)
    return median(graph.replay, calls)


def by_events(call, calls):
    def run():
        for i in range(calls):
            call(i)

    run()
    return median(run, calls)


def main():
    begin, limit = time.time(), float(sys.argv[1]) if len(sys.argv) > 1 else 1e9
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    ranks, group = dist.get_world_size(), dist.group.WORLD.group_name
    import torch.distributed._symmetric_memory as symmetric
    symmetric.enable_symm_mem_for_group(group)
    make = dict(device="cuda", dtype=torch.bfloat16)
    if rank == 0:
        print(f"PyTorch {torch.__version__}, NCCL {torch.cuda.nccl.version()}, {ranks} ranks", flush=True)
    for kind, m, n, k in CASES:
        told = torch.tensor([time.time() - begin], device="cuda")
        dist.broadcast(told, 0)
        if told.item() > limit:
            break
        calls = 6 if m >= 4096 else 24
        gathers = kind == "AG"
        m -= m % ranks  # sizes that the ranks divide, as bench_parallel_matmul takes them
        if gathers:
            n -= n % (8 * ranks)
        else:
            k -= k % (8 * ranks)
        n_own, k_own = (n // ranks, k) if gathers else (n, k // ranks)
        weights = [torch.randn(n_own, k_own, **make) for _ in range(COPIES)]
        x = torch.randn(m // ranks if gathers else m, k_own, **make)
        all_x = torch.randn(m, k_own, **make)
        product = torch.empty(m, n_own, **make)
        part = torch.empty(m // ranks, n_own, **make)

        def matmul(i):
            torch.matmul(all_x, weights[i % COPIES].t(), out=product)

        def collective(_):
            if gathers:
                dist.all_gather_into_tensor(all_x, x)
            else:
                dist.reduce_scatter_tensor(part, product)

        def both(i):
            if gathers:
                collective(i)
                matmul(i)
            else:
                matmul(i)
                collective(i)

        def asynchronous(i):
            if gathers:
                torch.ops.symm_mem.fused_all_gather_matmul(x, [weights[i % COPIES].t()], 0, group)
            else:
                torch.ops.symm_mem.fused_matmul_reduce_scatter(x, weights[i % COPIES].t(), "sum", 0, group)

        line = f"{kind} {m} x {n} x {k}: one after the other {in_graph(both, calls):.1f}"
        try:
            line += f", asynchronous {by_events(asynchronous, calls):.1f}"
        except Exception as error:
            line += f", asynchronous: {str(error).splitlines()[0][:120]}"
        if rank == 0:
            print(line, flush=True)
        del weights, x, all_x, product, part
    torch.cuda.synchronize()
    dist.destroy_process_group()


main()
