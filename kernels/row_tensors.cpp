// SPDX-License-Identifier: Apache-2.0
#include "row_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>

#include "imbrex/core/error.h"
#include "tensor_fact.h"

namespace imbrex {
namespace {

constexpr int64_t kUnitBytes = 16;

/// Says what is wrong with one tensor of a call.
class TensorCheck {
 public:
  TensorCheck(const std::string& function, const std::string& name, const DeviceTensor& tensor,
              const DeviceTensor& like)
      : what_(fmt::format("{}: {}", function, name)), tensor_(tensor), like_(like) {}

  [[noreturn]] void refuse(const std::string& message, const std::string& help) const {
    Diagnostic told{{}, fmt::format("{} {}", what_, message), {}, help};
    add_fact(told, "tensor", tensor_);
    if (&tensor_ != &like_) add_fact(told, "beside", like_);
    throw LaunchError(std::move(told));
  }
  void check(DataType dtype) const {
    if (tensor_.is_null() || tensor_.address() == 0)
      refuse("is null or released", "make it before the call, and release it after");
    if (tensor_.dtype() != dtype)
      refuse(fmt::format("is of {}, not {}", tensor_.dtype().name(), dtype.name()), "convert it");
    if (!like_.is_null() && &tensor_.device().backend() != &like_.device().backend())
      refuse(
          fmt::format("is on '{}', the first tensor on '{}'", tensor_.device().name(), like_.device().name()),
          "copy it to the same device");
  }

 private:
  std::string what_;
  const DeviceTensor &tensor_, &like_;
};

}  // namespace

int64_t unit_of(uint64_t address, DataType dtype, int64_t row, int64_t batch) {
  const auto elements = static_cast<int64_t>(address % kUnitBytes) / dtype.bytes();
  return std::gcd(std::gcd(kUnitBytes / dtype.bytes(), elements), std::gcd(row, batch));
}

RowTensor row_tensor(const std::string& function, const std::string& name, const DeviceTensor& tensor,
                     DataType dtype, const DeviceTensor& like) {
  const TensorCheck check(function, name, tensor, like);
  check.check(dtype);
  const std::vector<int64_t>& shape = tensor.shape();
  if (shape.size() != 2 && shape.size() != 3)
    check.refuse(fmt::format("has {} dimensions, not 2 or 3", shape.size()),
                 "make it [rows, columns] or [batch, rows, columns]");
  if (shape != like.shape())
    check.refuse("has another shape than the first tensor", "give both the same shape");
  for (int64_t extent : shape)
    if (extent < 1) check.refuse(fmt::format("has an extent of {}", extent), "leave the call out");
  const size_t first = shape.size() - 2;
  const int64_t matrices = first == 0 ? 1 : shape[0];
  const int64_t row = shape[first] == 1 ? 0 : tensor.strides()[first],
                batch = matrices == 1 ? 0 : tensor.strides()[0];
  if (shape.back() > 1 && tensor.strides().back() != 1)
    check.refuse(fmt::format("has a stride of {} along its rows, not 1", tensor.strides().back()),
                 "copy it to a tensor whose rows are contiguous");
  const int64_t unit = unit_of(tensor.address(), dtype, row, batch);
  return {matrices, shape[first], shape.back(), {static_cast<int>(unit), row / unit, batch / unit}};
}

RowTensor written_row_tensor(const std::string& function, const std::string& name, const DeviceTensor& tensor,
                             DataType dtype, const DeviceTensor& like) {
  const RowTensor rows = row_tensor(function, name, tensor, dtype, like);
  if (tensor.may_overlap())
    TensorCheck(function, name, tensor, like)
        .refuse("is written, and its elements share memory", "write to a tensor without strides of 0");
  return rows;
}

void check_column_tensor(const std::string& function, const std::string& name, const DeviceTensor& tensor,
                         DataType dtype, const DeviceTensor& like) {
  const TensorCheck check(function, name, tensor, like);
  check.check(dtype);
  if (tensor.shape() != std::vector{like.shape().back()} || !tensor.is_dense())
    check.refuse(fmt::format("is not a dense tensor of [{}]", like.shape().back()),
                 "give one element for each column");
  if (tensor.address() % kUnitBytes != 0)
    check.refuse(fmt::format("is at address 0x{:x}, not a multiple of {}", tensor.address(), kUnitBytes),
                 "align the buffer, or copy it");
}

}  // namespace imbrex
