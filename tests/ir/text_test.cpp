// SPDX-License-Identifier: Apache-2.0
// The text form: what is printed, and what the parser says of text it cannot read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "imbrex/core/parse_error.h"
#include "ir/ir.h"

namespace imbrex::ir {
namespace {

// Every feature of the syntax once.
constexpr std::string_view kEverything =
    R"(kernel everything(%n: int32, %x: ptr<float16>) target sm_100a warps 8 cluster [2, 1, 1] max_registers 168 shared 4096 tensor_memory 128 from "gemm.cpp":7 {
  host {
    %0: int32 = const {int = 64} @9
    %tiles: int32 = ceil_div %n, %0 @9
    %1: int32 = const {int = 1}
    grid %tiles, %1, %1
  }
  %2: float32 = const {float = -0.5} @10
  %3: float32 = const {float = inf} @"other.h":3
  %zero: int32 = const {int = 0}
  %gx: global<float16, [?, 64]> = global_view %x, %n, %0, %0, %1 {rank = 2} @11
  %s: shared<float16, [2, 64, 64], [2: 2a4096, 64: 64a64, 64: 64a1; bits 16; swizzle 128B]> = shared_alloc {dtype = float16, shape = [2, 64, 64], offset = 1024} @12
  %bars: barrier[2] = mbarrier_alloc {counts = [1, 1]}
  %v: var<int32> = var %zero
  %t: register<float32, [16, 2]> = tabulate %i: int32, %j: int32 in {dtype = float32, shape = [16, 2]} @20 {
    yield %2
  }
  for %k: int32 in %zero, %n, %0 {unroll = 4} @21 {
    %4: int32 = read %v @22
    %5: bool = lt %4, %k
    if %5 @23 {
      assign %v, %k
    } else {
      break {depth = 0}
    }
    if %5 {
    }
    thread_group {begin = 0, threads = 32, name = "a \"b\"\n"} @24 {
      %b: barrier = mbarrier_at %bars, %4
      %one_tile: shared<float16, [64, 64]> = index %s, %4
    }
  }
  sync
  %q: int32, %r: int32 = fast_divmod %n, %tiles
  printf %q, %r {format = "%d %d\n"}
}
)";

TEST(Text, PrintsWhatItParses) { EXPECT_EQ(print(*parse(kEverything)), kEverything); }

TEST(Text, CommentsAndBlanksAreFree) {
  const auto f = parse("kernel f() target sm_80 warps 4 { // nothing\n\n  sync // all\n}\n");
  EXPECT_EQ(print(*f), "kernel f() target sm_80 warps 4 {\n  sync\n}\n");
}

TEST(Text, LocationsSurvive) {
  const auto f =
      parse("kernel f() target sm_80 warps 4 from \"a.cpp\":3 {\n  sync @5\n  sync @\"b.h\":6\n}\n");
  EXPECT_STREQ(f->body.ops[0]->where.file, "a.cpp");
  EXPECT_EQ(f->body.ops[0]->where.line, 5u);
  EXPECT_STREQ(f->body.ops[1]->where.file, "b.h");
}

/// The message for a kernel body that does not parse.
std::string parse_error(const std::string& body) {
  try {
    parse("kernel f(%n: int32) target sm_80 warps 4 {\n" + body + "\n}\n", "f.ir");
  } catch (const ParseError& error) {
    return error.what();
  }
  return "parsed";
}

TEST(ParseError, PointsAtThePlaceAndNamesTheNearestWord) {
  EXPECT_EQ(parse_error("  %0: int32 = ad %n, %n"),
            "f.ir:2: error: column 15: unknown op 'ad'\n"
            "    %0: int32 = ad %n, %n\n"
            "                ^\n"
            "  help: did you mean 'add'?");
}

TEST(ParseError, SaysWhatIsWrong) {
  using testing::HasSubstr;
  EXPECT_THAT(parse_error("  %0: int23 = const {int = 1}"), HasSubstr("unknown type 'int23'"));
  EXPECT_THAT(parse_error("  %0: int32 = neg %m"), HasSubstr("unknown value 'm'"));
  EXPECT_THAT(parse_error("  %n: int32 = neg %n"), HasSubstr("%n is defined twice"));
  EXPECT_THAT(parse_error("  %0: int32 = const {imt = 1}"), HasSubstr("did you mean 'int'?"));
  EXPECT_THAT(parse_error("  %0: int32 = const {int = 99999999999999999999}"), HasSubstr("64-bit integer"));
  EXPECT_THAT(parse_error("  %0: int32 = const {int = 1, int = 2}"), HasSubstr("given twice"));
  EXPECT_THAT(parse_error("  loop"), HasSubstr("expected '{', found '}'"));
  EXPECT_THAT(parse_error("  sync @7"), HasSubstr("a line without a file"));
  EXPECT_THAT(parse_error("  printf {format = \"%d}"), HasSubstr("not closed on this line"));
  EXPECT_THAT(parse_error("  sync ;"), HasSubstr("unexpected character ';'"));
  EXPECT_THAT(parse_error("  %s: shared<float16, [64], [64: 64b1]> = shared_alloc"), HasSubstr("layout: "));
}

TEST(ParseError, DeepNestingIsNoCrash) {
  std::string body;
  for (int i = 0; i < 100000; ++i) body += "loop {";
  EXPECT_THAT(parse_error(body), testing::HasSubstr("nest deeper"));
}

}  // namespace
}  // namespace imbrex::ir
