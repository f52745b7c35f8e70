// SPDX-License-Identifier: Apache-2.0
// Tensor memory and matrix products: whole small matmuls, run with every checker on.
#include <gmock/gmock.h>

#include "imbrex/core/error.h"
#include "kit.h"
#include "layout/registers.h"

namespace imbrex::codegen::testing {
namespace {

using ::testing::HasSubstr;

struct Matmul {
  int block_m = 128, block_n = 64, block_k = 64, stages = 1;
  int m = 128, n = 128, k = 128;
  DataType in = float16, accumulator = float32, out = float16;
};

/// C = A B^T, the first step of the matmul ladder, its tiles in a ring of `stages`.
std::string matmul_kernel(const Matmul& p) {
  return fill(
      R"(kernel matmul(%m: int32, %a: ptr<{in}>, %b: ptr<{in}>, %c: ptr<{out}>) target sm_100a warps 4 from "matmul.cpp":1 {
  %c1: int32 = const {int = 1}
  %c0: int32 = const {int = 0}
  %bm: int32 = const {int = {bm}}
  %bn: int32 = const {int = {bn}}
  %bk: int32 = const {int = {bk}}
  %n: int32 = const {int = {n}}
  %k: int32 = const {int = {k}}
  %stages: int32 = const {int = {stages}}
  %g0: int32 = ceil_div %m, %bm @11
  %g1: int32 = ceil_div %n, %bn @11
  launch_grid %g0, %g1 @11
  %bx: int32 = block_idx {axis = 0} @12
  %by: int32 = block_idx {axis = 1} @12
  %om: int32 = mul %bm, %bx @12
  %on: int32 = mul %bn, %by @12
  %ga: global<{in}, [?, {k}]> = global_view %a, %m, %k, %k, %c1 {rank = 2} @13
  %gb: global<{in}, [{n}, {k}]> = global_view %b, %n, %k, %k, %c1 {rank = 2} @14
  %gc: global<{out}, [?, {n}]> = global_view %c, %m, %n, %n, %c1 {rank = 2} @15
  %sa: shared<{in}, [{stages}, {bm}, {bk}]> = shared_alloc {dtype = {in}, shape = [{stages}, {bm}, {bk}]} @16
  %sb: shared<{in}, [{stages}, {bn}, {bk}]> = shared_alloc {dtype = {in}, shape = [{stages}, {bn}, {bk}]} @17
  %t: tmem<{acc}, [{bm}, {bn}]> = tcgen05_alloc {dtype = {acc}, shape = [{bm}, {bn}]} @18
  %bars: barrier[1] = mbarrier_alloc {counts = [1]} @19
  %bar: barrier = mbarrier_at %bars, %c0 @19
  %p0: uint32 = const {int = 0}
  %u1: uint32 = const {int = 1}
  %phase: var<uint32> = var %p0 @20
  sync @21
  for %i: int32 in %c0, %k, %bk @22 {
    %step: int32 = div %i, %bk @22
    %stage: int32 = rem %step, %stages @22
    %ta: shared<{in}, [{bm}, {bk}]> = index %sa, %stage @23
    %tb: shared<{in}, [{bn}, {bk}]> = index %sb, %stage @24
    copy_async %ga, %ta, %om, %i {dims = [0, 1]} @23
    copy_async %gb, %tb, %on, %i {dims = [0, 1]} @24
    copy_async_wait_all @25
    sync @26
    thread_group {begin = 0, threads = 32} @27 {
      %tbt: shared<{in}, [{bk}, {bn}]> = permute %tb {dims = [1, 0]} @28
      %more: bool = ne %i, %c0 @28
      tcgen05_mma %ta, %tbt, %t, %more @28
      tcgen05_commit %bar @29
      %ph: uint32 = read %phase @30
      mbarrier_wait %bar, %ph @30
    }
    sync @31
    %ph2: uint32 = read %phase @32
    %ph3: uint32 = xor %ph2, %u1 @32
    assign %phase, %ph3 @32
  }
  %r: register<{acc}, [{bm}, {bn}]> = tcgen05_load %t @34
  %o: register<{out}, [{bm}, {bn}]> = cast %r {dtype = {out}} @35
  store_global %gc, %o, %om, %on {dims = [0, 1]} @36
  sync @37
  tcgen05_dealloc %t @38
})",
      {{"in", std::string(p.in.name())},
       {"acc", std::string(p.accumulator.name())},
       {"out", std::string(p.out.name())},
       {"bm", std::to_string(p.block_m)},
       {"bn", std::to_string(p.block_n)},
       {"bk", std::to_string(p.block_k)},
       {"n", std::to_string(p.n)},
       {"k", std::to_string(p.k)},
       {"stages", std::to_string(p.stages)}});
}

