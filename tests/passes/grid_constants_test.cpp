// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "pass_test.h"
#include "passes/dead_code.h"
#include "passes/lift_grid_constants.h"

namespace imbrex::passes {
namespace {

TEST(LiftGridConstants, TheGridAndDivisorsMoveToTheHost) {
  expect_rewrite(
      "%k: int32 = const {int = 128}\n%tiles: int32 = ceil_div %n, %k\n%w: int32 = const {int = 4}\n"
      "launch_grid %tiles\n%group: int32 = mul %tiles, %w\n%b: int32 = block_idx {axis = 0}\n"
      "%q: int32, %r: int32 = fast_divmod %b, %group\nprintf %q, %r, %group {format = \"\"}",
      "host {\n %k: int32 = const {int = 128}\n %tiles: int32 = ceil_div %n, %k\n %one: int32 = const {int = "
      "1}\n"
      " %w: int32 = const {int = 4}\n %group: int32 = mul %tiles, %w\n grid %tiles, %one, %one\n}\n"
      "%w2: int32 = const {int = 4}\n%group2: int32 = mul %tiles, %w2\n%b: int32 = block_idx {axis = 0}\n"
      "%q: int32, %r: int32 = fast_divmod %b, %group\nprintf %q, %r, %group2 {format = \"\"}",
      lift_grid_constants, dead_code);
}

TEST(LiftGridConstants, DivisionsMoveUnlessAnIfGuardsThem) {
  expect_rewrite(
      "%a: int32 = div %n, %m\nprintf %a {format = \"\"}\nif %c {\n %b: int32 = rem %n, %m\n printf %b "
      "{format = \"\"}\n}",
      "host {\n %a: int32 = div %n, %m\n}\nprintf %a {format = \"\"}\n"
      "if %c {\n %b: int32 = rem %n, %m\n printf %b {format = \"\"}\n}",
      lift_grid_constants, dead_code);
}

TEST(LiftGridConstants, AGuardedDivisionStaysWhateverIsMadeOfIt) {
  const std::string text =
      "%two: int32 = const {int = 2}\nif %c {\n %a: int32 = div %n, %m\n %b: int32 = div %a, %two\n"
      " printf %b {format = \"\"}\n}";
  expect_rewrite(text, text, lift_grid_constants, dead_code);
}

TEST(LiftGridConstants, AGuardedDivisorNeverStopsTheLaunch) {
  expect_rewrite("if %c {\n %q: int32, %r: int32 = fast_divmod %n, %m\n printf %q {format = \"\"}\n}",
                 "host {\n %one: int32 = const {int = 1}\n %d: int32 = max %m, %one\n}\n"
                 "if %c {\n %q: int32, %r: int32 = fast_divmod %n, %d\n printf %q {format = \"\"}\n}",
                 lift_grid_constants, dead_code);
}

TEST(LiftGridConstants, CheapArithmeticStays) {
  const std::string text = "%a: int32 = add %n, %m\nprintf %a {format = \"\"}";
  expect_rewrite(text, text, lift_grid_constants, dead_code);
}

TEST(LiftGridConstants, NamesWhatIsNotKnownAtLaunch) {
  EXPECT_EQ(refusal("%b: int32 = block_idx {axis = 0} @5\n%x: int32 = add %b, %n @6\nlaunch_grid %n, %x @7",
                    lift_grid_constants),
            "f.cpp:7: error: launch_grid: the grid's y is not known at launch\n"
            "  it depends on %b, a block_idx, at f.cpp:5\n"
            "  help: compute the grid from the kernel's parameters");
  EXPECT_THAT(refusal("%b: int32 = block_idx {axis = 0}\n%q: int32, %r: int32 = fast_divmod %n, %b",
                      lift_grid_constants),
              testing::HasSubstr("fast_divmod: the divisor is not known at launch"));
  EXPECT_THAT(refusal("if %c {\n launch_grid %n\n}", lift_grid_constants), testing::HasSubstr("top level"));
}

}  // namespace
}  // namespace imbrex::passes
