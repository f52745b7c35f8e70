// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

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

}  // namespace

void add_list(CLI::App& app, Action& chosen) {
  CLI::App* command =
      app.add_subcommand("list", "List the registered kernels, their sizes and tuning spaces");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "print JSON");
  command->callback([&chosen, json] { chosen = [json] { return *json ? list_json() : list_text(); }; });
}

}  // namespace imbrex::command
