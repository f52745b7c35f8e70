// SPDX-License-Identifier: Apache-2.0
// The laws that code generation stands on: digits give the element a thread holds, and the address it has.
#include "codegen/digits.h"

#include <gtest/gtest.h>

#include <random>

#include "layout/memory.h"
#include "layout/registers.h"

namespace imbrex::codegen {
namespace {

using layout::Axis;
using layout::Coords;
using layout::Index;
using layout::Layout;

/// The element that the digits say thread and register hold; nothing where a digit is out of its range.
std::optional<Index> element_by_digits(const IndexDigits& digits, int64_t thread, int64_t reg) {
  std::optional<Index> index = digits.register_index(reg);
  if (!index || thread >= digits.thread_extent) return std::nullopt;
  for (const Digit& d : digits.threads) {
    if (d.of(thread) >= d.extent) return std::nullopt;
    if (d.dim >= 0) (*index)[d.dim] += d.of(thread) * d.weight;
  }
  if (!digits.threads.empty() && thread % digits.threads.front().divisor != 0) return std::nullopt;
  for (size_t i = 0; i < index->size(); ++i)
    if ((*index)[i] >= digits.shape[i]) return std::nullopt;
  return index;
}

void check_element_law(const Layout& layout) {
  const std::optional<IndexDigits> digits = index_digits(layout);
  ASSERT_TRUE(digits) << layout.to_string();
  for (int64_t t = 0; t < layout.threads() + 3; ++t)
    for (int64_t r = 0; r < layout.registers(); ++r)
      ASSERT_EQ(element_by_digits(*digits, t, r), layout.element(t, r))
          << layout.to_string() << " thread " << t << " register " << r;
}

void check_address_law(const Layout& registers, const Layout& memory) {
  const std::optional<IndexDigits> digits = index_digits(registers);
  ASSERT_TRUE(digits);
  const std::optional<std::vector<MemoryTerm>> terms = memory_terms(*digits, memory);
  if (!terms) return;  // cut at places that do not nest: addresses are computed from the index then
  for (int64_t t = 0; t < registers.threads(); ++t)
    for (int64_t r = 0; r < registers.registers(); ++r) {
      const std::optional<Index> index = registers.element(t, r);
      if (!index) continue;
      Coords sum;
      for (const MemoryTerm& term : *terms)
        sum[term.axis] += term.digit.of(term.digit.axis == Axis::kThread ? t : r) * term.stride;
      ASSERT_EQ(sum, memory.linear(*index)) << registers.to_string() << "\n" << memory.to_string();
    }
}

std::vector<Layout> some_layouts() {
  std::vector<Layout> out = {layout::wgmma_accumulator(96),
                             layout::wgmma_a(16),
                             layout::Layout::parse("[64: 4t32 16t1, 64: 64r1]"),
                             layout::Layout::parse("[8: 8t4, 6: 3r2 2r1; rep 4t1]"),
                             layout::Layout::parse("[5: 5t2, 7: 7r1]"),
                             layout::local({3, 5})};
  for (int64_t rows : {1, 7, 16, 64, 96})
    for (int64_t columns : {8, 15, 24, 64, 224})
      for (int64_t threads : {32, 128}) out.push_back(layout::coalesced({rows, columns}, threads, 16));
  return out;
}

TEST(Digits, SayWhichElementAThreadHolds) {
  for (const Layout& layout : some_layouts()) check_element_law(layout);
}

TEST(Digits, SayWhereAnElementIs) {
  int compared = 0;
  for (const Layout& registers : some_layouts()) {
    const layout::Shape& shape = registers.shape();
    check_address_law(registers, layout::row_major(shape, 16));
    check_address_law(registers, layout::padded_row_major(shape, 16, 8));
    for (int64_t span : {16, 32, 64})
      if (shape[1] % span == 0) {
        check_address_law(registers, layout::operand_tile(shape, 16, layout::Swizzle::widest_for(span * 2)));
        EXPECT_TRUE(memory_terms(*index_digits(registers), layout::operand_tile(shape, 16, {})))
            << registers.to_string();
        ++compared;
      }
  }
  EXPECT_GT(compared, 20);
}

TEST(Digits, LayoutsWhoseStridesDoNotNestHaveNone) {
  EXPECT_FALSE(index_digits(Layout::parse("[4: 4t3, 3: 3t4]")));
}

}  // namespace
}  // namespace imbrex::codegen
