// SPDX-License-Identifier: Apache-2.0
// Does a matrix descriptor read what TMA wrote? Both address formulas, element by element.
#include <fmt/format.h>

#include "imbrex/core/error.h"
#include "imbrex/inspect/layout_tools.h"
#include "layout/descriptors.h"
#include "layout/memory.h"

namespace imbrex {
namespace {

using layout::Axis;
using layout::Layout;
using layout::Major;
using layout::Swizzle;

Swizzle swizzle_named(const std::string& name) {
  if (const auto swizzle = Swizzle::from_name(name)) return *swizzle;
  throw LaunchError(
      Diagnostic{{}, fmt::format("no swizzle is called '{}'", name), {}, "none, 32B, 64B, 128B"});
}

void require(bool holds, std::string what, std::string remedy = "") {
  if (!holds) throw LaunchError(Diagnostic{{}, std::move(what), {}, std::move(remedy)});
}

/// The operand [mn, k] as TMA's boxes leave it in shared memory.
Layout written(const DescriptorQuestion& q) {
  const Layout tile = layout::operand_tile({q.rows, q.columns}, q.dtype.bits(), swizzle_named(q.tma_swizzle));
  return q.is_mn_major ? tile.transpose() : tile;
}

int64_t k_step(const DescriptorQuestion& q) { return 256 / q.dtype.bits(); }

void check_question(const DescriptorQuestion& q) {
  const Swizzle tma = swizzle_named(q.tma_swizzle), descriptor = swizzle_named(q.swizzle);
  require(q.rows > 0 && q.columns > 0 && q.instruction_mn > 0, "a tile has 1 or more rows and columns");
  require(128 % q.dtype.bits() == 0,
          fmt::format("elements of {} bits do not divide 16 bytes", q.dtype.bits()));
  require(q.base >= 0 && q.base % 16 == 0,
          fmt::format("the tile starts at byte {}, TMA needs a multiple of 128", q.base));
  require(q.base % std::max(tma.period_bytes(), descriptor.period_bytes()) == 0,
          fmt::format("the tile starts at byte {}, inside a swizzle pattern of {} bytes", q.base,
                      std::max(tma.period_bytes(), descriptor.period_bytes())),
          "align it to the pattern");
  const int64_t row_bytes = q.columns * q.dtype.bits() / 8, span = tma.span_bytes();
  require(row_bytes % span == 0,
          fmt::format("rows of {} bytes do not fill whole boxes of {} bytes", row_bytes, span),
          "choose a narrower swizzle or wider rows");
  const int64_t mn = q.is_mn_major ? q.columns : q.rows, k = q.is_mn_major ? q.rows : q.columns;
  require(mn % q.instruction_mn == 0 && k % k_step(q) == 0,
          fmt::format("an operand of {} x {} is not cut into instructions of {} x {}", mn, k,
                      q.instruction_mn, k_step(q)));
}

}  // namespace

DescriptorAnswer check_descriptor(const DescriptorQuestion& q) {
  check_question(q);
  const Layout operand = written(q);
  const Swizzle swizzle = swizzle_named(q.swizzle);
  const int64_t bits = q.dtype.bits();
  const layout::DescriptorFormula formula{q.is_mn_major ? Major::kMN : Major::kK, swizzle, bits,
                                          q.leading_bytes * 8, q.stride_bytes * 8};
  const int64_t mn_extent = operand.shape()[0], k_extent = operand.shape()[1];
  auto linear_bits = [&](int64_t mn, int64_t k) { return operand.linear({mn, k})[Axis::kAddress] * bits; };

  DescriptorAnswer answer;
  for (int64_t k0 = 0; k0 < k_extent; k0 += k_step(q))
    for (int64_t mn0 = 0; mn0 < mn_extent; mn0 += q.instruction_mn) {
      // A descriptor starts where the tile has the instruction's first element, or where the user advances it
      // to.
      int64_t start = linear_bits(mn0, k0);
      if (q.k_advance >= 0) start = linear_bits(mn0, 0) + k0 / k_step(q) * q.k_advance * 8;
      for (int64_t mn = 0; mn < q.instruction_mn; ++mn)
        for (int64_t k = 0; k < k_step(q); ++k) {
          const int64_t wrote = q.base + operand.map({mn0 + mn, k0 + k})[Axis::kAddress] * bits / 8;
          const int64_t reads =
              swizzle.apply(q.base + (start + formula.mn_offset(mn) + formula.k_offset(k)) / 8);
          if (wrote == reads) continue;
          answer.mn = mn0 + mn, answer.k = k0 + k, answer.written = wrote, answer.read = reads;
          const auto instead = operand.inverse([&] {
            layout::Coords place;
            place[Axis::kAddress] = (reads - q.base) * 8 / bits;
            return place;
          }());
          answer.explanation = fmt::format(
              "element ({}, {}) was written to byte {}, but the descriptor reads it from byte {}{}",
              answer.mn, answer.k, wrote, reads,
              instead ? fmt::format(", where element ({}, {}) is", (*instead)[0], (*instead)[1])
                      : ", outside the tile");
          return answer;
        }
    }
  answer.agrees = true;
  answer.explanation =
      fmt::format("all {} x {} elements are read from where TMA wrote them", mn_extent, k_extent);
  return answer;
}

std::string suggest_descriptor(const DescriptorQuestion& q) {
  check_question(q);
  const auto fits = layout::describe_matrix_operand(written(q), q.is_mn_major ? Major::kMN : Major::kK,
                                                    q.instruction_mn, k_step(q));
  if (!fits) return fits.error;
  std::string advance =
      fits->k_offsets.size() > 1 ? fmt::format(", {} bytes further each k step", fits->k_offsets[1]) : "";
  return fmt::format("swizzle {}, leading byte offset {}, stride byte offset {}{}", fits->swizzle.name(),
                     fits->leading_bytes, fits->stride_bytes, advance);
}

}  // namespace imbrex
