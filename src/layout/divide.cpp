// SPDX-License-Identifier: Apache-2.0
// The inverse of the product: digits of the inner layout are taken off from the inside.
#include <algorithm>

#include "layout/layout_data.h"

namespace imbrex::layout {
namespace {

/// The stride of an outer mode in units of the inner layout; 0 where it is no multiple.
std::optional<int64_t> outer_stride(const Mode& mode, const Layout& inner) {
  const int64_t unit = inner.extent(mode.axis);
  if (mode.stride % unit != 0) return std::nullopt;
  return mode.stride / unit;
}

/// `whole` without the digits of `inner` at its inner end; nothing where those are others.
std::optional<Modes> without_inner(Modes whole, Modes inner) {
  while (!inner.empty()) {
    Mode& digit = inner.back();
    if (digit.extent == 1) {
      inner.pop_back();
      continue;
    }
    if (whole.empty()) return std::nullopt;
    Mode& from = whole.back();
    if (from.axis != digit.axis || from.stride != digit.stride) return std::nullopt;
    if (from.extent % digit.extent == 0) {  // a mode of the whole may have merged both
      from = {from.extent / digit.extent, from.stride * digit.extent, from.axis};
      inner.pop_back();
      if (from.extent == 1) whole.pop_back();
    } else if (digit.extent % from.extent == 0) {
      digit = {digit.extent / from.extent, digit.stride * from.extent, digit.axis};
      whole.pop_back();
    } else {
      return std::nullopt;
    }
  }
  return whole;
}

/// The same of copies, whose digits have no order.
std::optional<Modes> without_copies(Modes whole, const Modes& inner) {
  for (Mode copy : inner) {
    while (copy.extent > 1) {
      auto found = std::find_if(whole.begin(), whole.end(), [&](const Mode& mode) {
        return mode.axis == copy.axis && mode.stride == copy.stride &&
               (mode.extent % copy.extent == 0 || copy.extent % mode.extent == 0);
      });
      if (found == whole.end()) return std::nullopt;
      const int64_t taken = std::min(found->extent, copy.extent);
      copy = {copy.extent / taken, copy.stride * taken, copy.axis};
      *found = {found->extent / taken, found->stride * taken, found->axis};
      if (found->extent == 1) whole.erase(found);
    }
  }
  return whole;
}

std::optional<Layout> quotient(const Layout& whole, const Layout& inner) {
  if (inner.rank() > whole.rank()) return std::nullopt;
  const int skip = whole.rank() - inner.rank();
  Shape shape = whole.shape();
  std::vector<Modes> modes;
  for (int d = 0; d < whole.rank(); ++d) {
    std::optional<Modes> rest = whole.modes(d);
    if (d >= skip) {
      const int64_t extent = inner.shape()[static_cast<size_t>(d - skip)];
      if (shape[static_cast<size_t>(d)] % extent != 0) return std::nullopt;
      shape[static_cast<size_t>(d)] /= extent;
      rest = without_inner(*std::move(rest), inner.modes(d - skip));
    }
    if (!rest) return std::nullopt;
    modes.push_back(*std::move(rest));
  }
  std::optional<Modes> copies = without_copies(whole.replicas(), inner.replicas());
  if (!copies) return std::nullopt;
  modes.push_back(*std::move(copies));
  for (Modes& of_dim : modes)
    for (Mode& mode : of_dim) {
      const std::optional<int64_t> stride = outer_stride(mode, inner);
      if (!stride) return std::nullopt;
      mode.stride = *stride;
    }
  Modes replicas = std::move(modes.back());
  modes.pop_back();
  return Layout(std::move(shape), std::move(modes), std::move(replicas), whole.element_bits(),
                whole.swizzle());
}

}  // namespace

Layout divide(const Layout& whole, const Layout& inner) {
  std::optional<Layout> q = quotient(whole, inner);
  if (!q || !(*q * inner == whole))
    fail("divide: no layout times the second is the first",
         {"whole " + whole.to_string(), "inner " + inner.to_string()});
  return *std::move(q);
}

}  // namespace imbrex::layout
