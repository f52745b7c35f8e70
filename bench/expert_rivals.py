#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What bench_experts competes with, for the same cases: PyTorch's all-to-all (NCCL) of the sorted rows, its grouped product,
and the all-to-all back with the weighted sum. The sizes of the all-to-all are known to the host beforehand, which flatters it:
in a program they have to be exchanged and waited for.

    torchrun --nproc-per-node 2 bench/expert_rivals.py [SECONDS]

Device time per call in microseconds, of the slowest rank, medians of 5 turns of 6 calls in a CUDA graph.
"""
import os
import sys
import time

import torch
import torch.distributed as dist

CASES = [(64, 4096, 8, 2), (256, 4096, 8, 2), (1024, 4096, 8, 2), (4096, 4096, 8, 2), (1024, 4096, 8, 8), (4096, 2048, 8, 8)]
TURNS, CALLS = 5, 6


def slowest(microseconds):
    told = torch.tensor([microseconds], device="cuda")
    dist.all_reduce(told, op=dist.ReduceOp.MAX)
    return told.item()


def microseconds(call):
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    dist.barrier()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    times = []
    for turn in range(TURNS + 1):
        torch.cuda.synchronize()
        dist.barrier()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        graph.replay()  # the ranks begin together behind this one
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        if turn > 0:
            times.append(1000 * begin.elapsed_time(end) / CALLS)
    return slowest(sorted(times)[TURNS // 2])


def main():
    start, limit = time.time(), float(sys.argv[1]) if len(sys.argv) > 1 else 1e9
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    ranks = dist.get_world_size()
    make = dict(device="cuda", dtype=torch.bfloat16)
    for tokens, width, of_rank, chosen in CASES:
        told = torch.tensor([time.time() - start], device="cuda")
        dist.broadcast(told, 0)
        if told.item() > limit:
            break
        experts = of_rank * ranks
        torch.manual_seed(rank)
        choice = torch.rand(tokens, experts, device="cuda").argsort(1)[:, :chosen].to(torch.int32)
        x, weights = torch.randn(tokens, width, **make), torch.rand(tokens, chosen, device="cuda")
        w = torch.randn(of_rank, width, width, **make)
        counts = torch.bincount(choice.flatten(), minlength=experts)
        all_counts = [torch.empty_like(counts) for _ in range(ranks)]
        dist.all_gather(all_counts, counts)
        sent = counts.view(ranks, of_rank).sum(1).tolist()
        got = [c.view(ranks, of_rank)[rank].sum().item() for c in all_counts]
        # From the order in which rows come, by rank, to that of the product, by expert.
        mine = torch.stack([c.view(ranks, of_rank)[rank] for c in all_counts])
        expert_of_row = torch.arange(of_rank, device="cuda").repeat(ranks).repeat_interleave(mine.flatten())
        by_expert = expert_of_row.argsort(stable=True)
        ends = mine.sum(0).cumsum(0).to(torch.int32)
        received = torch.empty(sum(got), width, **make)
        back = torch.empty(tokens * chosen, width, **make)

        def dispatch():
            order = choice.flatten().argsort(stable=True)
            dist.all_to_all_single(received, x[order // chosen], got, sent)
            return order

        def product():
            return torch._grouped_mm(received[by_expert], w.transpose(1, 2), ends)

        def combine(y, order):
            unsorted = torch.empty_like(y)
            unsorted[by_expert] = y
            dist.all_to_all_single(back, unsorted, sent, got)
            rows = torch.empty_like(back)
            rows[order] = back
            return torch.einsum("tjw,tj->tw", rows.view(tokens, chosen, width), weights.to(rows.dtype))

        def everything():
            order = dispatch()
            combine(product(), order)

        line = f"{tokens:5} tokens x {width}, {of_rank} experts per rank, {chosen} chosen: "
        try:
            line += f"{microseconds(everything):8.1f} us, product {microseconds(product):.1f}"
        except Exception as error:
            line += str(error).splitlines()[0][:150]
        if rank == 0:
            print(line, flush=True)
    torch.cuda.synchronize()
    dist.destroy_process_group()


main()
