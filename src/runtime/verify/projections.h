// SPDX-License-Identifier: Apache-2.0
// Every element of a large matrix product checked at the cost of a few products of a matrix and a vector:
// C v = A (B^T v), row by row, for vectors v of random signs.
//
// A row of n right elements does not give the exact sum: each was rounded to its type, by up to half a unit u
// in its last place, evenly spread, variance u^2 / 12; and float32 sums were cut to 24 bits after every 16
// products on tensor cores, which takes some k / 16 halves of a unit 2^-23 of the sum (the chip's arithmetic,
// core/tensor_arith.h), or rounded after each elsewhere, which moves it by the root of k of them. Under
// random signs these add up like independent errors, so that a row's sum strays by the root of the sum of its
// elements' variances: a fixed share of the result's size would be passed by chance (8e-3 in bfloat16 are 4.8
// standard deviations, once in 360 products of 2047 rows), whatever n.
//
// A wrong element strays by its error under every v, roundings by another amount under each. So the errors
// under four vectors are squared, in standard deviations, and added: chance alone passes the limit once in
// 10^12 rows, and an element that is off by four standard deviations of its row shows.
#pragma once

#include <span>
#include <vector>

#include "imbrex/runtime/compare.h"

namespace imbrex {

inline constexpr int kProjections = 4;

/// Signs for the columns, 1 or -1, of every projection: kProjections runs of n.
std::vector<double> projection_signs(uint64_t seed, int64_t n);

/// Compares C [m, n], a floating-point product over k that was summed in float32, with the exact projections
/// of its rows, kProjections runs of m. The comparison's error is the distance in shares of the limit, times
/// the element type's default tolerance.
Comparison compare_projections(const HostTensor& c, std::span<const double> expected,
                               std::span<const double> signs, int64_t k);

}  // namespace imbrex
