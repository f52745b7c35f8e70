// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/strides.h"

#include <algorithm>

namespace imbrex::runtime {
namespace {

struct Dim {
  int64_t extent, to, from;  // strides in both tensors
};

/// The dimensions that have more than one element, the one with the longest stride first.
std::vector<Dim> sorted_dims(const Extents& shape, const Extents& to, const Extents& from) {
  std::vector<Dim> dims;
  for (size_t d = 0; d < shape.size(); ++d)
    if (shape[d] != 1) dims.push_back({shape[d], to[d], from[d]});
  std::ranges::stable_sort(
      dims, [](const Dim& a, const Dim& b) { return a.to != b.to ? a.to > b.to : a.from > b.from; });
  return dims;
}

}  // namespace

Extents dense_strides(const Extents& shape) {
  Extents strides(shape.size());
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= std::max<int64_t>(shape[d], 1);
  }
  return strides;
}

bool is_dense(const Extents& shape, const Extents& strides) {
  if (std::ranges::count(shape, 0) > 0) return true;
  int64_t dense = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    if (shape[d] != 1 && strides[d] != dense) return false;
    dense *= shape[d];
  }
  return true;
}

int64_t dense_prefix(const Extents& shape, const Extents& strides) {
  int64_t run = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    if (shape[d] != 1 && strides[d] != run) return run;
    run *= shape[d];
  }
  return run;
}

std::optional<int64_t> span_of(const Extents& shape, const Extents& strides, int64_t bits) {
  if (std::ranges::count(shape, 0) > 0) return 0;
  int64_t last = 0, all_bits = 0;
  for (size_t d = 0; d < shape.size(); ++d) {
    int64_t reach = 0;
    if (__builtin_mul_overflow(shape[d] - 1, strides[d], &reach) ||
        __builtin_add_overflow(last, reach, &last))
      return std::nullopt;
  }
  if (__builtin_add_overflow(last, 1, &last) || __builtin_mul_overflow(last, bits, &all_bits) ||
      __builtin_add_overflow(all_bits, 7, &all_bits))
    return std::nullopt;
  return last;
}

bool may_overlap(const Extents& shape, const Extents& strides) {
  if (std::ranges::count(shape, 0) > 0) return false;
  std::vector<Dim> dims = sorted_dims(shape, strides, strides);
  int64_t reach = 0;  // of all dimensions with shorter strides
  for (auto dim = dims.rbegin(); dim != dims.rend(); ++dim) {
    if (dim->to <= reach) return true;
    reach += (dim->extent - 1) * dim->to;
  }
  return false;
}

Extents packed_like(const Extents& shape, const Extents& strides) {
  std::vector<size_t> order;  // from the shortest stride on; of equal ones the last dimension first
  for (size_t d = shape.size(); d-- > 0;) order.push_back(d);
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return strides[a] < strides[b]; });
  Extents packed(shape.size());
  int64_t stride = 1;
  for (size_t d : order) {
    packed[d] = stride;
    stride *= std::max<int64_t>(shape[d], 1);
  }
  return packed;
}

void for_each_rows(const Extents& shape, const Extents& to_strides, const Extents& from_strides, int64_t bits,
                   const std::function<void(int64_t to, int64_t from, const ByteRows&)>& copy) {
  if (std::ranges::count(shape, 0) > 0) return;
  std::vector<Dim> dims;
  for (const Dim& inner : sorted_dims(shape, to_strides, from_strides)) {
    const bool continues = !dims.empty() && dims.back().to == inner.to * inner.extent &&
                           dims.back().from == inner.from * inner.extent;
    if (continues)
      dims.back() = {dims.back().extent * inner.extent, inner.to, inner.from};
    else
      dims.push_back(inner);
  }
  const auto bytes = [bits](int64_t elements) { return elements * bits / 8; };
  ByteRows rows{.width = (bits + 7) / 8};
  if (!dims.empty() && dims.back().to == 1 && dims.back().from == 1) {
    rows.width = (dims.back().extent * bits + 7) / 8;
    dims.pop_back();
  }
  if (!dims.empty()) {  // the dimension with most rows, so that there are few sets of them
    const auto most = std::ranges::max_element(dims, {}, &Dim::extent);
    rows.height = most->extent, rows.to_pitch = bytes(most->to), rows.from_pitch = bytes(most->from);
    dims.erase(most);
  }
  Extents index(dims.size());
  int64_t to = 0, from = 0;
  for (;;) {
    copy(bytes(to), bytes(from), rows);
    size_t d = dims.size();
    for (; d > 0; --d) {
      const Dim& dim = dims[d - 1];
      to += dim.to, from += dim.from;
      if (++index[d - 1] < dim.extent) break;
      to -= dim.extent * dim.to, from -= dim.extent * dim.from, index[d - 1] = 0;
    }
    if (d == 0) return;
  }
}

}  // namespace imbrex::runtime
