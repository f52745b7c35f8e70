// SPDX-License-Identifier: Apache-2.0
// The kernels of rows on a CUDA GPU, each beside a device copy that moves as many bytes.
//
//   bench_rows [--turns 5] [--only rms_norm,top_k] [--sizes 65536x1023,8192x8192]
//
// Contenders take turns; each turn launches back to back with operands in rotation, so that each launch finds its own in
// memory and not in the L2 cache. Figures are medians. tests/ verify what is timed here.
#include <fmt/format.h>

#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "contenders.h"
#include "imbrex/kernels/layer_norm.h"
#include "imbrex/kernels/rows/cross_entropy.h"
#include "imbrex/kernels/rows/gated.h"
#include "imbrex/kernels/rows/quantise.h"
#include "imbrex/kernels/rows/rms_norm.h"
#include "imbrex/kernels/rows/rope.h"
#include "imbrex/kernels/rows/top_k.h"
#include "imbrex/kernels/rows/transpose.h"
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
};

int64_t bytes_of(const Subject& subject) {
  int64_t bytes = 0;
  for (const auto& [dtype, shape] : subject.operands)
    bytes += std::accumulate(shape.begin(), shape.end(), int64_t{dtype.bytes()}, std::multiplies<>());
  return bytes;
}

void measure(const Device& device, runtime::GpuTimer& timer, const Subject& subject, int turns) {
  constexpr int64_t kRotated = 256 << 20;  // bytes, several times the L2
  const int64_t bytes = bytes_of(subject);
  const int copies = static_cast<int>(1 + kRotated / bytes);
  std::vector<Tensors> rotated;
  for (int i = 0; i < copies; ++i) {
    Tensors tensors;
    for (const auto& [dtype, shape] : subject.operands)
      if (dtype == int32) {
        tensors.push_back(DeviceTensor::empty(device, dtype, shape));
        tensors.back().fill(0);
      } else {
        tensors.push_back(bench::repeated_random(device, dtype, shape, static_cast<uint64_t>(i) + 1));
      }
    rotated.push_back(std::move(tensors));
  }
  std::vector<DeviceTensor> from, to;
  for (int i = 0; i < copies; ++i) {
    from.push_back(bench::repeated_random(device, float32, {bytes / 8}, 1));
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

std::vector<Subject> subjects(const Device& device) {
  std::vector<Subject> all;
  const auto vector = [&](DataType dtype, int64_t n) { return DeviceTensor::random(device, dtype, {n}, 7); };
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
  for (const auto& [m, n] :
       std::vector<std::pair<int64_t, int64_t>>{{2048, 151936}, {4096, 32000}, {8192, 50257}}) {
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
  }
  for (const int64_t d : {128, 64}) {
    const std::vector<int64_t> shape{16384, 64 * 128 / d, d};
    const DeviceTensor cos = bench::repeated_random(device, float32, {16384, d / 2}, 3),
                       sin = bench::repeated_random(device, float32, {16384, d / 2}, 4);
    for (const bool interleaved : {false, true})
      all.push_back({interleaved ? "rope interleaved" : "rope",
                     fmt::format("{}x{}x{} bfloat16", shape[0], shape[1], d),
                     {{bfloat16, shape}, {bfloat16, shape}},
                     [=](const Tensors& t) { rope(t[0], cos, sin, t[1], {.interleaved = interleaved}); }});
  }
  for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{
           {65536, 64, 2}, {262144, 256, 8}, {16384, 4096, 8}, {8192, 8192, 50}, {1024, 128000, 50}})
    all.push_back({fmt::format("top_k {}", k),
                   fmt::format("{}x{} float32", m, n),
                   {{float32, {m, n}}, {float32, {m, k}}, {int32, {m, k}}},
                   [](const Tensors& t) { top_k(t[0], t[1], t[2]); }});
  for (const DataType dtype : {uint8, float32})
    all.push_back({"transpose",
                   fmt::format("16384x8192 {}", dtype.name()),
                   {{dtype, {16384, 8192}}, {dtype, {8192, 16384}}},
                   [](const Tensors& t) { transpose(t[0], t[1]); }});
  return all;
}

int run(int argc, char** argv) {
  int turns = 5;
  std::string only, sizes;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string(argv[i]) == "--turns") turns = std::stoi(argv[i + 1]);
    if (std::string(argv[i]) == "--only") only = argv[i + 1];
    if (std::string(argv[i]) == "--sizes") sizes = argv[i + 1];
  }
  const Device device = Device::cuda();
  runtime::GpuTimer timer(device);
  fmt::print("{}\n", device.name());
  const std::vector<std::string> wanted = bench::split(only, ','), wanted_sizes = bench::split(sizes, ',');
  const auto is_among = [](const std::vector<std::string>& words, const std::string& text) {
    const std::string word = text.substr(0, text.find(' '));
    return words.empty() || std::find(words.begin(), words.end(), word) != words.end();
  };
  for (const Subject& subject : subjects(device)) {
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
