// SPDX-License-Identifier: Apache-2.0
// Products fused with their collectives, on the CUDA GPUs of this machine: verified at random elements against float64, and
// timed as bench_all_reduce does: device time per call in captured graphs, of the slowest rank, medians of 5 turns. Three
// copies of the weights take turns, so that they come from memory. `bench_parallel_matmul [RANKS [SECONDS [FIRST_CASE]]]`:
// no case begins after so many seconds. Beside each: imbrex::matmul of the same operands without the collective.
// bench/parallel_rivals.py times NCCL with cuBLAS, and PyTorch's asynchronous tensor parallelism, for the same cases.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "imbrex/core/error.h"
#include "imbrex/kernels/matmul.h"
#include "imbrex/parallel.h"
#include "imbrex/runtime.h"
#include "rank_timing.h"
#include "ranks/fused_products.h"

using namespace imbrex;
using namespace imbrex::parallel;

namespace {

constexpr int kTurns = 5, kCopies = 3;

struct BenchCase {
  bool gathers;     // all-gather + matmul; else matmul + reduce-scatter
  int64_t m, n, k;  // before they are dealt out
};
constexpr BenchCase kCases[] = {
    {true, 8192, 8192, 8192},   {true, 8192, 28672, 8192}, {true, 4096, 28672, 8192},
    {true, 1024, 8192, 8192},   {true, 256, 8192, 8192},   {true, 64, 8192, 8192},
    {false, 8192, 8192, 28672}, {false, 8192, 8192, 8192}, {false, 4096, 8192, 28672},
    {false, 1024, 8192, 8192},  {false, 256, 8192, 8192},  {false, 64, 8192, 8192}};

/// Random matrices that are cheap to make: a block of normal numbers over and over, from another place each.
class Numbers {
 public:
  Numbers() : block_(HostTensor::random(bfloat16, {kLength}, 1)) {}
  double get(int64_t seed, int64_t i) const { return block_.get((i + seed * kStep) % kLength); }
  void fill(const DeviceTensor& t, int64_t seed) const {
    const int64_t count = t.bytes() / 2;
    for (int64_t i = 0; i < count;) {
      const int64_t from = (i + seed * kStep) % kLength, size = std::min(kLength - from, count - i);
      HostTensor part(bfloat16, {size});
      std::memcpy(part.bytes().data(), block_.bytes().data() + from * 2, static_cast<size_t>(size) * 2);
      DeviceTensor::view(t.device(), t.address() + static_cast<uint64_t>(i) * 2, bfloat16, {size})
          .copy_from(part);
      i += size;
    }
  }

