// SPDX-License-Identifier: Apache-2.0
#include "passes/fold.h"

#include "../param_name.h"
#include "pass_test.h"
#include "passes/dead_code.h"

namespace imbrex::passes {
namespace {

/// `before` defines %x, which must fold to the value `x` after the ops `after`.
struct Rewrite {
  const char* before;
  const char* after;
  const char* x = "%x";

  friend std::ostream& operator<<(std::ostream& out, const Rewrite& r) { return out << r.before; }
};

const char* const kNumbers =
    "%i0: int32 = const {int = 0}\n%i1: int32 = const {int = 1}\n%i2: int32 = const {int = 2}\n"
    "%i3: int32 = const {int = 3}\n%i8: int32 = const {int = 8}\n%yes: bool = const {int = 1}\n"
    "%f1: float32 = const {float = 1.0}\n%f2: float32 = const {float = 2.5}\n";

class Fold : public testing::TestWithParam<Rewrite> {};

TEST_P(Fold, Simplifies) {
  const auto text = [](const std::string& ops, const std::string& x) {
    return kNumbers + ops + "\nprintf " + x + " {format = \"\"}";
  };
  const auto expected = kernel(text(GetParam().after, GetParam().x));
  dead_code(*expected);  // the numbers that are not used
  const auto f = kernel(text(GetParam().before, "%x"));
  fold(*f);
  dead_code(*f);
  ASSERT_NO_THROW(ir::verify(*f));
  EXPECT_EQ(canonical(*f), canonical(*expected));
}

INSTANTIATE_TEST_SUITE_P(
    Numbers, Fold,
    testing::Values(Rewrite{"%x: int32 = add %i1, %i2", "", "%i3"},
                    Rewrite{"%a: int32 = mul %i8, %i3\n%x: int32 = sub %a, %i1",
                            "%x: int32 = const {int = 23}"},
                    Rewrite{"%big: int32 = const {int = 2147483647}\n%x: int32 = add %big, %i1",
                            "%x: int32 = const {int = -2147483648}"},
                    Rewrite{"%x: bool = lt %i1, %i2", "", "%yes"},
                    Rewrite{"%h: float16 = const {float = 0.1}\n%x: float16 = add %h, %h",
                            "%x: float16 = const {float = 0.199951171875}"},
                    Rewrite{"%x: float32 = cast %i3 {dtype = float32}", "%x: float32 = const {float = 3.0}"},
                    Rewrite{"%x: int32 = cast %f2 {dtype = int32}", "", "%i2"},
                    Rewrite{"%x: int32 = div %i1, %i0", "%x: int32 = div %i1, %i0"},
                    Rewrite{"%f0: float32 = const {float = 0.0}\n%big: float32 = const {float = inf}\n"
                            "%x: float32 = mul %f0, %big",
                            "%f0: float32 = const {float = 0.0}\n%big: float32 = const {float = inf}\n"
                            "%x: float32 = mul %f0, %big"}),
    NumberedParamName());  // undefined, or no number: left as it is

INSTANTIATE_TEST_SUITE_P(
    Algebra, Fold,
    testing::Values(Rewrite{"%x: int32 = mul %n, %i1", "", "%n"},
                    Rewrite{"%x: int32 = add %i0, %n", "", "%n"},
                    Rewrite{"%a: int32 = sub %n, %m\n%x: int32 = sub %a, %a", "", "%i0"},
                    Rewrite{"%a: int32 = mul %i2, %n\n%x: int32 = mul %a, %i3",
                            "%c6: int32 = const {int = 6}\n%x: int32 = mul %n, %c6"},
                    Rewrite{"%a: int32 = add %n, %m\n%x: int32 = sub %a, %n", "", "%m"},
                    Rewrite{"%a: int32 = add %n, %i1\n%x: bool = eq %a, %i3", "%x: bool = eq %n, %i2"},
                    Rewrite{"%x: bool = gt %i3, %n", "%x: bool = lt %n, %i3"},
                    Rewrite{"%a: bool = lt %n, %m\n%x: bool = not %a", "%x: bool = ge %n, %m"},
                    Rewrite{"%a: int32 = cast %c {dtype = int32}\n%x: bool = eq %a, %i1", "", "%c"},
                    Rewrite{"%a: int64 = cast %n {dtype = int64}\n%x: int32 = cast %a {dtype = int32}", "",
                            "%n"},
                    Rewrite{"%a: int8 = cast %n {dtype = int8}\n%x: int32 = cast %a {dtype = int32}",
                            "%a: int8 = cast %n {dtype = int8}\n%x: int32 = cast %a {dtype = int32}"},
                    Rewrite{"%x: int32 = select %yes, %n, %m", "", "%n"},
                    Rewrite{"%a: float32 = cast %n {dtype = float32}\n%x: float32 = mul %a, %f1",
                            "%x: float32 = cast %n {dtype = float32}"},
                    Rewrite{"%x: int32, %r: int32 = fast_divmod %n, %i8", "%x: int32 = shr %n, %i3"},
                    Rewrite{"%x: int32, %r: int32 = fast_divmod %n, %i3", "%x: int32 = div %n, %i3"}),
    NumberedParamName());

// Bounds: block_idx.y is at most 65534, loops stay between their ends.
INSTANTIATE_TEST_SUITE_P(
    Bounds, Fold,
    testing::Values(
        Rewrite{"%b: int32 = block_idx {axis = 1}\n%a: int32 = mul %b, %i8\n%x: int32 = div %a, %i8",
                "%b: int32 = block_idx {axis = 1}", "%b"},
        Rewrite{"%a: int32 = mul %n, %i8\n%x: int32 = div %a, %i8",  // may wrap
                "%a: int32 = mul %n, %i8\n%x: int32 = div %a, %i8"},
        Rewrite{"%a: int32 = mul %n, %i8\n%x: int32 = rem %a, %i2", "", "%i0"},
        Rewrite{"%b: int32 = block_idx {axis = 1}\n%x: bool = ge %b, %i0", "", "%yes"}),
    NumberedParamName());

TEST(FoldBlocks, OnlyTheFirstCopyOfALoopMayStartAtZero) {
  const std::string head =
      "%i0: int32 = const {int = 0}\n%i64: int32 = const {int = 64}\n%i512: int32 = const {int = 512}\n"
      "%i128: int32 = const {int = 128}\n";
  expect_rewrite(
      head +
          "for %k: int32 in %i0, %i512, %i128 {\n %a: bool = ne %k, %i0\n %l: int32 = add %k, %i64\n"
          " %b: bool = ne %l, %i0\n printf %a, %b {format = \"\"}\n}",
      "%i0: int32 = const {int = 0}\n%i512: int32 = const {int = 512}\n%i128: int32 = const {int = 128}\n"
      "for %k: int32 in %i0, %i512, %i128 {\n %a: bool = ne %k, %i0\n %b: bool = const {int = 1}\n"
      " printf %a, %b {format = \"\"}\n}",
      fold, dead_code);
}

TEST(FoldBlocks, MergesWhereOneDominatesTheOther) {
  expect_rewrite(
      "%a: int32 = add %n, %m\n"
      "if %c {\n %b: int32 = add %n, %m\n %d: int32 = mul %n, %m\n printf %b, %d {format = \"\"}\n}\n"
      "%e: int32 = mul %n, %m\nprintf %a, %e {format = \"\"}",
      "%a: int32 = add %n, %m\n"
      "if %c {\n %d: int32 = mul %n, %m\n printf %a, %d {format = \"\"}\n}\n"
      "%e: int32 = mul %n, %m\nprintf %a, %e {format = \"\"}",
      fold);
}

TEST(FoldBlocks, ZerosOfBothSignsStayApart) {
  const std::string text =
      "%a: float32 = const {float = 0.0}\n%b: float32 = const {float = -0.0}\nprintf %a, %b {format = \"\"}";
  expect_rewrite(text, text, fold);
}

TEST(FoldBlocks, TakesTheBranchThatIsKnown) {
  expect_rewrite(
      "%no: bool = const {int = 0}\nloop {\n if %no {\n sync\n } else {\n break\n }\n printf {format = "
      "\"never\"}\n}",
      "loop {\n break\n}", fold, dead_code);
}

// Values are without names where the kernel's source cannot be read.
TEST(FoldBlocks, ToAValueThatNoOpMade) {
  const auto f = kernel("%i0: int32 = const {int = 0}\n%x: int32 = add %n, %i0\nprintf %x {format = \"\"}");
  for (ir::Value* param : f->params) param->name.clear();
  fold(*f);
  dead_code(*f);
  ASSERT_NO_THROW(ir::verify(*f));
  bool is_used = false;
  ir::walk(f->body, [&](ir::Op& op) {
    for (const ir::Value* operand : op.operands) is_used |= operand->def == nullptr;
  });
  EXPECT_TRUE(is_used);
}

}  // namespace
}  // namespace imbrex::passes
