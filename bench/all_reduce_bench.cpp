// SPDX-License-Identifier: Apache-2.0
// All-reduce on the CUDA GPUs of this machine, verified against sums in float64 and timed: device time per call, in a
// captured graph of 20 calls, of the slowest rank; median of 7 turns. `bench_all_reduce [RANKS [CTAS ...]]`. NCCL's in the
// same process, where IMBREX_NCCL names libnccl.so.2 or the loader finds it.
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "imbrex/core/error.h"
#include "imbrex/parallel.h"
#include "imbrex/runtime.h"
#include "rank_timing.h"

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

/// NCCL's functions, with prototypes of our own; null where it is not installed.
struct Nccl {
  int (*init_all)(void** communicators, int count, const int* devices) = nullptr;
  int (*all_reduce)(const void* x, void* y, size_t count, int type, int op, void* communicator,
                    void* stream) = nullptr;
  int (*version)(int*) = nullptr;
  std::vector<void*> communicators;  // by rank

  explicit Nccl(int ranks) {
    const char* told = std::getenv("IMBREX_NCCL");
    void* library = dlopen(told != nullptr ? told : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    init_all = reinterpret_cast<decltype(init_all)>(dlsym(library, "ncclCommInitAll"));
    all_reduce = reinterpret_cast<decltype(all_reduce)>(dlsym(library, "ncclAllReduce"));
    version = reinterpret_cast<decltype(version)>(dlsym(library, "ncclGetVersion"));
    std::vector<void*> made(static_cast<size_t>(ranks));
    if (init_all == nullptr || all_reduce == nullptr || init_all(made.data(), ranks, nullptr) != 0) return;
    communicators = std::move(made);
  }
  bool is_there() const { return !communicators.empty(); }
};

void time_size(Communicator& ranks, AllReduce& all_reduce, Nccl& nccl, int64_t bytes) {
  const int64_t n = bytes / 2;
  const SymmetricTensor x = ranks.symmetric(bfloat16, {n}), y = ranks.symmetric(bfloat16, {n});
  DeviceTensor in = x.mine();
  in.copy_from(HostTensor::random(bfloat16, {n}, static_cast<uint64_t>(ranks.rank()) + 1));
  std::string line = fmt::format("  {:>10} bytes:", bytes);
  for (const AllReduce::Kind kind : {AllReduce::Kind::kOneShot, AllReduce::Kind::kTwoShot}) {
    all_reduce.prepare(x, y, kind);
    const double time = microseconds(ranks, kCalls, kTurns,
                                     [&](int, const Stream& stream) { all_reduce(x, y, kind, stream); });
    line += fmt::format(" {} {:7.1f} us,", kind == AllReduce::Kind::kOneShot ? "one-shot" : "two-shot", time);
  }
  if (nccl.is_there()) {
    constexpr int kBfloat16 = 9, kSum = 0;
    const auto call = [&](int, const Stream& stream) {
      const int result =
          nccl.all_reduce(reinterpret_cast<const void*>(x.mine().address()),
                          reinterpret_cast<void*>(y.mine().address()), static_cast<size_t>(n), kBfloat16,
                          kSum, nccl.communicators[static_cast<size_t>(ranks.rank())], stream.handle());
      if (result != 0) throw DeviceError(Diagnostic{{}, fmt::format("ncclAllReduce: {}", result), {}, ""});
    };
    const Stream warm = Stream::create(ranks.device());
    ranks.barrier();
    call(0, warm);  // it connects the ranks
    warm.synchronize();
    line += fmt::format(" NCCL {:7.1f} us", microseconds(ranks, kCalls, kTurns, call));
  }
  if (ranks.rank() != 0) return;
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) try {
  const int count = argc > 1 ? std::atoi(argv[1]) : Ranks::cuda_devices();
  std::vector<int> grids;
  for (int i = 2; i < argc; ++i) grids.push_back(std::atoi(argv[i]));
  if (grids.empty()) grids = {128};
  Nccl nccl(count);
  if (int version = 0; nccl.is_there() && nccl.version(&version) == 0) fmt::print("NCCL {}\n", version);
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
      for (int64_t bytes = 4 << 10; bytes <= 128 << 20; bytes *= 4) time_size(ranks, all_reduce, nccl, bytes);
    }
  });
  return 0;
} catch (const Error& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
