# SPDX-License-Identifier: Apache-2.0
"""imbrex.parallel on virtual GPUs, and on those of the machine with PyTorch: this file is also the program that each rank runs."""
import json
import os
import signal
import subprocess
import sys
import time
import types
import uuid
from pathlib import Path

import numpy as np
import pytest

import imbrex
import imbrex.parallel

SOURCE = Path(os.environ.get("IMBREX_SOURCE_DIR", Path(__file__).parents[2]))


def launch(count, *program, timeout=300):
    """Exit codes and outputs of the ranks."""
    job = f"test {uuid.uuid4()}"
    variables = [{"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "IMBREX_JOB": job}
                 for rank in range(count)]
    return start([program] * count, variables, timeout)


def start(programs, variables, timeout=300):
    processes = []
    for program, own in zip(programs, variables):
        environment = {**os.environ, **{name: str(value) for name, value in own.items()}}
        processes.append(subprocess.Popen([sys.executable, *map(str, program)], env=environment, text=True,
                                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
    try:
        return [(process.communicate(timeout=timeout)[0], process.returncode) for process in processes]
    finally:
        for process in processes:
            process.kill()


def put(array):
    """An array as the ranks' calls take it: as it is, or on this rank's GPU."""
    return array


def take(array):
    """What put() does, undone."""
    return array


def use_torch():
    """Arrays are PyTorch's, on the GPU of this rank's number."""
    import torch

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    globals()["put"] = lambda array: array if array is None else torch.from_numpy(array).cuda()
    globals()["take"] = lambda tensor: tensor.cpu().numpy()


def inputs(ranks, shape, dtype, seed):
    """What each rank brings, by rank."""
    generator = np.random.default_rng(seed)
    return [generator.standard_normal(shape).astype(dtype) for _ in range(ranks.size)]


def collectives(ranks):
    for seed, shape in enumerate([(1,), (ranks.size * 7, 33), (ranks.size * 64, 40)]):
        for dtype in (np.float32, np.float16):
            x = inputs(ranks, shape, dtype, seed)
            total = sum(t.astype(np.float64) for t in x)
            tolerance = {"rtol": 2e-3, "atol": 2e-3} if dtype == np.float16 else {"rtol": 1e-5, "atol": 1e-5}
            mine = put(x[ranks.rank])
            np.testing.assert_allclose(take(ranks.all_reduce(mine)), total, **tolerance)
            np.testing.assert_array_equal(take(ranks.all_gather(mine)), np.concatenate(x))
            if shape[0] % ranks.size == 0:
                rows = total.reshape(ranks.size, -1, *shape[1:])[ranks.rank]
                np.testing.assert_allclose(take(ranks.reduce_scatter(mine)), rows, **tolerance)
    in_place = put(np.full(5, 2.0 ** ranks.rank, np.float32))
    assert ranks.all_reduce(in_place, out=in_place) is in_place
    np.testing.assert_array_equal(take(in_place), 2.0**ranks.size - 1)


def products(ranks):
    m, n, k = 300, 96, 64  # so many rows that the fused kernels are taken
    rows = -(-m // ranks.size)
    x = inputs(ranks, (m, k), np.float16, 1)
    w = inputs(ranks, (n, k), np.float16, 2)
    bias = np.random.default_rng(3).standard_normal(n).astype(np.float16)
    mine = slice(rows * ranks.rank, min(rows * (ranks.rank + 1), m))
    exact = lambda a, b: a.astype(np.float64) @ b.T.astype(np.float64)
    total = sum(exact(a, b) for a, b in zip(x, w)) + bias
    close = {"rtol": 4e-3, "atol": 0.2}
    w_mine, x_mine, bias = put(w[ranks.rank]), put(x[ranks.rank]), put(bias)
    gathered = ranks.all_gather_matmul(put(np.ascontiguousarray(x[0][mine])), w_mine.T, bias=bias, activation="relu", rows=m)
    np.testing.assert_allclose(take(gathered), np.maximum(exact(x[0], w[ranks.rank]) + take(bias), 0), **close)
    scattered = ranks.matmul_reduce_scatter(x_mine, w_mine.T, bias=bias)
    np.testing.assert_allclose(take(scattered), total[mine], **close)
    np.testing.assert_allclose(take(ranks.matmul_all_reduce(x_mine, w_mine.T, bias=bias)), total, **close)


def experts(ranks):
    """Experts multiply by matrices of their own; ranks have different numbers of tokens."""
    width, columns, count, chosen, tokens = 64, 64, 2 * ranks.size, 2, 40
    generator = np.random.default_rng(5)
    w = generator.standard_normal((count, columns, width)).astype(np.float16)
    of_ranks = []
    for rank in range(ranks.size):
        n = tokens - 7 * rank
        of_ranks.append((generator.standard_normal((n, width)).astype(np.float16),
                         generator.integers(-1, count, (n, chosen)).astype(np.int32),
                         generator.random((n, chosen)).astype(np.float32)))
    x, choices, weights = of_ranks[ranks.rank]
    on_gpu = [put(array) for array in of_ranks[ranks.rank]]
    exchange = ranks.expert_exchange(tokens=tokens, width=width, experts=count, chosen=chosen, dtype="float16")
    mine = put(np.ascontiguousarray(w[2 * ranks.rank : 2 * ranks.rank + 2]))
    for _ in range(2):
        rows, first_row = exchange.dispatch(*on_gpu[:2])
        assert take(first_row)[-1] == sum(np.isin(c, [2 * ranks.rank, 2 * ranks.rank + 1]).sum() for _, c, _ in of_ranks)
        results = imbrex.grouped_matmul(rows, mine.swapaxes(1, 2), first_row, out=exchange.results_like(on_gpu[0]))
        y = exchange.combine(results, on_gpu[2])
    exact = np.zeros((len(x), columns))
    for token in range(len(x)):
        for j in range(chosen):
            if choices[token, j] >= 0:
                exact[token] += weights[token, j] * (w[choices[token, j]].astype(np.float64) @ x[token])
    np.testing.assert_allclose(take(y), exact, rtol=4e-3, atol=0.1)
    with pytest.raises(imbrex.LaunchError, match="has 41 tokens, the exchange was made for 40"):
        exchange.dispatch(put(np.zeros((41, width), np.float16)), put(np.zeros((41, chosen), np.int32)))
    with pytest.raises(imbrex.LaunchError, match="chosen"):
        exchange.dispatch(on_gpu[0], put(choices.astype(np.int64)))


def refused(ranks):
    assert ranks.gather(f"from {ranks.rank}") == [f"from {rank}" for rank in range(ranks.size)]
    with pytest.raises(imbrex.LaunchError, match="make its first extent a multiple of the ranks"):
        ranks.reduce_scatter(np.zeros((ranks.size + 1, 2), np.float32))
    with pytest.raises(imbrex.LaunchError, match="inner sizes 8 and 16 differ"):
        ranks.matmul_all_reduce(np.zeros((4, 8), np.float16), np.zeros((16, 4), np.float16))
    with pytest.raises(imbrex.LaunchError, match="does not lie as"):
        ranks.matmul_all_reduce(np.zeros((4, 8), np.float16), np.zeros((8, 16), np.float16))
    with pytest.raises(imbrex.DeviceError, match=r"all_reduce\(float32, 10\).* all_reduce\(float32, 4010\)"):
        ranks.all_reduce(np.zeros(10 + 4000 * ranks.rank, np.float32))


def other_shape(ranks):
    n = 10 + ranks.rank  # in a buffer of the same size
    with pytest.raises(imbrex.DeviceError, match=r"all_reduce\(float32, 10\), rank 1 calls all_reduce\(float32, 11\)"):
        ranks.all_reduce(np.zeros(n, np.float32))


def other_product(ranks):
    x, w = np.zeros((300, 16 + 16 * ranks.rank), np.float16), np.zeros((16 + 16 * ranks.rank, 24), np.float16)
    with pytest.raises(imbrex.DeviceError, match=r"matmul_reduce_scatter\(float16, 300 x 24 x 16\), rank 1 calls .* 32\)"):
        ranks.matmul_reduce_scatter(x, np.asfortranarray(w))


def other_call(ranks):
    """The error names the calls and the lines of this program, none of the extension's."""
    with pytest.raises(imbrex.DeviceError) as caught:
        if ranks.rank == 0:
            ranks.all_reduce(np.zeros(8, np.float32))
        else:
            ranks.expert_exchange(tokens=4, width=64, experts=2, chosen=1)
    said = str(caught.value)
    assert "rank 0 calls all_reduce(float32, 8), rank 1 calls expert_exchange(bfloat16, 4 x 64 x 2 x 1)" in said
    line = other_call.__code__.co_firstlineno + 4  # of rank 0's call
    assert f"rank 0 has come to all_reduce(float32, 8) at {__file__}:{line}" in said
    assert said.startswith(f"{__file__}:{line + 2 * ranks.rank}: error: ")
    assert ".cpp" not in said and ".h:" not in said


def dies(ranks):
    ranks.all_reduce(np.zeros(4, np.float32))
    if ranks.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(imbrex.DeviceError, match=r"rank 1 is gone: its process \(\d+\) has ended without a word"):
        while True:
            ranks.all_reduce(np.zeros(4, np.float32))


def fails(ranks):
    if ranks.rank == 1:
        raise OSError("the disk is full")
    ranks.barrier()


@pytest.mark.parametrize("body, count", [("collectives", 3), ("products", 2), ("experts", 2), ("refused", 2),
                                         ("other_shape", 2), ("other_product", 2), ("other_call", 2)])
def test_ranks(body, count):
    for output, code in launch(count, __file__, body):
        assert (output.strip(), code) == ("right", 0)


def test_an_error_of_one_rank_reaches_the_others():
    (first, code_0), (second, code_1) = launch(2, __file__, "fails")
    assert code_0 == code_1 == 1
    assert "OSError: the disk is full" in second
    assert "rank 1 has ended and does not come to barrier" in first and "the disk is full" in first


def test_a_rank_that_dies_is_named():
    (first, code_0), (_, code_1) = launch(2, __file__, "dies")
    assert (first.strip(), code_0, code_1) == ("right", 0, -signal.SIGKILL)


def test_alone():
    with imbrex.parallel.join(gpus="virtual") as ranks:
        assert (ranks.rank, ranks.size) == (0, 1)
        x = np.arange(10, dtype=np.float32)
        np.testing.assert_array_equal(ranks.all_reduce(x), x)
    assert float(imbrex.matmul(np.ones((8, 8), np.float16), np.ones((8, 8), np.float16))[0, 0]) == 8


class Folder:
    """What join() asks torch.distributed of a group, by files; its even ranks seem to be on one server, the odd ones on another."""
    def __init__(self, path, rank, size):
        self.path, self.rank, self.size, self.calls = Path(path), rank, size, 0

    def get_rank(self, group):
        return self.rank

    def get_world_size(self, group):
        return self.size

    def get_global_rank(self, group, rank):
        return rank

    def all_gather_object(self, all, mine, group):
        all[:] = self._all(mine)

    def broadcast_object_list(self, objects, src, group):
        objects[:] = self._all(objects)[src]

    def _all(self, mine):
        self.calls += 1
        files = [self.path / f"{self.calls} {rank}" for rank in range(self.size)]
        part = files[self.rank].with_suffix(".part")
        part.write_text(json.dumps(mine))
        part.rename(files[self.rank])
        while not all(file.exists() for file in files):
            time.sleep(0.01)
        return [json.loads(file.read_text()) for file in files]


def join_group(folder, rank, size):
    rank = int(rank)
    group = Folder(folder, rank, int(size))
    sys.modules["torch"] = types.SimpleNamespace(distributed=group)
    sys.modules["torch.distributed"] = group
    imbrex.parallel._this_server = lambda: f"server {rank % 2}"
    with imbrex.parallel.join(group, gpus="virtual", patience=120) as ranks:
        assert (ranks.rank, ranks.size) == (rank, int(size))
        collectives(ranks)
        products(ranks)


def test_a_group_on_several_servers(tmp_path):
    programs = [(__file__, "join_group", tmp_path, rank, 3) for rank in range(3)]
    for output, code in start(programs, [{}] * 3):
        assert (output.strip(), code) == ("right", 0)


def test_a_group_without_rank_0s_address_names_it(monkeypatch):
    group = types.SimpleNamespace(
        get_rank=lambda group: 1, get_world_size=lambda group: 2, get_global_rank=lambda group, rank: rank,
        all_gather_object=lambda all, mine, group: all.__setitem__(slice(None), ["another", mine]),
        broadcast_object_list=lambda objects, src, group: objects.__setitem__(slice(None), ["job", "127.0.0.1:9"]))
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(distributed=group))
    monkeypatch.setitem(sys.modules, "torch.distributed", group)
    with pytest.raises(imbrex.DeviceError, match="rank 0 has not come within 1 s\n.*rank 0 listens at 127.0.0.1:9"):
        imbrex.parallel.join("a group", gpus="virtual", patience=1)


def test_the_example():
    for output, code in launch(2, SOURCE / "examples/tensor_parallel.py"):
        assert code == 0, output


def on_gpus(*bodies):
    """As torchrun starts it: the ranks of a process group."""
    import torch.distributed as dist

    use_torch()
    dist.init_process_group("gloo")
    with imbrex.parallel.join(dist.group.WORLD, gpus="cuda") as ranks:
        for body in bodies:
            globals()[body](ranks)
            ranks.synchronize()
    dist.destroy_process_group()


def test_ranks_on_gpus():
    torch = pytest.importorskip("torch", reason="SKIPPED: needs PyTorch: pip install torch")
    if torch.cuda.device_count() < 2:
        pytest.skip("SKIPPED: needs two CUDA GPUs: run on a machine with two GPUs that reach each other's memory")
    count = min(torch.cuda.device_count(), 4)
    run = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(count), __file__, "on_gpus"]
    done = subprocess.run([*run, "collectives", "products", "experts"], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=300)
    assert done.returncode == 0 and done.stdout.count("right") == count, done.stdout


if __name__ == "__main__":
    if sys.argv[1] == "on_gpus":
        on_gpus(*sys.argv[2:])
    elif sys.argv[1] == "join_group":
        join_group(*sys.argv[2:])
    else:
        with imbrex.parallel.join(gpus="virtual", patience=120) as ranks:
            globals()[sys.argv[1]](ranks)
    print("right")
