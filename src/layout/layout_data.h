// SPDX-License-Identifier: Apache-2.0
// Inside of the layout algebra: what a Layout points to, and small helpers its source files share.
#pragma once

#include <fmt/format.h>

#include "imbrex/core/error.h"
#include "layout/layout.h"

namespace imbrex::layout {

struct Layout::Data {
  Shape shape;
  std::vector<Modes> modes;
  Modes replicas;
  int element_bits = 0;
  Swizzle swizzle;
};

/// "64x16", or "scalar".
std::string shape_text(std::span<const int64_t> shape);

/// Throws CompileError: "layout: <message>".
[[noreturn]] void fail(std::string message, std::vector<std::string> facts = {}, std::string help = "");

inline int64_t product(std::span<const int64_t> extents) {
  int64_t result = 1;
  for (int64_t extent : extents) result *= extent;
  return result;
}
inline int64_t product(const Modes& modes) {
  int64_t result = 1;
  for (const Mode& mode : modes) result *= mode.extent;
  return result;
}
constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Drops extent 1, gives modes of stride 0 one spelling, and merges neighbours that count through.
Modes merged(const Modes& modes);

/// Steps `index` through the box 0...shape, last dimension fastest; false after the last.
bool next_index(Index& index, std::span<const int64_t> shape);

/// Modes of a dense row-major box on one axis, stride 1 at the end.
std::vector<Modes> dense_modes(const Shape& shape, Axis axis, bool first_fastest = false);

}  // namespace imbrex::layout
