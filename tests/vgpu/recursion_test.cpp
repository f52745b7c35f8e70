// SPDX-License-Identifier: Apache-2.0
// Functions that call themselves: registers and variables of each call, and the end of the stack.
#include <gmock/gmock.h>

#include <numeric>

#include "control_kernel.h"
#include "vgpu/stack_limit.h"

namespace imbrex::vgpu {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// While it lives, threads have so much.
struct StackBytes {
  explicit StackBytes(int64_t bytes) { set_stack_bytes(bytes); }
  ~StackBytes() { set_stack_bytes(before); }
  int64_t before = stack_bytes();
};

/// %y = function(%lane), of 32 bits each.
std::string calls(const std::string& function) {
  return "  {\n  .param .b32 argument, value;\n  st.param.b32 [argument], %lane;\n  call.uni (value), " +
         function + ", (argument);\n  ld.param.b32 %y, [value];\n  }\n  st.global.u32 [%out], %y;\n  ret;";
}

const std::string kFibonacci = R"(.func (.param .b32 value) fib(.param .b32 argument)
{
  .reg .pred %small;
  .reg .b32 %n, %m, %sum, %next;
  ld.param.b32 %n, [argument];
  mov.u32 %sum, %n;
  setp.lt.u32 %small, %n, 2;
  @%small bra END;
  sub.u32 %m, %n, 1;
  {
  .param .b32 a, v;
  st.param.b32 [a], %m;
  call.uni (v), fib, (a);
  ld.param.b32 %sum, [v];
  }
  sub.u32 %m, %n, 2;
  {
  .param .b32 a, v;
  st.param.b32 [a], %m;
  call.uni (v), fib, (a);
  ld.param.b32 %next, [v];
  }
  add.u32 %sum, %sum, %next;
END:
  st.param.b32 [value], %sum;
  ret;
})";

// Every lane goes another way through its calls, and what each call holds is its own.
TEST(Recursion, EachCallHasItsRegisters) {
  for (const uint64_t seed : {0u, 5u}) {
    Options options;
    options.seed = seed;
    const Outcome r = run(kernel("  rem.u32 %lane, %lane, 11;\n" + calls("fib"), kFibonacci), 1, 64, options);
    ASSERT_TRUE(r.report.clean()) << r.report.format();
    const uint32_t fib[] = {0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55};
    for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(r.out[i], fib[i % 32 % 11]) << i;
  }
}

// A call hands the address of its variable to the next, which adds to it: each variable is another one.
TEST(Recursion, EachCallHasItsVariables) {
  const std::string text = R"(.func (.param .b32 value) chain(.param .b32 depth, .param .b64 above)
{
  .reg .pred %p;
  .reg .b32 %n, %x, %y;
  .reg .b64 %above, %own, %generic;
  .local .align 8 .b32 own[3];
  ld.param.b32 %n, [depth];
  ld.param.b64 %above, [above];
  mov.u64 %own, own;
  cvta.local.u64 %generic, %own;
  st.local.u32 [own+4], %n;
  ld.u32 %x, [%above];
  add.u32 %x, %x, %n;
  st.u32 [%above], %x;
  mov.u32 %y, 0;
  setp.eq.u32 %p, %n, 0;
  @%p bra END;
  st.local.u32 [%own], 1000;
  sub.u32 %x, %n, 1;
  {
  .param .b32 d, v;
  .param .b64 a;
  st.param.b32 [d], %x;
  st.param.b64 [a], %generic;
  call.uni (v), chain, (d, a);
  ld.param.b32 %y, [v];
  }
  ld.local.u32 %x, [own];
  add.u32 %y, %y, %x;
END:
  ld.local.u32 %x, [%own+4];
  add.u32 %y, %y, %x;
  st.param.b32 [value], %y;
  ret;
})";
  const std::string body = R"(  {
  .local .align 8 .b32 first;
  .reg .b64 %first;
  .param .b32 d, v;
  .param .b64 a;
  st.local.u32 [first], 7;
  mov.u64 %first, first;
  cvta.local.u64 %first, %first;
  and.b32 %x, %lane, 7;
  st.param.b32 [d], %x;
  st.param.b64 [a], %first;
  call.uni (v), chain, (d, a);
  ld.param.b32 %y, [v];
  ld.local.u32 %x, [first];
  add.u32 %y, %y, %x;
  }
  st.global.u32 [%out], %y;
  ret;)";
  const StackBytes stack(4096);
  const Outcome r = run(kernel(body, text), 1, 32);
  ASSERT_TRUE(r.report.clean()) << r.report.format();
  for (uint32_t i = 0; i < 32; ++i) {
    const uint32_t depth = i & 7;
    uint32_t expected = 7 + depth;  // first
    for (uint32_t n = 0; n <= depth; ++n) expected += n + (n > 0 ? 1000 + (n - 1) : 0);
    EXPECT_EQ(r.out[i], expected) << i;
  }
}

