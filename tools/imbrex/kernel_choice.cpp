// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "imbrex/error.h"
#include "imbrex/nearest.h"
#include "subcommands.h"

namespace imbrex::command {

void KernelChoice::add_to(CLI::App& command, Need need) {
  command.add_option("KERNEL", name_, "a kernel of `imbrex list`")->required(need == Need::kRequired);
  command.add_option("--config", config_,
                     "tuned members, as name=value,name=value, the rest keep their defaults; or: default");
  std::map<std::string, std::set<std::string>> meanings;  // of a size, in the kernels that have it
  for (const auto& [name, kernel] : registered_kernels())
    for (const SizeOption& size : kernel.description.sizes) meanings[size.name].insert(size.help);
  for (const auto& [size, meaning] : meanings)
    command
        .add_option_function<int64_t>(
            "--" + size, [this, size = size](const int64_t& value) { given_[size] = value; },
            fmt::format("{}", fmt::join(meaning, "; or ")))
        ->group("Sizes (`imbrex list` says which a kernel has, and what it takes for those not given)");
}

const RegisteredKernel& KernelChoice::kernel() const { return registered_kernel(name_); }

std::map<std::string, int64_t> KernelChoice::sizes() const {
  std::map<std::string, int64_t> sizes;
  std::vector<std::string> names;
  for (const SizeOption& size : kernel().description.sizes) {
    sizes[size.name] = size.otherwise;
    names.push_back("--" + size.name);
  }
  for (const auto& [name, value] : given_) {
    if (!sizes.contains(name))
      throw LaunchError(Diagnostic{{},
                                   fmt::format("{} has no size --{}", name_, name),
                                   {},
                                   fmt::format("its sizes are {}", fmt::join(names, ", "))});
    if (value < 1)
      throw LaunchError(Diagnostic{{}, fmt::format("--{} is {}, sizes are 1 or more", name, value), {}, ""});
    sizes[name] = value;
  }
  return sizes;
}

int64_t KernelChoice::given(const std::string& size, int64_t otherwise) const {
  const auto found = given_.find(size);
  return found == given_.end() ? otherwise : found->second;
}

Configuration KernelChoice::configuration(const std::optional<Configuration>& otherwise) const {
  const TuningSpace& space = kernel().space;
  Configuration result = otherwise.value_or(space.configuration(0));
  if (config_ == "default") return result;
  std::string words = config_;  // the space's text form separates by blanks
  std::replace(words.begin(), words.end(), ',', ' ');
  for (const Setting& given : space.parse(words))
    for (Setting& setting : result)
      if (setting.name == given.name) setting.bits = given.bits;
  return result;
}

}  // namespace imbrex::command
