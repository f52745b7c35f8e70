// SPDX-License-Identifier: Apache-2.0
// What fusing saves on a CUDA GPU: matmuls with steps behind them (imbrex/kernels/parts/epilogue.h) against the same
// matmul followed by the steps as a kernel of their own (fused_a: steps on A, then the matmul); and
// imbrex::matmul with float8 operands against cuBLASLt, with operands in each order, and with options.
//
//   bench_fused [--rounds 20] [--once] [fused] [fused_a] [fp8] [orders]
//
// Contenders take turns, each launch with a cold L2 cache; figures are medians. A fused result must agree
// with the unfused one before it is timed. With --once fused and fused_a run each of their kernels once and
// time nothing: `ncu --metrics dram__bytes_read.sum,dram__bytes_write.sum bench_fused --once fused` counts
// what they move.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "contenders.h"
#include "imbrex/core/error.h"
#include "imbrex/kernels/ampere_matmul/matmul_v4.h"
#include "imbrex/kernels/hopper_matmul/matmul_h7.h"
#include "imbrex/kernels/matmul.h"
#include "imbrex/kernels/matmul/ampere_fused_a.h"
#include "imbrex/kernels/matmul/hopper_fused_a.h"
#include "imbrex/kernels/matmul/matmul_h9.h"
#include "imbrex/kernels/parts/apply_steps.h"
#include "imbrex/runtime/kernel.h"
#include "runtime/measure/cublas_lt.h"
#include "runtime/measure/gpu_timer.h"

