// SPDX-License-Identifier: Apache-2.0
// Which instructions of the table, which of their words and types, and which special registers of sm_90a the
// micro-kernels use.
#pragma once

#include <set>
#include <string>

#include "families.h"
#include "ptx/ptx.h"

namespace imbrex::conformance {

/// "ld", "ld global", "ld u32", "%laneid", ...: an instruction, one of its words or types, a special
/// register.
using Features = std::set<std::string>;

Features features_used(const Kernels& kernels);
/// "ld.global.v4.b32", ...: the instructions of a module with all their words, as they are written.
Features whole_instructions(const ptx::Module& module);
/// What the tables say sm_90a has.
Features features_of_target();

/// The reasons for what is not tried: lines `FEATURE: REASON` of not_tried.txt; a feature that ends in `*`
/// stands for all that begin like it.
struct NotTried {
  std::set<std::string> features, prefixes;
  bool has(const std::string& feature) const;
};
NotTried read_not_tried(const std::string& path);

}  // namespace imbrex::conformance
