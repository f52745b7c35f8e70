// SPDX-License-Identifier: Apache-2.0
#include "imbrex/inspect/gpu_model.h"

#include <fmt/format.h>

#include <cctype>
#include <optional>
#include <utility>

#include "core/target.h"
#include "imbrex/core/error.h"
#include "imbrex/core/nearest.h"
#include "imbrex/inspect/gpu_model_file.h"

namespace imbrex {
namespace {

constexpr double kTera = 1e12;
constexpr double kGiga = 1e9;
constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kGB = 1'000'000'000;

/// Dense operations per clock and SM by width of the operands. Sums are in float32 where the operands are floats.
struct TensorUnit {
  double f16;  // tf32 is half of it
  double int8;
  double f8 = 0;  // 0: no such instruction
  double f6 = 0;  // every 6-bit type
  double f4 = 0;
};

std::vector<GpuModel::Rate> rates(const TensorUnit& unit) {
  const std::pair<DataType, double> all[] = {{float16, unit.f16},
                                             {bfloat16, unit.f16},
                                             {tfloat32, unit.f16 / 2},
                                             {int8, unit.int8},
                                             {uint8, unit.int8},
                                             {float8_e4m3, unit.f8},
                                             {float8_e5m2, unit.f8},
                                             {DataType{DataType::kFloat6E2M3}, unit.f6},
                                             {DataType{DataType::kFloat6E3M2}, unit.f6},
                                             {DataType{DataType::kFloat4E2M1}, unit.f4}};
  std::vector<GpuModel::Rate> result;
  for (const auto& [dtype, rate] : all)
    if (rate > 0) result.push_back({dtype, rate});
  return result;
}

/// What GPUs of one generation share: the tensor unit of their SMs, latencies in clocks (L2's bandwidth and the
/// latencies of chips other than the H200 are published measurements of one of the generation, or near its neighbours').
struct Generation {
  TensorUnit tensor;
  double float32;
  int per_float64;
  double memory_latency, l2_latency, shared_latency;
};

constexpr Generation kAmpere{{2048, 4096}, 128, 2, 400, 200, 30};
constexpr Generation kAmpereGraphics{{1024, 2048}, 256, 64, 470, 230, 30};
constexpr Generation kAda{{1024, 2048, 2048}, 256, 64, 540, 270, 30};
constexpr Generation kHopper{{4096, 8192, 8192}, 256, 2, 600, 275, 30};
constexpr Generation kBlackwell{{8192, 16384, 16384, 16384, 32768}, 256, 2, 800, 300, 30};
// Blackwell Ultra has left out nearly all of int8 and float64 for more of 4 bits.
constexpr Generation kBlackwellUltra{{8192, 512, 16384, 16384, 49152}, 256, 64, 800, 300, 30};
constexpr Generation kBlackwellGraphics{{1024, 2048, 2048, 2048, 4096}, 256, 64, 800, 350, 30};

/// GeForce GPUs sum float16 and float8 products in float32 at half the rate of the professional ones.
constexpr Generation geforce(Generation generation) {
  generation.tensor.f16 /= 2;
  generation.tensor.f8 /= 2;
  generation.tensor.f6 /= 2;
  return generation;
}

struct Row {
  const char *name, *title, *target, *driver_name;
  Generation generation;
  int sms;
  double clock_ghz;  // at which its tensor peak is quoted
  int64_t memory_gb;
  double memory_gbps;  // GB/s
  int bus_bits;
  int64_t l2_mib;
  double l2_tbps;
  bool is_measured = false;
};

// Of each target the first row stands for it. Datasheets and architecture white papers.
constexpr Row kRows[] = {
    {"a100", "NVIDIA A100 SXM 80 GB", "sm_80", "A100", kAmpere, 108, 1.41, 80, 2039, 5120, 40, 5.0},
    {"a10", "NVIDIA A10", "sm_86", "A10", kAmpereGraphics, 72, 1.695, 24, 600, 384, 6, 2.5},
    {"rtx3090", "NVIDIA GeForce RTX 3090", "sm_86", "RTX 3090", geforce(kAmpereGraphics), 82, 1.695, 24, 936,
     384, 6, 2.8},
    {"l40s", "NVIDIA L40S", "sm_89", "L40S", kAda, 142, 2.49, 48, 864, 384, 96, 5.0},
    {"l4", "NVIDIA L4", "sm_89", "L4", kAda, 58, 2.04, 24, 300, 192, 48, 2.5},
    {"rtx4090", "NVIDIA GeForce RTX 4090", "sm_89", "RTX 4090", geforce(kAda), 128, 2.52, 24, 1008, 384, 72,
     5.0},
    // L2: at least this was seen to flow to the SMs of an H200.
    {"h200", "NVIDIA H200 SXM 141 GB", "sm_90a", "H200", kHopper, 132, 1.83, 141, 4800, 6016, 60, 9.4, true},
    {"h100", "NVIDIA H100 SXM 80 GB", "sm_90a", "H100", kHopper, 132, 1.83, 80, 3350, 5120, 50, 9.4},
    {"gh200", "NVIDIA GH200 96 GB", "sm_90a", "GH200", kHopper, 132, 1.83, 96, 4000, 6144, 60, 9.4},
    {"b200", "NVIDIA B200 HGX 180 GB", "sm_100a", "B200", kBlackwell, 148, 1.855, 180, 7700, 8192, 126, 18.0},
    {"b300", "NVIDIA B300 HGX 270 GB", "sm_103a", "B300", kBlackwellUltra, 148, 1.855, 270, 7700, 8192, 126,
     18.0},
    {"rtx5090", "NVIDIA GeForce RTX 5090", "sm_120a", "RTX 5090", geforce(kBlackwellGraphics), 170, 2.407, 32,
     1792, 512, 96, 8.0},
    {"rtxpro6000", "NVIDIA RTX PRO 6000 Blackwell", "sm_120a", "RTX PRO 6000", kBlackwellGraphics, 188, 2.617,
     96, 1792, 512, 128, 8.0},
};

GpuModel model_of(const Row& row) {
  const Generation& generation = row.generation;
  return {.name = row.name,
          .title = row.title,
          .target = row.target,
          .driver_name = row.driver_name,
          .sms = row.sms,
          .clock_ghz = row.clock_ghz,
          .hbm_bytes = row.memory_gb * kGB,
          .hbm_bytes_per_second = row.memory_gbps * kGiga,
          .memory_bus_bits = row.bus_bits,
          .l2_bytes = row.l2_mib * kMiB,
          .l2_bytes_per_second = row.l2_tbps * kTera,
          .hbm_latency_cycles = generation.memory_latency,
          .l2_latency_cycles = generation.l2_latency,
          .shared_latency_cycles = generation.shared_latency,
          .tensor_rates = rates(generation.tensor),
          .float32_ops_per_clock = generation.float32,
          .float32_per_float64 = generation.per_float64,
          .is_measured = row.is_measured};
}

/// Is `part` in `text` as whole words?
bool has_words(std::string_view text, std::string_view part) {
  const auto is_word = [&](size_t at) {
    return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at])) != 0;
  };
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1))
    if ((at == 0 || !is_word(at - 1)) && !is_word(at + part.size())) return true;
  return false;
}

}  // namespace