CompiledKernel check_matmul(const Matmul& p) {
  SCOPED_TRACE(std::string(p.in.name()) + " blocks " + std::to_string(p.block_m) + "x" +
               std::to_string(p.block_n) + "x" + std::to_string(p.block_k) + " of " + std::to_string(p.m) +
               "x" + std::to_string(p.n) + "x" + std::to_string(p.k));
  std::mt19937 random(31);
  Buffer a(p.in, p.m * p.k), b(p.in, p.n * p.k), c(p.out, p.m * p.n);
  // Small integers: every sum is exact, so there is one right answer.
  for (Buffer* x : {&a, &b})
    for (int64_t i = 0; i < x->size(); ++i)
      x->set(i, static_cast<double>(random() % 5) - (p.in == uint8 ? 0 : 2));
  c.fill(99);
  CompiledKernel kernel = compile(matmul_kernel(p));
  run(kernel, {p.m, &a, &b, &c});
  for (int i = 0; i < p.m; ++i)
    for (int j = 0; j < p.n; ++j) {
      double expected = 0;
      for (int x = 0; x < p.k; ++x) expected += a.get(i * p.k + x) * b.get(j * p.k + x);
      if (c.get(i * p.n + j) != rounded(p.out, expected)) {
        ADD_FAILURE() << i << ", " << j << " is " << c.get(i * p.n + j) << ", not "
                      << rounded(p.out, expected) << "\n"
                      << kernel.ptx;
        return kernel;
      }
    }
  return kernel;
}

TEST(Tcgen05, EveryTileOfTheFirstStep) {
  for (int block_n : {64, 128, 256})
    for (int block_k : {16, 32, 64})
      check_matmul({.block_n = block_n, .block_k = block_k, .n = block_n, .k = 2 * block_k});
}

TEST(Tcgen05, RaggedMatricesAndOddTiles) {
  check_matmul({.block_n = 64, .m = 200, .n = 192});
  check_matmul({.block_n = 96, .m = 130, .n = 192});
  check_matmul({.block_n = 224, .m = 7, .n = 448, .k = 64});
  check_matmul({.block_n = 16, .m = 128, .n = 40, .k = 192});
}

TEST(Tcgen05, OtherTypes) {
  check_matmul({.in = bfloat16, .out = bfloat16});
  check_matmul({.block_k = 32, .in = float32, .out = float32});
  check_matmul({.block_k = 128, .in = float8_e4m3, .out = float32});
  check_matmul({.block_k = 128, .in = int8, .accumulator = int32, .out = int32});
  check_matmul({.accumulator = float16});
}

TEST(Tcgen05, SixtyFourRows) {
  check_matmul({.block_m = 64, .block_n = 128});
  check_matmul({.block_m = 64, .block_n = 64, .m = 100, .in = bfloat16, .out = float32});
}

TEST(Tcgen05, StagesAreIndexedAtRunTime) { check_matmul({.stages = 3, .k = 320}); }

