// SPDX-License-Identifier: Apache-2.0
#include "imbrex/inspect/gpu_model.h"

#include <fmt/format.h>

#include "imbrex/core/error.h"
#include "imbrex/core/nearest.h"

namespace imbrex {
namespace {

constexpr double kTera = 1e12;
constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kGB = 1'000'000'000;

/// Rates of one generation from its 16-bit one: half for tf32, double for 8 bits (where there are 8-bit
/// floats).
std::vector<GpuModel::Rate> rates(double f16, bool has_float8, bool has_float4) {
  std::vector<GpuModel::Rate> result = {
      {float16, f16}, {bfloat16, f16}, {tfloat32, f16 / 2}, {int8, 2 * f16}, {uint8, 2 * f16}};
  if (has_float8) result.insert(result.end(), {{float8_e4m3, 2 * f16}, {float8_e5m2, 2 * f16}});
  if (has_float4)
    result.insert(result.end(), {{DataType{DataType::kFloat6E2M3}, 2 * f16},
                                 {DataType{DataType::kFloat6E3M2}, 2 * f16},
                                 {DataType{DataType::kFloat4E2M1}, 4 * f16}});
  return result;
}

GpuModel hopper(std::string name, std::string title, int64_t hbm_bytes, double hbm, int64_t l2_bytes) {
  return {.name = std::move(name),
          .title = std::move(title),
          .target = "sm_90a",
          .sms = 132,
          .clock_ghz = 1.83,
          .hbm_bytes = hbm_bytes,
          .hbm_bytes_per_second = hbm,
          .l2_bytes = l2_bytes,
          .l2_bytes_per_second = 9.0 * kTera,  // at least this was seen to flow to the SMs of an H200
          .hbm_latency_cycles = 800,
          .l2_latency_cycles = 270,
          .shared_latency_cycles = 30,
          .tensor_rates = rates(4096, true, false),
          .float32_ops_per_clock = 256};
}

std::vector<GpuModel> make_models() {
  return {{.name = "a100",
           .title = "NVIDIA A100 SXM 80 GB",
           .target = "sm_80",
           .sms = 108,
           .clock_ghz = 1.41,
           .hbm_bytes = 80 * kGB,
           .hbm_bytes_per_second = 2.039 * kTera,
           .l2_bytes = 40 * kMiB,
           .l2_bytes_per_second = 5.0 * kTera,
           .hbm_latency_cycles = 400,
           .l2_latency_cycles = 200,
           .shared_latency_cycles = 30,
           .tensor_rates = rates(2048, false, false),
           .float32_ops_per_clock = 128},
          hopper("h100", "NVIDIA H100 SXM 80 GB", 80 * kGB, 3.35 * kTera, 50 * kMiB),
          hopper("h200", "NVIDIA H200 SXM 141 GB", 141 * kGB, 4.8 * kTera, 60 * kMiB),
          {.name = "b200",
           .title = "NVIDIA B200 HGX 180 GB",
           .target = "sm_100a",
           .sms = 148,
           .clock_ghz = 1.855,
           .hbm_bytes = 180 * kGB,
           .hbm_bytes_per_second = 7.7 * kTera,
           .l2_bytes = 126 * kMiB,
           .l2_bytes_per_second = 18.0 * kTera,
           .hbm_latency_cycles = 800,
           .l2_latency_cycles = 300,
           .shared_latency_cycles = 30,
           .tensor_rates = rates(8192, true, true),
           .float32_ops_per_clock = 256}};
}

}  // namespace

double GpuModel::peak(DataType operands) const {
  for (const Rate& rate : tensor_rates)
    if (rate.dtype == operands) return rate.ops_per_clock * sms * clock_ghz * 1e9;
  return operands == float32 ? float32_ops_per_clock * sms * clock_ghz * 1e9 : 0;
}

const std::vector<GpuModel>& gpu_models() {
  static const std::vector<GpuModel> models = make_models();
  return models;
}

const GpuModel& gpu_model(std::string_view name) {
  std::vector<std::string> names;
  for (const GpuModel& model : gpu_models()) {
    if (model.name == name) return model;
    names.push_back(model.name);
  }
  const std::string near = nearest_word(std::string(name), names);
  throw LaunchError(Diagnostic{
      {},
      fmt::format("no GPU model is called '{}'", name),
      {},
      near.empty() ? fmt::format("known: {}; or describe one in a JSON file", fmt::join(names, ", "))
                   : fmt::format("did you mean '{}'?", near)});
}

}  // namespace imbrex
