// SPDX-License-Identifier: Apache-2.0
#include "imbrex/inspect/gpu_model_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/cache_folder.h"
#include "core/sha256.h"
#include "core/text.h"
#include "imbrex/core/error.h"
#include "imbrex/core/version.h"

namespace imbrex {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;

constexpr std::pair<const char*, double GpuModel::*> kNumbers[] = {
    {"clock_ghz", &GpuModel::clock_ghz},
    {"hbm_bytes_per_second", &GpuModel::hbm_bytes_per_second},
    {"l2_bytes_per_second", &GpuModel::l2_bytes_per_second},
    {"hbm_latency_cycles", &GpuModel::hbm_latency_cycles},
    {"l2_latency_cycles", &GpuModel::l2_latency_cycles},
    {"shared_latency_cycles", &GpuModel::shared_latency_cycles}};

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw LaunchError(Diagnostic{
      {}, fmt::format("{} is no model of a GPU: {}", path, what), {}, "make it anew by `imbrex calibrate`"});
}

std::string checksum(Json object) {
  object.erase("sha256");
  return sha256(object.dump());
}

}  // namespace

double* find_number(GpuModel& model, std::string_view name) {
  for (const auto& [number, member] : kNumbers)
    if (name == number) return &(model.*member);
  return nullptr;
}

void set_number(GpuModel& model, const std::string& name, double value) {
  double* own = find_number(model, name);
  (own != nullptr ? *own : model.constants[name]) = value;
}

std::string model_file_text(const GpuModel& calibrated, const std::string& device) {
  Json numbers;
  for (const auto& [name, member] : kNumbers) numbers[name] = calibrated.*member;
  for (const auto& [name, value] : calibrated.constants) numbers[name] = value;
  Json object = {{"imbrex_gpu_model", kVersion}, {"gpu", calibrated.name}, {"device", device},
                 {"imbrex", version()},          {"sms", calibrated.sms},  {"numbers", numbers}};
  object["sha256"] = checksum(object);
  return object.dump(2) + "\n";
}

GpuModel read_model_file(const std::string& path, const std::vector<GpuModel>& known) {
  std::ifstream stream(path);
  if (!stream) refuse(path, "it cannot be read");
  const Json object = Json::parse(stream, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object() || !object.contains("imbrex_gpu_model"))
    refuse(path, "it has no \"imbrex_gpu_model\"");
  if (object["imbrex_gpu_model"] != kVersion)
    refuse(path, fmt::format("it is of version {}, this Imbrex reads {}", object["imbrex_gpu_model"].dump(),
                             kVersion));
  if (object.value("sha256", "") != checksum(object)) refuse(path, "it was changed since it was written");
  const std::string name = object.value("gpu", "");
  const auto at = std::ranges::find(known, name, &GpuModel::name);
  if (at == known.end()) refuse(path, fmt::format("no GPU is called '{}'", name));
  GpuModel model = *at;
  model.sms = object.value("sms", model.sms);
  model.is_measured = true;
  model.calibration = path;
  model.constants.clear();
  const Json numbers = object.value("numbers", Json::object());
  for (const auto& [key, value] : numbers.items()) {
    if (!value.is_number() || value.get<double>() < 0)
      refuse(path, fmt::format("\"{}\" is no positive number", key));
    set_number(model, key, value.get<double>());
  }
  return model;
}

std::string model_file_path(const std::string& gpu) {
  const std::string folder = cache_folder();
  return folder.empty() ? "" : fmt::format("{}/models/{}.json", folder, gpu);
}

void apply_model_files(std::vector<GpuModel>& models) {
  const char* chosen = std::getenv("IMBREX_GPU_MODEL");
  if (chosen != nullptr && std::string_view(chosen) == "none") return;
  if (chosen != nullptr && *chosen != '\0') {
    GpuModel model = read_model_file(chosen, models);
    *std::ranges::find(models, model.name, &GpuModel::name) = std::move(model);
    return;
  }
  for (GpuModel& model : models) {
    const std::string path = model_file_path(model.name);
    if (path.empty() || access(path.c_str(), R_OK) != 0) continue;
    try {
      model = read_model_file(path, models);
    } catch (const LaunchError& error) {
      say("imbrex: warning: {}; it is not used\n", error.diagnostics().front().message);
    }
  }
}

}  // namespace imbrex