TEST(Tcgen05, WidthsOf8BitIntegers) {
  // 8, 24 and multiples of 16: others are several instructions.
  const Matmul odd{.block_n = 40, .block_k = 128, .n = 40, .in = int8, .accumulator = int32, .out = int32};
  const std::string ptx = check_matmul(odd).ptx;
  size_t products = 0;
  for (size_t at = ptx.find("kind::i8"); at != std::string::npos; at = ptx.find("kind::i8", at + 1))
    ++products;
  EXPECT_EQ(products, 5u * 4);  // widths of 8, steps of 32
}

TEST(Tcgen05, DescriptorsAreMadeBeforeTheLoop) {
  const CompiledKernel kernel = check_matmul({.block_n = 128});
  const size_t loop = kernel.ptx.find("$for:");
  const size_t end = kernel.ptx.find("@%p", kernel.ptx.find("setp.lt.s32", loop));
  ASSERT_NE(loop, std::string::npos);
  const std::string body = kernel.ptx.substr(loop, end - loop);
  EXPECT_EQ(body.find("shr"), std::string::npos) << body;
  EXPECT_EQ(body.find("xor.b32 %r25"), std::string::npos) << body;
  size_t products = 0;
  for (size_t at = body.find("tcgen05.mma"); at != std::string::npos; at = body.find("tcgen05.mma", at + 1))
    ++products;
  EXPECT_EQ(products, 4u);
  EXPECT_THAT(body, HasSubstr("mbarrier.try_wait.parity.shared::cta.b64"));
  EXPECT_EQ(kernel.tensor_memory_columns, 128);
  expect_assembles(kernel);
}

/// y = x through tensor memory, stored from registers `from` and loaded into registers `to`.
CompiledKernel check_transfer(DataType type, const layout::Layout& memory, const layout::Layout& from,
                              const layout::Layout& to, int warps) {
  SCOPED_TRACE("memory " + memory.to_string() + "\n  from " + from.to_string() + "\n  to   " +
               to.to_string());
  const int64_t rows = from.shape()[0], columns = from.shape()[1];
  const std::string text =
      fill(R"(kernel transfer(%x: ptr<{t}>, %y: ptr<{t}>) target sm_100a warps {w} from "transfer.cpp":1 {
  %c0: int32 = const {int = 0}
  %c1: int32 = const {int = 1}
  %rows: int32 = const {int = {rows}}
  %columns: int32 = const {int = {columns}}
  launch_grid %c1
  %gx: global<{t}, {shape}> = global_view %x, %rows, %columns, %columns, %c1 {rank = 2}
  %gy: global<{t}, {shape}> = global_view %y, %rows, %columns, %columns, %c1 {rank = 2}
  %s: shared<uint32, [4], [4: 4a1; bits 32]> = shared_alloc {dtype = uint32, shape = [4], offset = 0}
  %t: tmem<{t}, {shape}, {memory}> = tcgen05_alloc {dtype = {t}, shape = {shape}, offset = 0}
  %a: register<{t}, {shape}, {from}> = load_global %gx, %c0, %c0 {shape = {shape}, dims = [0, 1]}
  tcgen05_store %t, %a
  tcgen05_wait_store
  tcgen05_fence_before_thread_sync
  sync
  tcgen05_fence_after_thread_sync
  %b: register<{t}, {shape}, {to}> = tcgen05_load %t
  tcgen05_wait_load
  store_global %gy, %b, %c0, %c0 {dims = [0, 1]}
  tcgen05_fence_before_thread_sync
  sync
  tcgen05_fence_after_thread_sync
  tcgen05_dealloc %t
})",
           {{"t", std::string(type.name())},
            {"w", std::to_string(warps)},
            {"rows", std::to_string(rows)},
            {"columns", std::to_string(columns)},
            {"shape", "[" + std::to_string(rows) + ", " + std::to_string(columns) + "]"},
            {"memory", memory.to_string()},
            {"from", from.to_string()},
            {"to", to.to_string()}});
  std::mt19937 random(4);
  Buffer x(type, rows * columns), y(type, rows * columns);
  fill_random(x, random);
  const CompiledKernel kernel = compile_as_is(text);
  run(kernel, {&x, &y});
  for (int64_t i = 0; i < x.size(); ++i)
    if (x.get(i) != y.get(i)) {
      ADD_FAILURE() << "element " << i << " is " << y.get(i) << ", not " << x.get(i) << "\n" << kernel.ptx;
      break;
    }
  return kernel;
}

