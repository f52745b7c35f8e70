// SPDX-License-Identifier: Apache-2.0
// The long runs of scripts/test --long: the same programs as the quick ones, told by IMBREX_FULL in their
// environment (imbrex_full_run() in cmake/ImbrexTargets.cmake). Suites whose names end in AtLength run there
// only.
#pragma once

#include <cstdlib>

#include "skip.h"

namespace imbrex {

inline bool is_full() { return std::getenv("IMBREX_FULL") != nullptr; }

}  // namespace imbrex

/// First in a test of an AtLength suite: ctest leaves them out, who runs the program by hand need not.
#define IMBREX_AT_LENGTH() \
  if (!is_full()) IMBREX_SKIP(full_run)
