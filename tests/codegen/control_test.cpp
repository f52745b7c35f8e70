// SPDX-License-Identifier: Apache-2.0
// Loops, branches, variables, thread groups, tabulate, fast_divmod: run and compared with plain C++.
#include <gmock/gmock.h>

#include "imbrex/core/error.h"
#include "kit.h"

namespace imbrex::codegen::testing {
namespace {

using ::testing::HasSubstr;

/// A kernel whose body computes the scalar %result (int32) from %n, which element i of y gets plus i.
std::string scalar_kernel(const std::string& body, int warps = 1, const std::string& target = "sm_80") {
  return fill(R"(kernel scalar(%n: int32, %y: ptr<int32>) target {target} warps {w} from "scalar.cpp":1 {
  %c0: int32 = const {int = 0}
  %c1: int32 = const {int = 1}
  %c2: int32 = const {int = 2}
  %c3: int32 = const {int = 3}
  %c5: int32 = const {int = 5}
  %c7: int32 = const {int = 7}
  %c10: int32 = const {int = 10}
  %c64: int32 = const {int = 64}
  %minus1: int32 = const {int = -1}
  launch_grid %c1
  %gy: global<int32, [64]> = global_view %y, %c64, %c1 {rank = 1}
{body}
  %t: register<int32, [64]> = tabulate %element: int32 in {dtype = int32, shape = [64]} {
    %v: int32 = add %element, %result
    yield %v
  }
  store_global %gy, %t, %c0 {dims = [0]}
})",
              {{"body", body}, {"w", std::to_string(warps)}, {"target", target}});
}

void expect_result(const std::string& body, int64_t n, int64_t expected) {
  SCOPED_TRACE("n = " + std::to_string(n) + "\n" + body);
  Buffer y(int32, 64);
  run(compile(scalar_kernel(body)), {n, &y});
  for (int64_t i = 0; i < 64; ++i)
    ASSERT_EQ(y.get(i), static_cast<double>(static_cast<int32_t>(expected + i)));
}

TEST(Control, ForLoopsRunWhileBelowTheEnd) {
  const std::string body = R"(  %sum: var<int32> = var %c0
  for %i: int32 in %c3, %n, %c2 {
    %a: int32 = read %sum
    %b: int32 = mul %i, %i
    %c: int32 = add %a, %b
    assign %sum, %c
  }
  %result: int32 = read %sum)";
  for (int n : {-4, 0, 3, 4, 5, 20, 21}) {
    int expected = 0;
    for (int i = 3; i < n; i += 2) expected += i * i;
    expect_result(body, n, expected);
  }
}

TEST(Control, UnrolledAndDownwardLoops) {
  for (int unroll : {0, 1, 2, 3, 4}) {
    const std::string body = fill(R"(  %sum: var<int32> = var %n
  for %i: int32 in %c10, %minus1, %minus1 {unroll = {u}} {
    %a: int32 = read %sum
    %b: int32 = mul %a, %c3
    %c: int32 = sub %b, %i
    assign %sum, %c
  }
  %result: int32 = read %sum)",
                                  {{"u", std::to_string(unroll)}});
    uint32_t expected = 5;
    for (int i = 10; i > -1; --i) expected = expected * 3 - static_cast<uint32_t>(i);
    expect_result(body, 5, static_cast<int32_t>(expected));
  }
}

TEST(Control, NestedLoopsAndBreaks) {
  // Leaves the inner loop at j == i and both at i == n.
  const std::string body = R"(  %count: var<int32> = var %c0
  %i: var<int32> = var %c0
  loop {
    %i0: int32 = read %i
    for %j: int32 in %c0, %c10, %c1 {
      %at: bool = eq %j, %i0
      if %at {
        break
      } else {
      }
      %last: bool = ge %i0, %n
      if %last {
        break {depth = 1}
      } else {
      }
      %k: int32 = read %count
      %k1: int32 = add %k, %c1
      assign %count, %k1
    }
    %i1: int32 = add %i0, %c1
    assign %i, %i1
  }
  %result: int32 = read %count)";
  for (int n : {1, 4, 9}) {
    int expected = 0;
    for (int i = 0;; ++i) {
      bool stop = false;
      for (int j = 0; j < 10; ++j) {
        if (j == i) break;
        if (i >= n) {
          stop = true;
          break;
        }
        ++expected;
      }
      if (stop) break;
    }
    expect_result(body, n, expected);
  }
}