// Two functions call each other, one of them by a call with a guard that its own call has changed when it returns.
TEST(Recursion, InACircleAndUnderAGuard) {
  const std::string text = R"(.func (.param .b32 value) odd(.param .b32 argument);
.func (.param .b32 value) even(.param .b32 argument)
{
  .reg .pred %p;
  .reg .b32 %n, %y;
  .param .b32 a, v;
  ld.param.b32 %n, [argument];
  mov.u32 %y, 100;
  setp.ne.u32 %p, %n, 0;
  sub.u32 %n, %n, 1;
  st.param.b32 [a], %n;
  @%p call (v), odd, (a);
  @%p ld.param.b32 %y, [v];
  st.param.b32 [value], %y;
  ret;
}
.func (.param .b32 value) odd(.param .b32 argument)
{
  .reg .pred %p;
  .reg .b32 %n, %y;
  .param .b32 a, v;
  ld.param.b32 %n, [argument];
  mov.u32 %y, 200;
  setp.ne.u32 %p, %n, 0;
  sub.u32 %n, %n, 1;
  st.param.b32 [a], %n;
  @%p call (v), even, (a);
  @%p ld.param.b32 %y, [v];
  @%p add.u32 %y, %y, 1;
  st.param.b32 [value], %y;
  ret;
})";
  const Outcome r = run(kernel(calls("even"), text), 1, 32);
  ASSERT_TRUE(r.report.clean()) << r.report.format();
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(r.out[i], (i % 2 == 0 ? 100 : 200) + i / 2) << i;
}

// The function is called through a pointer that a register of its own holds, and so is another that calls nothing.
TEST(Recursion, ThroughAPointer) {
  const std::string text = R"(.func (.param .b32 value) leaf(.param .b32 argument)
{
  .reg .b32 %n;
  ld.param.b32 %n, [argument];
  add.u32 %n, %n, 50;
  st.param.b32 [value], %n;
  ret;
}
.func (.param .b32 value) walk(.param .b32 argument)
{
  .reg .pred %p;
  .reg .b32 %n, %y;
  .reg .b64 %f, %g;
  .param .b32 a, v;
  kind: .callprototype (.param .b32 _) _ (.param .b32 _);
  ld.param.b32 %n, [argument];
  mov.u64 %f, walk;
  mov.u64 %g, leaf;
  setp.gt.u32 %p, %n, 2;
  selp.b64 %f, %f, %g, %p;
  sub.u32 %y, %n, 1;
  st.param.b32 [a], %y;
  call (v), %f, (a), kind;
  ld.param.b32 %y, [v];
  add.u32 %y, %y, %n;
  st.param.b32 [value], %y;
  ret;
})";
  const Outcome r = run(kernel(calls("walk"), text), 1, 32);
  ASSERT_TRUE(r.report.clean()) << r.report.format();
  for (uint32_t i = 0; i < 32; ++i) {
    uint32_t n = i, expected = 0;
    for (; n > 2; --n) expected += n;
    EXPECT_EQ(r.out[i], expected + n + n - 1 + 50) << i;
  }
}

// Parameters and results in registers, in which the call's two sides are the same.
TEST(Recursion, ParametersInRegisters) {
  const std::string text = R"(.func (.reg .b32 %gcd) euclid(.reg .b32 %a, .reg .b32 %b)
{
  .reg .pred %p;
  .reg .b32 %rest;
  mov.u32 %gcd, %a;
  setp.eq.u32 %p, %b, 0;
  @%p ret;
  rem.u32 %rest, %a, %b;
  call.uni (%gcd), euclid, (%b, %rest);
  ret;
})";
  const Outcome r =
      run(kernel("  add.u32 %x, %lane, 1;\n  mov.u32 %y, 60;\n  call.uni (%z), euclid, (%x, %y);\n"
                 "  st.global.u32 [%out], %z;\n  ret;",
                 text),
          1, 32);
  ASSERT_TRUE(r.report.clean()) << r.report.format();
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(r.out[i], std::gcd(i + 1, 60u)) << i;
}