TEST(Tcgen05, EveryShapeOfTransfer) {
  using layout::TensorMemoryShape;
  const std::vector<std::pair<TensorMemoryShape, std::string>> shapes = {
      {TensorMemoryShape::k32x32b, "32x32b"},
      {TensorMemoryShape::k16x64b, "16x64b"},
      {TensorMemoryShape::k16x128b, "16x128b"},
      {TensorMemoryShape::k16x256b, "16x256b"}};
  for (int64_t n : {16, 96})
    for (const auto& [shape, name] : shapes) {
      const layout::Layout words = layout::Layout::parse("[128: 128l1, " + std::to_string(n) + ": " +
                                                         std::to_string(n) + "c1; bits 32]");
      const layout::Layout plain = layout::tensor_memory_registers(TensorMemoryShape::k32x32b, 4, n);
      const layout::Layout other = layout::tensor_memory_registers(shape, 4, n);
      EXPECT_THAT(check_transfer(float32, words, plain, other, 4).ptx,
                  HasSubstr("tcgen05.ld.sync.aligned." + name));
      EXPECT_THAT(check_transfer(int32, words, other, plain, 4).ptx,
                  HasSubstr("tcgen05.st.sync.aligned." + name));
      // Two 16-bit elements in a column, and one in each.
      const layout::Layout pairs = layout::Layout::parse("[128: 128l1, " + std::to_string(n) + ": " +
                                                         std::to_string(n) + "c1; bits 16]");
      const layout::Layout singles = layout::Layout::parse("[128: 128l1, " + std::to_string(n) + ": " +
                                                           std::to_string(n) + "c2; bits 16]");
      const layout::Layout packed = layout::tensor_memory_registers(shape, 4, n, 2);
      check_transfer(float16, pairs, packed, packed, 4);
      EXPECT_THAT(check_transfer(bfloat16, singles, packed, packed, 4).ptx, HasSubstr("pack::16b"));
    }
}

TEST(Tcgen05, TwoWarpGroupsShareTheColumns) {
  const layout::Layout words = layout::Layout::parse("[128: 128l1, 64: 64c1; bits 32]");
  const layout::Layout halves = layout::Layout::parse("[128: 128t1, 64: 2t128 32r1]");
  check_transfer(float32, words, halves, halves, 8);
}

TEST(Tcgen05, OtherRegisterLayoutsAreRefused) {
  const layout::Layout words = layout::Layout::parse("[128: 128l1, 64: 64c1; bits 32]");
  const layout::Layout registers = layout::coalesced({128, 64}, 128, 32);
  EXPECT_THROW(
      try { check_transfer(float32, words, registers, registers, 4); } catch (const CompileError& error) {
        EXPECT_THAT(error.what(), HasSubstr("no shape of tcgen05.ld and .st moves between these layouts"));
        throw;
      },
      CompileError);
}

TEST(Tcgen05, TheSameKernelGivesTheSameBytes) {
  const CompiledKernel first = compile(matmul_kernel({}), {.comments = true});
  EXPECT_EQ(first.ptx, compile(matmul_kernel({}), {.comments = true}).ptx);
  EXPECT_THAT(first.ptx, HasSubstr("// copy_async %ga, "));
  EXPECT_THAT(first.ptx, HasSubstr(".loc 1 23 0"));
}

TEST(Tcgen05, NeedsItsTarget) {
  std::string text = matmul_kernel({});
  text.replace(text.find("sm_100a"), 7, "sm_90a");
  EXPECT_THAT(compile_error(text), HasSubstr("tcgen05_alloc"));
}

}  // namespace
}  // namespace imbrex::codegen::testing
