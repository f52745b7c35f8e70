// SPDX-License-Identifier: Apache-2.0
// Layouts by expressions, and the quotient of layouts, which a product must undo.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "imbrex/core/error.h"
#include "imbrex/lang/layout.h"

namespace imbrex::layout {
namespace {

using testing::HasSubstr;

TEST(LayoutExpression, SaysWhatTheFunctionsMake) {
  EXPECT_EQ(evaluate("spatial(8, 4) * local(2, 2)"), spatial({8, 4}) * local({2, 2}));
  EXPECT_EQ(evaluate("column_spatial(4, 8)*column_local(2,2)"),
            column_spatial({4, 8}) * column_local({2, 2}));
  EXPECT_EQ(evaluate("( local(2, 2) * spatial(4) ).transpose()"), (local({2, 2}) * spatial({4})).transpose());
  EXPECT_EQ(evaluate("compose(spatial(8), local(2)).reshape(4, 4)"),
            (spatial({8}) * local({2})).reshape({4, 4}));
  EXPECT_EQ(evaluate("spatial(4, 8).reduce(1)"), spatial({4, 8}).reduce(1));
  EXPECT_EQ(evaluate("spatial(8).replicate_to(32)"), spatial({8}).replicate_to(32));
  EXPECT_EQ(evaluate("concat(spatial(8), local(4))"), concat(spatial({8}), local({4})));
  EXPECT_EQ(evaluate("row_major(8, 64, bits = 16).with_swizzle(128B)"),
            row_major({8, 64}, 16).with_swizzle({Swizzle::k128B}));
  EXPECT_EQ(evaluate("row_major(8, 64).with_swizzle(128B/32B+8B)"),
            row_major({8, 64}, 16).with_swizzle({Swizzle::k128BAtom32BFlip8B}));
  EXPECT_EQ(evaluate("local(2, 3, 4).permute(2, 0, 1)"), local({2, 3, 4}).permute(std::vector<int>{2, 0, 1}));
  EXPECT_EQ(evaluate("[64: 4t32 2r2 8t4, 16: 2r4 4t1 2r1]"),
            Layout::parse("[64: 4t32 2r2 8t4, 16: 2r4 4t1 2r1]"));
}

std::string refusal(const std::string& text) {
  try {
    evaluate(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(LayoutExpression, NamesThePlaceWhereItIsWrong) {
  EXPECT_THAT(refusal("spatial(8"), HasSubstr("character 10: expected )"));
  EXPECT_THAT(refusal("spatial(8) local(2)"), HasSubstr("character 12: expected the end, or *"));
  EXPECT_THAT(refusal("locl(2)"), HasSubstr("character 1: expected spatial, column_spatial"));
  EXPECT_THAT(refusal(""), HasSubstr("expected a layout"));
  EXPECT_THAT(refusal("spatial(0)"), HasSubstr("extents of at least 1"));
  EXPECT_THAT(refusal("local(99999999, 99)"), HasSubstr("at most 16777216 elements"));
  EXPECT_THAT(refusal("local(99999999999999)"), HasSubstr("a number below a billion"));
  EXPECT_THAT(refusal("local(2).turn()"), HasSubstr("expected transpose, permute"));
  EXPECT_THAT(refusal("local(2).reduce(1)"), HasSubstr("a dimension, 0 to 0"));
  EXPECT_THAT(refusal("local(2, 2).permute(0, 0)"), HasSubstr("every dimension once"));
  EXPECT_THAT(refusal("row_major(8).with_swizzle(5B)"), HasSubstr("with_swizzle of none"));
  EXPECT_THAT(refusal("[8: 8t4"), HasSubstr("a ] somewhere behind"));
  EXPECT_THAT(refusal("local(2).transpose()"), testing::Not(HasSubstr("no error")));
  EXPECT_THAT(refusal(std::string(100000, '(')), HasSubstr("too deep"));
}

TEST(LayoutDivide, UndoesTheProduct) {
  const std::vector<Layout> inner = {local({2}),
                                     spatial({8, 4}),
                                     local({2, 2}),
                                     column_spatial({4, 2}),
                                     spatial({4, 8}) * local({1, 2}),
                                     spatial({8}).replicate_to(32)};
  const std::vector<Layout> outer = {spatial({2, 4}), local({4, 1}) * spatial({1, 2}), column_local({2, 2}),
                                     spatial({4, 1}).replicate_to(8), local({1})};
  for (const Layout& b : inner)
    for (const Layout& a : outer) {
      const Layout whole = a * b;
      EXPECT_EQ(divide(whole, b) * b, whole) << whole.to_string() << " by " << b.to_string();
    }
  EXPECT_EQ(divide(spatial({8, 4}) * local({2, 2}), local({2, 2})), spatial({8, 4}));
}

TEST(LayoutDivide, RefusesWhatIsNoFactor) {
  EXPECT_THROW(divide(spatial({8}), local({2})), CompileError);
  EXPECT_THROW(divide(spatial({8}), spatial({3})), CompileError);
  EXPECT_THROW(divide(local({4}), local({2, 2})), CompileError);
  EXPECT_THROW(divide(spatial({8}), spatial({4}).replicate_to(8)), CompileError);
}

}  // namespace
}  // namespace imbrex::layout
