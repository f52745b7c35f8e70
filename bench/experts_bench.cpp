// SPDX-License-Identifier: Apache-2.0
// A layer of experts on the CUDA GPUs of this machine: dispatch, grouped product and combine, verified at random elements against
// float64, and timed as bench_collectives does: device time per call in captured graphs, of the slowest rank, medians of 5
// turns. `bench_experts [RANKS [SECONDS]]`: no case begins after so many seconds; RANKS virtual:4: see rank_place.h. bench/expert_rivals.py times PyTorch's
// all-to-all with its grouped product for the same cases.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <random>
#include <vector>

#include "imbrex/core/error.h"
#include "imbrex/kernels/grouped/grouped_matmul.h"
#include "imbrex/parallel.h"
#include "imbrex/runtime.h"
#include "rank_numbers.h"
#include "rank_place.h"
#include "rank_timing.h"

using namespace imbrex;
using namespace imbrex::parallel;

namespace {

constexpr int kTurns = 5, kCalls = 6;

struct BenchCase {
  int64_t tokens, width;  // tokens of each rank; the product is [width, width]
  int experts_of_rank, chosen;
};
constexpr BenchCase kCases[] = {{64, 4096, 8, 2},   {256, 4096, 8, 2},  {1024, 4096, 8, 2},
                                {4096, 4096, 8, 2}, {1024, 4096, 8, 8}, {4096, 2048, 8, 8}};

/// A tensor of `numbers`.
DeviceTensor filled(const Numbers& numbers, const Device& device, DataType dtype,
                    const std::vector<int64_t>& shape, int64_t seed) {
  const DeviceTensor made = DeviceTensor::empty(device, dtype, shape);
  numbers.fill(made, seed);
  return made;
}

void time_case(Communicator& ranks, const Numbers& numbers, const Numbers& factors, const RankTiming& timing,
               const BenchCase& c) {
  const Device& device = ranks.device();
  const ExpertSizes sizes{c.tokens, c.width, c.experts_of_rank * ranks.size(), c.chosen, bfloat16};
  ExpertExchange exchange(ranks, sizes);
  HostTensor choices(int32, {c.tokens, c.chosen});
  std::mt19937_64 random(static_cast<uint64_t>(ranks.rank()));
  for (int64_t token = 0; token < c.tokens; ++token) {
    std::vector<int> left;
    for (int expert = 0; expert < sizes.experts; ++expert) left.push_back(expert);
    for (int j = 0; j < c.chosen; ++j) {
      std::swap(left[static_cast<size_t>(j)],
                left[static_cast<size_t>(j) + random() % (left.size() - static_cast<size_t>(j))]);
      choices.set(token * c.chosen + j, left[static_cast<size_t>(j)]);
    }
  }
  const DeviceTensor x = filled(numbers, device, bfloat16, {c.tokens, c.width}, 1 + ranks.rank()),
                     chosen = DeviceTensor::from_host(device, choices),
                     weights = filled(factors, device, float32, {c.tokens, c.chosen}, 20 + ranks.rank()),
                     // All experts' weights are alike, so that a rank can verify what another computes.
      w = filled(numbers, device, bfloat16, {c.experts_of_rank, c.width, c.width}, 40);
  DeviceTensor y = DeviceTensor::empty(device, bfloat16, {c.tokens, c.width});
  const Groups groups = Groups::contiguous(exchange.first_row());
  const auto dispatch = [&](const Stream& stream) { exchange.dispatch(x, chosen, stream); };
  const auto product = [&](const Stream& stream) {
    grouped_matmul(exchange.rows(), w, exchange.results(), groups, {.stream = stream});
  };
  const auto combine = [&](const Stream& stream) { exchange.combine(weights, y, stream); };
  y.fill(0xFF);
  for (int i = 0; i < 2; ++i) dispatch({}), product({}), combine({});
  ranks.synchronize();

  const HostTensor x_host = x.to_host(), w_host = w.to_host(), weight_host = weights.to_host(),
                   got = y.to_host();
  double worst = 0;
  for (int i = 0; i < 200; ++i) {
    const auto token = static_cast<int64_t>(random() % static_cast<uint64_t>(c.tokens));
    const auto column = static_cast<int64_t>(random() % static_cast<uint64_t>(c.width));
    double sum = 0, size = 0;
    for (int64_t j = 0; j < c.chosen; ++j) {
      const auto of_rank = static_cast<int64_t>(choices.get(token * c.chosen + j)) % c.experts_of_rank;
      double one = 0;
      for (int64_t k = 0; k < c.width; ++k)
        one += x_host.get(token * c.width + k) * w_host.get((of_rank * c.width + column) * c.width + k);
      sum += weight_host.get(token * c.chosen + j) * one;
      size += std::abs(weight_host.get(token * c.chosen + j)) * std::sqrt(static_cast<double>(c.width));
    }
    const double error = std::abs(got.get(token * c.width + column) - sum) / (size + std::abs(sum));
    if (!(error <= worst)) worst = error;  // NaN stays
  }
  const std::vector<double> times =
      microseconds(ranks, timing,
                   {[&](int, const Stream& s) { dispatch(s), product(s), combine(s); },
                    [&](int, const Stream& s) { dispatch(s); }, [&](int, const Stream& s) { product(s); },
                    [&](int, const Stream& s) { combine(s); }});
  bool is_right = true;
  for (const std::string& text : ranks.gather(fmt::format("{}", worst)))
    is_right = is_right && std::stod(text) < 0.02;  // false for NaN
  if (ranks.rank() == 0)
    fmt::print(
        "{:5} tokens x {}, {} experts per rank, {} chosen: {:8.1f} us; by itself dispatch {:.1f}, product "
        "{:.1f}, combine {:.1f}{}\n",
        c.tokens, c.width, c.experts_of_rank, c.chosen, times[0], times[1], times[2], times[3],
        is_right ? "" : "  WRONG");
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) try {
  const RankPlace place = RankPlace::of(argc > 1 ? argv[1] : "");
  const double seconds = argc > 2 ? std::atof(argv[2]) : 1e9;
  const auto begin = std::chrono::steady_clock::now();
  const Numbers numbers, factors(float32);
  run_ranks(place.where(), [&](Communicator& ranks) {
    for (BenchCase c : kCases) {
      const double passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      if (std::stod(ranks.gather(fmt::format("{}", passed)).front()) > seconds) break;
      c.tokens = place.size(c.tokens, 64);
      c.width = place.size(c.width, 16);
      time_case(ranks, numbers, factors, place.timing(kCalls, kTurns), c);
    }
  });
  return 0;
} catch (const Error& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
