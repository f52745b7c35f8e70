// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/module_loader.h"

#include <cstdlib>
#include <optional>
#include <string_view>

#include "runtime/assemble/shipped_code.h"

namespace imbrex::runtime {

bool ModuleLoader::load_at_hand(const codegen::CompiledKernel& kernel, const std::string& ptx_digest,
                                const std::string& target, CUmodule& module) {
  const auto is_loaded = [&](const std::optional<Cubin>& cubin) {
    return cubin && driver_.cuModuleLoadDataEx(&module, cubin->bytes.c_str(), 0, nullptr, nullptr) == 0;
  };
  // A driver older than the assembler that made it refuses what was shipped.
  if (std::getenv("IMBREX_ASSEMBLER") == nullptr && is_loaded(shipped_code(kernel, ptx_digest))) return true;
  const Assembler* const ptxas = usable_ptxas();
  const std::string assembler = ptxas != nullptr ? ptxas->name() : own_assembler().name();
  const auto cached_for = [&](const std::string& made_for) {
    return cached_cubin(assembler, kernel, ptx_digest, made_for, Cache::shared(),
                        AssemblerTolerance::from_environment());
  };
  return is_loaded(cached_for(target)) || (kernel.target != target && is_loaded(cached_for(kernel.target)));
}

void ModuleLoader::assemble(const codegen::CompiledKernel& kernel, const std::string& target,
                            CUmodule& module) {
  const AssemblerTolerance tolerance = AssemblerTolerance::from_environment();
  if (const Assembler* const ptxas = usable_ptxas()) {
    const Cubin cubin = assemble_cached(*ptxas, kernel, target, Cache::shared(), tolerance);
    if (driver_.cuModuleLoadDataEx(&module, cubin.bytes.c_str(), 0, nullptr, nullptr) == 0) return;
    // A driver loads what a ptxas of its CUDA version makes. Should it not, its own assembler is tried.
  }
  const Cubin cubin = assemble_cached(own_assembler(), kernel, target, Cache::shared(), tolerance);
  driver_.check(driver_.cuModuleLoadDataEx(&module, cubin.bytes.c_str(), 0, nullptr, nullptr),
                "loading " + kernel.name);
}

const Assembler* ModuleLoader::usable_ptxas() const {
  if (const char* asked = std::getenv("IMBREX_ASSEMBLER");
      asked != nullptr && std::string_view(asked) == "driver")
    return nullptr;
  const Assembler* ptxas = find_ptxas();
  int version = 0;
  driver_.check(driver_.cuDriverGetVersion(&version), "driver version");
  return ptxas != nullptr && ptxas->cuda_version() / 1000 <= version / 1000 ? ptxas : nullptr;
}

const Assembler& ModuleLoader::own_assembler() {
  std::call_once(own_assembler_once_, [&] { own_assembler_ = driver_assembler(driver_); });
  return *own_assembler_;
}

}  // namespace imbrex::runtime
