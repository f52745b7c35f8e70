// SPDX-License-Identifier: Apache-2.0
#include "rank_bodies.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "imbrex/core/error.h"
#include "imbrex/runtime.h"
#include "imbrex/vgpu/virtual_gpu.h"
#include "runtime/device/backend.h"

namespace imbrex::parallel {

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error\n";
}

std::filesystem::path end_note(const std::string& job, int rank) {
  return std::filesystem::temp_directory_path() / ("imbrex " + job + " end of " + std::to_string(rank));
}

namespace {

/// A rank's note to processes of its job that may not speak to it in any other way.
std::filesystem::path note_of(int rank) {
  return std::filesystem::temp_directory_path() /
         ("imbrex " + std::string(std::getenv("IMBREX_JOB")) + " note " + std::to_string(rank));
}
void leave_note(int rank) { std::ofstream(note_of(rank)) << "told"; }
void await_note(int rank) {
  while (!std::filesystem::exists(note_of(rank))) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::filesystem::remove(note_of(rank));
}

/// Rank 1 does not make the call.
void wait_in_vain(Communicator& ranks, AllReduce::Kind kind) {
  AllReduce all_reduce(ranks, 1);
  const SymmetricTensor x = ranks.symmetric(float32, {64}), y = ranks.symmetric(float32, {64});
  all_reduce.prepare(x, y, kind);
  if (ranks.rank() == 1) return;
  DeviceTensor mine = x.mine();
  mine.copy_from(HostTensor(float32, {64}));
  std::printf("%s\n", all_reduce(x, y, kind).virtual_report.format().c_str());
}

/// All-reduces of several sizes and kinds, compared with sums in float64; the second by a captured graph.
void all_reduces(Communicator& ranks) {
  for (const int64_t n : {1, 777, 9001})
    for (const AllReduce::Kind kind :
         {AllReduce::Kind::kOneShot, AllReduce::Kind::kTwoShot, AllReduce::Kind::kAuto}) {
      AllReduce all_reduce(ranks, 2);
      const SymmetricTensor x = ranks.symmetric(float32, {n}), y = ranks.symmetric(float32, {n});
      const Stream stream = Stream::create(ranks.device());
      all_reduce.prepare(x, y, kind);
      for (const bool by_graph : {false, true}) {
        std::vector<double> sum(static_cast<size_t>(n));
        DeviceTensor mine = x.mine(), out = y.mine();
        out.poison();
        for (int rank = 0; rank < ranks.size(); ++rank) {
          const auto seed = static_cast<uint64_t>(1 + 100 * n + 10 * by_graph + rank);
          const HostTensor input = HostTensor::random(float32, {n}, seed);
          if (rank == ranks.rank()) mine.copy_from(input);
          for (int64_t i = 0; i < n; ++i) sum[static_cast<size_t>(i)] += input.get(i);
        }
        ranks.barrier();
        if (by_graph) {
          const Graph graph = Graph::capture(stream, [&] { all_reduce(x, y, kind, stream); });
          graph.launch(stream).expect_clean();
        } else {
          all_reduce(x, y, kind, stream).expect_clean();
        }
        ranks.synchronize(stream);
        const HostTensor got = y.mine().to_host();
        for (int64_t i = 0; i < n; ++i)
          if (!(std::abs(got.get(i) - sum[static_cast<size_t>(i)]) < 1e-5)) {
            std::printf("WRONG: rank %d, element %d of %d\n", ranks.rank(), int(i), int(n));
            return;
          }
        ranks.barrier();
      }
    }
  std::printf("right\n");
}

/// All-gather and reduce-scatter, compared element by element.
void rows(Communicator& ranks) {
  for (const int64_t n : {1, 1003}) {
    AllGather all_gather(ranks, 2);
    ReduceScatter reduce_scatter(ranks, 2);
    const SymmetricTensor all = ranks.symmetric(float32, {ranks.size(), n});
    const DeviceTensor row = DeviceTensor::empty(ranks.device(), float32, {n});
    const auto input = [&](int rank) {
      return HostTensor::random(float32, {n}, static_cast<uint64_t>(n + rank));
    };
    DeviceTensor in = row, gathered = all.mine();
    in.copy_from(input(ranks.rank()));
    gathered.poison();
    ranks.barrier();
    all_gather(row, all).expect_clean();
    reduce_scatter(all, row).expect_clean();
    ranks.synchronize();
    const HostTensor got = all.mine().to_host(), sum = row.to_host();
    for (int rank = 0; rank < ranks.size(); ++rank)
      for (int64_t i = 0; i < n; ++i)
        if (got.get(rank * n + i) != input(rank).get(i) ||
            !(std::abs(sum.get(i) - ranks.size() * input(ranks.rank()).get(i)) < 1e-5)) {
          std::printf("WRONG: rank %d, element %d of %d\n", ranks.rank(), int(i), int(n));
          return;
        }
    ranks.barrier();
  }
  std::printf("right\n");
}

/// The three products fused with collectives, with steps, of rows that the ranks do not divide.
void products(Communicator& ranks) {
  const int64_t m = 67, n = 40, k = 136;
  const auto operand = [&](int64_t rows, int rank, int which) {
    return HostTensor::random(bfloat16, {rows, k}, static_cast<uint64_t>(1000 * which + rank + 1));
  };
  const HostTensor bias = HostTensor::random(float32, {n}, 7);
  const auto mine = RowsOfRank::of(m, ranks.size(), ranks.rank());
  const Device& device = ranks.device();
  const FusedOptions steps{.bias = DeviceTensor::from_host(device, bias), .activation = Activation::kRelu};
  const auto check = [&](const char* what, const DeviceTensor& got, const std::vector<double>& sums) {
    const HostTensor host = got.to_host();
    for (int64_t i = 0; i < host.elements(); ++i) {
      const double wanted = std::max(sums[static_cast<size_t>(i)] + bias.get(i % n), 0.0);
      if (!(std::abs(host.get(i) - wanted) < 0.03 * (std::abs(wanted) + 12)))
        std::printf("WRONG: %s, rank %d, element %d: %g, not %g\n", what, ranks.rank(), int(i), host.get(i),
                    wanted);
    }
  };
  const auto add_product = [&](std::vector<double>& sums, const HostTensor& a, const HostTensor& b,
                               RowsOfRank rows) {
    sums.resize(static_cast<size_t>(rows.count * n));
    for (int64_t i = 0; i < rows.count; ++i)
      for (int64_t j = 0; j < n; ++j)
        for (int64_t l = 0; l < k; ++l)
          sums[static_cast<size_t>(i * n + j)] += a.get((rows.first + i) * k + l) * b.get(j * k + l);
  };
  const auto part_of = [&](const HostTensor& all) {
    HostTensor part(all.dtype(), {mine.count, k});
    for (int64_t i = 0; i < mine.count * k; ++i) part.set(i, all.get(mine.first * k + i));
    return part;
  };
  const RowsOfRank all_rows{0, m};
  const HostTensor x = operand(m, 0, 0), b = operand(n, ranks.rank(), 1), a = operand(m, ranks.rank(), 2);
  const DeviceTensor device_b = DeviceTensor::from_host(device, b),
                     device_a = DeviceTensor::from_host(device, a);

  AllGatherMatmul gather(ranks, {.m = m + 1, .k = k});
  DeviceTensor c = DeviceTensor::empty(device, bfloat16, {m, n});
  c.poison();
  gather(DeviceTensor::from_host(device, part_of(x)), device_b, c, steps).expect_clean();
  ranks.synchronize();
  std::vector<double> gathered, sums, my_sums;
  add_product(gathered, x, b, all_rows);
  check("all-gather + matmul", c, gathered);
  for (int rank = 0; rank < ranks.size(); ++rank) {
    add_product(sums, operand(m, rank, 2), operand(n, rank, 1), all_rows);
    add_product(my_sums, operand(m, rank, 2), operand(n, rank, 1), mine);
  }
  MatmulReduceScatter scatter(ranks, {.m = m, .n = n});
  DeviceTensor y = DeviceTensor::empty(device, bfloat16, {mine.count, n});
  y.poison();
  scatter(device_a, device_b, y, steps).expect_clean();
  ranks.synchronize();
  check("matmul + reduce-scatter", y, my_sums);

  MatmulAllReduce reduce(ranks, {.m = m, .n = n});
  const SymmetricTensor all = ranks.symmetric(bfloat16, {m, n});
  DeviceTensor everywhere = all.mine();
  everywhere.poison();
  ranks.barrier();
  reduce(device_a, device_b, all, steps).expect_clean();
  ranks.synchronize();
  check("matmul + all-reduce", everywhere, sums);
  std::printf("right\n");
}

/// Every rank stores to the next one and reads its own, and nothing orders the two.
struct Racing {
  static constexpr const char* target = "sm_80";
  void operator()(int ranks, int64_t rank_stride_bytes, Int32 rank, Ptr<> x_ptr, Ptr<float32> y_ptr) const {
    grid(1);
    warps(1);
    auto g_x = symmetric_view(x_ptr, float32, rank_stride_bytes, ranks, {32});
    auto g_y = global_view(y_ptr, {32});
    store_global(g_x[(rank + 1) % ranks], full(float32, {32}, 1.0f), {0});
    store_global(g_y, load_global(g_x[rank], {0}, {32}), {0});
  }
};

void race(Communicator& ranks) {
  const SymmetricTensor x = ranks.symmetric(float32, {32});
  const DeviceTensor y = DeviceTensor::empty(ranks.device(), float32, {32});
  ranks.barrier();
  Kernel<Racing> kernel({}, ranks.device());
  const LaunchReport report = kernel(ranks.size(), x.rank_stride_bytes(), ranks.rank(), x.all().address(), y);
  std::printf("%s\n", report.virtual_report.format().c_str());
}

/// The process is stopped until the other ranks' have ended, as the test notes.
void stop_until_others_end(const Communicator& ranks) {
  const pid_t stopped = getpid();
  if (fork() == 0) {
    for (int rank = 0; rank < ranks.size(); ++rank)
      if (rank != ranks.rank())
        while (!std::filesystem::exists(end_note(std::getenv("IMBREX_JOB"), rank)))
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
    kill(stopped, SIGCONT);
    _exit(0);
  }
  kill(stopped, SIGSTOP);
  std::this_thread::sleep_for(std::chrono::seconds(5));  // another thread may take the signal, a little later
}

/// Rank 1 dies while rank 0 does `what` with y, for which a kernel of its waits.
void dies_while_a_kernel_waits(Communicator& ranks, const std::function<void(uint64_t y)>& what) {
  AllReduce all_reduce(ranks, 4);
  const SymmetricTensor x = ranks.symmetric(float32, {64}), y = ranks.symmetric(float32, {64});
  all_reduce.prepare(x, y);
  ranks.barrier();
  if (ranks.rank() == 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    kill(getpid(), SIGKILL);
  }
  all_reduce(x, y);
  what(y.mine().address());
  std::printf("%s", error_of([&] { ranks.synchronize(); }).c_str());
}

/// PTX of another compiler, launched with its arguments one by one.
void foreign_ptx(Communicator& ranks) {
  const PtxModule module(ranks.device(), R"(
.version 8.0
.target sm_80
.address_size 64
.visible .entry numbers(.param .u64 out, .param .u32 first) {
  .reg .u64 %a, %b; .reg .u32 %i, %f;
  ld.param.u64 %a, [out];
  ld.param.u32 %f, [first];
  mov.u32 %i, %tid.x;
  mul.wide.u32 %b, %i, 4;
  add.u64 %a, %a, %b;
  add.u32 %i, %i, %f;
  st.global.u32 [%a], %i;
  ret;
})");
  const DeviceTensor out = DeviceTensor::empty(ranks.device(), int32, {32});
  uint64_t address = out.address();
  int32_t first = 100 * ranks.rank();
  void* arguments[] = {&address, &first};
  module.launch("numbers", {.grid = {1}, .block = {32}, .arguments = arguments}).expect_clean();
  const HostTensor got = out.to_host();
  for (int i = 0; i < 32; ++i)
    if (got.get(i) != first + i) std::printf("WRONG: %d is %g\n", i, got.get(i));
  std::printf("right\n");
}

}  // namespace

