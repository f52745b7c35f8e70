// SPDX-License-Identifier: Apache-2.0
// Kernels of the library for its functions: what was compiled for one process is found by the next without tracing
// (KernelBase::keep_compiled_as), by the values of all of the kernel's members.
#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <type_traits>

#include "imbrex/runtime/kernel.h"

namespace imbrex {
namespace detail {

/// Stands for a member of any type, where members are counted.
struct AnyMember {
  template <class T>
  operator T() const;
};

template <class K, class... Found>
consteval size_t member_count() {
  if constexpr (requires { K{Found{}..., AnyMember{}}; })
    return member_count<K, Found..., AnyMember>();
  else
    return sizeof...(Found);
}

template <class T>
std::string member_text(const T& value);

template <class... T>
std::string members_text(const T&... members) {
  return (std::string("{") + ... + (member_text(members) + ","));
}

/// A number, or what members a structure has; nobody has to list them, so none is forgotten. (`auto& [...]` names as many as
/// there are.)
template <class T>
std::string member_text(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return std::to_string(static_cast<int64_t>(value));
  } else if constexpr (std::integral<T>) {
    return std::to_string(value);
  } else {
    static_assert(std::is_aggregate_v<T>,
                  "a kernel of the library has members that are numbers, or structures of such");
    constexpr size_t kCount = member_count<T>();
    static_assert(kCount <= 16, "add a case");
#define IMBREX_MEMBERS(count, ...)    \
  if constexpr (kCount == count) {    \
    auto& [__VA_ARGS__] = value;      \
    return members_text(__VA_ARGS__); \
  }
    // clang-format off
    IMBREX_MEMBERS(1, a)
    IMBREX_MEMBERS(2, a, b)
    IMBREX_MEMBERS(3, a, b, c)
    IMBREX_MEMBERS(4, a, b, c, d)
    IMBREX_MEMBERS(5, a, b, c, d, e)
    IMBREX_MEMBERS(6, a, b, c, d, e, f)
    IMBREX_MEMBERS(7, a, b, c, d, e, f, g)
    IMBREX_MEMBERS(8, a, b, c, d, e, f, g, h)
    IMBREX_MEMBERS(9, a, b, c, d, e, f, g, h, i)
    IMBREX_MEMBERS(10, a, b, c, d, e, f, g, h, i, j)
    IMBREX_MEMBERS(11, a, b, c, d, e, f, g, h, i, j, k)
    IMBREX_MEMBERS(12, a, b, c, d, e, f, g, h, i, j, k, l)
    IMBREX_MEMBERS(13, a, b, c, d, e, f, g, h, i, j, k, l, m)
    IMBREX_MEMBERS(14, a, b, c, d, e, f, g, h, i, j, k, l, m, n)
    IMBREX_MEMBERS(15, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o)
    IMBREX_MEMBERS(16, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p)
    // clang-format on
#undef IMBREX_MEMBERS
    return "{}";
  }
}

}  // namespace detail

/// `kernel` for a device; without one it can only be traced and shipped.
template <class K>
Kernel<K> library_kernel(const K& kernel, const std::optional<Device>& device) {
  Kernel<K> made(kernel, device);
  made.keep_compiled_as(detail::member_text(kernel));
  return made;
}

}  // namespace imbrex
