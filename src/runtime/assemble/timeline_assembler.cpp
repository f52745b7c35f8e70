// SPDX-License-Identifier: Apache-2.0
#include "imbrex/vgpu/timeline_assembler.h"
#include "core/sha256.h"
#include "imbrex/core/error.h"
#include "imbrex/runtime/machine_code.h"
#include "runtime/assemble/assembler.h"

namespace imbrex {
namespace {

/// Whatever is wrong with the machine code, such as spills, is no matter of a prediction's.
std::string assembled(const runtime::Assembler& ptxas, const std::string& ptx, const std::string& name,
                      const std::string& target) {
  const CacheKey key = runtime::cubin_key(name, sha256(ptx), target, ptxas.name());
  if (const std::optional<std::string> kept = Cache::shared().load(key))
    if (const std::optional<runtime::Cubin> cubin = runtime::unpack_cubin(*kept)) return cubin->bytes;
  codegen::CompiledKernel kernel;
  kernel.name = name;
  kernel.ptx = ptx;
  try {
    const runtime::Cubin cubin = ptxas.assemble(kernel, target);
    Cache::shared().store(key, runtime::pack_cubin(cubin));
    return cubin.bytes;
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

bool predict_from_machine_code() {
  const runtime::Assembler* const ptxas = runtime::find_ptxas();
  if (ptxas == nullptr) return false;
  vgpu::set_timeline_assembler(
      [ptxas](const std::string& ptx, const std::string& name, const std::string& target) {
        return assembled(*ptxas, ptx, name, target);
      });
  return true;
}

}  // namespace imbrex
