// SPDX-License-Identifier: Apache-2.0
// How a test skips what this machine cannot do. The words are fixed, since scripts/test counts skipped tests by them:
// "SKIPPED: needs ptxas: install the CUDA toolkit, or set IMBREX_PTXAS".
#pragma once

#include <cstdio>
#include <string>

namespace imbrex::needs {

struct Need {
  const char* what;
  const char* remedy;
};

#define NEED(name, what, remedy) inline constexpr Need name{what, remedy};
#include "needs.def"
#undef NEED

inline std::string text(const Need& need) { return std::string("needs ") + need.what + ": " + need.remedy; }

/// For a test that goes on without a part of its checks. ctest takes "[  SKIPPED ]" anywhere in the output
/// for a skipped test, even one that failed, so these words differ.
inline void say_partly(const Need& need) { std::printf("PARTLY: %s\n", text(need).c_str()); }

}  // namespace imbrex::needs

/// Leaves the test: IMBREX_SKIP(ptxas).
#define IMBREX_SKIP(need) GTEST_SKIP() << "SKIPPED: " << ::imbrex::needs::text(::imbrex::needs::need)