// What the driver brings along takes its arguments out of the frame.
TEST(Recursion, PrintsWhatItsFrameHolds) {
  const std::string text =
      R"(.extern .func (.param .b32 result) vprintf(.param .b64 format, .param .b64 values);
.global .align 1 .b8 format[5] = {37, 100, 59, 32, 0};
.func count(.param .b32 argument)
{
  .reg .pred %p;
  .reg .b32 %n;
  .reg .b64 %format, %values;
  .local .align 8 .b32 values[2];
  ld.param.b32 %n, [argument];
  setp.ne.u32 %p, %n, 0;
  @!%p ret;
  st.local.u32 [values], %n;
  sub.u32 %n, %n, 1;
  {
  .param .b32 a;
  st.param.b32 [a], %n;
  call.uni count, (a);
  }
  mov.u64 %format, format;
  cvta.global.u64 %format, %format;
  mov.u64 %values, values;
  cvta.local.u64 %values, %values;
  {
  .param .b64 f, v;
  .param .b32 r;
  st.param.b64 [f], %format;
  st.param.b64 [v], %values;
  call.uni (r), vprintf, (f, v);
  }
  ret;
})";
  const Outcome r =
      run(kernel("  {\n  .param .b32 a;\n  st.param.b32 [a], 4;\n  call.uni count, (a);\n  }\n  ret;", text),
          1, 1);
  ASSERT_TRUE(r.report.clean()) << r.report.format();
  EXPECT_EQ(r.report.printf_output, "1; 2; 3; 4; ");
}

// A register that the first call has written is not the second's.
TEST(Recursion, EachCallBeginsWithoutValues) {
  const std::string text = R"(.func (.param .b32 value) f(.param .b32 argument)
{
  .reg .pred %p;
  .reg .b32 %n, %y;
  .param .b32 a, v;
  ld.param.b32 %n, [argument];
  setp.eq.u32 %p, %n, 0;
  @%p bra END;
  mov.u32 %y, 1;
  st.param.b32 [a], 0;
  call.uni (v), f, (a);
END:
  st.param.b32 [value], %y;
  ret;
})";
  const Outcome r = run(kernel("  mov.u32 %lane, 1;\n" + calls("f"), text), 1, 32);
  ASSERT_EQ(r.report.findings.size(), 1u) << r.report.format();
  EXPECT_EQ(r.report.findings[0].kind, FindingKind::kUninitializedRead);
  EXPECT_THAT(r.report.findings[0].message, HasSubstr("register that was never written"));
}

TEST(Recursion, TheEndOfTheStackIsTold) {
  const std::string text = R"(.func down(.param .b32 argument)
{
  .reg .b32 %n;
  .local .align 8 .b32 block[24];
  .param .b32 a;
  ld.param.b32 %n, [argument];
  st.local.u32 [block], %n;
  add.u32 %n, %n, 1;
  st.param.b32 [a], %n;
  call.uni down, (a);
  ld.local.u32 %n, [block];
  ret;
})";
  const std::string body =
      "  {\n  .param .b32 a;\n  st.param.b32 [a], 0;\n  call.uni down, (a);\n  }\n  ret;";
  for (const int64_t stack : {1024, 8192}) {
    const StackBytes of_thread(stack);
    const Outcome r = run(kernel(body, text), 1, 32);
    ASSERT_EQ(r.report.findings.size(), 1u) << r.report.format();
    const Finding& f = r.report.findings[0];
    EXPECT_EQ(f.kind, FindingKind::kOutOfBounds);
    const int64_t frame = 96 + 8, depth = stack / frame;
    EXPECT_THAT(f.message, HasSubstr(fmt::format(
                               "stack overflow: calls down, which takes at least {} bytes, {} calls deep; {} "
                               "of the thread's {} bytes are in use",
                               frame, depth, depth * frame, stack)));
    EXPECT_THAT(f.hint, HasSubstr("cudaLimitStackSize"));
    EXPECT_THAT(f.facts,
                ElementsAre(HasSubstr(fmt::format(
                                "in down, called at PTX line 13 (call.uni down, (a);), {} times in a row",
                                depth - 1)),
                            HasSubstr("in down, called at")))
        << r.report.format();
  }
}

// Lanes at different depths meet in a collective of the function, and go on with what is theirs.
TEST(Recursion, LanesOfDifferentDepthsMeet) {
  const std::string text = R"(.func (.param .b32 value) dive(.param .b32 argument)
{
  .reg .pred %p;
  .reg .b32 %n, %y;
  .param .b32 a, v;
  ld.param.b32 %n, [argument];
  setp.eq.u32 %p, %n, 0;
  @%p bra BOTTOM;
  sub.u32 %y, %n, 1;
  st.param.b32 [a], %y;
  call.uni (v), dive, (a);
  ld.param.b32 %y, [v];
  add.u32 %y, %y, %n;
  st.param.b32 [value], %y;
  ret;
BOTTOM:
  mov.u32 %y, %laneid;
  shfl.sync.bfly.b32 %y, %y, 31, 31, -1;
  st.param.b32 [value], %y;
  ret;
})";
  const Outcome r = run(kernel("  and.b32 %lane, %lane, 3;\n" + calls("dive"), text), 1, 32);
  ASSERT_TRUE(r.report.clean()) << r.report.format();
  for (uint32_t i = 0; i < 32; ++i) {
    const uint32_t depth = i & 3;
    EXPECT_EQ(r.out[i], 31 - i + depth * (depth + 1) / 2) << i;
  }
}

}  // namespace
}  // namespace imbrex::vgpu
