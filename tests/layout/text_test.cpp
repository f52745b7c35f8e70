// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "imbrex/core/parse_error.h"
#include "layout/memory.h"
#include "layout/registers.h"
#include "layout_testing.h"

namespace imbrex::layout {
namespace {

TEST(Text, RoundTripsRandomLayouts) {
  for (unsigned seed = 0; seed < 500; ++seed) {
    Random random(seed);
    Layout layout =
        random_layout(random, {.axes = {kAxes[seed % 6], kAxes[seed / 6 % 6]}, .padding = seed % 2 == 0});
    if (pick(random, 0, 1)) layout = layout.with_element_bits(16);
    if (layout.element_bits() && pick(random, 0, 1))
      layout = layout.with_swizzle({static_cast<Swizzle::Mode>(pick(random, 0, Swizzle::kCount - 1))});
    EXPECT_EQ(Layout::parse(layout.to_string()), layout) << "seed " << seed << ": " << layout.to_string();
  }
}

TEST(Text, IsReadable) {
  EXPECT_EQ(Layout().to_string(), "[]");
  EXPECT_EQ(wgmma_a(16).to_string(), "[64: 4t32 2r2 8t4, 16: 2r4 4t1 2r1]");
  EXPECT_EQ(operand_tile({3, 64, 64}, 16, {Swizzle::k128B}).to_string(),
            "[3: 3a4096, 64: 64a64, 64: 64a1; bits 16; swizzle 128B]");
  EXPECT_EQ(scale_factors(128, 4).to_string(), "[128: 4c4 32l1, 4: 4c1; rep 4l32; bits 8]");
  EXPECT_EQ(local({1, 4}).to_string(), "[1, 4: 4r1]");
}

TEST(Text, SpacesAreFree) {
  EXPECT_EQ(Layout::parse(" [ 64 :4t32 2r2   8t4,16:2r4 4t1 2r1 ] "), wgmma_a(16));
  EXPECT_EQ(Layout::parse("[8: 2t4 4t1]"), spatial({8}));
}

TEST(Text, ErrorsNameThePlace) {
  auto message = [](const char* text) {
    try {
      Layout::parse(text);
    } catch (const ParseError& error) {
      return error.diagnostics().front().message;
    }
    return std::string("(no error)");
  };
  EXPECT_EQ(message("64"), "layout: expected '[' at character 1 of '64'");
  EXPECT_EQ(message("[64: 4q32]"),
            "layout: expected an axis letter (t, r, a, l, c, x) at character 7 of '[64: 4q32]'");
  EXPECT_EQ(message("[64: 4t]"), "layout: expected a number at character 8 of '[64: 4t]'");
  EXPECT_EQ(message("[4: 4t1"), "layout: expected ']' at character 8 of '[4: 4t1'");
  EXPECT_EQ(message("[4: 4t1] x"), "layout: expected the end at character 10 of '[4: 4t1] x'");
  EXPECT_EQ(message("[4: 4t1; foo 3]"),
            "layout: expected rep, bits or swizzle at character 13 of '[4: 4t1; foo 3]'");
  EXPECT_EQ(
      message("[4: 4a1; bits 16; swizzle 12B]"),
      "layout: expected a swizzle (none, 32B, 64B, 128B, 128B/32B, 128B/32B+8B, 128B/64B) at character 27 of "
      "'[4: 4a1; bits 16; swizzle 12B]'");
  EXPECT_EQ(message("[4: 4t99999999999999]"),
            "layout: expected a smaller number at character 19 of '[4: 4t99999999999999]'");
  EXPECT_EQ(message("[4: 4000000t1 4000000t1]"), "layout: mode of extent 4000000 and stride 1: too large");
  EXPECT_EQ(message("[8: 4t1]"), "layout: modes of dimension 0 reach 4 of 8 elements");
}

TEST(Grid, ShowsHolders) {
  EXPECT_EQ(spatial({2, 2}).grid(),
            "[2: 2t2, 2: 2t1]\n"
            "       0  1 \n"
            "    0: t0 t1\n"
            "    1: t2 t3\n");
  EXPECT_EQ(local({2}).replicate_to(3).grid(),
            "[2: 2r1; rep 3t1]\n"
            "       0         1        \n"
            "    0: t0,1,2 r0 t0,1,2 r1\n");
  EXPECT_THAT(local({100, 100}).grid(4, 4), testing::HasSubstr("..."));
  EXPECT_THAT(local({2, 3, 4}).grid(), testing::HasSubstr("[1]\n"));
}

}  // namespace
}  // namespace imbrex::layout
