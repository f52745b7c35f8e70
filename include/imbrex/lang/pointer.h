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

  /// They do not compile: what a pointer points to has a shape first.
  template <class I>
  Expr operator[](const I&) const {
    return explain<I>();
  }
  template <class I>
  Expr operator+(const I&) const {
    return explain<I>();
  }
  template <class I = void>
  Expr operator*() const {
    return explain<I>();
  }

 private:
  template <class I>
  static Expr explain() {
    static_assert(
        detail::kNever<I>,
        "a pointer has no elements: `auto g = global_view(p, {n})` gives it a shape, then `g[i]` is one "
        "and `load_global(g, {offset}, {size})` a tile");
    return Expr({}, int32);
  }
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

namespace detail {
Handle pointer_at(const ScalarArg& address, DataType dtype, SourceLocation where);
}

/// A pointer whose address is data, as in a table of pointers: `global_view(pointer_at<float16>(g_table[g]), {m, n})`,
/// where g_table is a tensor of uint64 or int64. The address is a multiple of 16 bytes. What it points to is loaded and
/// stored by threads; TMA needs the address before the launch. Device pointers of tensors are theirs: DeviceTensor::address().
template <DataType T>
Ptr<T> pointer_at(const ScalarArg& address, SourceLocation where = SourceLocation::current()) {
  return Ptr<T>(detail::pointer_at(address, T, where));
}

}  // namespace imbrex
