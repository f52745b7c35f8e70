// SPDX-License-Identifier: Apache-2.0
// The kernels of rows on a CUDA GPU, each beside a device copy that moves as many bytes.
//
//   bench_rows [--turns 5] [--only rms_norm,top_k] [--sizes 65536x1023,8192x8192] [--share 0/4]
//
// --share 1/4 takes every fourth case from the second on: some processes at once fill the cache of machine code.
//
// Contenders take turns; each turn launches back to back with operands in rotation, so that each launch finds its own in
// memory and not in the L2 cache. Figures are medians. tests/ verify what is timed here.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "contenders.h"
#include "imbrex/kernels/cumsum_rows.h"
#include "imbrex/kernels/gated_delta_rule.h"
#include "imbrex/kernels/gather_rows.h"
#include "imbrex/kernels/histogram.h"
#include "imbrex/kernels/layer_norm.h"
#include "imbrex/kernels/routed_swiglu.h"
#include "imbrex/kernels/rows/cross_entropy.h"
#include "imbrex/kernels/rows/gated.h"
#include "imbrex/kernels/rows/quantise.h"
#include "imbrex/kernels/rows/rms_norm.h"
#include "imbrex/kernels/rows/rope.h"
#include "imbrex/kernels/rows/top_k.h"
#include "imbrex/kernels/rows/transpose.h"
#include "imbrex/kernels/scatter_add_rows.h"
#include "imbrex/kernels/softmax.h"
#include "runtime/device/backend.h"
#include "runtime/measure/gpu_timer.h"

