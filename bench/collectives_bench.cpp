// SPDX-License-Identifier: Apache-2.0
// All-reduce, all-gather and reduce-scatter on the CUDA GPUs of this machine beside NCCL's in the same process: verified against
// sums in float64, then timed: device time per call in captured graphs of 20 calls, of the slowest rank, contenders in turns,
// medians of 7. Sizes are those of the larger tensor on each rank.
//
//   bench_collectives [RANKS [SECONDS [CTAS]]]: no size begins after so many seconds; RANKS virtual:4: see rank_place.h
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "imbrex/core/error.h"
#include "imbrex/parallel.h"
#include "imbrex/runtime.h"
#include "nccl_rival.h"
#include "rank_numbers.h"
#include "rank_place.h"
#include "rank_timing.h"

using namespace imbrex;
using namespace imbrex::parallel;

namespace {

constexpr int kCalls = 20, kTurns = 7;
using Kind = AllReduce::Kind;

constexpr int64_t kMostLowLatency = int64_t{1} << 20;
constexpr std::array kKinds = {Kind::kLowLatency, Kind::kOneShot, Kind::kTwoShot};

/// The collectives of a rank, as all three are called here: all-gather and reduce-scatter the low-latency way and the other.
struct Collectives {
  Collectives(Communicator& ranks, int ctas)
      : all_reduce(ranks, ctas, kMostLowLatency),
        all_gather{AllGather(ranks, ctas, kMostLowLatency), AllGather(ranks, ctas, 0)},
        reduce_scatter{ReduceScatter(ranks, ctas, kMostLowLatency), ReduceScatter(ranks, ctas, 0)},
        most_bytes(std::min(kMostLowLatency, int64_t{ctas} * 8192)) {}
  AllReduce all_reduce;
  std::array<AllGather, 2> all_gather;
  std::array<ReduceScatter, 2> reduce_scatter;
  int64_t most_bytes;  // of a row that goes the low-latency way