TEST(Control, ReadsKeepTheValueOfTheMoment) {
  // fib: the old value is used after the variable has changed.
  const std::string body = R"(  %a: var<int32> = var %c0
  %b: var<int32> = var %c1
  for %i: int32 in %c0, %n, %c1 {
    %old_a: int32 = read %a
    %old_b: int32 = read %b
    assign %a, %old_b
    %sum: int32 = add %old_a, %old_b
    assign %b, %sum
  }
  %result: int32 = read %a)";
  expect_result(body, 10, 55);
  expect_result(body, 20, 6765);
}

TEST(Control, BranchesWithElseAndSelect) {
  const std::string body = R"(  %x: var<int32> = var %n
  %big: bool = gt %n, %c10
  if %big {
    assign %x, %c7
  } else {
    %m: int32 = mul %n, %c5
    assign %x, %m
  }
  %x0: int32 = read %x
  %odd: int32 = and %n, %c1
  %is_odd: bool = ne %odd, %c0
  %neg: int32 = neg %x0
  %result: int32 = select %is_odd, %neg, %x0)";
  expect_result(body, 11, -7);
  expect_result(body, 12, 7);
  expect_result(body, 3, -15);
  expect_result(body, 4, 20);
}

TEST(Control, FastDivmodByGridConstantsAndConstants) {
  for (int divisor : {1, 2, 3, 7, 10, 127}) {
    for (int n : {0, 1, 9, 126, 127, 1000003}) {
      const std::string body = fill(R"(  %d0: int32 = const {int = {d}}
  %q: int32, %r: int32 = fast_divmod %n, %d0
  %h: int32 = mul %q, %c10
  %result: int32 = add %h, %r)",
                                    {{"d", std::to_string(divisor)}});
      expect_result(body, n, n / divisor * 10 + n % divisor);
    }
  }
  for (int n : {1, 5, 77}) {
    const std::string body = R"(  %d0: int32 = add %n, %c2
  %z: int32 = block_idx {axis = 0}
  %big: int32 = const {int = 2147483600}
  %a: int32 = add %z, %big
  %q: int32, %r: int32 = fast_divmod %a, %d0
  %result: int32 = xor %q, %r)";
    expect_result(body, n, (2147483600 / (n + 2)) ^ (2147483600 % (n + 2)));
  }
}

/// Each thread group adds its own number to what it stores: y[i] tells who wrote it.
TEST(Control, ThreadGroupsRunInTheirThreads) {
  const std::string text = R"(kernel groups(%y: ptr<int32>) target {target} warps 4 from "groups.cpp":1 {
  %c0: int32 = const {int = 0}
  %c1: int32 = const {int = 1}
  %c2: int32 = const {int = 2}
  %c32: int32 = const {int = 32}
  %c64: int32 = const {int = 64}
  %c96: int32 = const {int = 96}
  %c100: int32 = const {int = 100}
  %c128: int32 = const {int = 128}
  launch_grid %c1
  %gy: global<int32, [128]> = global_view %y, %c128, %c1 {rank = 1}
  thread_group {begin = 0, threads = 32} {
    %a: register<int32, [32]> = tabulate %i1: int32 in {dtype = int32, shape = [32]} {
      %v1: int32 = add %i1, %c100
      yield %v1
    }
    store_global %gy, %a, %c0 {dims = [0]}
  }
  thread_group {begin = 64, threads = 64} {
    %b: register<int32, [64]> = tabulate %i2: int32 in {dtype = int32, shape = [64]} {
      %v2: int32 = mul %i2, %c2
      yield %v2
    }
    store_global %gy, %b, %c64 {dims = [0]}
    sync
    thread_group {begin = 32, threads = 32} {
      thread_group {begin = 0, threads = 1} {
        %d: register<int32, [1]> = tabulate %i3: int32 in {dtype = int32, shape = [1]} {
          yield %c1
        }
        store_global %gy, %d, %c96 {dims = [0]}
      }
    }
  }
  thread_group {begin = 32, threads = 32} {
    thread_group {begin = 8, threads = 16} {
      %e: register<int32, [16]> = tabulate %i4: int32 in {dtype = int32, shape = [16]} {
        yield %i4
      }
      store_global %gy, %e, %c32 {dims = [0]}
    }
  }
})";
  for (const char* target : {"sm_80", "sm_90a"}) {
    const CompiledKernel kernel = compile(fill(text, {{"target", target}}));
    EXPECT_THAT(kernel.ptx, HasSubstr("shfl.sync.idx"));
    EXPECT_EQ(kernel.ptx.find("elect.sync") != std::string::npos, std::string(target) != "sm_80");
    Buffer y(int32, 128);
    y.fill(-1);
    run(kernel, {&y});
    for (int i = 0; i < 128; ++i) {
      const int expected = i < 32 ? i + 100 : i < 48 ? i - 32 : i < 64 ? -1 : i == 96 ? 1 : (i - 64) * 2;
      ASSERT_EQ(y.get(i), expected) << i;
    }
    expect_assembles(kernel);
  }
}

