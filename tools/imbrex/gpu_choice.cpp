// SPDX-License-Identifier: Apache-2.0
#include "gpu_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cctype>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "imbrex/core/error.h"
#include "imbrex/core/nearest.h"
#include "imbrex/inspect/gpu_model_file.h"
#include "imbrex/inspect/occupancy.h"

namespace imbrex::command {
namespace {

using Json = nlohmann::json;

[[noreturn]] void refuse(const std::string& file, const std::string& what) {
  throw LaunchError(Diagnostic{
      {},
      fmt::format("{} does not describe a GPU: {}", file, what),
      {},
      "a description is a JSON object with \"like\" (a known GPU) and what differs: name, title, target, "
      "sms, "
      "clock_ghz, hbm_bytes, hbm_bytes_per_second, l2_bytes, l2_bytes_per_second, float16_tflops"});
}

double positive(const std::string& file, const Json& value, const std::string& key, double most = 1e18) {
  if (!value.is_number() || value.get<double>() <= 0)
    refuse(file, fmt::format("\"{}\" must be a positive number", key));
  if (value.get<double>() > most) refuse(file, fmt::format("\"{}\" must be at most {}", key, most));
  return value.get<double>();
}

/// A known GPU with some numbers replaced.
GpuModel read_gpu(const std::string& file) {
  std::ifstream stream(file);
  if (!stream) throw LaunchError(Diagnostic{{}, fmt::format("cannot read {}", file), {}, ""});
  const Json json = Json::parse(stream, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) refuse(file, "it is not a JSON object");
  if (json.contains("imbrex_gpu_model")) return read_model_file(file, gpu_models());
  if (!json.contains("like") || !json["like"].is_string()) refuse(file, "it has no \"like\"");
  GpuModel gpu = gpu_model(json["like"].get<std::string>());
  gpu.name = file;
  gpu.is_measured = false;
  gpu.title = fmt::format("{} ({})", gpu.title, file);
  for (const auto& [key, value] : json.items()) {
    if (key == "like") continue;
    if (key == "name" || key == "title" || key == "target") {
      if (!value.is_string()) refuse(file, fmt::format("\"{}\" must be text", key));
      (key == "name" ? gpu.name : key == "title" ? gpu.title : gpu.target) = value.get<std::string>();
    } else if (key == "sms") {
      if (!value.is_number_integer()) refuse(file, "\"sms\" must be a whole number");
      gpu.sms = static_cast<int>(positive(file, value, key, 100000));
    } else if (key == "clock_ghz") {
      gpu.clock_ghz = positive(file, value, key);
    } else if (key == "hbm_bytes") {
      gpu.hbm_bytes = static_cast<int64_t>(positive(file, value, key));
    } else if (key == "hbm_bytes_per_second") {
      gpu.hbm_bytes_per_second = positive(file, value, key);
    } else if (key == "l2_bytes") {
      gpu.l2_bytes = static_cast<int64_t>(positive(file, value, key));
    } else if (key == "l2_bytes_per_second") {
      gpu.l2_bytes_per_second = positive(file, value, key);
    } else if (key != "float16_tflops") {
      refuse(file, fmt::format("\"{}\" is unknown", key));
    }
  }
  (void)occupancy_limits(gpu.target);  // refuses targets that there are not
  // Last, because a rate per clock and SM follows from the clock and the SMs.
  if (json.contains("float16_tflops")) {
    const double scale = positive(file, json["float16_tflops"], "float16_tflops") * 1e12 / gpu.peak(float16);
    for (GpuModel::Rate& rate : gpu.tensor_rates) rate.ops_per_clock *= scale;
  }
  return gpu;
}

}  // namespace

void GpuChoice::add_to(Subcommand& command) {
  std::vector<std::string> names;
  for (const GpuModel& model : gpu_models()) names.push_back(model.name);
  command.add_option("--gpu", name_,
                     fmt::format("{}, or a JSON file that describes one", fmt::join(names, ", ")));
}

void GpuChoice::add_sms_to(Subcommand& command, int& sms) {
  command
      .add_option("--sms", sms,
                  "model so many multiprocessors, with their share of the bandwidths (0: the chip's)")
      ->between(0, 100000);
}

GpuModel GpuChoice::gpu_for(const RegisteredKernel& kernel) const {
  if (!is_given()) return gpu_model_for(kernel.target);
  GpuModel model = gpu("");
  if (!model.runs(kernel.target))
    throw LaunchError(Diagnostic{
        {},
        fmt::format("{} is built for {}, which {} does not run: it is {}", kernel.description.name,
                    kernel.target, model.title, model.target),
        {},
        fmt::format("`imbrex list` tells what each kernel is built for: this GPU runs those of {}{}",
                    model.target, model.runs("sm_80") ? " and of sm_80" : "")});
  return model;
}

GpuModel GpuChoice::gpu(const std::string& otherwise) const {
  if (name_.ends_with(".json")) return read_gpu(name_);
  return gpu_model(name_.empty() ? otherwise : name_);
}

DataType dtype_named(const std::string& name) {
  if (const auto dtype = DataType::from_name(name)) return *dtype;
  std::vector<std::string> names;
  for (int i = 0; i < DataType::kCount; ++i)
    names.emplace_back(DataType{static_cast<DataType::Code>(i)}.name());
  const std::string near = nearest_word(name, names);
  throw LaunchError(Diagnostic{{},
                               fmt::format("no element type is called '{}'", name),
                               {},
                               near.empty() ? fmt::format("types: {}", fmt::join(names, ", "))
                                            : fmt::format("did you mean '{}'?", near)});
}

}  // namespace imbrex::command
