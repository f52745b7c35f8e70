// SPDX-License-Identifier: Apache-2.0
// The sizes of a product as numbers of a launch: one compiled kernel serves all of them.
#pragma once

#include <cstdint>
#include <numeric>
#include <tuple>
#include <type_traits>

#include "imbrex/lang.h"

namespace imbrex::kernels {

namespace detail {
template <class Call>
struct FirstParameter;
template <class K, class T, class... Rest>
struct FirstParameter<void (K::*)(T, Rest...) const> {
  using Type = T;
};
/// Elements of k that the stages of a kernel hold.
template <class K>
int64_t ring_of(const K& kernel) {
  if constexpr (requires { kernel.ring(); })
    return kernel.ring();
  else
    return 0;
}
}  // namespace detail

/// C[m, n] from products of length k. Only a power of two that divides n is compiled for: rows of C begin at its multiples,
/// which decides how they can be stored; and, of kernels that make use of it, whether each part of k is a multiple of what
/// the ring of stages holds, so that stage numbers are constants. At most `ctas` CTAs are launched, those that the device
/// runs at once.
struct ProductSizes {
  using Parameters = ParameterList<Int32, Int32, int, Int32, bool, Int32>;
  Int32 m, n_units;
  int n_unit;
  Int32 k;
  bool k_fills_rings;
  Int32 ctas;

  Expr n() const { return n_units * n_unit; }
};

/// What a launch passes for ProductSizes.
struct ProductSizesArguments {
  static constexpr int64_t kMostUnit = 16;
  /// `ring`: elements of k that the stages hold of all parts of k; 0 where the kernel makes no use of it.
  ProductSizesArguments(int64_t m, int64_t n, int64_t k, int64_t ring, int64_t ctas)
      : m(m),
        n_unit(static_cast<int>(std::gcd(n, kMostUnit))),
        n_units(n / n_unit),
        k(k),
        k_fills_rings(ring > 0 && k % ring == 0),
        ctas(ctas) {}
  int64_t m;
  int n_unit;
  int64_t n_units, k;
  bool k_fills_rings;
  int64_t ctas;
  auto arguments() const { return std::tie(m, n_units, n_unit, k, k_fills_rings, ctas); }
};

/// The sizes as kernel K takes them: as ProductSizes, or m, n and k one by one.
template <class K>
auto product_sizes(int64_t m, int64_t n, int64_t k, int64_t ring = 0, int64_t ctas = 132) {
  struct Separate {
    int64_t m, n, k;
    auto arguments() const { return std::tie(m, n, k); }
  };
  using First = typename detail::FirstParameter<decltype(&K::operator())>::Type;
  if constexpr (std::is_same_v<First, ProductSizes>)
    return ProductSizesArguments(m, n, k, ring, ctas);
  else
    return Separate{m, n, k};
}
/// The same, with what the kernel makes of its rings.
template <class K>
auto product_sizes(const K& kernel, int64_t m, int64_t n, int64_t k, int64_t ctas = 132) {
  return product_sizes<K>(m, n, k, detail::ring_of(kernel), ctas);
}

}  // namespace imbrex::kernels
