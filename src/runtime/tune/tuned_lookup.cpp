// SPDX-License-Identifier: Apache-2.0
// Which configuration of a registered kernel was tuned for sizes like these, and why it is in the cache or
// not.
#include <fmt/format.h>

#include "core/sha256.h"
#include "imbrex/core/error.h"
#include "imbrex/runtime/tuner.h"
#include "runtime/assemble/assembler.h"
#include "runtime/cache/tuned.h"
#include "runtime/compile/compile.h"
#include "runtime/device/device_facts.h"

namespace imbrex {

std::optional<TunedConfiguration> find_tuned(const RegisteredKernel& kernel,
                                             const std::map<std::string, int64_t>& sizes,
                                             const Device& device, std::string* why_not) {
  auto digest = [&](const std::map<std::string, int64_t>& at, std::vector<int64_t>* shape) {
    Case c(Case::Mode::kTrace, std::nullopt, at, 0);
    kernel.run(c, std::nullopt, kernel.space.configuration(0));
    if (shape != nullptr) *shape = c.shape;
    return runtime::code_digest(*c.function);
  };
  std::vector<int64_t> shape;
  digest(sizes, &shape);
  const std::vector<runtime::TunedRecord> records =
      runtime::by_distance(runtime::all_tuned(Cache::shared(), std::string(kernel.entry->type_name),
                                              kernel.target, runtime::tuned_on(device)),
                           shape, kernel.entry->parameters);
  bool has_changed = false;
  for (const runtime::TunedRecord& record : records) {
    std::optional<Configuration> configuration = runtime::configuration_of(record, kernel.space);
    // A first call that tuned knew its shape, and not what the registered kernel calls its sizes.
    const bool is_named = record.sizes.size() == sizes.size();
    if (!is_named && record.shape != shape) continue;
    if (!configuration || digest(is_named ? record.sizes : sizes, nullptr) != record.code) {
      has_changed = true;
      continue;
    }
    return TunedConfiguration{std::move(*configuration), record.config,      record.shape,
                              record.microseconds,       record.is_modelled, record.shape == shape};
  }
  if (why_not != nullptr)
    *why_not = has_changed ? "the kernel has changed since it was tuned"
                           : fmt::format("{} was not tuned on {}", kernel.description.name, device.name());
  return std::nullopt;
}

std::string explain_cache(const RegisteredKernel& kernel, const std::map<std::string, int64_t>& sizes,
                          const Configuration& configuration) {
  Case traced(Case::Mode::kTrace, std::nullopt, sizes, 0);
  kernel.run(traced, std::nullopt, kernel.space.configuration(0));
  const runtime::DeviceFacts device = runtime::device_facts("auto", kernel.target);
  const CacheKey tuning =
      runtime::tuned_key(std::string(kernel.entry->type_name), kernel.target,
                         runtime::tuned_on(device.name, device.is_virtual, gpu_model_for(device.target)),
                         traced.shape, runtime::code_digest(*traced.function));
  std::string text = fmt::format("tuning for {} on {}\n  {}\n", runtime::shape_text(traced.shape),
                                 device.name, Cache::shared().explain(tuning));
  Case chosen(Case::Mode::kTrace, std::nullopt, sizes, 0);
  kernel.run(chosen, std::nullopt, configuration);
  const codegen::CompiledKernel compiled = runtime::compile(*chosen.function);
  std::string why_not;
  const runtime::Assembler* ptxas = runtime::find_ptxas(&why_not);
  text += fmt::format("machine code of {}\n  ", kernel.space.to_string(configuration));
  if (ptxas == nullptr) return text + "assembled by the driver: " + why_not;
  const std::string target = device.is_virtual ? kernel.target : device.target;
  return text + Cache::shared().explain(
                    runtime::cubin_key(compiled.name, sha256(compiled.ptx), target, ptxas->name()));
}

}  // namespace imbrex