TEST(Control, VariablesHoldTensors) {
  const std::string text =
      R"(kernel powers(%n: int32, %x: ptr<float16>, %y: ptr<float16>) target sm_80 warps 1 from "powers.cpp":1 {
  %c0: int32 = const {int = 0}
  %c1: int32 = const {int = 1}
  %c64: int32 = const {int = 64}
  %h1: float16 = const {float = 1.0}
  launch_grid %c1
  %gx: global<float16, [64]> = global_view %x, %c64, %c1 {rank = 1}
  %gy: global<float16, [64]> = global_view %y, %c64, %c1 {rank = 1}
  %r: register<float16, [64]> = load_global %gx, %c0 {shape = [64], dims = [0]}
  %one: register<float16, [64]> = broadcast %h1 {shape = [64]}
  %p: var<float16, [64]> = var %one
  %last: var<float16, [64]> = var %one
  for %i: int32 in %c0, %n, %c1 {
    %a: register<float16, [64]> = read %p
    %b: register<float16, [64]> = mul %a, %r
    assign %p, %b
    assign %last, %a
  }
  %v: register<float16, [64]> = read %p
  %w: register<float16, [64]> = read %last
  %s: register<float16, [64]> = sub %v, %w
  store_global %gy, %s, %c0 {dims = [0]}
})";
  Buffer x(float16, 64), y(float16, 64);
  for (int i = 0; i < 64; ++i) x.set(i, (i % 5 - 2) / 2.0);
  run(compile(text), {4, &x, &y});
  for (int i = 0; i < 64; ++i) {
    const double v = x.get(i);
    ASSERT_EQ(y.get(i), v * v * v * v - v * v * v) << i;
  }
}

TEST(Control, PrintfAndChecksSpeak) {
  const std::string text = R"(kernel speak(%n: int32) target sm_80 warps 1 from "speak.cpp":1 {
  %c1: int32 = const {int = 1}
  %half: float32 = const {float = 0.5}
  launch_grid %c1
  thread_group {begin = 0, threads = 1} {
    printf %n, %half {format = "n is %d, half is %g\n"}
    %ok: bool = gt %n, %c1
    check %ok {message = "n must be above 1"} @9
  }
})";
  const CompiledKernel kernel = compile(text);
  EXPECT_EQ(run(kernel, {5}).printf_output, "n is 5, half is 0.5\n");
  expect_assembles(kernel);
}

TEST(Control, TensorsArePrintedFromOneThread) {
  const std::string text = R"(kernel show(%n: int32) target sm_80 warps 2 from "show.cpp":1 {
  %c1: int32 = const {int = 1}
  %c2: int32 = const {int = 2}
  %c10: int32 = const {int = 10}
  launch_grid %c2
  %t: register<int32, [2, 4]> = tabulate %i: int32, %j: int32 in {dtype = int32, shape = [2, 4]} {
    %a: int32 = mul %i, %c10
    %v: int32 = add %a, %j
    yield %v
  }
  print_tensor %t {header = "t:"}
})";
  const CompiledKernel kernel = compile(text);
  EXPECT_EQ(run(kernel, {0}).printf_output, "t:\n0, 1, 2, 3\n10, 11, 12, 13\n");
  expect_assembles(kernel);
}

}  // namespace
}  // namespace imbrex::codegen::testing