const std::map<std::string, std::function<void(Communicator&)>> rank_bodies = {
    {"all-reduces", all_reduces},
    {"rows", rows},
    {"products", products},
    {"race", race},
    {"foreign PTX", foreign_ptx},
    {"dies",
     [](Communicator& ranks) {
       ranks.barrier();
       if (ranks.rank() == 1) kill(getpid(), SIGKILL);
       std::printf("%s", error_of([&] { ranks.barrier(); }).c_str());
     }},
    {"rank 0 dies",
     [](Communicator& ranks) {
       ranks.barrier();
       if (ranks.rank() == 0) kill(getpid(), SIGKILL);
       std::printf("%s", error_of([&] { ranks.barrier(); }).c_str());
     }},
    {"rank 0 stops",
     [](Communicator& ranks) {
       AllReduce all_reduce(ranks, 1);
       const SymmetricTensor x = ranks.symmetric(float32, {64}), y = ranks.symmetric(float32, {64});
       all_reduce.prepare(x, y);
       if (ranks.rank() > 0) {
         // Rank 0 may stop before its process has told that all have come to the barrier.
         std::printf("%s", error_of([&] { ranks.barrier(), all_reduce(x, y); }).c_str());
         leave_note(ranks.rank());
         return;
       }
       ranks.barrier();
       const pid_t rank0 = getpid();
       if (fork() == 0) {
         for (int rank = 1; rank < ranks.size(); ++rank) await_note(rank);
         kill(rank0, SIGCONT);
         _exit(0);
       }
       kill(rank0, SIGSTOP);
       std::this_thread::sleep_for(
           std::chrono::seconds(5));  // another thread may take the signal, a little later
     }},
    {"rank 0 stops when it has joined",
     [](Communicator& ranks) {
       if (ranks.rank() == 0) return stop_until_others_end(ranks);
       std::printf("%s", error_of([&] { ranks.barrier(); }).c_str());
     }},
    {"rank 1 stops",
     [](Communicator& ranks) {
       if (ranks.rank() == 1) stop_until_others_end(ranks);
       std::printf("%s", error_of([&] { ranks.barrier(); }).c_str());
     }},
    {"throws",
     [](Communicator& ranks) {
       if (ranks.rank() == 1) throw DeviceError(Diagnostic{{}, "the disk is full", {}, ""});
       ranks.barrier();
     }},
    {"other shape",
     [](Communicator& ranks) {
       std::printf("%s", error_of([&] { ranks.symmetric(float32, {64 + ranks.rank()}); }).c_str());
     }},
    {"late",
     [](Communicator& ranks) {
       if (ranks.rank() == 1) await_note(0);
       std::printf("%s", error_of([&] { ranks.barrier(); }).c_str());
       if (ranks.rank() == 0) leave_note(0);
     }},
    {"waits for one that ended", [](Communicator& ranks) { wait_in_vain(ranks, AllReduce::Kind::kOneShot); }},
    {"waits for words of one that ended",
     [](Communicator& ranks) { wait_in_vain(ranks, AllReduce::Kind::kLowLatency); }},
    {"calls that are wrong",
     [](Communicator& ranks) {
       std::printf("%s", error_of([&] { PtxModule(ranks.device(), "no PTX"); }).c_str());
       std::printf("%s", error_of([&] { ranks.symmetric(float32, {int64_t{1} << 40}); }).c_str());
     }},
    {"texts",
     [](Communicator& ranks) {
       for (const std::string& text : ranks.gather("from " + std::to_string(ranks.rank())))
         std::printf("%s, ", text.c_str());
     }},
    {"nothing", [](Communicator&) { std::printf("came\n"); }},
    {"ends while it joins", [](Communicator&) { std::printf("came\n"); }},
    {"kernel that waits in vain",
     [](Communicator& ranks) {
       AllReduce all_reduce(ranks, 4);
       const SymmetricTensor x = ranks.symmetric(float32, {64}), y = ranks.symmetric(float32, {64});
       all_reduce.prepare(x, y);
       ranks.barrier();
       if (ranks.rank() == 1) {
         std::this_thread::sleep_for(std::chrono::seconds(4));
         return;
       }
       const Stream stream = Stream::create(ranks.device());
       all_reduce(x, y, AllReduce::Kind::kAuto, stream);
       std::printf("%s", error_of([&] { ranks.synchronize(stream); }).c_str());
     }},
    {"dies while a kernel waits",
     [](Communicator& ranks) { dies_while_a_kernel_waits(ranks, [](uint64_t) {}); }},
    {"dies while a copy waits", [](Communicator& ranks) {
       // As another library copies: the driver comes back when the kernel has ended.
       dies_while_a_kernel_waits(ranks, [&](uint64_t address) {
         float copied = 0;
         runtime::DeviceBackend& backend = ranks.device().backend();
         backend.start_copy_from_device(&copied, address, sizeof copied, backend.stream());
       });
     }}};

}  // namespace imbrex::parallel