double GpuModel::peak(DataType operands) const {
  for (const Rate& rate : tensor_rates)
    if (rate.dtype == operands) return rate.ops_per_clock * sms * clock_ghz * 1e9;
  return operands == float32 ? float32_ops_per_clock * sms * clock_ghz * 1e9 : 0;
}

bool GpuModel::runs(std::string_view kernel_target) const {
  return target_for(kernel_target, target).has_value();
}

const std::vector<GpuModel>& gpu_models() {
  static const std::vector<GpuModel> models = [] {
    std::vector<GpuModel> made;
    for (const Row& row : kRows) made.push_back(model_of(row));
    apply_model_files(made);
    return made;
  }();
  return models;
}

const GpuModel& gpu_model_for(std::string_view target) {
  const std::optional<TargetName> wanted = TargetName::parse(target);
  const GpuModel* nearest = &gpu_models().front();
  int nearest_sm = 0;
  for (const GpuModel& model : gpu_models()) {
    const int sm = TargetName::parse(model.target)->sm;
    if (wanted && sm <= wanted->sm && sm > nearest_sm) {
      nearest = &model;
      nearest_sm = sm;
    }
  }
  return *nearest;
}

const GpuModel* find_gpu_model_of_device(std::string_view device_name) {
  for (const GpuModel& model : gpu_models())
    if (has_words(device_name, model.driver_name)) return &model;
  return nullptr;
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
