// SPDX-License-Identifier: Apache-2.0
// Layouts that a kernel's author asks for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "layout/layout.h"
#include "snippet.h"

namespace imbrex {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::Pointer;
using testing::traced;

TEST(Tiles, LayoutsCanBeDemanded) {
  const std::string text = traced([](Int32&, Int32&, Pointer&) {
    const layout::Layout layout = layout::local({1, 4}) * layout::spatial({8, 4});
    auto x = zeros(float32, {8, 16});
    annotate_layout(x, layout);
    relayout(x, layout);
  });
  EXPECT_THAT(text, HasSubstr("annotate_layout "));
  EXPECT_THAT(text, HasSubstr("relayout "));
}

TEST(TileErrors, LayoutsOfOtherPlaces) {
  using layout::local, layout::row_major, layout::spatial;
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) {
                relayout(zeros(float32, {16, 8}), spatial({8, 4}));
              }),
              HasSubstr("relayout: the tensor is [16, 8], the layout [8, 4]"));
  EXPECT_THAT(
      error_of([](Int32&, Int32&, Pointer&) {
        relayout(zeros(float32, {16, 8}), row_major({16, 8}, 32));
      }),
      HasSubstr("relayout: [16: 16a8, 8: 8a1; bits 32] is a layout of memory, the tensor is in registers"));
  EXPECT_THAT(
      error_of([](Int32&, Int32&, Pointer&) {
        annotate_layout(shared_tensor(float32, {16, 8}), spatial({8, 4}) * local({2, 2}));
      }),
      HasSubstr("annotate_layout: [16: 8t4 2r2, 8: 4t1 2r1] is no layout of addresses, the tensor is in "
                "shared memory"));
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) {
                annotate_layout(shared_tensor(float32, {16, 8}), row_major({16, 8}, 16));
              }),
              HasSubstr("annotate_layout: the layout is of elements of 16 bits, those of float32 have 32"));
  EXPECT_THAT(
      error_of([](Int32&, Int32&, Pointer&) {
        annotate_layout(tcgen05::alloc(float32, {128, 32}), spatial({128, 1}) * local({1, 32}));
      }),
      HasSubstr("annotate_layout: [128: 128t1, 32: 32r1] is no layout of lanes and columns, the tensor is in "
                "tensor memory"));
}

}  // namespace
}  // namespace imbrex
