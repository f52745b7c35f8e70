// SPDX-License-Identifier: Apache-2.0
// Products with whole-tile results (imbrex/kernels/fused_matmul.h) beside the plain product of the same work and beside the
// same as kernels of their own, and float8 with scales of blocks beside float8 with scales of rows, on a CUDA GPU. Results
// are compared with those of separate kernels, then contenders take turns; figures are medians.
//
//   bench_gated [--turns 5] [--ms 10] [--tiles] 8192x14336x4096 ...       M x N x K; a gated product has two of N
//
// --tiles: the fused products with each of their tiles instead
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "contenders.h"
#include "grouped/fused_tiles.h"
#include "imbrex/kernels/fused_matmul.h"
#include "imbrex/kernels/matmul.h"
#include "imbrex/kernels/rows/gated.h"
#include "imbrex/kernels/rows/quantise.h"
#include "matmul/matmul_time.h"
#include "runtime/host/parallel.h"
#include "runtime/measure/gpu_timer.h"

namespace imbrex {
namespace {

struct Subject {
  std::string name;
  std::function<void(int)> call;
};

/// The largest difference of 4096 elements, of the largest magnitude.
double difference(const DeviceTensor& x, const DeviceTensor& y) {
  const HostTensor a = x.to_host(), b = y.to_host();
  double most = 0, largest = 0;
  for (int64_t i = 0; i < 4096; ++i) {
    const int64_t at = i * 7919 % a.elements();
    most = std::max(most, std::abs(a.get(at) - b.get(at)));
    largest = std::max(largest, std::abs(b.get(at)));
  }
  return most / largest;
}

constexpr int64_t kFewRows = 512;

/// In two launches: some tiles and numbers of parts of k that are among the fastest by the model.
std::vector<MatmulChoice> in_parts(const bench::MatmulSize& s, int multiprocessors) {
  constexpr size_t kSome = 10;
  std::vector<std::pair<double, MatmulChoice>> all;
  for (MatmulChoice c : matmul_candidates())
    for (int parts : {1, 2, 3, 4, 6, 8}) {
      if (c.method != MatmulChoice::Method::kParts || 3 * parts * 64 > s.k) continue;
      c.parts = parts;
      c.ctas = multiprocessors / cluster_ctas(c) * cluster_ctas(c);
      all.emplace_back(estimated_microseconds(c, {s.m, s.n, s.k}, multiprocessors), c);
    }
  std::ranges::sort(all, {}, [](const auto& each) { return each.first; });
  std::vector<MatmulChoice> some{choose_in_parts(s.m, s.n, s.k, multiprocessors)};
  for (size_t i = 0; i < std::min(kSome, all.size()); ++i) some.push_back(all[i].second);
  return some;
}

/// What bounds the choice among them.
void run_tiles(const Device& device, runtime::GpuTimer& timer, const bench::MatmulSize& s,
               const runtime::GpuTimer::Runs& runs) {
  // Operands rotate, so that they come from memory.
  struct Operands {
    DeviceTensor a, w, b, up;
  };
  std::vector<Operands> operands;
  for (int64_t bytes = 0; bytes < 2 * device.backend().l2_bytes(); bytes += 2 * (s.m + s.n) * s.k) {
    const DeviceTensor w = bench::repeated_random(device, bfloat16, {2 * s.n, s.k}, 2);
    operands.push_back({bench::repeated_random(device, bfloat16, {s.m, s.k}, 1), w,
                        w.slice({0, 0}, {s.n, s.k}), w.slice({s.n, 0}, {s.n, s.k})});
  }
  const auto of = [&](int i) -> const Operands& {
    return operands[static_cast<size_t>(i) % operands.size()];
  };
  const DeviceTensor both = DeviceTensor::empty(device, bfloat16, {s.m, 2 * s.n}),
                     c = DeviceTensor::empty(device, bfloat16, {s.m, s.n}),
                     c8 = DeviceTensor::empty(device, float8_e4m3, {s.m, s.n}),
                     scale = DeviceTensor::empty(device, float32, {(s.n + 127) / 128, s.m});
  const DeviceTensor row_scale = DeviceTensor::empty(device, float32, {s.m});
  const FusedMatmulOptions silu{Activation::kSilu}, silu8{.activation = Activation::kSilu, .scale_c = scale},
      plain8{.scale_c = scale}, silu_rows{.activation = Activation::kSilu, .scale_c = row_scale},
      plain_rows{.scale_c = row_scale};
  for (const auto& [name, gated, quantises] : {std::tuple{"gated_matmul", true, false},
                                               {"gated_matmul to float8", true, true},
                                               {"quantised_matmul", false, true}}) {
    std::vector<std::string> names{"matmul"};
    std::vector<std::function<void(int)>> calls{[&, gated = gated](int turn) {
      if (gated)
        matmul(of(turn).a, of(turn).w, both);
      else
        matmul(of(turn).a, of(turn).b, c);
    }};
    const auto few = few_row_tiles(gated, quantises), in_turns = gated_tiles_in_turns();
    for (const auto tiles : {fused_tiles(gated, quantises), s.m > 256 ? few.first(0) : few,
                             !gated || quantises || s.m < kFewRows ? in_turns.first(0) : in_turns}) {
      for (size_t i = 0; i < tiles.size(); ++i) {
        names.push_back(tiles[i].text());
        calls.push_back([&, i, tiles, gated = gated, quantises = quantises](int turn) {
          run_fused_matmul("bench", of(turn).a, of(turn).b, gated ? &of(turn).up : nullptr,
                           quantises ? c8 : c,
                           !quantises ? silu
                           : gated    ? silu8
                                      : plain8,
                           tiles.subspan(i, 1));
        });
      }
    }
    names.emplace_back("as chosen");
    calls.push_back([&, gated = gated, quantises = quantises](int turn) {
      if (gated)
        gated_matmul(of(turn).a, of(turn).b, of(turn).up, quantises ? c8 : c, quantises ? silu8 : silu);
      else
        quantised_matmul(of(turn).a, of(turn).b, c8, plain8);
    });
    if (quantises) {
      names.emplace_back("as chosen, scales of whole rows");
      calls.push_back([&, gated = gated](int turn) {
        if (gated)
          gated_matmul(of(turn).a, of(turn).b, of(turn).up, c8, silu_rows);
        else
          quantised_matmul(of(turn).a, of(turn).b, c8, plain_rows);
      });
    }
    if (quantises && s.m <= kFewRows) {
      const std::vector<MatmulChoice> choices =
          in_parts({s.m, gated ? 2 * s.n : s.n, s.k}, device.multiprocessors());
      for (const MatmulChoice& choice : choices) {
        names.push_back(choice.text());
        calls.push_back([&, choice, gated = gated](int turn) {
          run_fused_matmul("bench", of(turn).a, of(turn).b, gated ? &of(turn).up : nullptr, c8,
                           gated ? silu8 : plain8, {&choice, 1});
        });
      }
    }
    // Compiled on all cores.
    runtime::parallel_for(calls.size(), std::thread::hardware_concurrency(), [&](size_t i) { calls[i](0); });
    const auto times = timer.measure_runs(calls, runs);
    fmt::print("{} {}x{}x{}\n", name, s.m, s.n, s.k);
    const double first = runtime::quartiles(times[0]).median;
    for (size_t i = 0; i < names.size(); ++i) {
      const double time = runtime::quartiles(times[i]).median;
      fmt::print("  {:9.2f} us {:.3f} {}\n", time, time / first, names[i]);
    }
  }
}

void run_size(const Device& device, runtime::GpuTimer& timer, const bench::MatmulSize& s,
              const runtime::GpuTimer::Runs& runs) {
  const int64_t blocks = (s.n + 127) / 128, k_blocks = (s.k + 127) / 128;
  const auto random = [&](DataType type, std::vector<int64_t> shape, uint64_t seed) {
    return bench::repeated_random(device, type, std::move(shape), seed);
  };
  const auto empty = [&](DataType type, std::vector<int64_t> shape) {
    return DeviceTensor::empty(device, type, std::move(shape));
  };
  const DeviceTensor a = random(bfloat16, {s.m, s.k}, 1), w = random(bfloat16, {2 * s.n, s.k}, 2),
                     b = w.slice({0, 0}, {s.n, s.k}), up = w.slice({s.n, 0}, {s.n, s.k}),
                     both = empty(bfloat16, {s.m, 2 * s.n}), c = empty(bfloat16, {s.m, s.n}),
                     other = empty(bfloat16, {s.m, s.n}), c8 = empty(float8_e4m3, {s.m, s.n}),
                     scale = empty(float32, {blocks, s.m}), row = random(float32, {s.m}, 3);
  const DeviceTensor a8 = random(float8_e4m3, {s.m, s.k}, 4), b8 = random(float8_e4m3, {s.n, s.k}, 5),
                     column = random(float32, {s.n}, 6), of_a = random(float32, {k_blocks, s.m}, 7),
                     of_b = random(float32, {blocks, k_blocks}, 8);
  const float k_scale = 1 / std::sqrt(static_cast<float>(s.k));
  const DeviceTensor small = DeviceTensor::from_host(device, [&] {
    HostTensor one(float32, {1});
    one.set(0, k_scale);
    return one;
  }());
  const auto gate_of_both = [&] {
    gated(both.slice({0, 0}, {s.m, s.n}), both.slice({0, s.n}, {s.m, s.n}), other);
  };
  const std::vector<Subject> subjects{
      {"matmul of 2n", [&](int) { matmul(a, w, both, {.scale_a = small}); }},
      {"gated_matmul",
       [&](int) { gated_matmul(a, b, up, c, {.activation = Activation::kSilu, .scale_a = small}); }},
      {"gated_matmul to float8",
       [&](int) {
         gated_matmul(a, b, up, c8, {.activation = Activation::kSilu, .scale_a = small, .scale_c = scale});
       }},
      {"matmul of 2n, then gated",
       [&](int) {
         matmul(a, w, both, {.scale_a = small});
         gate_of_both();
       }},
      {"matmul", [&](int) { matmul(a, b, c); }},
      {"matmul, a scale per row", [&](int) { matmul(a, b, c, {.scale_a = row}); }},
      {"quantised_matmul", [&](int) { quantised_matmul(a, b, c8, {.scale_c = scale}); }},
      {"matmul, then quantise_float8",
       [&](int) {
         matmul(a, b, c);
         quantise_float8(c, c8, scale.transpose(), {.block = 128});
       }},
      {"float8, scales of rows", [&](int) { matmul(a8, b8, c, {.scale_a = row, .scale_b = column}); }},
      {"float8, scales of blocks", [&](int) { matmul(a8, b8, c, {.scale_a = of_a, .scale_b = of_b}); }},
  };
  for (const Subject& subject : subjects) subject.call(0);
  matmul(a, w, both, {.scale_a = small});
  gate_of_both();
  gated_matmul(a, b, up, c, {.activation = Activation::kSilu, .scale_a = small});
  fmt::print("{} {}x{}x{}: gated differs by {:.4f}", device.name(), s.m, s.n, s.k, difference(c, other));
  quantised_matmul(a, b, c8, {.scale_c = scale});
  const DeviceTensor again = empty(float8_e4m3, {s.m, s.n});
  matmul(a, b, c);
  const DeviceTensor scale_again = empty(float32, {blocks, s.m});
  quantise_float8(c, again, scale_again.transpose(), {.block = 128});
  fmt::print(", float8 by {:.4f}, its scales by {:.4f}\n", difference(c8, again),
             difference(scale, scale_again));
  std::vector<std::function<void(int)>> calls;
  for (const Subject& subject : subjects) calls.push_back(subject.call);
  const auto times = timer.measure_runs(calls, runs);
  for (size_t i = 0; i < subjects.size(); ++i) {
    const size_t of = i < 4 ? 0 : i < 8 ? 4 : 8;  // the plain product of the same work
    const double time = runtime::quartiles(times[i]).median, plain = runtime::quartiles(times[of]).median;
    const double flop = (i < 4 ? 4.0 : 2.0) * static_cast<double>(s.m * s.n) * static_cast<double>(s.k);
    fmt::print("  {:30} {:9.2f} us {:7.1f} TFLOPS  {:.3f} of the time of '{}'\n", subjects[i].name, time,
               flop / time * 1e-6, time / plain, subjects[of].name);
  }
}

int run(int argc, char** argv) {
  runtime::GpuTimer::Runs runs;
  std::vector<bench::MatmulSize> sizes;
  bool tiles = false;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--turns" && i + 1 < argc)
      runs.turns = std::stoi(argv[++i]);
    else if (word == "--ms" && i + 1 < argc)
      runs.milliseconds = std::stod(argv[++i]);
    else if (word == "--tiles")
      tiles = true;
    else
      sizes.push_back(bench::parse_size(word));
  }
  if (sizes.empty()) sizes.push_back({4096, 14336, 4096});
  const Device device = Device::cuda();
  runtime::GpuTimer timer(device);
  for (const bench::MatmulSize& size : sizes) (tiles ? run_tiles : run_size)(device, timer, size, runs);
  return 0;
}

}  // namespace
}  // namespace imbrex

int main(int argc, char** argv) {
  return imbrex::bench::run_main("bench_gated", [&] { return imbrex::run(argc, argv); });
}