 private:
  static constexpr int64_t kLength = 4'000'037, kStep = 777'777;
  HostTensor block_;
};

MatmulChoice tile(int m, int n, int stages, int consumers, int cluster_m, int cluster_n,
                  bool swap_ab = false) {
  MatmulChoice choice;
  choice.block_m = m;
  choice.block_n = n;
  choice.stages = stages;
  choice.consumers = consumers;
  choice.cluster_m = cluster_m;
  choice.cluster_n = cluster_n;
  choice.swap_ab = swap_ab;
  choice.ctas = 132;
  return choice;
}

std::vector<MatmulChoice> candidates(const BenchCase& c) {
  if (c.m >= 4096)
    return {tile(128, 256, 4, 2, 2, 1), tile(128, 256, 4, 2, 1, 2), tile(256, 128, 3, 2, 1, 2),
            tile(128, 192, 4, 2, 1, 2)};
  if (c.m >= 1024)
    return {tile(128, 256, 4, 2, 2, 1), tile(128, 192, 4, 2, 2, 1), tile(128, 128, 5, 2, 2, 1)};
  if (c.m >= 256) return {tile(128, 64, 7, 2, 1, 1), tile(64, 128, 7, 1, 1, 1), tile(128, 128, 5, 2, 1, 1)};
  return {tile(32, 64, 12, 1, 1, 1, true), tile(64, 64, 10, 1, 1, 1, true), tile(64, 64, 10, 1, 1, 1)};
}

void run_case(Communicator& ranks, const Numbers& numbers, const BenchCase& c) {
  const int count = ranks.size(), rank = ranks.rank();
  const Device& device = ranks.device();
  const RowsOfRank mine = RowsOfRank::of(c.m, count, rank);
  const int64_t n = c.gathers ? c.n / count : c.n, k = c.gathers ? c.k : c.k / count;
  const int64_t a_rows = c.gathers ? mine.count : c.m, c_rows = c.gathers ? c.m : mine.count;
  // Seeds: of A (all rows, or the rank's part of k) and of B on each rank.
  const auto a_seed = [&](int r) { return c.gathers ? 0 : 1 + r; };
  const auto b_seed = [&](int r, int copy) { return 100 + r * kCopies + copy; };
  DeviceTensor a = DeviceTensor::empty(device, bfloat16, {a_rows, k});
  if (c.gathers) {
    DeviceTensor all = DeviceTensor::empty(device, bfloat16, {c.m, k});
    numbers.fill(all, a_seed(rank));
    a.copy_from(DeviceTensor::view(device, all.address() + static_cast<uint64_t>(mine.first * k) * 2,
                                   bfloat16, {a_rows, k}));
    device.synchronize();
  } else {
    numbers.fill(a, a_seed(rank));
  }
  std::vector<DeviceTensor> b;
  for (int copy = 0; copy < kCopies; ++copy) {
    b.push_back(DeviceTensor::empty(device, bfloat16, {n, k}));
    numbers.fill(b.back(), b_seed(rank, copy));
  }
  DeviceTensor out = DeviceTensor::empty(device, bfloat16, {c_rows, n});
  const FusedSizes sizes{.m = c.m, .n = n, .k = k};
  std::optional<GatheredProduct> gathered;
  std::optional<ScatteredProduct> scattered;
  if (c.gathers)
    gathered.emplace(ranks, sizes, SourceLocation::current());
  else
    scattered.emplace(ranks, sizes, SourceLocation::current());
  const auto run = [&](Until until, const MatmulChoice& choice, int copy, const Stream& stream,
                       int64_t chunk_k) {
    FusedOptions options;
    options.stream = stream;
    const DeviceTensor& weights = b[static_cast<size_t>(copy)];
    return c.gathers
               ? gathered->run(until, choice, a, weights, out, options, SourceLocation::current(), chunk_k)
               : scattered->run(until, choice, a, weights, out, options, SourceLocation::current());
  };
  // The largest error at random elements over what the type allows.
  const auto error_of = [&](const MatmulChoice& choice, int64_t chunk_k) {
    double worst = 0;
    for (int call = 0; call < 2; ++call) {
      out.poison();
      ranks.barrier();
      run(Until::kLaunched, choice, call, Stream(), chunk_k);
      ranks.synchronize();
      const HostTensor got = out.to_host();
      std::mt19937_64 random(static_cast<uint64_t>(call + 10 * rank));
      for (int i = 0; i < 300; ++i) {
        const int64_t row = static_cast<int64_t>(random() % static_cast<uint64_t>(c_rows)),
                      column = static_cast<int64_t>(random() % static_cast<uint64_t>(n));
        double sum = 0;
        for (int r = c.gathers ? rank : 0; r < (c.gathers ? rank + 1 : count); ++r) {
          const int64_t a_row = c.gathers ? row : mine.first + row;
          for (int64_t l = 0; l < k; ++l)
            sum += numbers.get(a_seed(r), a_row * k + l) * numbers.get(b_seed(r, call), column * k + l);
        }
        const double error = std::abs(got.get(row * n + column) - sum);
        worst = std::max(
            worst, std::isnan(error) ? 1e9 : error / (std::abs(sum) / 128 + std::sqrt(double(c.k)) / 100));
      }
      ranks.barrier();
    }
    return worst;
  };
  const int calls = c.m >= 4096 ? 6 : 24;
  DeviceTensor alone = DeviceTensor::empty(device, bfloat16, {c.m, n});
  DeviceTensor all = DeviceTensor::empty(device, bfloat16, {c.m, k});
  numbers.fill(all, 5);
  prepare_matmul(all, b[0], alone);
  const double matmul_alone = microseconds(ranks, calls, kTurns, [&](int i, const Stream& stream) {
    MatmulOptions options;
    options.stream = stream;
    matmul(all, b[static_cast<size_t>(i % kCopies)], alone, options);
  });
  const bool tells = rank == 0;
  if (tells)
    fmt::print("{} {} x {} x {}: matmul alone {:.1f} us ({})\n", c.gathers ? "AG" : "RS", c.m, c.n, c.k,
               matmul_alone, matmul_choice(c.m, n, k, device.multiprocessors()));
  MatmulChoice chosen = c.gathers ? gathered->choose(c.m, n, k) : scattered->choose(c.m, n, k);
  std::vector<MatmulChoice> all_choices = candidates(c);
  all_choices.insert(all_choices.begin(), chosen);
  std::vector<int64_t> chunks{0};
  if (c.gathers) chunks = c.m >= 4096 ? std::vector<int64_t>{0, 512} : std::vector<int64_t>{0, 128, 512};
  for (size_t i = 0; i < all_choices.size(); ++i)
    for (const int64_t chunk_k : i == 0 ? chunks : std::vector<int64_t>{0}) {
      const MatmulChoice& choice = all_choices[i];
      std::string text = choice.text();
      try {
        run(Until::kCompiled, choice, 0, Stream(), chunk_k);
      } catch (const CompileError& error) {
        if (tells) fmt::print("   {}: does not compile\n", text);
        continue;
      }
      ranks.barrier();
      const double error = error_of(choice, chunk_k);
      const double time = microseconds(ranks, calls, kTurns, [&](int call, const Stream& stream) {
        run(Until::kLaunched, choice, call % kCopies, stream, chunk_k);
      });
      if (tells || error > 1)
        fmt::print("   {:8.1f} us  {:.2f} of the error allowed{}  chunk_k {}  {}\n", time, error,
                   error > 1 ? " WRONG" : "", chunk_k, text);
      std::fflush(stdout);
    }
}

}  // namespace

int main(int argc, char** argv) try {
  const int count = argc > 1 ? std::atoi(argv[1]) : Ranks::cuda_devices();
  const double seconds = argc > 2 ? std::atof(argv[2]) : 1e9;
  const int first = argc > 3 ? std::atoi(argv[3]) : 0, last = argc > 4 ? std::atoi(argv[4]) : 12;
  const Numbers numbers;
  const auto begin = std::chrono::steady_clock::now();
  run_ranks(Ranks::cuda(count).patience(10), [&](Communicator& ranks) {
    for (int i = first; i < std::min<int>(last, std::size(kCases)); ++i) {
      const double now = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      const std::vector<std::string> all = ranks.gather(fmt::format("{}", now));
      if (std::stod(all[0]) > seconds) break;
      run_case(ranks, numbers, kCases[i]);
    }
  });
  return 0;
} catch (const Error& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
