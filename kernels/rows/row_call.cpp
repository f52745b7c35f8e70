// SPDX-License-Identifier: Apache-2.0
#include "rows/row_call.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "imbrex/core/error.h"
#include "row_tensors.h"
#include "tensor_fact.h"

namespace imbrex {
namespace {

constexpr int64_t kVectorBytes = 16;

std::string names_of(std::initializer_list<DataType> types) {
  std::string text;
  size_t i = 0;
  for (DataType type : types) {
    if (i > 0) text += i + 1 == types.size() ? " or " : ", ";
    text += type.name();
    ++i;
  }
  return text;
}

}  // namespace

RowCall::RowCall(std::string function, std::string name, const DeviceTensor& first,
                 std::initializer_list<DataType> types)
    : function_(std::move(function)), name_(name), first_(first) {
  check(name, first, types);
  const std::vector<int64_t>& shape = first.shape();
  if (shape.size() != 2 && shape.size() != 3)
    refuse(name, first, fmt::format("has {} dimensions, not 2 or 3", shape.size()),
           "make it [rows, columns] or [batch, rows, columns]");
  for (int64_t extent : shape)
    if (extent < 1) refuse(name, first, fmt::format("has an extent of {}", extent), "leave the call out");
  matrices_ = shape.size() == 2 ? 1 : shape[0];
  rows_ = shape[shape.size() - 2];
  columns_ = shape.back();
  column_unit_ = std::gcd(columns_, kVectorBytes);
  is_one_matrix_ = true;
  add(name, first, types);
}

RowCall& RowCall::operand(const std::string& name, const DeviceTensor& tensor,
                          std::initializer_list<DataType> types) {
  add(name, tensor, types);
  return *this;
}

RowCall& RowCall::result(const std::string& name, const DeviceTensor& tensor,
                         std::initializer_list<DataType> types) {
  add(name, tensor, types);
  if (tensor.may_overlap())
    refuse(name, tensor, "is written, and its elements share memory",
           "write to a tensor without strides of 0");
  return *this;
}

void RowCall::add(const std::string& name, const DeviceTensor& tensor,
                  std::initializer_list<DataType> types) {
  check(name, tensor, types);
  if (tensor.shape() != first_.shape())
    refuse(name, tensor, "has another shape than the first tensor", "give both the same shape");
  if (columns_ > 1 && tensor.strides().back() != 1)
    refuse(name, tensor, fmt::format("has a stride of {} along its rows, not 1", tensor.strides().back()),
           "copy it to a tensor whose rows are contiguous");
  is_dense_ = is_dense_ && tensor.is_dense() && tensor.address() % kVectorBytes == 0;
  least_bytes_ = std::min(least_bytes_, tensor.dtype().bytes());
  most_bytes_ = std::max(most_bytes_, tensor.dtype().bytes());
  const size_t row = tensor.shape().size() - 2;
  if (matrices_ > 1 && rows_ > 1 && tensor.strides()[0] != rows_ * tensor.strides()[row])
    is_one_matrix_ = false;
}

void RowCall::check(const std::string& name, const DeviceTensor& tensor,
                    std::initializer_list<DataType> types) const {
  if (tensor.is_null() || tensor.address() == 0)
    refuse(name, tensor, "is null or released", "make it before the call, and release it after");
  if (std::find(types.begin(), types.end(), tensor.dtype()) == types.end())
    refuse(name, tensor, fmt::format("is of {}, not {}", tensor.dtype().name(), names_of(types)),
           "convert it");
  if (!first_.is_null() && &tensor.device().backend() != &first_.device().backend())
    refuse(
        name, tensor,
        fmt::format("is on '{}', the first tensor on '{}'", tensor.device().name(), first_.device().name()),
        "copy it to the same device");
}

void RowCall::check_dense(const std::string& name, const DeviceTensor& tensor,
                          const std::vector<int64_t>& shape, std::initializer_list<DataType> types) const {
  check(name, tensor, types);
  if (tensor.shape() != shape || !tensor.is_dense())
    refuse(name, tensor, fmt::format("is not a dense tensor of [{}]", fmt::join(shape, ", ")),
           "give it this shape, without gaps");
}

void RowCall::check_written(const std::string& name, const DeviceTensor& tensor,
                            const std::vector<int64_t>& shape, DataType type) const {
  check(name, tensor, {type});
  if (tensor.shape() != shape)
    refuse(name, tensor, fmt::format("is not [{}]", fmt::join(shape, ", ")), "give it this shape");
  if (tensor.shape().back() > 1 && tensor.strides().back() != 1)
    refuse(name, tensor, fmt::format("has a stride of {} along its rows, not 1", tensor.strides().back()),
           "copy it to a tensor whose rows are contiguous");
  if (tensor.may_overlap())
    refuse(name, tensor, "is written, and its elements share memory",
           "write to a tensor without strides of 0");
}

void RowCall::check_scale(const std::string& name, const DeviceTensor& tensor,
                          const std::vector<int64_t>& shape) const {
  check(name, tensor, {float32});
  if (tensor.shape() != shape)
    refuse(name, tensor, fmt::format("is not [{}]", fmt::join(shape, ", ")),
           "give it a scale per row, or per 128 columns");
  if (tensor.may_overlap())
    refuse(name, tensor, "is written, and its elements share memory",
           "write to a tensor without strides of 0");
}

kernels::ColumnOperandArguments<> RowCall::column_operand(const std::string& name,
                                                          const DeviceTensor& tensor) const {
  check_dense(name, tensor, {columns_}, {float16, bfloat16, float32});
  if (tensor.address() % kVectorBytes != 0)
    refuse(name, tensor,
           fmt::format("is at address 0x{:x}, not a multiple of {}", tensor.address(), kVectorBytes),
           "align the buffer, or copy it");
  return {tensor.dtype(), tensor.address()};
}

int RowCall::tile_columns() const { return kernels::tile_columns_of(columns_); }

kernels::RowShapeArguments RowCall::row_shape(int tile_columns) const {
  return {is_one_matrix_ ? 1 : matrices_, is_one_matrix_ ? matrices_ * rows_ : rows_, columns_ / column_unit_,
          static_cast<int>(column_unit_), tile_columns};
}

kernels::RowShapeArguments RowCall::spanned_shape() const {
  constexpr int64_t kMostUnits = int64_t{1} << 31;
  kernels::RowShapeArguments shape = row_shape();
  if (is_dense_ && matrices_ * rows_ * columns_ * most_bytes_ / kVectorBytes < kMostUnits)
    shape.span_rows = kernels::span_rows_of(columns_, least_bytes_);
  return shape;
}

bool RowCall::is_flat() const {
  constexpr int64_t kUnit = kernels::FlatRow::kUnit, kMostUnits = int64_t{1} << 31;
  return !is_whole() && columns_ % kUnit != 0 && is_dense_ &&
         matrices_ * rows_ * columns_ / kUnit < kMostUnits;
}

kernels::RowShapeArguments RowCall::shape_of_elements(int tile_columns) const {
  constexpr int64_t kMostTiles = 65535;
  const int64_t elements = matrices_ * rows_ * columns_, unit = std::gcd(elements, kVectorBytes);
  if (!is_dense_ || column_unit_ >= 8 || unit < 8 || elements > kMostTiles * tile_columns)
    return row_shape(tile_columns);
  return {1, 1, elements / unit, static_cast<int>(unit), tile_columns};
}

kernels::RowOperandArguments<> RowCall::arguments(const DeviceTensor& tensor, bool is_one_row) const {
  const size_t first = tensor.shape().size() - 2;
  const std::vector<int64_t>& strides = tensor.strides();
  int64_t row = strides[first], batch = is_one_matrix_ || matrices_ == 1 ? 0 : strides[0];
  if (rows_ == 1) row = is_one_matrix_ && matrices_ > 1 ? strides[0] : 0;
  if (is_one_row) row = batch = 0;
  const int64_t unit = unit_of(tensor.address(), tensor.dtype(), row, batch);
  return {tensor.dtype(), tensor.address(), {static_cast<int>(unit), row / unit, batch / unit}};
}

void RowCall::refuse(const std::string& name, const DeviceTensor& tensor, const std::string& message,
                     const std::string& help) const {
  Diagnostic told{{}, fmt::format("{}: {} {}", function_, name, message), {}, help};
  add_fact(told, "tensor", tensor);
  if (&tensor != &first_) add_fact(told, "beside", first_);
  throw LaunchError(std::move(told));
}

}  // namespace imbrex
