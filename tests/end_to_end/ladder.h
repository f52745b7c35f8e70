// SPDX-License-Identifier: Apache-2.0
// Which kernels a program of the ladders is about: one ladder_test.cpp serves all.
#pragma once

#include <cstddef>

namespace imbrex {

struct LadderPart {
  const char* prefix;  // how the kernels' names begin
  size_t candidates;   // of each step's space, in the quick run
};
extern const LadderPart kLadderPart;

}  // namespace imbrex