namespace imbrex {
namespace {

using namespace kernels;
using bench::Contender;
using Launch = runtime::GpuTimer::Launch;

int rounds = 20;
bool once = false;  // nothing is timed: each kernel runs once, for a profiler to count what it moves

double difference(const DeviceTensor& c, const DeviceTensor& reference) {
  return bench::difference(c, reference);
}
std::vector<double> measure(runtime::GpuTimer& timer, const std::vector<Contender>& contenders,
                            double flops) {
  return bench::measure(timer, contenders, flops, rounds);
}

/// A matmul with steps against the two kernels.
template <template <class...> class K, class... Steps, class... Args>
void fused(const Device& device, runtime::GpuTimer& timer, const std::string& name, int64_t m, int64_t n,
           int64_t k, K<Steps...> tiles, K<> plain_tiles, const Args&... steps) {
  const DataType dtype = bfloat16;
  fmt::print("{} {}x{}x{}\n", name, m, n, k);
  Kernel<K<Steps...>> whole(tiles, device);
  Kernel<K<>> product(plain_tiles, device);
  ApplySteps<Steps...> own;
  if (n <= 256) own.block_m = 16, own.block_n = 256;
  Kernel<ApplySteps<Steps...>> apply(own, device);
  const DeviceTensor a = DeviceTensor::random(device, dtype, {m, k}, 1),
                     b = DeviceTensor::random(device, dtype, {n, k}, 2),
                     c = DeviceTensor::empty(device, dtype, {m, n}),
                     x = DeviceTensor::empty(device, dtype, {m, n}),
                     d = DeviceTensor::empty(device, dtype, {m, n});
  const Launch run_whole = [&] { whole(m, n, k, dtype, a, b, c, steps...); };
  const Launch run_product = [&] { product(m, n, k, dtype, a, b, x); };
  const Launch run_apply = [&] { apply(m, n, dtype, x, d, steps...); };
  run_whole(), run_product(), run_apply();
  if (once) return;
  // The unfused result is rounded twice.
  const double off = difference(c, d);
  fmt::print("  greatest difference from the unfused result: {:.4f} of it\n", off);
  if (!(off < 0.25)) {
    fmt::print("  WRONG\n");
    return;
  }
  const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  const std::vector<double> us = measure(timer,
                                         {{"fused", run_whole},
                                          {"matmul, then the steps", [&] { run_product(), run_apply(); }},
                                          {"the matmul alone", run_product},
                                          {"the steps alone", run_apply}},
                                         flops);
  fmt::print("  saved {:.2f} us of {:.2f} ({:.1f}%); the steps cost {:.2f} us in the matmul\n", us[1] - us[0],
             us[1], 100 * (us[1] - us[0]) / us[1], us[0] - us[2]);
}

/// A product whose A is changed while it is loaded, against a kernel that changes it and the matmul `plain`.
template <template <class...> class K, class... Steps, class Plain, class... Args>
void fused_a(const Device& device, runtime::GpuTimer& timer, const std::string& name, int64_t m, int64_t n,
             int64_t k, K<Steps...> tiles, Plain plain, const Args&... steps) {
  const DataType dtype = bfloat16;
  fmt::print("{} {}x{}x{}\n", name, m, n, k);
  Kernel<K<Steps...>> whole(tiles, device);
  Kernel<K<>> unchanged(K<>{}, device);
  Kernel<ApplySteps<Steps...>> apply(ApplySteps<Steps...>{}, device);
  Kernel<Plain> product(plain, device);
  const DeviceTensor a = DeviceTensor::random(device, dtype, {m, k}, 1),
                     b = DeviceTensor::random(device, dtype, {n, k}, 2),
                     changed = DeviceTensor::empty(device, dtype, {m, k}),
                     c = DeviceTensor::empty(device, dtype, {m, n}),
                     d = DeviceTensor::empty(device, dtype, {m, n});
  const Launch run_whole = [&] { whole(m, n, k, dtype, dtype, a, b, c, steps...); };
  const Launch run_apply = [&] { apply(m, k, dtype, a, changed, steps...); };
  const Launch run_product = [&] { product(m, n, k, dtype, changed, b, d); };
  run_whole(), run_apply(), run_product();
  if (once) return;
  const double off = difference(c, d);
  fmt::print("  greatest difference from the unfused result: {:.4f} of it\n", off);
  if (!(off < 0.05)) {
    fmt::print("  WRONG\n");
    return;
  }
  const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  const std::vector<double> us =
      measure(timer,
              {{"fused", run_whole},
               {"the steps, then the matmul", [&] { run_apply(), run_product(); }},
               {"the matmul alone", run_product},
               {"the steps alone", run_apply},
               {"the fused kernel without steps", [&] { unchanged(m, n, k, dtype, dtype, a, b, c); }}},
              flops);
  fmt::print("  saved {:.2f} us of {:.2f} ({:.1f}%)\n", us[1] - us[0], us[1], 100 * (us[1] - us[0]) / us[1]);
}

void run_fused_a(const Device& device, runtime::GpuTimer& timer) {
  const DeviceTensor scale = DeviceTensor::random(device, float32, {65536}, 3),
                     weight = DeviceTensor::random(device, bfloat16, {8192}, 4);
  fused_a<HopperMatmulFusedA>(device, timer, "(A scaled by rows and columns) B^T, Hopper", 65536, 256, 2048,
                              HopperMatmulFusedA<RowScale, ColumnScale>{}, HopperMatmulH7<>{}, float32, scale,
                              bfloat16, weight);
  fused_a<HopperMatmulFusedA>(device, timer, "silu(A scaled by columns) B^T, Hopper", 16384, 1024, 4096,
                              HopperMatmulFusedA<ColumnScale, Silu>{}, HopperMatmulH7<>{}, bfloat16, weight);
  fused_a<AmpereMatmulFusedA>(device, timer, "(A scaled by rows and columns) B^T, Ampere", 65536, 256, 2048,
                              AmpereMatmulFusedA<RowScale, ColumnScale>{}, AmpereMatmulV4<>{}, float32, scale,
                              bfloat16, weight);
}

void run_fused(const Device& device, runtime::GpuTimer& timer) {
  const DataType bf16 = bfloat16;
  const DeviceTensor bias = DeviceTensor::random(device, bf16, {16384}, 3);
  using Wide = HopperMatmulH7<Scale, ColumnBias, Gelu>;
  for (auto [m, n, k] :
       std::vector<std::array<int64_t, 3>>{{8192, 8192, 8192}, {4096, 4096, 4096}, {16384, 4096, 1024}})
    fused<HopperMatmulH7>(device, timer, "gelu(alpha A B^T + bias), H7", m, n, k, Wide{}, {}, 0.125f, bf16,
                          bias);
  fused<HopperMatmulH7>(device, timer, "gelu_fast(alpha A B^T + bias), H7", 8192, 8192, 8192,
                        HopperMatmulH7<Scale, ColumnBias, GeluFast>{}, {}, 0.125f, bf16, bias);
  fused<HopperMatmulH7>(device, timer, "gelu_fast(alpha A B^T + bias), H7", 16384, 4096, 1024,
                        HopperMatmulH7<Scale, ColumnBias, GeluFast>{}, {}, 0.125f, bf16, bias);
  const DeviceTensor residual = DeviceTensor::random(device, bf16, {16384, 4096}, 4);
  fused<HopperMatmulH7>(device, timer, "A B^T + bias + residual, H7", 16384, 4096, 1024,
                        HopperMatmulH7<ColumnBias, Residual>{}, {}, bf16, bias, 1.0f, residual);
  fused<HopperMatmulH7>(device, timer, "A B^T + bias + residual, H7", 16384, 4096, 4096,
                        HopperMatmulH7<ColumnBias, Residual>{}, {}, bf16, bias, 1.0f, residual);
  fused<HopperMatmulH7>(device, timer, "softmax(alpha A B^T), H7", 131072, 256, 128,
                        HopperMatmulH7<Scale, Softmax>{}, {}, 0.125f);
  fused<HopperMatmulH7>(device, timer, "softmax(alpha A B^T), H7", 131072, 256, 1024,
                        HopperMatmulH7<Scale, Softmax>{}, {}, 0.125f);
  fused<HopperMatmulH7>(device, timer, "rms_norm(A B^T), H7", 131072, 256, 1024, HopperMatmulH7<RmsNorm>{},
                        {}, 1e-5f, bf16, bias);
  const auto turns = []<class... Steps>(HopperMatmulH9<Steps...> tiles) {
    tiles.block_m = 64, tiles.block_n = 256, tiles.stages = 5;
    return tiles;
  };
  for (int64_t k : {128, 1024}) {
    fused<HopperMatmulH9>(device, timer, "softmax(alpha A B^T), H9", 131072, 256, k,
                          turns(HopperMatmulH9<Scale, Softmax>{}), turns(HopperMatmulH9<>{}), 0.125f);
    fused<HopperMatmulH9>(device, timer, "rms_norm(A B^T), H9", 131072, 256, k,
                          turns(HopperMatmulH9<RmsNorm>{}), turns(HopperMatmulH9<>{}), 1e-5f, bf16, bias);
  }
  fused<AmpereMatmulV4>(device, timer, "gelu(alpha A B^T + bias), V4", 4096, 4096, 4096,
                        AmpereMatmulV4<Scale, ColumnBias, Gelu>{}, {}, 0.125f, bf16, bias);
  fused<AmpereMatmulV4>(device, timer, "softmax(alpha A B^T), V4", 131072, 256, 1024,
                        AmpereMatmulV4<Scale, Softmax>{.block_m = 64}, {}, 0.125f);
}

void run_fp8(const Device& device, runtime::GpuTimer& timer) {
  for (auto [m, n, k] : std::vector<std::array<int64_t, 3>>{
           {8192, 8192, 8192}, {4096, 4096, 4096}, {4096, 4096, 14336}, {2048, 2048, 2048}}) {
    fmt::print("float8_e4m3 to bfloat16 {}x{}x{}\n", m, n, k);
    const DeviceTensor a = DeviceTensor::random(device, float8_e4m3, {m, k}, 1),
                       b = DeviceTensor::random(device, float8_e4m3, {n, k}, 2),
                       c = DeviceTensor::empty(device, bfloat16, {m, n}),
                       d = DeviceTensor::empty(device, bfloat16, {m, n});
    std::string why_not;
    const auto rival = runtime::CublasLtMatmul::make(a, b, d, timer, &why_not);
    std::vector<Contender> contenders;
    if (rival) {
      contenders.push_back({rival->name(), [&] { rival->launch(); }});
      rival->launch();
      device.synchronize();
    } else {
      fmt::print("  {}\n", why_not);
    }
    contenders.push_back({"imbrex::matmul", [&] { matmul(a, b, c); }});
    std::vector<std::shared_ptr<Kernel<HopperMatmulH7<Convert>>>> kernels;
    for (HopperMatmulH7<Convert> tiles :
         {HopperMatmulH7<Convert>{.block_n = 256, .block_k = 128, .ctas = 128},
          HopperMatmulH7<Convert>{.block_n = 256, .block_k = 128},
          HopperMatmulH7<Convert>{.block_n = 256, .block_k = 128, .swizzle_size = 16},
          HopperMatmulH7<Convert>{.block_n = 256, .block_k = 64, .stages = 8},
          HopperMatmulH7<Convert>{.block_n = 192, .block_k = 128, .stages = 5, .store_stages = 1},
          HopperMatmulH7<Convert>{.block_n = 128, .block_k = 128, .stages = 6},
          HopperMatmulH7<Convert>{.block_m = 256, .block_n = 128, .block_k = 128, .store_stages = 1}}) {
      const auto kernel =
          kernels.emplace_back(std::make_shared<Kernel<HopperMatmulH7<Convert>>>(tiles, device));
      contenders.push_back(
          {fmt::format("h7 {}x{}x{} stages={} swizzle={} ctas={}", tiles.block_m, tiles.block_n,
                       tiles.block_k, tiles.stages, tiles.swizzle_size, tiles.ctas),
           [=] { (*kernel)(m, n, k, float8_e4m3, a, b, c, bfloat16); }});
    }
    std::vector<Contender> good;
    for (Contender& each : contenders) try {
        c.to_host();
        DeviceTensor(c).poison();
        each.launch();
        device.synchronize();
        const bool is_rival = rival && good.empty();
        const double off = is_rival ? 0 : difference(c, d);
        if (rival && !is_rival) fmt::print("  {:52} differs by {:.4f}\n", each.name, off);
        if (!rival || off < 0.05) good.push_back(std::move(each));
      } catch (const std::exception& error) {
        fmt::print("  {:52} {}\n", each.name, error.what());
      }
    measure(timer, good, 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k));
  }
}

void run_orders(const Device& device, runtime::GpuTimer& timer) {
  for (int64_t size : {8192, 4096}) {
    fmt::print("orders of operands and options, bfloat16, {}^3\n", size);
    const DeviceTensor a = DeviceTensor::random(device, bfloat16, {size, size}, 1),
                       b = DeviceTensor::random(device, bfloat16, {size, size}, 2),
                       c = DeviceTensor::empty(device, bfloat16, {size, size}),
                       residual = DeviceTensor::random(device, bfloat16, {size, size}, 3),
                       bias = DeviceTensor::random(device, bfloat16, {size}, 4),
                       single = DeviceTensor::empty(device, float32, {size, size});
    std::string why_not;
    const auto rival = runtime::CublasLtMatmul::make(a, b, c, timer, &why_not);
    std::vector<Contender> contenders;
    if (rival) contenders.push_back({rival->name() + ", a [m, k], b [n, k]", [&] { rival->launch(); }});
    const auto add = [&](const std::string& name, const MatmulOptions& options, const DeviceTensor& out) {
      contenders.push_back({name, [=] { matmul(a, b, out, options); }});
    };
    add("a [m, k], b [n, k]", {}, c);
    add("a [m, k], b [k, n]", {.b_is_kn = true}, c);
    add("a [k, m], b [n, k]", {.a_is_km = true}, c);
    add("a [k, m], b [k, n]", {.a_is_km = true, .b_is_kn = true}, c);
    add("alpha", {.alpha = 0.5f}, c);
    add("bias", {.bias = bias}, c);
    add("bias, gelu", {.bias = bias, .activation = Activation::kGelu}, c);
    add("bias, gelu_erf", {.bias = bias, .activation = Activation::kGeluErf}, c);
    add("bias, silu", {.bias = bias, .activation = Activation::kSilu}, c);
    add("residual", {.beta = 1, .residual = residual}, c);
    add("float32 result", {}, single);
    measure(timer, contenders, 2.0 * std::pow(static_cast<double>(size), 3));
  }
}

int run(int argc, char** argv) {
  std::vector<std::string> parts;
  for (int i = 1; i < argc; ++i)
    if (const std::string word = argv[i]; word == "--rounds" && i + 1 < argc)
      rounds = std::stoi(argv[++i]);
    else if (word == "--once")
      once = true;
    else
      parts.push_back(word);
  if (parts.empty()) parts = {"fused", "fused_a", "fp8", "orders"};
  const Device device = Device::cuda();
  runtime::GpuTimer timer(device);
  fmt::print("{}\n", device.name());
  for (const std::string& part : parts)
    if (part == "fused")
      run_fused(device, timer);
    else if (part == "fused_a")
      run_fused_a(device, timer);
    else if (part == "fp8")
      run_fp8(device, timer);
    else if (part == "orders")
      run_orders(device, timer);
    else
      throw std::runtime_error("no part '" + part + "'; parts are fused, fused_a, fp8 and orders");
  return 0;
}

}  // namespace
}  // namespace imbrex

int main(int argc, char** argv) {
  return imbrex::bench::run_main("bench_fused", [&] { return imbrex::run(argc, argv); });
}
