// SPDX-License-Identifier: Apache-2.0
// Matrix descriptors. A layout's linear address is a sum f(mn) + g(k), and so is the descriptor's formula in
// every mode: off(mn, k) = u(mn) + v(k). Both swizzle the absolute sum alike, so they agree on every element
// exactly when f = u and g = v over the rows and the columns of each instruction.
#include "layout/descriptors.h"
#include "layout/layout_data.h"

namespace imbrex::layout {

int64_t DescriptorFormula::mn_offset(int64_t mn) const {
  if (major == Major::kK) return mn / 8 * stride + mn % 8 * row();
  return mn * bits / row() * (swizzle ? leading : stride) + mn * bits % row();
}

int64_t DescriptorFormula::k_offset(int64_t k) const {
  if (major == Major::kMN) return k % group() * row() + k / group() * (swizzle ? stride : leading);
  return swizzle ? k * bits : k * bits / row() * leading + k * bits % row();
}

namespace {

using Result = Described<MatrixOperand>;
Result no(std::string why) { return {std::nullopt, std::move(why)}; }

std::string_view major_name(Major major) { return major == Major::kK ? "K-major" : "MN-major"; }

/// The operand whose element (mn, k) lies at bit f[mn] + g[k].
Result describe(DescriptorFormula formula, std::span<const int64_t> f, std::span<const int64_t> g,
                int64_t mn_step, int64_t k_step) {
  const Major major = formula.major;
  const Swizzle swizzle = formula.swizzle;
  const auto at = [](std::span<const int64_t> bits, int64_t i) { return bits[static_cast<size_t>(i)]; };
  // The offsets that the layout suggests; ones that no element of an instruction needs keep a value that
  // encodes.
  int64_t row_elements = formula.row() / formula.bits;
  formula.leading = formula.stride = 16 * 8;
  if (major == Major::kK) {
    if (mn_step > 8) formula.stride = at(f, 8) - f[0];
    if (!swizzle && k_step > row_elements) formula.leading = at(g, row_elements) - g[0];
  } else {
    int64_t& across_mn = swizzle ? formula.leading : formula.stride;
    int64_t& across_k = swizzle ? formula.stride : formula.leading;
    if (mn_step > row_elements) across_mn = at(f, row_elements) - f[0];
    if (k_step > formula.group()) across_k = at(g, formula.group()) - g[0];
  }
  for (int64_t offset : {formula.leading, formula.stride})
    if (offset < 0 || offset % 128 != 0 || offset / 8 >= 1 << 18)
      return no(fmt::format("as {} operand its groups are {} bits apart, which no descriptor encodes",
                            major_name(major), offset));

  MatrixOperand result{major, swizzle, formula.leading / 8, formula.stride / 8, {}, {}};
  auto disagree = [&](int64_t mn, int64_t k, int64_t layout_bits, int64_t descriptor_bits) {
    return no(
        fmt::format("as {} operand with swizzle {}, element ({}, {}) lies at byte {}, but a descriptor reads "
                    "it at byte {}",
                    major_name(major), swizzle.name(), mn, k, layout_bits / 8, descriptor_bits / 8));
  };
  for (int64_t block = 0; block < std::ssize(f); block += mn_step) {
    int64_t start = at(f, block);
    if (start % 128 != 0)
      return no(fmt::format("row block {} starts at bit {}, not on 16 bytes", block / mn_step, start));
    for (int64_t i = 0; i < mn_step; ++i)
      if (at(f, block + i) - start != formula.mn_offset(i))
        return disagree(block + i, 0, at(f, block + i), start + formula.mn_offset(i));
    result.mn_offsets.push_back(start / 8);
  }
  for (int64_t step = 0; step < std::ssize(g); step += k_step) {
    int64_t start = at(g, step);
    if (start % 128 != 0)
      return no(fmt::format("k step {} starts at bit {}, not on 16 bytes", step / k_step, start));
    for (int64_t i = 0; i < k_step; ++i)
      if (at(g, step + i) - start != formula.k_offset(i))
        return disagree(0, step + i, at(g, step + i), start + formula.k_offset(i));
    result.k_offsets.push_back(start / 8);
  }
  return {std::move(result), ""};
}

}  // namespace

Result describe_matrix_rows(std::span<const int64_t> rows, std::span<const int64_t> columns, int element_bits,
                            Swizzle swizzle) {
  if (swizzle.mode > Swizzle::k128B)
    return no(fmt::format("a copy does not read swizzle {}", swizzle.name()));
  return describe({Major::kK, swizzle, element_bits}, rows, columns, std::ssize(rows), std::ssize(columns));
}

Described<MatrixOperand> describe_matrix_operand(const Layout& operand, Major major, int64_t mn_step,
                                                 int64_t k_step) {
  if (operand.rank() != 2) return no(fmt::format("shape {} is not a matrix", shape_text(operand.shape())));
  if (operand.element_bits() == 0 || operand.is_padded() || !operand.replicas().empty())
    return no("it is not a dense layout of shared memory");
  if (128 % operand.element_bits() != 0)
    return no(fmt::format("elements of {} bits do not divide 16 bytes", operand.element_bits()));
  for (Axis axis : kAxes)
    if (axis != Axis::kAddress && operand.uses(axis))
      return no(fmt::format("it moves along the {} axis, not in shared memory", axis_name(axis)));
  Swizzle swizzle = operand.swizzle();
  if (swizzle.mode == Swizzle::k128BAtom32BFlip8B || swizzle.mode == Swizzle::k128BAtom64B)
    return no(fmt::format("matrix descriptors have no swizzle {}", swizzle.name()));
  if (swizzle.mode == Swizzle::k128BAtom32B && major == Major::kK)
    return no("swizzle 128B/32B is for MN-major operands");
  int64_t mn_extent = operand.shape()[0], k_extent = operand.shape()[1];
  if (mn_step < 1 || k_step < 1 || mn_extent % mn_step != 0 || k_extent % k_step != 0)
    return no(fmt::format("{}x{} does not divide into instructions of {}x{}", mn_extent, k_extent, mn_step,
                          k_step));

  std::vector<int64_t> f, g;
  for (int64_t mn = 0; mn < mn_extent; ++mn)
    f.push_back(operand.linear({mn, 0})[Axis::kAddress] * operand.element_bits());
  for (int64_t k = 0; k < k_extent; ++k)
    g.push_back(operand.linear({0, k})[Axis::kAddress] * operand.element_bits());
  return describe({major, swizzle, operand.element_bits()}, f, g, mn_step, k_step);
}

Described<MatrixOperand> describe_matrix_operand(const Layout& operand, int64_t mn_step, int64_t k_step) {
  Result k_major = describe_matrix_operand(operand, Major::kK, mn_step, k_step);
  if (k_major) return k_major;
  Result mn_major = describe_matrix_operand(operand, Major::kMN, mn_step, k_step);
  if (mn_major) return mn_major;
  return no(k_major.error == mn_major.error ? k_major.error : k_major.error + "; " + mn_major.error);
}

}  // namespace imbrex::layout