  /// Whether n elements go that way.
  bool takes(int64_t n) const { return n % 2 == 0 && 2 * n <= most_bytes; }
};

/// The largest error over what bfloat16 allows, of three calls of each with other data in the same memory; n elements per rank.
double error_of(Communicator& ranks, Collectives& ours, const Numbers& numbers, int64_t n) {
  const int size = ranks.size(), me = ranks.rank();
  const SymmetricTensor x = ranks.symmetric(bfloat16, {size, n}), y = ranks.symmetric(bfloat16, {size, n});
  const DeviceTensor row = DeviceTensor::empty(ranks.device(), bfloat16, {n});
  double worst = 0;
  const auto compare = [&](const DeviceTensor& got, const auto& wanted) {
    const HostTensor host = got.to_host();
    for (int64_t i = 0; i < host.elements(); ++i) {
      const double exact = wanted(i), error = std::abs(host.get(i) - exact);
      worst = std::max(worst, std::isnan(error) ? 1e9 : error / (std::abs(exact) / 256 + 1e-3));
    }
  };
  for (int call = 0; call < 3; ++call) {
    const auto element = [&](int64_t rank, int64_t i) { return numbers.get(100 * call + rank, i); };
    const auto sum = [&](int64_t i) {
      double all = 0;
      for (int rank = 0; rank < size; ++rank) all += element(rank, i);
      return all;
    };
    DeviceTensor out = y.mine(), own = row;
    numbers.fill(x.mine(), 100 * call + me);
    for (const Kind kind : kKinds) {
      if (kind == Kind::kLowLatency && !ours.takes(size * n)) continue;
      out.poison();
      ours.all_reduce.prepare(x, y, kind);
      ranks.barrier();
      ours.all_reduce(x, y, kind).expect_clean();
      ranks.synchronize();
      compare(out, sum);
    }
    for (ReduceScatter& reduce_scatter : ours.reduce_scatter) {
      own.poison();
      reduce_scatter.prepare(x, row);
      ranks.barrier();
      reduce_scatter(x, row).expect_clean();
      ranks.synchronize();
      compare(row, [&](int64_t i) { return sum(me * n + i); });
    }
    numbers.fill(row, 100 * call + me);
    for (AllGather& all_gather : ours.all_gather) {
      out.poison();
      all_gather.prepare(row, y);
      ranks.barrier();
      all_gather(row, y).expect_clean();
      ranks.synchronize();
      compare(out, [&](int64_t i) { return element(i / n, i % n); });
    }
    ranks.barrier();
  }
  return worst;
}

void time_size(Communicator& ranks, Collectives& ours, const Numbers& numbers, const NcclRival& nccl,
               const RankTiming& timing, int64_t bytes) {
  const int size = ranks.size(), me = ranks.rank();
  const int64_t n = bytes / 2 / size;
  const SymmetricTensor x = ranks.symmetric(bfloat16, {size, n}), y = ranks.symmetric(bfloat16, {size, n});
  const DeviceTensor row = DeviceTensor::empty(ranks.device(), bfloat16, {n});
  numbers.fill(x.mine(), me);
  numbers.fill(row, size + me);
  // In the order of the table's columns; those that do not go the low-latency way have none there.
  std::vector<RankCalls> calls;
  std::vector<size_t> columns;
  const auto add = [&](size_t column, auto&& call) {
    calls.emplace_back(std::forward<decltype(call)>(call));
    columns.push_back(column);
  };
  for (size_t i = 0; i < kKinds.size(); ++i) {
    if (kKinds[i] == Kind::kLowLatency && !ours.takes(size * n)) continue;
    ours.all_reduce.prepare(x, y, kKinds[i]);
    add(i, [&, kind = kKinds[i]](int, const Stream& s) { ours.all_reduce(x, y, kind, s); });
  }
  for (size_t i = ours.takes(n) ? 0 : 1; i < 2; ++i) {
    ours.all_gather[i].prepare(row, y);
    ours.reduce_scatter[i].prepare(x, row);
    add(4 + i, [&, i](int, const Stream& s) { ours.all_gather[i](row, y, s); });
    add(7 + i, [&, i](int, const Stream& s) { ours.reduce_scatter[i](x, row, s); });
  }
  if (nccl.is_there()) {
    add(3, [&](int, const Stream& s) { nccl.all_reduce(me, x.mine(), y.mine(), s); });
    add(6, [&](int, const Stream& s) { nccl.all_gather(me, row, y.mine(), s); });
    add(9, [&](int, const Stream& s) { nccl.reduce_scatter(me, x.mine(), row, s); });
  }
  const std::vector<double> t = microseconds(ranks, timing, calls);
  std::vector<std::string> cells(10);
  for (size_t i = 0; i < t.size(); ++i) cells[columns[i]] = fmt::format("{:.1f}", t[i]);
  if (me == 0) fmt::print("| {:>9} | {:>6} |\n", bytes, fmt::join(cells, " | "));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) try {
  const RankPlace place = RankPlace::of(argc > 1 ? argv[1] : "");
  const double seconds = argc > 2 ? std::atof(argv[2]) : 1e9;
  const int ctas = argc > 3 ? std::atoi(argv[3]) : static_cast<int>(place.size(128, 16));
  const auto begin = std::chrono::steady_clock::now();
  const NcclRival nccl(place.is_virtual ? 0 : place.ranks);
  const Numbers numbers;
  run_ranks(place.where(), [&](Communicator& ranks) {
    const bool tells = ranks.rank() == 0;
    Collectives ours(ranks, ctas);
    for (const int64_t n : {int64_t{1}, int64_t{2}, int64_t{8192}, place.size(100003, 10)}) {
      const double error = error_of(ranks, ours, numbers, n);
      if (error > 1) throw DeviceError(Diagnostic{{}, fmt::format("WRONG: {} elements", n), {}, ""});
    }
    if (tells)
      fmt::print(
          "{} ranks on {}, {} CTAs each, verified; {}. Microseconds:\n"
          "| bytes | all-reduce, low-latency | one-shot | two-shot | NCCL | all-gather, low-latency | other "
          "| NCCL "
          "| reduce-scatter, low-latency | other | NCCL |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
          ranks.size(), ranks.device().name(), ctas, nccl.name());
    for (int64_t bytes = 4 << 10; bytes <= place.size(256 << 20, 4096);
         bytes *= bytes < 1 << 20 || bytes >= 128 << 20 ? 2 : 4) {
      const double passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      if (std::stod(ranks.gather(fmt::format("{}", passed))[0]) > seconds) break;
      time_size(ranks, ours, numbers, nccl, place.timing(kCalls, kTurns), bytes);
    }
  });
  return 0;
} catch (const Error& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
