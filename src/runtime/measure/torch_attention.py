# SPDX-License-Identifier: Apache-2.0
# Times cuDNN's attention through PyTorch for `imbrex bench attention`. The first line of stdin is the problem in JSON; each
# further one, "LAUNCHES COLD", is answered by the device times of so many launches in microseconds. As in gpu_timer.cpp, launches
# are queued behind one that keeps the device busy, and a cold one begins after twice the L2 has been read.
import json
import sys


def answer(text):
    print(text, flush=True)


def prepare(problem):
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    rows, columns, d = problem["rows"], problem["columns"], problem["d"]
    if problem["causal"] and rows not in (1, columns):
        raise RuntimeError("PyTorch has no causal attention with fewer rows than columns")
    dtype = getattr(torch, problem["dtype"])

    def tensor(heads, n):
        return torch.randn(1, heads, n, d, device="cuda", dtype=torch.float32).to(dtype)

    q = tensor(problem["heads"], rows)
    k, v = (tensor(problem["kv_heads"], columns) for _ in range(2))
    l2 = torch.cuda.get_device_properties(0).L2_cache_size
    flushed = torch.zeros(2 * l2 // 4, device="cuda", dtype=torch.int32)

    def launch():
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=problem["causal"] and rows > 1, scale=problem["scale"],
            enable_gqa=problem["heads"] != problem["kv_heads"])

    def measure(launches, cold):
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(launches)]
        with sdpa_kernel([SDPBackend.CUDNN_ATTENTION]):
            for begin, end in events:
                torch.cuda._sleep(200_000)
                if cold:
                    flushed.max()
                begin.record()
                launch()
                end.record()
                if not cold:
                    continue
                end.synchronize()  # so that the host is ahead of the device at each launch, not of all of them
        torch.cuda.synchronize()
        return [1000 * begin.elapsed_time(end) for begin, end in events]

    measure(3, True)
    version = torch.backends.cudnn.version()
    return measure, f"cuDNN {version // 10000}.{version // 100 % 100} by PyTorch {torch.__version__}"


def main():
    try:
        measure, name = prepare(json.loads(sys.stdin.readline()))
    except Exception as error:  # whatever it is, the one who asked wants to know
        return answer("error " + " ".join(str(error).split()))
    answer("ready " + name)
    for line in sys.stdin:
        launches, cold = (int(word) for word in line.split())
        answer(" ".join(f"{time:.3f}" for time in measure(launches, bool(cold))))


main()
