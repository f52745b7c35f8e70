// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <set>

#include "imbrex/core/error.h"
#include "imbrex/core/nearest.h"
#include "subcommands.h"

namespace imbrex::command {

void refuse_given(const Subcommand& command, std::initializer_list<const char*> options,
                  const std::string& belongs) {
  for (const char* option : options)
    if (command.count(option) > 0)
      throw LaunchError(Diagnostic{{}, fmt::format("{} {}", option, belongs), {}, ""});
}

WordCheck at_most(int64_t most) {
  return [most](std::string& text) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool is_too_large =
        error == std::errc::result_out_of_range || (error == std::errc() && value > most);
    return is_too_large ? fmt::format("{} is more than {}", text, most) : std::string();
  };
}

void KernelChoice::add_to(Subcommand& command, Need need) {
  command.add_option("KERNEL", name_, "a kernel of `imbrex list`")->required(need == Need::kRequired);
  command.add_option("--config", config_,
                     "tuned members, as name=value,name=value, the rest keep their defaults; or: default");
  std::map<std::string, std::set<std::string>> meanings;  // of a size, in the kernels that have it
  for (const auto& [name, kernel] : registered_kernels())
    for (const SizeOption& size : kernel.description.sizes) {
      std::set<std::string>& all = meanings[size.name];
      if (!size.help.empty()) all.insert(size.help);
    }
  for (const auto& [size, meaning] : meanings)
    command
        .add_option_function(
            "--" + size, [this, size = size](int64_t value) { given_[size] = value; },
            fmt::format("{}", fmt::join(meaning, "; or ")))
        ->check(at_most(INT32_MAX))
        ->group(
            "Sizes (`imbrex list KERNEL` says which a kernel has, and what it takes for those not given)");
}

const RegisteredKernel& KernelChoice::kernel() const { return registered_kernel(name_); }

std::map<std::string, int64_t> KernelChoice::sizes() const { return sizes_of(kernel().description); }

std::map<std::string, int64_t> KernelChoice::sizes_of(const KernelDescription& kernel) const {
  std::map<std::string, int64_t> sizes;
  std::vector<std::string> names;
  for (const SizeOption& size : kernel.sizes) {
    sizes[size.name] = size.otherwise;
    names.push_back("--" + size.name);
  }
  for (const auto& [name, value] : given_) {
    if (!sizes.contains(name))
      throw LaunchError(Diagnostic{{},
                                   fmt::format("{} has no size --{}", name_, name),
                                   {},
                                   fmt::format("its sizes are {}", fmt::join(names, ", "))});
    const bool may_be_0 = sizes[name] == 0;  // a choice rather than an extent
    if (value < (may_be_0 ? 0 : 1))
      throw LaunchError(Diagnostic{
          {}, fmt::format("--{} is {}, sizes are {} or more", name, value, may_be_0 ? "0" : "1"), {}, ""});
    sizes[name] = value;
  }
  return sizes;
}

void KernelChoice::expect_nothing_given(std::initializer_list<std::string_view> understood) const {
  std::string extra = config_.empty() ? "" : "--config";
  for (const auto& [size, value] : given_)
    if (std::find(understood.begin(), understood.end(), size) == understood.end()) extra = "--" + size;
  if (!extra.empty())
    throw LaunchError(Diagnostic{{}, extra + " goes with a KERNEL", {}, "name one of `imbrex list`"});
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
