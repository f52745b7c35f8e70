// SPDX-License-Identifier: Apache-2.0
#include "whole_rows.h"

#include <utility>

namespace imbrex {

DeviceTensor WholeRows::operator()(const DeviceTensor& t) {
  constexpr int64_t kUnitBytes = 16;
  const int64_t unit = kUnitBytes / t.dtype().bytes(), k = t.shape().back(),
                whole = (k + unit - 1) / unit * unit;
  if (t.is_dense() && t.address() % kUnitBytes == 0 && whole == k) return t;
  const size_t first = t.shape().size() - 2;
  const int64_t matrices = first == 0 ? 1 : t.shape()[0], rows = t.shape()[first];
  held_.push_back(Workspace::on(stream_, t.device(), matrices * rows * whole * t.dtype().bytes()));
  std::vector<int64_t> shape = t.shape();
  shape.back() = whole;
  DeviceTensor copy = held_.back().tensor(t.dtype(), std::move(shape));
  const int64_t batch = first == 0 ? 0 : t.strides()[0], row = t.strides()[first],
                column = t.strides().back();
  repacker_.add({t.dtype(),
                 matrices,
                 rows,
                 k,
                 whole,
                 t.address(),
                 batch,
                 row,
                 column,
                 copy.address(),
                 {static_cast<int>(unit), whole / unit, rows * whole / unit}});
  return copy;
}

}  // namespace imbrex
