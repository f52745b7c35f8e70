// SPDX-License-Identifier: Apache-2.0
// `imbrex calibrate`: measures the GPU at hand by micro-benchmarks, says how far off the predictions were, and writes a
// model file that predictions take from then on.
#include "imbrex/runtime/calibrate.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "gpu_choice.h"
#include "imbrex/core/error.h"
#include "imbrex/inspect/gpu_model_file.h"
#include "subcommands.h"
#include "svg.h"

namespace imbrex::command {
namespace {

struct Options {
  GpuChoice gpu;
  std::string device = "cuda", output;
  bool json = false, dry = false;
};

void print_text(const Calibration& found, const std::string& device, const std::string& file) {
  fmt::print("{}, by the model of {}\n", device, found.model.title);
  fmt::print("  {:24} {:>10} {:>10} {:>8}   {:>12} {:>12}  {}\n", "number", "predicted", "measured", "off",
             "was", "is", "measured by");
  double sum = 0;
  for (const CalibratedNumber& n : found.numbers) {
    fmt::print("  {:24} {:10.2f} {:10.2f} {:+7.1f}%   {:12.5g} {:12.5g}  {} ({})\n", n.name, n.predicted,
               n.measured, 100 * n.off(), n.before, n.after, n.what, n.unit);
    sum += std::abs(n.off());
  }
  for (const std::string& why : found.left_out) fmt::print("  left out  {}\n", why);
  if (!found.numbers.empty())
    fmt::print("  predictions of these were {:.1f} % off on average\n",
               100 * sum / static_cast<double>(found.numbers.size()));
  if (!file.empty()) fmt::print("  written   {}\n", file);
}

void print_json(const Calibration& found, const std::string& device, const std::string& file) {
  nlohmann::ordered_json numbers = nlohmann::ordered_json::array();
  for (const CalibratedNumber& n : found.numbers)
    numbers.push_back({{"number", n.name},
                       {"what", n.what},
                       {"unit", n.unit},
                       {"predicted", n.predicted},
                       {"measured", n.measured},
                       {"off", n.off()},
                       {"before", n.before},
                       {"after", n.after}});
  const nlohmann::ordered_json out = {{"gpu", found.model.name},
                                      {"device", device},
                                      {"numbers", numbers},
                                      {"left_out", found.left_out},
                                      {"file", file}};
  fmt::print("{}\n", out.dump(2));
}

GpuModel model_to_start_from(const Options& options, const Device* device) {
  if (options.gpu.is_given()) return options.gpu.gpu("");
  const GpuModel* known = device == nullptr ? nullptr : find_gpu_model_of_device(device->name());
  if (known != nullptr) return *known;
  if (device == nullptr)
    throw LaunchError(Diagnostic{{}, "a virtual GPU is calibrated as some GPU", {}, "name one: --gpu h200"});
  throw LaunchError(
      Diagnostic{{},
                 fmt::format("no GPU model is known of {}", device->name()),
                 {},
                 "name the one it is nearest to, such as --gpu " + gpu_model_for(device->target()).name});
}

int run(const Options& options) {
  std::optional<Device> device;
  if (options.device == "cuda") device = Device::cuda();
  const GpuModel model = model_to_start_from(options, device ? &*device : nullptr);
  if (!device) {
    vgpu::Options machine;
    machine.target = model.target;
    machine.num_sms = model.sms;
    machine.checks = vgpu::CheckSet::none();
    machine.timeline = {.record = true, .gpu = std::make_shared<const GpuModel>(model)};
    device = Device::virtual_gpu(machine);
  }
  const Calibration found = calibrate(*device, model);
  std::string file = options.output;
  if (file.empty() && !options.dry && !device->is_virtual()) file = model_file_path(found.model.name);
  if (!file.empty()) {
    const std::filesystem::path folder = std::filesystem::path(file).parent_path();
    std::error_code ignored;
    if (!folder.empty()) std::filesystem::create_directories(folder, ignored);
    write_file(file, model_file_text(found.model, device->name()));
  }
  options.json ? print_json(found, device->name(), file) : print_text(found, device->name(), file);
  return 0;
}

}  // namespace

void add_calibrate(Subcommand& app, Action& chosen) {
  auto options = std::make_shared<Options>();
  Subcommand* command = app.add_subcommand(
      "calibrate", "Measure the GPU at hand by micro-benchmarks, so that predicted times are its own");
  command->add_option("--device", options->device, "cuda; or virtual, which predicts itself")
      ->one_of({"virtual", "cuda"})
      ->capture_default_str();
  options->gpu.add_to(*command);
  command->add_option("-o,--output", options->output,
                      "write the model file here (default: where predictions look for it)");
  command->add_flag("--dry", options->dry, "write no file");
  command->add_flag("--json", options->json, "print JSON");
  command->footer(
      "The file is taken wherever the model of that GPU is; IMBREX_GPU_MODEL=FILE takes another one, and "
      "IMBREX_GPU_MODEL=none those that Imbrex came with.");
  command->callback([&chosen, options] { chosen = [options] { return run(*options); }; });
}

}  // namespace imbrex::command
