// SPDX-License-Identifier: Apache-2.0
// From the tensors of a call to what kernels of rows take.
#pragma once

#include <initializer_list>
#include <string>

#include "imbrex/kernels/rows/row_tile.h"
#include "imbrex/runtime/device_tensor.h"

namespace imbrex {

/// The tensors of one call of `function`, checked one after the other: LaunchError "<function>: <name> ..." for one that
/// is null or released, on another device than the first, or whose shape, type or strides do not fit.
class RowCall {
 public:
  /// `first` says what shape the others have, and on which device they are.
  RowCall(std::string function, std::string name, const DeviceTensor& first,
          std::initializer_list<DataType> types = {float16, bfloat16, float32});
  enum class Types { kAny };
  RowCall(std::string function, std::string name, const DeviceTensor& first, Types)
      : RowCall(std::move(function), std::move(name), first, {first.dtype()}) {}

  /// A tensor of the first one's shape and of one of these types; `written`: none of its elements share memory.
  RowCall& operand(const std::string& name, const DeviceTensor& tensor,
                   std::initializer_list<DataType> types = {float16, bfloat16, float32});
  RowCall& result(const std::string& name, const DeviceTensor& tensor,
                  std::initializer_list<DataType> types = {float16, bfloat16, float32});
  /// A dense tensor of this shape.
  void check_dense(const std::string& name, const DeviceTensor& tensor, const std::vector<int64_t>& shape,
                   std::initializer_list<DataType> types) const;
  /// A tensor of this shape and type that is written, whose columns are neighbours.
  void check_written(const std::string& name, const DeviceTensor& tensor, const std::vector<int64_t>& shape,
                     DataType type) const;
  /// A float32 tensor of this shape that is written, of any strides.
  void check_scale(const std::string& name, const DeviceTensor& tensor,
                   const std::vector<int64_t>& shape) const;
  /// Matrices are not taken for one.
  void keep_matrices() { is_one_matrix_ = matrices_ == 1; }
  /// A dense tensor of [columns].
  kernels::ColumnOperandArguments<> column_operand(const std::string& name, const DeviceTensor& tensor) const;

  int64_t matrices() const { return matrices_; }
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }

  /// Whether the matrices of all operands follow each other as their rows do, so that they are one: then what follows
  /// speaks of one. After the last operand.
  kernels::RowShapeArguments row_shape() const { return row_shape(tile_columns()); }
  kernels::RowShapeArguments row_shape(int tile_columns) const;
  /// The width of tiles: whole rows, where is_whole().
  int tile_columns() const;
  /// `is_one_row`: the shape is that of one row.
  kernels::RowOperandArguments<> arguments(const DeviceTensor& tensor, bool is_one_row = false) const;
  /// The same of kernels that move tiles of whole rows as spans where they can; see kernels::RowShape::span_rows.
  kernels::RowShapeArguments spanned_shape() const;
  /// The same of kernels that compute each element by itself: one row of all elements where tensors are dense and their rows are
  /// not vectors.
  kernels::RowShapeArguments shape_of_elements(int tile_columns) const;
  /// The same of kernels that read long rows a second time, from the L2 cache where few rows are under way at once: wide parts,
  /// which take more threads each.
  kernels::RowShapeArguments rereading_shape() const { return row_shape(2 * kernels::RowTile::kPartColumns); }
  /// Whether long rows can be taken as kernels::FlatRow. After the last operand.
  bool is_flat() const;
  /// Whether rows are held whole.
  bool is_whole() const { return columns_ <= kernels::RowTile::kMostColumns; }

  const Device& device() const { return first_.device(); }

  [[noreturn]] void refuse_first(const std::string& message, const std::string& help) const {
    refuse(name_, first_, message, help);
  }
  [[noreturn]] void refuse(const std::string& name, const DeviceTensor& tensor, const std::string& message,
                           const std::string& help) const;

 private:
  void check(const std::string& name, const DeviceTensor& tensor,
             std::initializer_list<DataType> types) const;
  void add(const std::string& name, const DeviceTensor& tensor, std::initializer_list<DataType> types);

  std::string function_, name_;
  const DeviceTensor& first_;
  int64_t matrices_, rows_, columns_;
  int64_t column_unit_;
  bool is_one_matrix_;
  bool is_dense_ = true;                   ///< all operands, which begin at multiples of 16 bytes, are
  int least_bytes_ = 16, most_bytes_ = 1;  ///< of an operand's elements
};

}  // namespace imbrex
