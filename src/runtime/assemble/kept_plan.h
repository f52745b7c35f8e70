// SPDX-License-Identifier: Apache-2.0
// What a launch needs to know of a kernel besides its machine code, kept between processes: a kernel of the library is
// found again by its name, its members and its compile-time arguments, without tracing it to learn its PTX.
//
// An entry is of one build of Imbrex: its key has the digest of the sources (cache/sources_digest.h), so that none outlives
// a change of them. It names machine code by the digest of the PTX; where that is no longer kept, the kernel is traced.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "codegen/compiled_kernel.h"
#include "imbrex/runtime/cache.h"

namespace imbrex::runtime {

struct KeptPlan {
  codegen::CompiledKernel kernel;  ///< without its PTX
  std::string ptx_digest;          ///< by which machine code is kept
};

/// As an entry of a cache; none where the payload is not one.
std::string pack_plan(const codegen::CompiledKernel& kernel, std::string_view ptx_digest);
std::optional<KeptPlan> unpack_plan(std::string_view payload);

/// `identity`: all that the kernel depends on besides Imbrex itself.
CacheKey plan_key(const std::string& identity, const std::string& target);

/// That of a kernel: shipped with Imbrex, or kept in this user's cache.
std::optional<KeptPlan> kept_plan(const std::string& identity, const std::string& target);
/// Keeps it in `folder`. False where it cannot be kept.
bool keep_plan(const codegen::CompiledKernel& kernel, const std::string& identity, const std::string& target,
               Cache& folder);

}  // namespace imbrex::runtime
