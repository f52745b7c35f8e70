// SPDX-License-Identifier: Apache-2.0
// How fast other compilers' kernels of tests/foreign run on the virtual GPU, checked: products of 1024 x 1024 x 1024
// on two host threads (their results compared with sums in f32), and Triton's element-wise kernels, reductions and
// softmax on one.
#include <benchmark/benchmark.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/float_formats.h"
#include "imbrex/vgpu/virtual_gpu.h"

namespace imbrex::vgpu {
namespace {

std::string read(const std::string& name) {
  std::ifstream file(std::string(IMBREX_SOURCE_DIR) + "/tests/foreign/ptx/" + name);
  if (!file.good()) throw std::runtime_error("no tests/foreign/ptx/" + name);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// A kernel of tests/foreign/ptx on a checked device of its target.
class Kernel {
 public:
  Kernel(const std::string& name, int host_threads)
      : gpu_({.target = name.substr(name.rfind('.') + 1),
              .host_threads = host_threads,
              .strictness = Strictness::kPractical}) {
    const Module module = gpu_.load_module(read(name + ".ptx"), name + ".ptx");
    function_ = module.function(module.function_names().at(0));
    std::istringstream lines(read("launch.txt"));
    std::string kernel;
    int64_t threads = 0, shared_bytes = 0;
    while (lines >> kernel >> threads >> shared_bytes)
      if (kernel == name) {
        launch_.block = {threads};
        set_shared(shared_bytes);
      }
  }
  Launch& launch() { return launch_; }
  void set_shared(int64_t bytes) {
    launch_.dynamic_shared_bytes = bytes;
    if (bytes > 0) function_.set_max_dynamic_shared(bytes);
  }
  template <class T>
  DeviceAddress input(const std::vector<T>& values) {
    const DeviceAddress at = output(static_cast<int64_t>(values.size() * sizeof(T)));
    gpu_.copy_to_device(at, values.data(), static_cast<int64_t>(values.size() * sizeof(T)));
    return at;
  }
  /// Every byte 0xFF.
  DeviceAddress output(int64_t bytes) {
    const DeviceAddress at = gpu_.allocate(bytes);
    gpu_.fill(at, 0xFF, bytes);
    return at;
  }
  std::vector<float> floats(DeviceAddress at, int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    gpu_.copy_from_device(values.data(), at, count * 4);
    return values;
  }
  /// One launch per iteration, each of which must be clean.
  template <class... Arguments>
  void run(benchmark::State& state, Arguments... arguments) {
    std::vector<void*> pointers{static_cast<void*>(&arguments)...};
    launch_.arguments = pointers;
    int64_t instructions = 0;
    for (auto _ : state) {
      const Report report = gpu_.launch(function_, launch_);
      if (!report.completed || !report.clean()) return state.SkipWithError(report.format().c_str());
      instructions += report.statistics.instructions;
    }
    state.counters["warp_instructions"] =
        benchmark::Counter(static_cast<double>(instructions), benchmark::Counter::kIsRate);
  }

 private:
  VirtualGpu gpu_;
  Function function_;
  Launch launch_;
};

std::vector<uint16_t> random_halves(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> values(-1, 1);
  std::vector<uint16_t> halves(count);
  for (uint16_t& half : halves) half = static_cast<uint16_t>(arith::encode(arith::kF16, values(random)));
  return halves;
}
std::vector<float> random_floats(size_t count) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> values(-3, 3);
  std::vector<float> floats(count);
  for (float& value : floats) value = values(random);
  return floats;
}

TensorMap matrix_map(DeviceAddress address, uint64_t rows, uint64_t columns) {
  const uint64_t dims[] = {columns, rows};
  const uint64_t strides[] = {columns * 2};
  const uint32_t box[] = {64, 128};
  return encode_tensor_map({.type = TensorMapType::kFloat16,
                            .address = address,
                            .dims = dims,
                            .strides_bytes = strides,
                            .box = box,
                            .swizzle = TensorMapSwizzle::k128B});
}

constexpr int kSize = 1024, kElements = kSize * kSize;

/// Some elements of the product against sums in double.
bool is_product(const std::vector<float>& c, const std::vector<uint16_t>& a, const std::vector<uint16_t>& b,
                bool b_is_transposed) {
  for (int i = 0; i < kSize; i += 37)
    for (int j = 0; j < kSize; j += 41) {
      double sum = 0;
      for (int l = 0; l < kSize; ++l)
        sum += static_cast<double>(arith::f16_to_f32(a[static_cast<size_t>(i * kSize + l)])) *
               arith::f16_to_f32(b[static_cast<size_t>(b_is_transposed ? j * kSize + l : l * kSize + j)]);
      if (!(std::fabs(c[static_cast<size_t>(i * kSize + j)] - sum) <= 2e-3)) return false;
    }
  return true;
}

enum class Arguments { kPointers, kMaps, kTriton };

/// m = n = k = 1024 by one of the programs whose results are f32.
void product(benchmark::State& state, const std::string& name, Arguments how, Dim3 tile, int threads,
             int64_t shared_bytes) {
  Kernel kernel(name, 2);
  const auto a = random_halves(kElements, 1), b = random_halves(kElements, 2);
  const DeviceAddress da = kernel.input(a), db = kernel.input(b), c = kernel.output(kElements * 4);
  kernel.launch().grid = {kSize / tile.x, kSize / tile.y};
  if (threads != 0) kernel.launch().block = {threads};
  if (shared_bytes != 0) kernel.set_shared(shared_bytes);
  const DeviceAddress no_scratch = 0;
  switch (how) {
    case Arguments::kPointers:
      kernel.run(state, da, db, c, kSize, kSize, kSize);
      break;
    case Arguments::kMaps:
      kernel.run(state, matrix_map(da, kSize, kSize), matrix_map(db, kSize, kSize), c, kSize, kSize, kSize);
      break;
    case Arguments::kTriton:
      kernel.launch().grid = {kSize / tile.x * (kSize / tile.y)};
      kernel.run(state, da, db, c, kSize, kSize, kSize, kSize, kSize, kSize, no_scratch, no_scratch);
      break;
  }
  if (!is_product(kernel.floats(c, kElements), a, b, how == Arguments::kMaps))
    state.SkipWithError("the product is wrong");
}
#define IMBREX_PRODUCT(name, ...)               \
  BENCHMARK_CAPTURE(product, name, __VA_ARGS__) \
      ->Unit(benchmark::kMillisecond)           \
      ->MeasureProcessCPUTime()                 \
      ->UseRealTime()                           \
      ->Iterations(1)
IMBREX_PRODUCT(cuda_mma_sm_80, "cuda_matmul_mma.sm_80", Arguments::kPointers, {64, 64}, 128, 0);
IMBREX_PRODUCT(cuda_wgmma_sm_90a, "cuda_matmul_wgmma.sm_90a", Arguments::kMaps, {128, 128}, 384,
               4 * 32768 + 2048);
IMBREX_PRODUCT(cuda_tcgen05_sm_100a, "cuda_matmul_tcgen05.sm_100a", Arguments::kMaps, {128, 128}, 128,
               3 * 32768 + 2048);
IMBREX_PRODUCT(triton_mma_sm_80, "triton_matmul_pointers.sm_80", Arguments::kTriton, {128, 64}, 0, 0);
IMBREX_PRODUCT(triton_wgmma_sm_90a, "triton_matmul_pointers.sm_90a", Arguments::kTriton, {128, 64}, 0, 0);
IMBREX_PRODUCT(triton_tcgen05_sm_100a, "triton_matmul_pointers.sm_100a", Arguments::kTriton, {128, 64}, 0, 0);

constexpr DeviceAddress kNoScratch = 0;

void gelu_add(benchmark::State& state) {
  constexpr int n = 1 << 18;
  Kernel kernel("triton_gelu_add.sm_90a", 1);
  kernel.launch().grid = {n / 512};
  kernel.run(state, kernel.input(random_floats(n)), kernel.input(random_halves(n, 1)), kernel.output(n * 4),
             n, 0.75f, kNoScratch, kNoScratch);
}
void softmax(benchmark::State& state, const std::string& target) {
  constexpr int rows = 512, columns = 1000;
  Kernel kernel("triton_softmax." + target, 1);
  kernel.launch().grid = {rows};
  kernel.run(state, kernel.input(random_floats(rows * columns)), kernel.output(rows * columns * 4), columns,
             columns, kNoScratch, kNoScratch);
}
void layer_norm(benchmark::State& state, const std::string& target) {
  constexpr int rows = 256, columns = 1024;
  Kernel kernel("triton_layer_norm." + target, 1);
  kernel.launch().grid = {rows};
  const std::vector<float> gain = random_floats(columns);
  kernel.run(state, kernel.input(random_halves(rows * columns, 1)), kernel.input(gain), kernel.input(gain),
             kernel.output(rows * columns * 2), kernel.output(rows * 4), columns, 1e-5f, kNoScratch,
             kNoScratch);
}
BENCHMARK(gelu_add)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(softmax, sm_80, "sm_80")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(softmax, sm_100a, "sm_100a")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(layer_norm, sm_80, "sm_80")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(layer_norm, sm_100a, "sm_100a")->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace imbrex::vgpu
