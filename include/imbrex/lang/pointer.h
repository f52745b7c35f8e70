// SPDX-License-Identifier: Apache-2.0
// Device pointers as kernel parameters.
#pragma once

#include "imbrex/lang/scalar.h"

namespace imbrex {

/// In place of an element type: any.
inline constexpr DataType any_type{DataType::kCount};

/// A device pointer to global memory, as a kernel parameter: typed (`Ptr<float16> a_ptr`) or not (`Ptr<>
/// a_ptr`). global_view() makes a tensor of it. A launch refuses a tensor of another element type, and an
/// address that is not aligned.
template <DataType T = any_type>
class Ptr {
 public:
  static constexpr DataType kType = T;
  explicit Ptr(detail::Handle handle) : handle_(handle) {}
  detail::Handle handle() const { return handle_; }

 private:
  detail::Handle handle_;
};

/// A pointer argument of any element type.
class PtrArg {
 public:
  template <DataType T>
  PtrArg(const Ptr<T>& pointer) : handle(pointer.handle()), dtype(T) {}
  detail::Handle handle;
  DataType dtype;
};

}  // namespace imbrex