namespace imbrex {
namespace {

using Tensors = std::vector<DeviceTensor>;

/// A function with its operands: `shapes` of those that are in rotation, all in `dtype` where they name no other.
struct Subject {
  std::string name, size;
  std::vector<std::pair<DataType, std::vector<int64_t>>> operands;
  std::function<void(const Tensors&)> call;
  int64_t more_bytes = 0;  ///< that move besides: of operands that are read and written
};

int64_t bytes_of(const Subject& subject) {
  int64_t bytes = subject.more_bytes;
  for (const auto& [dtype, shape] : subject.operands)
    bytes += std::accumulate(shape.begin(), shape.end(), int64_t{dtype.bytes()}, std::multiplies<>());
  return bytes;
}

/// A tensor of random numbers, copied from some millions of them that were made once: the `number`th begins elsewhere.
DeviceTensor filled(const Device& device, DataType dtype, const std::vector<int64_t>& shape, int number) {
  constexpr int64_t kNumbers = 3'000'016;  // shares no large factor with usual extents
  static auto& sources =
      *new std::map<std::string, DeviceTensor>;  // never freed: the driver may be unloaded first
  if (dtype == int32 || dtype == float8_e4m3) {
    DeviceTensor zeros = DeviceTensor::empty(device, dtype, shape);
    if (dtype == int32) zeros.fill(0);
    return zeros;
  }
  auto at = sources.find(std::string(dtype.name()));
  if (at == sources.end())
    at = sources.emplace(dtype.name(), DeviceTensor::random(device, dtype, {kNumbers}, 7)).first;
  const DeviceTensor& source = at->second;
  const DeviceTensor all = DeviceTensor::empty(device, dtype, shape);
  const int64_t first = number * 16'016 % kNumbers * dtype.bytes(), part = source.bytes() - first;
  for (int64_t to = 0; to < all.bytes(); to += part)
    device.backend().copy_on_device(all.address() + to, source.address() + first,
                                    std::min(part, all.bytes() - to));
  return all;
}

void measure(const Device& device, runtime::GpuTimer& timer, const Subject& subject, int turns) {
  constexpr int64_t kRotated = 256 << 20;  // bytes, several times the L2
  const int64_t bytes = bytes_of(subject);
  const int copies = static_cast<int>(1 + kRotated / bytes);
  std::vector<Tensors> rotated;
  for (int i = 0; i < copies; ++i) {
    Tensors tensors;
    for (const auto& [dtype, shape] : subject.operands)
      tensors.push_back(filled(device, dtype, shape, 8 * i + static_cast<int>(tensors.size())));
    rotated.push_back(std::move(tensors));
  }
  std::vector<DeviceTensor> from, to;
  for (int i = 0; i < copies; ++i) {
    from.push_back(filled(device, float32, {bytes / 8}, i));
    to.push_back(DeviceTensor::empty(device, float32, {bytes / 8}));
  }
  const auto copy = [&](int i) {
    device.backend().copy_on_device(to[i % copies].address(), from[i % copies].address(), bytes / 2);
  };
  const auto call = [&](int i) { subject.call(rotated[i % copies]); };
  call(0);
  device.synchronize();
  const auto times = timer.measure_runs({call, copy}, {.turns = turns, .milliseconds = 4});
  const double ours = runtime::quartiles(times[0]).median, theirs = runtime::quartiles(times[1]).median;
  fmt::print("{:26} {:22} {:9.2f} us {:6.2f} TB/s  copy {:9.2f} us  {:.3f}\n", subject.name, subject.size,
             ours, static_cast<double>(bytes) / ours * 1e-6, theirs, theirs / ours);
  std::fflush(stdout);
}

/// Kernels whose places are data, and those of experts and of linear attention.
void add_indexed(const Device& device, std::vector<Subject>* all) {
  const auto random_indices = [&](int64_t count, int64_t below, bool are_different = false) {
    HostTensor host(int32, {count});
    std::mt19937_64 random(11);
    std::vector<int64_t> order(static_cast<size_t>(are_different ? below : 0));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    for (int64_t i = 0; i < count; ++i)
      host.set(i, static_cast<double>(are_different
                                          ? order[static_cast<size_t>(i)]
                                          : static_cast<int64_t>(random() % static_cast<uint64_t>(below))));
    return DeviceTensor::from_host(device, host);
  };
  constexpr int64_t kRows = 65536, kWidth = 2048;
  for (const int64_t table : {20000, 200}) {
    const DeviceTensor index = random_indices(kRows, table);
    const std::string size = fmt::format("{}x{} to {} float32", kRows, kWidth, table);
    const auto add =
        std::make_shared<Kernel<kernels::HopperScatterAddRows>>(kernels::HopperScatterAddRows{}, device);
    const auto gather = std::make_shared<Kernel<kernels::GatherRows>>(kernels::GatherRows{}, device);
    // The table is read and written.
    all->push_back({"hopper_scatter_add_rows",
                    size,
                    {{float32, {kRows, kWidth}}, {float32, {table, kWidth}}},
                    [=](const Tensors& t) {
                      (*add)(kRows, table, kWidth, float32, index.address(), t[0].address(), t[1].address());
                    },
                    table * kWidth * 4});
    all->push_back({"scatter_add_rows",
                    size,
                    {{float32, {kRows, kWidth}}, {float32, {table, kWidth}}},
                    [=](const Tensors& t) { scatter_add_rows(t[0], index, t[1]); },
                    table * kWidth * 4});
    all->push_back({"gather_rows",
                    size,
                    {{float32, {kRows, kWidth}}, {float32, {table, kWidth}}},
                    [=](const Tensors& t) {
                      (*gather)(kRows, table, kWidth, float32, index.address(), t[1].address(),
                                t[0].address());
                    }});
  }
  const auto cumsum = std::make_shared<Kernel<kernels::CumsumRows>>(kernels::CumsumRows{}, device);
  for (const auto& [m, n] : std::vector<std::pair<int64_t, int64_t>>{{16384, 8192}, {65536, 1000}})
    all->push_back({"cumsum_rows",
                    fmt::format("{}x{} float32", m, n),
                    {{float32, {m, n}}, {float32, {m, n}}},
                    [=](const Tensors& t) { (*cumsum)(m, n, float32, t[0].address(), t[1].address()); }});
  constexpr int64_t kKeys = int64_t{1} << 27;
  const auto histogram = std::make_shared<Kernel<kernels::Histogram>>(kernels::Histogram{}, device);
  const DeviceTensor few_keys = random_indices(int64_t{1} << 22, 1024);
  const DeviceTensor keys = DeviceTensor::empty(device, int32, {kKeys});
  for (int64_t at = 0; at < keys.bytes(); at += few_keys.bytes())
    device.backend().copy_on_device(keys.address() + at, few_keys.address(), few_keys.bytes());
  DeviceTensor sums = DeviceTensor::empty(device, int32, {1028}),
               counts = DeviceTensor::empty(device, int32, {1024});
  sums.fill(0);
  all->push_back({"histogram",
                  "134217728 to 1024 int32",
                  {},
                  [=](const Tensors&) {
                    (*histogram)(kKeys, int64_t{1024}, keys.address(), sums.address() + 16, sums.address(),
                                 counts.address());
                  },
                  kKeys * 4});
  {
    constexpr int64_t kTokens = 256, kHeads = 16, kValueHeads = 32, kKey = 128, kValue = 128;
    const DeviceTensor slots = random_indices(kTokens, kTokens, true);
    const auto vector = [&](DataType dtype, std::vector<int64_t> shape) {
      return filled(device, dtype, shape, 3);
    };
    const DeviceTensor q = vector(bfloat16, {kTokens, kHeads, kKey}),
                       k = vector(bfloat16, {kTokens, kHeads, kKey}),
                       v = vector(bfloat16, {kTokens, kValueHeads, kValue}),
                       a_log = vector(float32, {kValueHeads}), a = vector(bfloat16, {kTokens, kValueHeads}),
                       bias = vector(float32, {kValueHeads}), b = vector(bfloat16, {kTokens, kValueHeads}),
                       o = vector(bfloat16, {kTokens, kValueHeads, kValue});
    for (const int by_columns : {0, 1}) {
      const auto step = std::make_shared<Kernel<kernels::GatedDeltaRule>>(
          kernels::GatedDeltaRule{.by_columns = by_columns}, device);
      all->push_back({by_columns == 0 ? "gated_delta_rule" : "gated_delta_rule by_columns",
                      fmt::format("{}x{}x{}x{} float32", kTokens, kValueHeads, kKey, kValue),
                      {{float32, {kTokens, kValueHeads, kKey, kValue}}},
                      [=](const Tensors& t) {
                        (*step)(kTokens, kHeads, kValueHeads, kKey, kValue, kTokens, 0.1f, bfloat16,
                                q.address(), k.address(), v.address(), a_log.address(), a.address(),
                                bias.address(), b.address(), slots.address(), t[0].address(), o.address());
                      },
                      kTokens * kValueHeads * kKey * kValue * 4});
    }
  }
  constexpr int64_t kTokens = 32768, kColumns = 2048, kChoices = 65536;
  const DeviceTensor experts = random_indices(kTokens, 64), choices = random_indices(kTokens, kChoices),
                     weights = filled(device, float32, {kChoices}, 5);
  const auto routed = std::make_shared<Kernel<kernels::RoutedSwiglu>>(kernels::RoutedSwiglu{}, device);
  all->push_back({"routed_swiglu",
                  fmt::format("{}x{} bfloat16", kTokens, kColumns),
                  {{bfloat16, {kTokens, 2 * kColumns}},
                   {float8_e4m3, {kTokens, kColumns}},
                   {float32, {kTokens, kColumns / 128}}},
                  [=](const Tensors& t) {
                    (*routed)(kTokens, kColumns, kChoices, true, 7.0f, bfloat16, t[0].address(),
                              experts.address(), choices.address(), weights.address(), t[1].address(),
                              t[2].address());
                  }});
}

std::vector<Subject> subjects(const Device& device) {
  std::vector<Subject> all;
  const auto vector = [&](DataType dtype, int64_t n) { return filled(device, dtype, {n}, 7); };
  for (const auto& [dtype, m, n] :
       std::vector<std::tuple<DataType, int64_t, int64_t>>{{bfloat16, 16384, 4096},
                                                           {bfloat16, 8192, 5120},
                                                           {bfloat16, 8192, 8192},
                                                           {bfloat16, 262144, 128},
                                                           {bfloat16, 65536, 1000},
                                                           {bfloat16, 4096, 16384},
                                                           {float32, 8192, 4096},
                                                           {bfloat16, 65536, 1023}}) {
    const std::string size = fmt::format("{}x{} {}", m, n, dtype.name());
    const std::pair<DataType, std::vector<int64_t>> rows{dtype, {m, n}};
    const DeviceTensor weight = vector(dtype, n), bias = vector(dtype, n),
                       dweight = DeviceTensor::empty(device, dtype, {n}),
                       dbias = DeviceTensor::empty(device, dtype, {n});
    all.push_back({"rms_norm", size, {rows, rows}, [=](const Tensors& t) { rms_norm(t[0], weight, t[1]); }});
    all.push_back({"rms_norm_backward", size, {rows, rows, rows}, [=](const Tensors& t) {
                     rms_norm_backward(t[0], t[1], weight, t[2], dweight);
                   }});
    all.push_back(
        {"layer_norm", size, {rows, rows}, [=](const Tensors& t) { layer_norm(t[0], weight, bias, t[1]); }});
    all.push_back({"layer_norm_backward", size, {rows, rows, rows}, [=](const Tensors& t) {
                     layer_norm_backward(t[0], t[1], weight, t[2], dweight, dbias);
                   }});
    all.push_back({"softmax", size, {rows, rows}, [=](const Tensors& t) { softmax(t[0], t[1]); }});
    all.push_back({"softmax_backward", size, {rows, rows, rows}, [=](const Tensors& t) {
                     softmax_backward(t[0], t[1], t[2]);
                   }});
    all.push_back({"gated", size, {rows, rows, rows}, [=](const Tensors& t) { gated(t[0], t[1], t[2]); }});
    all.push_back({"gated_backward", size, {rows, rows, rows, rows, rows}, [=](const Tensors& t) {
                     gated_backward(t[0], t[1], t[2], t[3], t[4]);
                   }});
    all.push_back(
        {"transpose", size, {rows, {dtype, {n, m}}}, [=](const Tensors& t) { transpose(t[0], t[1]); }});
    all.push_back({"quantise_float8 rows",
                   size,
                   {rows, {float8_e4m3, {m, n}}, {float32, {m, 1}}},
                   [=](const Tensors& t) { quantise_float8(t[0], t[1], t[2]); }});
    all.push_back({"quantise_float8 1x128",
                   size,
                   {rows, {float8_e4m3, {m, n}}, {float32, {(n + 127) / 128, m}}},
                   [=](const Tensors& t) { quantise_float8(t[0], t[1], t[2].transpose(), {.block = 128}); }});
    all.push_back({"quantise_float8 swiglu",
                   size,
                   {rows, {float8_e4m3, {m, n}}, {float32, {(n + 127) / 128, m}}, rows},
                   [=](const Tensors& t) {
                     quantise_float8(t[0], t[1], t[2].transpose(), {.block = 128, .gate = t[3]});
                   }});
  }
  for (const auto& [m, n] : std::vector<std::pair<int64_t, int64_t>>{
           {2048, 151936}, {4096, 32000}, {4096, 50304}, {8192, 50257}}) {
    const std::string size = fmt::format("{}x{} bfloat16", m, n);
    const std::pair<DataType, std::vector<int64_t>> rows{bfloat16, {m, n}}, per_row{float32, {m}};
    const DeviceTensor target = DeviceTensor::empty(device, int32, {m});
    DeviceTensor(target).fill(1);
    all.push_back({"cross_entropy loss", size, {rows, per_row}, [=](const Tensors& t) {
                     cross_entropy(t[0], target, t[1]);
                   }});
    all.push_back({"cross_entropy gradient", size, {rows, per_row, rows}, [=](const Tensors& t) {
                     cross_entropy(t[0], target, t[1], t[2]);
                   }});
    all.push_back({"softmax", size, {rows, rows}, [=](const Tensors& t) { softmax(t[0], t[1]); }});
    const auto parts = kernels::HeldParts::of(n, bfloat16.bytes(), 227 << 10);
    const kernels::RowShapeArguments shape{1, m, n / std::gcd(n, int64_t{16}),
                                           static_cast<int>(std::gcd(n, int64_t{16})), parts.columns};
    const auto held =
        std::make_shared<Kernel<kernels::HeldCrossEntropy>>(kernels::HeldCrossEntropy{}, device);
    all.push_back({"held_cross_entropy", size, {rows, per_row, rows}, [=](const Tensors& t) {
                     (*held)(shape, parts.ctas, 1.0f, bfloat16, t[0].address(), target.address(), true,
                             t[1].address(), bfloat16, t[2].address());
                   }});
  }
  for (const int64_t d : {128, 64}) {
    const std::vector<int64_t> shape{16384, 64 * 128 / d, d};
    const DeviceTensor cos = filled(device, float32, {16384, d / 2}, 3),
                       sin = filled(device, float32, {16384, d / 2}, 4);
    for (const bool interleaved : {false, true})
      all.push_back({interleaved ? "rope interleaved" : "rope",
                     fmt::format("{}x{}x{} bfloat16", shape[0], shape[1], d),
                     {{bfloat16, shape}, {bfloat16, shape}},
                     [=](const Tensors& t) { rope(t[0], cos, sin, t[1], {.interleaved = interleaved}); }});
  }
  for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{{65536, 64, 2},
                                                                   {262144, 256, 8},
                                                                   {16384, 4096, 8},
                                                                   {8192, 8192, 50},
                                                                   {1024, 128000, 50},
                                                                   {64, 128000, 50}})
    all.push_back({fmt::format("top_k {}", k),
                   fmt::format("{}x{} float32", m, n),
                   {{float32, {m, n}}, {float32, {m, k}}, {int32, {m, k}}},
                   [](const Tensors& t) { top_k(t[0], t[1], t[2]); }});
  for (const DataType dtype : {uint8, float32})
    all.push_back({"transpose",
                   fmt::format("16384x8192 {}", dtype.name()),
                   {{dtype, {16384, 8192}}, {dtype, {8192, 16384}}},
                   [](const Tensors& t) { transpose(t[0], t[1]); }});
  add_indexed(device, &all);
  return all;
}

int run(int argc, char** argv) {
  int turns = 5;
  std::string only, sizes, share = "0/1";
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string(argv[i]) == "--turns") turns = std::stoi(argv[i + 1]);
    if (std::string(argv[i]) == "--only") only = argv[i + 1];
    if (std::string(argv[i]) == "--sizes") sizes = argv[i + 1];
    if (std::string(argv[i]) == "--share") share = argv[i + 1];
  }
  const Device device = Device::cuda();
  runtime::GpuTimer timer(device);
  fmt::print("{}\n", device.name());
  const std::vector<std::string> wanted = bench::split(only, ','), wanted_sizes = bench::split(sizes, ',');
  const auto is_among = [](const std::vector<std::string>& words, const std::string& text) {
    const std::string word = text.substr(0, text.find(' '));
    return words.empty() || std::find(words.begin(), words.end(), word) != words.end();
  };
  const std::vector<std::string> part = bench::split(share, '/');
  const int64_t first = std::stoll(part.at(0)), of = std::stoll(part.at(1));
  int64_t number = 0;
  for (const Subject& subject : subjects(device)) {
    if (number++ % of != first) continue;
    if (!is_among(wanted, subject.name) || !is_among(wanted_sizes, subject.size)) continue;
    try {
      measure(device, timer, subject, turns);
    } catch (const std::exception& error) {
      fmt::print("{:26} {:22} {}\n", subject.name, subject.size, error.what());
    }
  }
  return 0;
}

}  // namespace
}  // namespace imbrex

int main(int argc, char** argv) {
  return imbrex::bench::run_main("bench_rows", [&] { return imbrex::run(argc, argv); });
}
