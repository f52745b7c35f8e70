// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "imbrex/vgpu/gpu_numbers.h"
#include "subcommands.h"

namespace imbrex::command {
namespace {

int list_text() {
  size_t width = 6;
  for (const auto& [name, kernel] : registered_kernels()) width = std::max(width, name.size());
  fmt::print("{:{}}  {:8}  {:>7}  {}\n", "kernel", width, "target", "configs", "what it computes");
  for (const auto& [name, kernel] : registered_kernels()) {
    fmt::print("{:{}}  {:8}  {:>7}  {}\n", name, width, kernel.target, kernel.space.size(),
               kernel.description.summary);
    std::vector<std::string> sizes;
    for (const SizeOption& size : kernel.description.sizes)
      sizes.push_back(fmt::format("--{} {}", size.name, size.otherwise));
    fmt::print("{:{}}  {}\n", "", width, fmt::join(sizes, " "));
  }
  fmt::print("\nRun one with: imbrex run KERNEL\n");
  return 0;
}

int list_json() {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const auto& [name, kernel] : registered_kernels()) {
    nlohmann::ordered_json sizes, configs = nlohmann::ordered_json::array();
    for (const SizeOption& size : kernel.description.sizes) sizes[size.name] = size.otherwise;
    for (const Configuration& configuration : kernel.space.configurations())
      configs.push_back(kernel.space.to_string(configuration));
    out.push_back({{"kernel", name},
                   {"summary", kernel.description.summary},
                   {"target", kernel.target},
                   {"sizes", sizes},
                   {"configs", configs},
                   {"file", kernel.where.file},
                   {"line", kernel.where.line}});
  }
  fmt::print("{}\n", out.dump(2));
  return 0;
}

/// Every GPU that predictions know, or one of them with all its numbers.
int list_gpus(const std::string& wanted, bool json) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  if (!wanted.empty()) (void)gpu_model(wanted);  // refuses a name that there is not
  for (const GpuModel& gpu : gpu_models()) {
    if (!wanted.empty() && gpu.name != wanted) continue;
    const std::vector<vgpu::GpuNumber> numbers = vgpu::gpu_numbers(gpu);
    std::map<std::string, int> sources;
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const vgpu::GpuNumber& n : numbers) {
      ++sources[name(n.source)];
      rows.push_back({{"number", n.name},
                      {"value", n.value},
                      {"unit", n.unit},
                      {"what", n.what},
                      {"source", name(n.source)}});
    }
    std::vector<std::string> counts;
    for (const auto& [source, count] : sources) counts.push_back(fmt::format("{} {}", count, source));
    out.push_back({{"gpu", gpu.name},
                   {"title", gpu.title},
                   {"target", gpu.target},
                   {"held_against_runs", gpu.is_measured},
                   {"model_file", gpu.calibration},
                   {"numbers", rows}});
    if (json) continue;
    fmt::print("{:12} {:32} {:8} {:3} SMs at {:.3g} GHz, {:.0f} GB/s{}\n", gpu.name, gpu.title, gpu.target,
               gpu.sms, gpu.clock_ghz, gpu.hbm_bytes_per_second / 1e9,
               !gpu.calibration.empty() ? ", from " + gpu.calibration
               : gpu.is_measured        ? ", predictions held against runs"
                                        : "");
    if (wanted.empty()) {
      fmt::print("{:12} its numbers: {}\n", "", fmt::join(counts, ", "));
      continue;
    }
    for (const vgpu::GpuNumber& n : numbers)
      fmt::print("  {:24} {:>10.6g}  {:20} {:11} {}\n", n.name, n.value, n.unit, name(n.source), n.what);
    std::set<vgpu::NumberSource> named;
    for (const vgpu::GpuNumber& n : numbers)
      if (named.insert(n.source).second)
        fmt::print("{}  {:11} {}\n", named.size() == 1 ? "\n" : "", name(n.source), meaning(n.source));
  }
  if (json)
    fmt::print("{}\n", out.dump(2));
  else if (wanted.empty())
    fmt::print("\nAll numbers of one: imbrex list --gpu NAME. Your own GPU's: imbrex calibrate\n");
  return 0;
}

}  // namespace

void add_list(CLI::App& app, Action& chosen) {
  CLI::App* command =
      app.add_subcommand("list", "List the registered kernels, their sizes and tuning spaces");
  auto json = std::make_shared<bool>(false), gpus = std::make_shared<bool>(false);
  auto gpu = std::make_shared<std::string>();
  command->add_flag("--json", *json, "print JSON");
  command->add_flag("--gpus", *gpus,
                    "list the GPUs whose times are predicted, and where their numbers come from");
  command->add_option("--gpu", *gpu, "list all numbers of this GPU, and where each comes from")
      ->excludes("--gpus");
  command->callback([&chosen, json, gpus, gpu] {
    chosen = [json, gpus, gpu] {
      if (*gpus || !gpu->empty()) return list_gpus(*gpu, *json);
      return *json ? list_json() : list_text();
    };
  });
}

}  // namespace imbrex::command
