// SPDX-License-Identifier: Apache-2.0
// Random layouts for property tests, and a walk over all indices of a shape.
#pragma once

#include <algorithm>
#include <random>

#include "layout/layout.h"

namespace imbrex::layout {

using Random = std::mt19937;

inline int64_t pick(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

inline int64_t count(const Shape& shape) {
  int64_t result = 1;
  for (int64_t extent : shape) result *= extent;
  return result;
}

/// Calls visit(index) for every index of the box, last dimension fastest.
template <typename Visit>
void for_each_index(const Shape& shape, Visit visit) {
  Index index(shape.size());
  for (int64_t n = 0, total = count(shape); n < total; ++n) {
    int64_t rest = n;
    for (size_t d = shape.size(); d-- > 0; rest /= shape[d]) index[d] = rest % shape[d];
    visit(index);
  }
}

/// A prime-by-prime random split of `extent` into modes (strides still 0).
inline Modes random_split(Random& random, int64_t extent, const std::vector<Axis>& axes) {
  Modes modes;
  while (extent > 1) {
    int64_t take = extent;
    for (int64_t divisor = 2; divisor < extent; ++divisor)
      if (extent % divisor == 0 && pick(random, 0, 1)) {
        take = divisor;
        break;
      }
    modes.push_back(
        {take, 0, axes[static_cast<size_t>(pick(random, 0, static_cast<int64_t>(axes.size()) - 1))]});
    extent /= take;
  }
  std::shuffle(modes.begin(), modes.end(), random);
  return modes;
}

struct RandomOptions {
  std::vector<Axis> axes = {Axis::kThread, Axis::kRegister};
  bool replicas = true;
  bool gaps = true;      ///< strides may leave slots empty
  bool padding = false;  ///< modes may reach beyond the shape
};

/// An injective layout of up to a few thousand elements.
inline Layout random_layout(Random& random, const RandomOptions& options = {}) {
  constexpr int64_t kExtents[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24};
  Shape shape;
  std::vector<Modes> modes;
  int64_t rank = pick(random, 0, 4);
  for (int64_t d = 0; d < rank; ++d) {
    int64_t extent = kExtents[pick(random, 0, 10)];
    if (count(shape) * extent > 2048) extent = 2;
    modes.push_back(random_split(random, extent, options.axes));
    if (options.padding && extent > 2 && pick(random, 0, 2) == 0) --extent;
    shape.push_back(extent);
  }
  Modes replicas;
  if (options.replicas && pick(random, 0, 2) == 0)
    replicas = random_split(random, pick(random, 2, 6), {options.axes[0]});

  std::vector<Mode*> all;
  for (Modes& list : modes)
    for (Mode& mode : list) all.push_back(&mode);
  for (Mode& mode : replicas) all.push_back(&mode);
  std::shuffle(all.begin(), all.end(), random);
  Coords next;
  for (Mode* mode : all) {
    int64_t& unit = next[mode->axis];
    if (unit == 0) unit = 1;
    mode->stride = unit;
    unit *= mode->extent;
    if (options.gaps && pick(random, 0, 4) == 0) unit += pick(random, 1, 3);
  }
  return Layout(shape, modes, replicas);
}

}  // namespace imbrex::layout
