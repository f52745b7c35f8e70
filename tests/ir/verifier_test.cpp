// SPDX-License-Identifier: Apache-2.0
// One wrong kernel a rule, and what the verifier says of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../param_name.h"
#include "imbrex/core/error.h"
#include "ir/ir.h"

namespace imbrex::ir {
namespace {

/// All findings for a kernel body, or "valid".
std::string findings(const std::string& body, const std::string& target = "sm_100a") {
  const auto f = parse("kernel f(%n: int32, %u: uint32, %h: float16, %b: bool, %p: ptr<float16>) target " +
                       target + " warps 4 from \"f.cpp\":1 {\n" + body + "\n}\n");
  try {
    verify(*f);
  } catch (const CompileError& error) {
    return error.what();
  }
  return "valid";
}

struct Case {
  const char* body;
  const char* message;

  friend std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.message; }
};

class Rules : public testing::TestWithParam<Case> {};

TEST_P(Rules, Says) { EXPECT_THAT(findings(GetParam().body), testing::HasSubstr(GetParam().message)); }

INSTANTIATE_TEST_SUITE_P(
    Structure, Rules,
    testing::Values(
        Case{"%0: int32 = neg %n", "valid"}, Case{"%0: int32 = neg", "neg: takes 1 operands, not 0"},
        Case{"%0: int32, %1: int32 = neg %n", "neg: has 1 results, not 2"},
        Case{"%0: int32 = neg %p", "operand 'a' must be a scalar or a register tensor, not a ptr<float16>"},
        Case{"block_idx", "attribute 'axis' is missing"},
        Case{"loop { %0: int32 = neg %n\n break }\n %1: int32 = neg %0", "uses %0 where it is not defined"},
        Case{"loop { break\n sync }", "sync: can never run: it follows a break"}),
    NumberedParamName());

INSTANTIATE_TEST_SUITE_P(
    Arithmetic, Rules,
    testing::Values(
        Case{"%0: int32 = add %n, %u", "add: operands differ in type, int32 and uint32"},
        Case{"%0: float16 = rem %h, %h", "rem: works on integers, not float16"},
        Case{"%0: int32 = exp %n", "exp: works on float16, bfloat16, float32 or float64, not int32"},
        Case{"%0: int32 = lt %n, %n", "lt: gives bool, declared as int32"},
        Case{"%0: int32 = select %n, %n, %n", "select: the condition is int32, not bool"},
        Case{"%0: float16 = cast %n {dtype = float32}", "cast: gives float32, declared as float16"},
        Case{"%0: int32 = const {float = 1.0}", "a int32 constant is given by `int`"},
        Case{"%0: int8 = const {int = 128}", "const: 128 does not fit int8"},
        Case{"%a: register<float16, [8, 1]> = broadcast %h {shape = [8, 1]}\n"
             "%b2: register<float16, [4]> = broadcast %h {shape = [4]}\n"
             "%c: register<float16, [8, 4]> = add %a, %b2",
             "valid"},
        Case{"%a: register<float16, [8, 3]> = broadcast %h {shape = [8, 3]}\n"
             "%b2: register<float16, [4]> = broadcast %h {shape = [4]}\n"
             "%c: register<float16, [8, 4]> = add %a, %b2",
             "add: shapes [8, 3] and [4] do not broadcast"}),
    NumberedParamName());

INSTANTIATE_TEST_SUITE_P(
    Control, Rules,
    testing::Values(Case{"break", "break: there is no loop to leave"},
                    Case{"loop { break {depth = 1} }", "depth 1 asks for 2 enclosing loops, there is 1"},
                    Case{"for %i: int32 in %n, %n, %u { }", "begin, end and step differ in type"},
                    Case{"%z: int32 = const {int = 0}\nfor %i: int32 in %z, %n, %z { }", "the step is 0"},
                    Case{"yield %n", "yield: belongs at the end of a tabulate region"},
                    Case{"thread_group {begin = 0, threads = 0} { }", "the group needs at least one thread"},
                    Case{"%v: var<int32> = var %n\nassign %v, %u",
                         "assign: a var<int32> cannot be set to a uint32"}),
    NumberedParamName());

INSTANTIATE_TEST_SUITE_P(
    Views, Rules,
    testing::Values(Case{"%g: global<float16, [?]> = global_view %p, %n {rank = 1}",
                         "rank 1 takes 1 extents and 1 strides"},
                    Case{"%s: shared<float16, [4, 8]> = shared_alloc {dtype = float16, shape = [4, 8]}\n%c: "
                         "int32 = const {int = 4}\n"
                         "%t: shared<float16, [8]> = index %s, %c",
                         "index: index 4 is outside 0 ... 3"},
                    Case{"%s: shared<float16, [4, 8]> = shared_alloc {dtype = float16, shape = [4, 8]}\n%c: "
                         "int32 = const {int = 6}\n"
                         "%t: shared<float16, [4, 4]> = slice %s, %n, %c {shape = [4, 4]}",
                         "dimension 1: 6 ... 9 is outside 0 ... 7"},
                    Case{"%s: shared<float16, [4, 8]> = shared_alloc {dtype = float16, shape = [4, 8]}\n"
                         "%t: shared<float16, [8, 4]> = permute %s {dims = [1, 1]}",
                         "dims [1, 1] is not an order of 2 dimensions"},
                    Case{"%s: shared<float16, [4, 8]> = shared_alloc {dtype = float16, shape = [4, 8]}\n"
                         "%t: shared<float16, [16]> = reshape %s {shape = [16]}",
                         "[4, 8] has 32 elements, [16] has 16"}),
    NumberedParamName());

INSTANTIATE_TEST_SUITE_P(
    Memory, Rules,
    testing::Values(
        Case{"%s: shared<float16, [8]> = shared_alloc {dtype = float16, shape = [8]}\n"
             "%t: register<float16, [4]> = load_shared %s",
             "shapes differ, src is [8] and the result [4]"},
        Case{"%g: global<float16, [?, ?]> = global_view %p, %n, %n, %n, %n {rank = 2}\n"
             "%t: register<float16, [8]> = load_global %g, %n {shape = [8], dims = [0]}",
             "[?, ?] takes 2 offsets, there are 1"},
        Case{"%g: global<float16, [?, ?]> = global_view %p, %n, %n, %n, %n {rank = 2}\n"
             "%t: register<float16, [8, 8]> = load_global %g, %n, %n {shape = [8, 8], dims = [1, 1]}",
             "dims [1, 1] must name different dimensions of [?, ?]"},
        Case{"fence_proxy_async {space = \"smem\"}", "unknown space 'smem'"},
        Case{"%r: register<float16, [4]> = broadcast %h {shape = [4]}\n"
             "%m: register<float16, []> = reduce %r {axis = 0, kind = \"summ\"}",
             "did you mean 'sum'?"}),
    NumberedParamName());

INSTANTIATE_TEST_SUITE_P(
    Async, Rules,
    testing::Values(
        Case{"%m: barrier[2] = mbarrier_alloc {counts = [1, 0]}", "arrival count 0 is outside 1 ... 1048575"},
        Case{"%m: barrier[2] = mbarrier_alloc {counts = [1, 1]}\nmbarrier_wait %m, %u", "not an array of 2"},
        Case{"%m: barrier = mbarrier_alloc {counts = [1]}\nmbarrier_wait %m, %u {sem = \"relaxed\"}",
             "sem and scope are given together or not at all"},
        Case{"%m: barrier = mbarrier_alloc {counts = [1]}\nmbarrier_wait %m, %u {sem = \"release\", scope = "
             "\"cta\"}",
             "use acquire or relaxed"}),
    NumberedParamName());

TEST(Verifier, MmaNamesBothSidesAndWhereTheyWereMade) {
  EXPECT_EQ(
      findings("%a: shared<float16, [128, 64]> = shared_alloc {dtype = float16, shape = [128, 64]} @31\n"
               "%b2: shared<float16, [32, 256]> = shared_alloc {dtype = float16, shape = [32, 256]} @32\n"
               "%acc: tmem<float32, [128, 256]> = tcgen05_alloc {dtype = float32, shape = [128, 256]} @35\n"
               "tcgen05_mma %a, %b2, %acc, %b @42"),
      "f.cpp:42: error: tcgen05_mma: inner sizes differ, a has k = 64 and b has k = 32\n"
      "  a    shared<float16, [128, 64]>  %a  made at f.cpp:31\n"
      "  b    shared<float16, [32, 256]>  %b2  made at f.cpp:32\n"
      "  d    tmem<float32, [128, 256]>  %acc  made at f.cpp:35\n"
      "  enable_input_d bool  %b");
}

TEST(Verifier, MmaExtentsAreThoseOfTheInstruction) {
  const auto mma = [](int m, int n, int k, const std::string& dtype) {
    const auto text = [](int x) { return std::to_string(x); };
    const std::string a = dtype + ", [" + text(m) + ", " + text(k) + "]",
                      b = dtype + ", [" + text(k) + ", " + text(n) + "]";
    const std::string d = "float32, [" + text(m) + ", " + text(n) + "]";
    const auto attrs = [](const std::string& t) {
      const size_t comma = t.find(',');
      return " {dtype = " + t.substr(0, comma) + ", shape =" + t.substr(comma + 1) + "}\n";
    };
    return findings("%x: shared<" + a + "> = shared_alloc" + attrs(a) + "%y: shared<" + b +
                    "> = shared_alloc" + attrs(b) + "%d: tmem<" + d + "> = tcgen05_alloc" + attrs(d) +
                    "tcgen05_mma %x, %y, %d, %b");
  };
  using testing::HasSubstr;
  EXPECT_EQ(mma(128, 96, 16, "float16"), "valid");
  EXPECT_EQ(mma(64, 224, 32, "float8_e4m3"), "valid");
  EXPECT_THAT(mma(32, 64, 16, "float16"), HasSubstr("m is 32, kind f16 has instructions of 64 or 128 rows"));
  EXPECT_THAT(mma(128, 260, 16, "float16"), HasSubstr("n is 260, it must be a multiple of 8"));
  EXPECT_THAT(mma(128, 64, 8, "float16"), HasSubstr("k is 8, it must be a multiple of 16 for kind f16"));
}

TEST(Verifier, RegistersAreCutAtConstants) {
  const std::string tile =
      "%t: register<float32, [16, 16]> = uninitialized {dtype = float32, shape = [16, 16]}\n";
  EXPECT_THAT(findings(tile + "%c: int32 = const {int = 8}\n"
                              "%s: register<float32, [8, 16]> = slice %t, %c, %n {shape = [8, 16]}"),
              testing::HasSubstr("slice: offset 1 is known only at run time, and registers have no address"));
}

TEST(Verifier, ReportsEveryFinding) {
  const std::string text = findings("break @3\n%0: int32 = add %n, %u @4");
  EXPECT_THAT(text, testing::HasSubstr("f.cpp:3: error: break"));
  EXPECT_THAT(text, testing::HasSubstr("f.cpp:4: error: add"));
}

TEST(Verifier, TargetsHaveWhatTheyHave) {
  const std::string tmem =
      "%t: tmem<float32, [128, 64]> = tcgen05_alloc {dtype = float32, shape = [128, 64]}";
  for (const char* target : {"sm_100a", "sm_100f", "sm_103a", "sm_110a"})
    EXPECT_EQ(findings(tmem, target), "valid");
  EXPECT_THAT(findings(tmem, "sm_120a"), testing::HasSubstr("needs target sm_100a"));
  EXPECT_THAT(findings(tmem, "sm_90a"), testing::HasSubstr("needs target sm_100a, the kernel is for sm_90a"));
  EXPECT_EQ(findings("wgmma_fence", "sm_90a"), "valid");
  EXPECT_THAT(findings("wgmma_fence", "sm_100a"),
              testing::AllOf(testing::HasSubstr("needs target sm_90a"),
                             testing::HasSubstr("sm_100a GPUs multiply by tcgen05::mma()")));
  EXPECT_EQ(findings("fence_proxy_async {space = \"all\"}", "sm_100a"), "valid");
  EXPECT_THAT(findings("fence_proxy_async {space = \"all\"}", "sm_80"),
              testing::HasSubstr("needs target sm_90"));
  EXPECT_THAT(findings("sync", "sm_115a"), testing::HasSubstr("unknown target 'sm_115a'"));
}

TEST(Verifier, TheHostBlockIsPure) {
  const auto f =
      parse("kernel f() target sm_80 warps 4 {\n host {\n %0: int32 = block_idx {axis = 0}\n }\n}\n");
  EXPECT_THROW(verify(*f), CompileError);
}

}  // namespace
}  // namespace imbrex::ir
