// SPDX-License-Identifier: Apache-2.0
#include "imbrex/runtime/package.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/target.h"
#include "imbrex/core/error.h"
#include "imbrex/core/find_tool.h"
#include "imbrex/core/nearest.h"
#include "runtime/assemble/assembler.h"
#include "runtime/compile/compile.h"
#include "runtime/package/package_c.h"

namespace imbrex {

Package make_package(const RegisteredKernel& kernel, const std::map<std::string, int64_t>& sizes,
                     const Configuration& configuration, const std::vector<std::string>& targets) {
  std::string why_not;
  const runtime::Assembler* ptxas = runtime::find_ptxas(&why_not);
  if (ptxas == nullptr && find_cuda_tool("ptxas").is_named)
    throw DeviceError(Diagnostic{{},
                                 "machine code cannot be built: " + why_not,
                                 {},
                                 "correct IMBREX_PTXAS, or set it to none to ship PTX"});
  std::vector<runtime::PackagedVariant> variants;
  for (const std::string& target : targets) {
    const std::vector<std::string> known = target_names();
    if (find_target(target) == nullptr) {
      const std::string near = nearest_word(target, known);
      throw LaunchError(Diagnostic{{},
                                   fmt::format("unknown target '{}'", target),
                                   {},
                                   near.empty() ? fmt::format("use {}", fmt::join(known, ", "))
                                                : fmt::format("did you mean '{}'?", near)});
    }
    Case traced(Case::Mode::kTrace, std::nullopt, sizes, 0);
    traced.target = target;
    kernel.run(traced, std::nullopt, configuration);
    runtime::PackagedVariant variant{target, runtime::compile(*traced.function), ""};
    if (ptxas != nullptr)
      variant.cubin = runtime::assemble_cached(*ptxas, variant.kernel, target, Cache::shared(),
                                               runtime::AssemblerTolerance::from_environment())
                          .bytes;
    variants.push_back(std::move(variant));
  }
  if (variants.empty()) throw LaunchError(Diagnostic{{}, "no target to build for", {}, "name one by --arch"});
  std::vector<std::string> words;
  for (const auto& [name, value] : sizes) words.push_back(fmt::format("{}={}", name, value));
  const std::string text = kernel.space.to_string(configuration);
  const std::string about = fmt::format("{}; traced with {}{}{}", kernel.description.summary,
                                        fmt::join(words, " "), text.empty() ? "" : ", configuration ", text);
  const std::string& name = variants[0].kernel.name;
  Package package{{{name + ".h", runtime::package_header(variants[0].kernel, about)},
                   {name + ".c", runtime::package_loader(variants, about)}},
                  ""};
  for (runtime::PackagedVariant& variant : variants) {
    package.files.push_back({fmt::format("{}.{}.ptx", name, variant.target), variant.kernel.ptx});
    if (ptxas != nullptr)
      package.files.push_back({fmt::format("{}.{}.cubin", name, variant.target), std::move(variant.cubin)});
  }
  if (ptxas == nullptr)
    package.note = fmt::format(
        "{}.c holds PTX and no machine code: {}. The driver assembles it when the program loads the kernel; "
        "spilled registers go unnoticed",
        name, why_not);
  return package;
}

}  // namespace imbrex
