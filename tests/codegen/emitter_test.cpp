// SPDX-License-Identifier: Apache-2.0
// Code moved out of loops, shared registers, and integer arithmetic that knows what it computes.
#include "codegen/emitter.h"

#include <gmock/gmock.h>

#include "codegen/integers.h"
#include "ptx/writer.h"

namespace imbrex::codegen {
namespace {

using ::testing::HasSubstr;

class EmitterTest : public ::testing::Test {
 protected:
  EmitterTest() : module{.version = 80, .target = "sm_80"}, e(module, "test", false, false), ints(e) {}

  Integer register_value(int64_t source, ir::Range known) {
    const Reg r = e.make(ScalarType::b32, Op::mov, {ScalarType::u32}, {static_cast<int64_t>(source)});
    return ints.leaf(kTest, source, r, false, known, e.depth());
  }
  /// The instructions as text, one per line, labels included.
  std::string body() { return ptx::write(module); }
  size_t position(const std::string& text) {
    const size_t at = body().find(text);
    EXPECT_NE(at, std::string::npos) << text << " in\n" << body();
    return at;
  }
  ptx::LabelId open_loop(const char* name) {
    e.enter_scope(true);
    const ptx::LabelId top = e.label(name);
    e.bind(top);
    return top;
  }
  void close_loop(ptx::LabelId top) {
    e.branch(top);
    e.leave_scope();
  }

  static constexpr int64_t kTest = 100;
  ptx::Module module;
  Emitter e;
  Integers ints;
};

TEST_F(EmitterTest, InvariantCodeLandsBeforeTheOutermostLoop) {
  const Integer x = register_value(11, ir::Range::between(0, 1000));
  const ptx::LabelId outer = open_loop("outer");
  const Integer y = register_value(22, ir::Range::between(0, 1000));
  const ptx::LabelId inner = open_loop("inner");
  ints.mul(x, Integers::constant(12));  // depends on x alone
  ints.mul(y, Integers::constant(13));  // made in the outer loop
  close_loop(inner);
  close_loop(outer);
  EXPECT_LT(position(", 12;"), position("$outer:"));
  EXPECT_LT(position("$outer:"), position(", 13;"));
  EXPECT_LT(position(", 13;"), position("$inner:"));
}

TEST_F(EmitterTest, EqualExpressionsShareARegisterWhileTheyAreInScope) {
  const Integer x = register_value(11, ir::Range::between(0, 1000));
  const Integer a = ints.add(ints.mul(x, Integers::constant(12)), Integers::constant(5));
  const Integer b = ints.add(Integers::constant(5), ints.mul(Integers::constant(12), x));
  EXPECT_EQ(a.id, b.id);
  EXPECT_EQ(a.value.reg(), b.value.reg());
  e.enter_scope();
  const Integer in_branch = ints.mul(x, Integers::constant(77));
  e.leave_scope();
  // What a branch computed does not exist behind it.
  EXPECT_FALSE(ints.mul(x, Integers::constant(77)).value.reg() == in_branch.value.reg());
}

TEST_F(EmitterTest, LabelsThatEndHereStayInFrontOfWhatIsMoved) {
  const Integer x = register_value(11, ir::Range::between(0, 1000));
  const ptx::LabelId end = e.label("before");
  e.branch(end);
  e.bind(end);
  const ptx::LabelId top = open_loop("loop");
  ints.mul(x, Integers::constant(12));
  close_loop(top);
  // A jump to $before must pass the moved code.
  EXPECT_LT(position("$before:"), position(", 12;"));
  EXPECT_LT(position(", 12;"), position("$loop:"));
}

TEST_F(EmitterTest, ConstantsAndKnownBoundsNeedNoInstructions) {
  const Integer x = register_value(11, {0, 31, 4});
  const size_t before = body().size();
  EXPECT_EQ(ints.rem(x, 32).id, x.id);
  EXPECT_EQ(ints.shift_right(x, 5).constant(), 0);
  EXPECT_EQ(ints.and_mask(x, 31).id, x.id);
  EXPECT_EQ(ints.less(x, Integers::constant(32)).value, 1);
  EXPECT_EQ(ints.less(x, Integers::constant(0)).value, 0);
  EXPECT_EQ(ints.add(Integers::constant(3), Integers::constant(4)).constant(), 7);
  EXPECT_EQ(body().size(), before);
  EXPECT_TRUE(ints.mul(x, Integers::constant(6)).known.is_multiple_of(24));
}

TEST_F(EmitterTest, MixedWidthsAreWidened) {
  const Integer x = register_value(11, ir::Range::between(-5, 1000));
  const Integer wide = ints.wide_mul(x, Integers::constant(1 << 20));
  EXPECT_TRUE(wide.is_wide);
  EXPECT_TRUE(ints.add(wide, x).is_wide);
  EXPECT_THAT(body(), HasSubstr("mul.wide.s32"));
  EXPECT_THAT(body(), HasSubstr("cvt.s64.s32"));
}

}  // namespace
}  // namespace imbrex::codegen
