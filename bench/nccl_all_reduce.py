# SPDX-License-Identifier: Apache-2.0
"""NCCL's all-reduce by PyTorch, timed as bench_all_reduce times ours: torchrun --nproc-per-node N bench/nccl_all_reduce.py"""
import os

import torch
import torch.distributed as dist

CALLS, TURNS = 20, 7

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
size = 4 << 10
while size <= 128 << 20:
    x = torch.randn(size // 2, device="cuda", dtype=torch.bfloat16) * 1e-3
    for _ in range(3):
        dist.all_reduce(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            dist.all_reduce(x)
    times = []
    for turn in range(TURNS + 1):
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda.synchronize()
        x.normal_(0, 1e-3)
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        graph.replay()
        x.normal_(0, 1e-3)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        if turn > 0:
            times.append(1000 * begin.elapsed_time(end) / CALLS)
    slowest = torch.tensor([sorted(times)[TURNS // 2]], device="cuda")
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    if rank == 0:
        print(f"  {size:>10} bytes: NCCL {slowest.item():8.1f} us", flush=True)
    size *= 4
dist.destroy_process_group()
