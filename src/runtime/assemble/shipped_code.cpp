// SPDX-License-Identifier: Apache-2.0
#include "runtime/assemble/shipped_code.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include <cstdlib>

#include "core/sha256.h"

namespace imbrex::runtime {
namespace {

/// Whichever assembler made it: the PTX, by its digest, says what it computes.
/// It is made for the kernel's own target, which GPUs of its generation run (the driver of another refuses it).
CacheKey shipped_key(const codegen::CompiledKernel& kernel, const std::string& ptx_digest) {
  return cubin_key(kernel.name, ptx_digest, kernel.target, "shipped");
}

bool is_folder(const std::string& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

std::string find_folder() {
  if (const char* chosen = std::getenv("IMBREX_CODE_DIR")) return chosen;
  Dl_info info = {};
  if (dladdr(reinterpret_cast<const void*>(&shipped_code_folder), &info) == 0 || info.dli_fname == nullptr)
    return "";
  char* const resolved = realpath(info.dli_fname, nullptr);
  if (resolved == nullptr) return "";
  std::string here = resolved;
  std::free(resolved);
  here.resize(here.find_last_of('/'));
  for (const char* beside : {"/code", "/../share/imbrex/code", "/../../share/imbrex/code"})
    if (is_folder(here + beside)) return here + beside;
  return is_folder(IMBREX_INSTALLED_CODE) ? IMBREX_INSTALLED_CODE : "";
}

}  // namespace

std::string shipped_code_folder() {
  static const std::string folder = find_folder();
  return folder;
}

std::optional<std::string> shipped_entry(const CacheKey& key) {
  static Cache code(shipped_code_folder(), INT64_MAX);
  return code.load(key);
}

std::optional<Cubin> shipped_code(const codegen::CompiledKernel& kernel, const std::string& ptx_digest) {
  const std::optional<std::string> payload = shipped_entry(shipped_key(kernel, ptx_digest));
  return payload ? unpack_cubin(*payload) : std::nullopt;
}

bool ship_code(const codegen::CompiledKernel& kernel, const Cubin& cubin, Cache& folder) {
  return folder.store(shipped_key(kernel, sha256(kernel.ptx)), pack_cubin(cubin));
}

}  // namespace imbrex::runtime
