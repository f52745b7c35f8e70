// SPDX-License-Identifier: Apache-2.0
// Other views of the same elements: permuted, regrouped, sliced, reduced.
#include <algorithm>
#include <functional>
#include <numeric>

#include "layout/layout_data.h"

namespace imbrex::layout {
namespace {

[[noreturn]] void fail_reshape(const Layout& layout, const Shape& shape, const std::string& reason) {
  fail(fmt::format("reshape: {} cannot become {}: {}", shape_text(layout.shape()), shape_text(shape), reason),
       {"layout " + layout.to_string()});
}

// Takes modes worth `extent` from the inner end of `modes`, splitting the last one taken if need be.
std::optional<Modes> take_inner(Modes& modes, int64_t extent) {
  Modes taken;
  while (extent > 1) {
    if (modes.empty()) return std::nullopt;
    Mode& mode = modes.back();
    if (extent % mode.extent == 0) {
      extent /= mode.extent;
      taken.insert(taken.begin(), mode);
      modes.pop_back();
    } else if (mode.extent % extent == 0) {
      taken.insert(taken.begin(), {extent, mode.stride, mode.axis});
      mode = {mode.extent / extent, mode.stride * extent, mode.axis};
      extent = 1;
    } else {
      return std::nullopt;
    }
  }
  return taken;
}

// Says whether a slice's start (one, or all that may occur) has the digits a cut needs.
struct StartFacts {
  // Start is a multiple of `unit`.
  std::function<bool(int64_t unit)> is_multiple;
  // The digit of weight `unit` and radix `radix` leaves room for `count` steps without a carry.
  std::function<bool(int64_t unit, int64_t radix, int64_t count)> has_room;
};

// The modes of `extent` indices of a dimension; nothing when the box cuts through modes.
std::optional<Modes> cut(const Modes& modes, int64_t extent, const StartFacts& start) {
  Modes taken;
  int64_t unit = 1;
  for (size_t i = modes.size(); i-- > 0 && extent > 1;) {
    const Mode& mode = modes[i];
    if (mode.extent > extent || (i == 0 && mode.extent >= extent)) {  // part of this mode, nothing above it
      if (!start.is_multiple(unit)) return std::nullopt;
      if (i != 0 && !start.has_room(unit, mode.extent, extent)) return std::nullopt;
      taken.insert(taken.begin(), {extent, mode.stride, mode.axis});
      return taken;
    }
    if (extent % mode.extent != 0) return std::nullopt;
    unit *= mode.extent;
    if (!start.is_multiple(unit)) return std::nullopt;
    extent /= mode.extent;
    taken.insert(taken.begin(), mode);
  }
  return taken;
}

void check_ranks(const Layout& layout, size_t a, size_t b, const char* op) {
  size_t rank = layout.shape().size();
  if (a != rank || b != rank)
    fail(fmt::format("{}: {} starts and {} extents for shape {}", op, a, b, shape_text(layout.shape())));
}

void check_dim(const Layout& layout, int dim, int limit, const char* op) {
  if (dim < 0 || dim >= limit)
    fail(fmt::format("{}: dimension {} of shape {}", op, dim, shape_text(layout.shape())));
}

// Register modes renumbered so that no register is skipped, order kept.
void renumber_registers(std::vector<Modes>& modes) {
  std::vector<Mode*> registers;
  for (Modes& list : modes)
    for (Mode& mode : list)
      if (mode.axis == Axis::kRegister) registers.push_back(&mode);
  std::stable_sort(registers.begin(), registers.end(),
                   [](Mode* a, Mode* b) { return a->stride < b->stride; });
  int64_t next = 1;
  for (Mode* mode : registers) {
    mode->stride = next;
    next *= mode->extent;
  }
}

}  // namespace

Layout Layout::permute(std::span<const int> order) const {
  std::vector<int> sorted(order.begin(), order.end());
  std::sort(sorted.begin(), sorted.end());
  std::vector<int> all(shape().size());
  std::iota(all.begin(), all.end(), 0);
  if (sorted != all)
    fail(fmt::format("permute: [{}] is not an order of the dimensions of {}", fmt::join(order, ", "),
                     shape_text(shape())));
  Data data{{}, {}, replicas(), element_bits(), swizzle()};
  for (int d : order) {
    data.shape.push_back(shape()[static_cast<size_t>(d)]);
    data.modes.push_back(modes(d));
  }
  return Layout(data.shape, data.modes, data.replicas, data.element_bits, data.swizzle);
}

Layout Layout::transpose() const {
  if (rank() < 2) fail(fmt::format("transpose: shape {} has fewer than two dimensions", shape_text(shape())));
  std::vector<int> order(shape().size());
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  return permute(order);
}

namespace {

/// The only dimension, or else the only one of more than one element.
std::optional<size_t> only_wide(const Shape& extents) {
  if (extents.size() == 1) return 0;
  const auto is_wide = [](int64_t extent) { return extent != 1; };
  if (std::ranges::count_if(extents, is_wide) != 1) return std::nullopt;
  return std::ranges::find_if(extents, is_wide) - extents.begin();
}

}  // namespace

Layout Layout::reshape(const Shape& target) const {
  if (product(target) != size() || std::any_of(target.begin(), target.end(), [](int64_t e) { return e < 1; }))
    fail_reshape(*this, target, fmt::format("{} and {} elements", size(), product(target)));
  std::vector<Modes> result(target.size());
  // From the inner end, dimensions are gathered until both sides hold equally many elements.
  size_t from = shape().size(), to = target.size();
  while (to > 0 || from > 0) {
    size_t from_end = from, to_end = to;
    int64_t from_size = 1, to_size = 1;
    do {
      if (from_size <= to_size && from > 0) {
        from_size *= shape()[--from];
      } else if (to > 0) {
        to_size *= target[--to];
      } else {
        from_size *= shape()[--from];
      }
    } while (from_size != to_size);
    // One dimension that stays, beside extents of 1: unchanged, padding included.
    const auto kept = only_wide({shape().begin() + from, shape().begin() + from_end}),
               put = only_wide({target.begin() + to, target.begin() + to_end});
    if (kept && put) {
      result[to + *put] = modes(static_cast<int>(from + *kept));
      continue;
    }
    Modes flat;
    for (size_t d = from; d < from_end; ++d) {
      const Modes& dim = modes(static_cast<int>(d));
      if (product(dim) != shape()[d]) fail_reshape(*this, target, fmt::format("dimension {} is padded", d));
      flat.insert(flat.end(), dim.begin(), dim.end());
    }
    flat = merged(flat);
    for (size_t d = to_end; d-- > to;) {
      std::optional<Modes> taken = take_inner(flat, target[d]);
      if (!taken)
        fail_reshape(*this, target,
                     fmt::format("extent {} of dimension {} cuts through a mode", target[d], d));
      result[d] = *taken;
    }
  }
  return Layout(target, std::move(result), replicas(), element_bits(), swizzle());
}

Layout Layout::squeeze(int dim) const {
  check_dim(*this, dim, rank(), "squeeze");
  if (shape()[static_cast<size_t>(dim)] != 1)
    fail(fmt::format("squeeze: dimension {} of shape {} has extent {}", dim, shape_text(shape()),
                     shape()[static_cast<size_t>(dim)]));
  Data data = *data_;
  data.shape.erase(data.shape.begin() + dim);
  data.modes.erase(data.modes.begin() + dim);
  return Layout(data.shape, data.modes, data.replicas, data.element_bits, data.swizzle);
}

Layout Layout::unsqueeze(int dim) const {
  check_dim(*this, dim, rank() + 1, "unsqueeze");
  Data data = *data_;
  data.shape.insert(data.shape.begin() + dim, 1);
  data.modes.insert(data.modes.begin() + dim, Modes{});
  return Layout(data.shape, data.modes, data.replicas, data.element_bits, data.swizzle);
}

Slice Layout::slice(std::span<const int64_t> starts, std::span<const int64_t> extents) const {
  check_ranks(*this, starts.size(), extents.size(), "slice");
  std::vector<Modes> result(shape().size());
  for (size_t d = 0; d < shape().size(); ++d) {
    int64_t start = starts[d], extent = extents[d];
    if (start < 0 || extent < 1 || start + extent > shape()[d])
      fail(fmt::format("slice: {}...{} outside dimension {} of shape {}", start, start + extent - 1, d,
                       shape_text(shape())));
    if (extent == shape()[d]) {
      result[d] = data_->modes[d];
      continue;
    }
    StartFacts facts{
        [&](int64_t unit) { return start % unit == 0; },
        [&](int64_t unit, int64_t radix, int64_t count) { return start / unit % radix + count <= radix; }};
    std::optional<Modes> modes = cut(data_->modes[d], extent, facts);
    if (!modes)
      fail(fmt::format("slice: {}...{} of dimension {} cuts through a mode", start, start + extent - 1, d),
           {"layout " + to_string()});
    result[d] = *modes;
  }
  return {Layout({extents.begin(), extents.end()}, std::move(result), replicas(), element_bits(), swizzle()),
          linear(starts)};
}

Layout Layout::slice_at(std::span<const int64_t> extents, std::span<const int64_t> alignment) const {
  check_ranks(*this, alignment.size(), extents.size(), "slice");
  std::vector<Modes> result(shape().size());
  for (size_t d = 0; d < shape().size(); ++d) {
    int64_t align = alignment[d], extent = extents[d];
    if (extent < 1 || extent > shape()[d] || align < 0)
      fail(fmt::format("slice: extent {} of dimension {} of shape {}", extent, d, shape_text(shape())));
    if (extent == shape()[d]) {
      result[d] = data_->modes[d];
      continue;
    }
    // Starts are multiples of `align` (0: only 0): the digit of weight `unit` is a multiple of gcd(align /
    // unit, radix).
    StartFacts facts{
        [&](int64_t unit) { return align % unit == 0; },
        [&](int64_t unit, int64_t radix, int64_t count) { return std::gcd(align / unit, radix) >= count; }};
    std::optional<Modes> modes = cut(data_->modes[d], extent, facts);
    if (!modes)
      fail(
          fmt::format(
              "slice: {} elements of dimension {} cut through a mode for some start that is a multiple of {}",
              extent, d, align),
          {"layout " + to_string()});
    result[d] = *modes;
  }
  return Layout({extents.begin(), extents.end()}, std::move(result), replicas(), element_bits(), swizzle());
}

Slice Layout::at(int64_t i) const {
  if (rank() == 0) fail("index into a scalar");
  Index starts(shape().size(), 0);
  starts[0] = i;
  Shape extents = shape();
  extents[0] = 1;
  Slice result = slice(starts, extents);
  return {result.layout.squeeze(0), result.offset};
}

Layout Layout::without_leading() const {
  if (rank() == 0) fail("index into a scalar");
  Data data = *data_;
  data.shape.erase(data.shape.begin());
  data.modes.erase(data.modes.begin());
  return Layout(data.shape, data.modes, data.replicas, data.element_bits, data.swizzle);
}

Layout Layout::reduce(int dim, bool keep) const {
  check_dim(*this, dim, rank(), "reduce");
  Data data = *data_;
  for (const Mode& mode : modes(dim)) {
    if (mode.axis == Axis::kThread) {
      data.replicas.push_back(mode);
    } else if (mode.axis != Axis::kRegister) {
      fail(fmt::format("reduce: dimension {} lies along the {} axis, not in registers", dim,
                       axis_name(mode.axis)));
    }
  }
  data.modes[static_cast<size_t>(dim)].clear();
  data.shape[static_cast<size_t>(dim)] = 1;
  renumber_registers(data.modes);
  Layout result(data.shape, data.modes, data.replicas, data.element_bits, data.swizzle);
  return keep ? result : result.squeeze(dim);
}

Layout Layout::with_element_bits(int bits) const {
  return Layout(shape(), data_->modes, replicas(), bits, bits == 0 ? Swizzle{} : swizzle());
}

Layout Layout::with_swizzle(Swizzle swizzle) const {
  return Layout(shape(), data_->modes, replicas(), element_bits(), swizzle);
}

Layout Layout::replicate_to(int64_t count) const {
  int64_t own = threads();
  if (count < own || count % own != 0) fail(fmt::format("replicate: {} threads onto {}", own, count));
  Modes copies = replicas();
  copies.push_back({count / own, own, Axis::kThread});
  return Layout(shape(), data_->modes, std::move(copies), element_bits(), swizzle());
}

}  // namespace imbrex::layout
