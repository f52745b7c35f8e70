// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "imbrex/vgpu/gpu_numbers.h"
#include "subcommands.h"

namespace imbrex::command {
namespace {

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

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
  fmt::print("\nAll about one: imbrex list KERNEL. Run it: imbrex run KERNEL\n");
  return 0;
}

/// One kernel: what its sizes mean, and every configuration.
int list_one(const RegisteredKernel& kernel) {
  fmt::print("{}  {}  {}\n  {}:{}\n", kernel.description.name, kernel.target, kernel.description.summary,
             kernel.where.file, kernel.where.line);
  fmt::print("sizes{}\n", kernel.description.sizes.empty() ? ": none" : "");
  for (const SizeOption& size : kernel.description.sizes)
    fmt::print("  --{} {:<{}}  {}\n", size.name, size.otherwise,
               std::max<int>(1, 18 - static_cast<int>(size.name.size())), size.help);
  if (kernel.space.size() < 2) {
    fmt::print("one configuration\n");
    return 0;
  }
  fmt::print("configurations, the default first; choose by --config, as in --config {}\n",
             fmt::join(words_of(kernel.space.to_string(kernel.space.configuration(1))), ","));
  for (const Configuration& configuration : kernel.space.configurations())
    fmt::print("  {}\n", kernel.space.to_string(configuration));
  return 0;
}

int list_json(const std::string& wanted) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const auto& [name, kernel] : registered_kernels()) {
    if (!wanted.empty() && name != wanted) continue;
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

void add_list(Subcommand& app, Action& chosen) {
  Subcommand* command = app.add_subcommand(
      "list", "List the registered kernels, their sizes and tuning spaces; or all about one");
  auto json = std::make_shared<bool>(false), gpus = std::make_shared<bool>(false);
  auto gpu = std::make_shared<std::string>(), kernel = std::make_shared<std::string>();
  command
      ->add_option("KERNEL", *kernel, "tell what its sizes mean, and every configuration of its tuning space")
      ->excludes(command->add_flag(
          "--gpus", *gpus, "list the GPUs whose times are predicted, and where their numbers come from"));
  command->add_flag("--json", *json, "print JSON");
  command->add_option("--gpu", *gpu, "list all numbers of this GPU, and where each comes from")
      ->excludes("--gpus")
      ->excludes("KERNEL");
  command->callback([&chosen, json, gpus, gpu, kernel] {
    chosen = [json, gpus, gpu, kernel] {
      if (*gpus || !gpu->empty()) return list_gpus(*gpu, *json);
      if (!kernel->empty()) (void)registered_kernel(*kernel);  // refuses a name that there is not
      if (*json) return list_json(*kernel);
      return kernel->empty() ? list_text() : list_one(registered_kernel(*kernel));
    };
  });
}

}  // namespace imbrex::command
