// SPDX-License-Identifier: Apache-2.0
#include "layout/queries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "imbrex/core/error.h"
#include "layout/memory.h"
#include "layout/registers.h"
#include "layout_testing.h"

namespace imbrex::layout {
namespace {

TEST(ContiguousRun, IsWhatTheElementsSay) {
  for (unsigned seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    Axis axis = seed % 2 ? Axis::kAddress : Axis::kRegister;
    Layout layout =
        random_layout(random, {.axes = {axis, Axis::kThread}, .replicas = false, .padding = true});
    if (axis == Axis::kAddress) {
      layout = layout.with_element_bits(16);
      if (pick(random, 0, 1)) layout = layout.with_swizzle({Swizzle::k32B});
    }
    layout::Run run = contiguous_run(layout, axis);
    if (run.dim < 0) continue;
    size_t dim = static_cast<size_t>(run.dim);
    ASSERT_EQ(layout.shape()[dim] % run.length, 0);
    for_each_index(layout.shape(), [&](const Index& index) {
      Index start = index;
      start[dim] -= start[dim] % run.length;
      int64_t at = layout.map(start)[axis];
      // Alignment and length are promises for powers of two up to the smaller of both.
      int64_t step = std::gcd(run.length, run.alignment);
      Index piece = index;
      piece[dim] -= piece[dim] % step;
      ASSERT_EQ(at % run.alignment, 0) << layout.to_string();
      ASSERT_EQ(layout.map(index)[axis], layout.map(piece)[axis] + index[dim] - piece[dim])
          << layout.to_string();
    });
  }
}

TEST(VectorLength, SharedAndFragments) {
  Layout tile = operand_tile({64, 64}, 16, {Swizzle::k128B});
  EXPECT_EQ(vector_length(coalesced({64, 64}, 128, 16), tile), 8);
  EXPECT_EQ(vector_length(coalesced({64, 64}, 128, 16), tile, 4), 2);
  EXPECT_EQ(vector_length(wgmma_accumulator(64), tile), 2) << "pairs of an accumulator";
  EXPECT_EQ(vector_length(wgmma_accumulator(64), row_major({64, 64}, 16).transpose()), 1);
  EXPECT_EQ(vector_length(local({64, 64}), padded_row_major({64, 64}, 16, 4)), 4)
      << "rows are 8-byte aligned";
  EXPECT_EQ(vector_length(local({102}), row_major({102}, 16)), 2);
  EXPECT_EQ(vector_length(local({64, 32}), row_major({32, 64}, 16)), 1) << "different shapes";
}

TEST(RegisterMap, FindsEveryRegister) {
  int found = 0;
  for (unsigned seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    Layout to = random_layout(random, {.padding = true});
    // Renumber the registers, and perhaps exchange two thread digits, which breaks it.
    std::vector<Modes> modes;
    for (int d = 0; d < to.rank(); ++d) modes.push_back(to.modes(d));
    for (Modes& list : modes)
      for (Mode& mode : list)
        if (mode.axis == Axis::kRegister) mode.stride = mode.stride * 2 + (pick(random, 0, 3) == 0);
    Layout from(to.shape(), modes, pick(random, 0, 3) ? to.replicas() : Modes{});
    auto map = register_map(from, to);
    bool possible = true;
    for (int64_t r = 0; r < to.registers(); ++r) {
      bool held = false;
      for (int64_t t = 0; t < to.threads(); ++t) {
        std::optional<Index> element = to.element(t, r);
        if (!element) continue;
        held = true;
        if (map) {
          ASSERT_EQ(from.element(t, (*map)[static_cast<size_t>(r)]), element);
        }
        bool somewhere = false;
        for (const Coords& place : from.places(*element)) somewhere = somewhere || place[Axis::kThread] == t;
        possible = possible && somewhere;
      }
      if (map && !held) {
        EXPECT_EQ((*map)[static_cast<size_t>(r)], -1);
      }
    }
    if (from.is_injective()) {
      EXPECT_EQ(map.has_value(), possible) << from.to_string() << " -> " << to.to_string();
    }
    found += map.has_value();
  }
  EXPECT_GT(found, 100);
}

TEST(RegisterMap, SameThreadsButOtherRegistersPerThread) {
  // Thread 0 would need register 0 and thread 1 register 1.
  Layout from({2, 2}, {{{2, 1, Axis::kRegister}}, {{2, 1, Axis::kThread}}});
  EXPECT_TRUE(register_map(from, from).has_value());
  Layout all = local({2}).replicate_to(2), one = spatial({2});
  EXPECT_EQ(register_map(all, one), std::nullopt);
  EXPECT_TRUE(covers(all, one));
  EXPECT_FALSE(covers(one, all));
}

TEST(Broadcast, SourcesNeedNoDataMovement) {
  int checked = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    Layout to = random_layout(random, {.padding = true});
    Shape shape;
    int64_t skip = pick(random, 0, to.rank());
    for (int64_t d = skip; d < to.rank(); ++d)
      shape.push_back(pick(random, 0, 1) ? 1 : to.shape()[static_cast<size_t>(d)]);
    Layout source = broadcast_source(to, shape);
    EXPECT_EQ(source.shape(), shape);
    auto map = register_map(source, to);
    ASSERT_TRUE(map.has_value()) << to.to_string() << " from " << source.to_string();
    for (int64_t t = 0; t < to.threads(); ++t)
      for (int64_t r = 0; r < to.registers(); ++r)
        if (std::optional<Index> element = to.element(t, r)) {
          Index wanted(element->begin() + skip, element->end());
          for (size_t d = 0; d < shape.size(); ++d)
            if (shape[d] == 1) wanted[d] = 0;
          ASSERT_EQ(source.element(t, (*map)[static_cast<size_t>(r)]), wanted);
          ++checked;
        }
  }
  EXPECT_GT(checked, 1000);
  EXPECT_THROW(broadcast_source(local({4, 8}), {4}), CompileError);
  EXPECT_THROW(broadcast_source(local({8}), {1, 8}), CompileError);
}

TEST(Covers, ReplicasCoverTheOriginal) {
  EXPECT_TRUE(covers(spatial({4}).replicate_to(8), spatial({4})));
  EXPECT_FALSE(covers(spatial({4}), spatial({4}).replicate_to(8)));
  EXPECT_FALSE(covers(spatial({4}), spatial({2, 2})));
  EXPECT_THROW(covers(row_major({4}, 32), local({4})), CompileError);
}

}  // namespace
}  // namespace imbrex::layout
