// SPDX-License-Identifier: Apache-2.0
// All-reduce on the CUDA GPUs of this machine, verified against sums in float64 and timed: device time per call, in a
// captured graph of 20 calls, of the slowest rank; median of 7. `bench_all_reduce [RANKS [CTAS ...]]`.
// bench/nccl_all_reduce.py times NCCL's in the same way.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "imbrex/core/error.h"
#include "imbrex/parallel.h"
#include "imbrex/runtime.h"

using namespace imbrex;
using namespace imbrex::parallel;

namespace {

constexpr int kCalls = 20, kTurns = 7;

/// The largest error over what bfloat16 allows, of three calls with other data in the same memory.
double error_of(Communicator& ranks, AllReduce& all_reduce, int64_t n, AllReduce::Kind kind) {
  SymmetricTensor x = ranks.symmetric(bfloat16, {n}), y = ranks.symmetric(bfloat16, {n});
  DeviceTensor in = x.mine(), out = y.mine();
  double worst = 0;
  for (uint64_t call = 0; call < 3; ++call) {
    std::vector<double> sum(static_cast<size_t>(n));
    for (int rank = 0; rank < ranks.size(); ++rank) {
      const HostTensor data = HostTensor::random(bfloat16, {n}, 100 * call + static_cast<uint64_t>(rank) + 1);
      for (int64_t i = 0; i < n; ++i) sum[static_cast<size_t>(i)] += data.get(i);
      if (rank == ranks.rank()) in.copy_from(data);
    }
    out.poison();
    all_reduce.prepare(x, y, kind);
    ranks.barrier();
    all_reduce(x, y, kind).expect_clean();
    ranks.synchronize();
    const HostTensor got = y.mine().to_host();
    for (int64_t i = 0; i < n; ++i) {
      const double wanted = sum[static_cast<size_t>(i)], error = std::abs(got.get(i) - wanted);
      worst = std::max(worst, std::isnan(error) ? 1e9 : error / (std::abs(wanted) / 256 + 1e-3));
    }
    ranks.barrier();
  }
  return worst;
}

double microseconds(Communicator& ranks, AllReduce& all_reduce, int64_t n, AllReduce::Kind kind) {
  SymmetricTensor x = ranks.symmetric(bfloat16, {n}), y = ranks.symmetric(bfloat16, {n});
  DeviceTensor in = x.mine();
  in.copy_from(HostTensor::random(bfloat16, {n}, static_cast<uint64_t>(ranks.rank()) + 1));
  ranks.barrier();
  const Stream stream = Stream::create(ranks.device());
  all_reduce.prepare(x, y, kind);
  ranks.barrier();
  const Graph graph = Graph::capture(stream, [&] {
    for (int i = 0; i < kCalls; ++i) all_reduce(x, y, kind, stream);
  });
  std::vector<double> times;
  for (int turn = 0; turn <= kTurns; ++turn) {
    ranks.barrier();
    Event begin = Event::create(ranks.device()), end = Event::create(ranks.device());
    graph.launch();  // the ranks begin together behind this one
    begin.record();
    graph.launch();
    end.record();
    ranks.synchronize();
    if (turn > 0) times.push_back(1000 * end.milliseconds_since(begin) / kCalls);
  }
  std::sort(times.begin(), times.end());
  double slowest = 0;
  for (const std::string& text : ranks.gather(fmt::format("{}", times[kTurns / 2])))
    slowest = std::max(slowest, std::stod(text));
  return slowest;
}

}  // namespace

int main(int argc, char** argv) try {
  const int count = argc > 1 ? std::atoi(argv[1]) : Ranks::cuda_devices();
  std::vector<int> grids;
  for (int i = 2; i < argc; ++i) grids.push_back(std::atoi(argv[i]));
  if (grids.empty()) grids = {64};
  run_ranks(Ranks::cuda(count).patience(10), [&](Communicator& ranks) {
    const bool tells = ranks.rank() == 0;
    for (const int ctas : grids) {
      AllReduce all_reduce(ranks, ctas);
      if (tells) fmt::print("{} ranks, {} CTAs each\n", ranks.size(), ctas);
      for (const int64_t n : {1, 8191, 100003})
        for (const AllReduce::Kind kind : {AllReduce::Kind::kOneShot, AllReduce::Kind::kTwoShot}) {
          const double error = error_of(ranks, all_reduce, n, kind);
          if (tells || error > 1)
            fmt::print("  rank {} verified {} elements, kind {}: {:.3f} of the error allowed{}\n",
                       ranks.rank(), n, static_cast<int>(kind), error, error > 1 ? "  WRONG" : "");
        }
      for (int64_t bytes = 4 << 10; bytes <= 128 << 20; bytes *= 4) {
        const double one = microseconds(ranks, all_reduce, bytes / 2, AllReduce::Kind::kOneShot);
        const double two = microseconds(ranks, all_reduce, bytes / 2, AllReduce::Kind::kTwoShot);
        if (tells) {
          fmt::print("  {:>10} bytes: one-shot {:8.1f} us, two-shot {:8.1f} us\n", bytes, one, two);
          std::fflush(stdout);
        }
      }
    }
  });
  return 0;
} catch (const Error& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
