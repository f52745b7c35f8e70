// SPDX-License-Identifier: Apache-2.0
// mma.sync: whole small matmuls with their tiles in a ring, assembled and run; and how lean their loop is.
#include <gmock/gmock.h>

#include "kit.h"

namespace imbrex::codegen::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Matmul {
  DataType in = float16, accumulator = float32;
  int block_m = 64, block_n = 64, block_k = 64, stages = 3;
  int n = 64, k = 256;
  const char* target = "sm_80";
};

/// C = A B^T for one tile of C, its operands in a ring of `stages` whose stage is known at run time only.
std::string matmul_kernel(const Matmul& p) {
  const int step = 256 / p.in.bits();
  std::string products;
  for (int i = 0; i < p.block_k / step; ++i)
    products += fill(R"(
    %at{i}: shared<{in}, [{bm}, {step}]> = slice %ta, %c0, %k{i} {shape = [{bm}, {step}]} @25
    %bt{i}: shared<{in}, [{bn}, {step}]> = slice %tb, %c0, %k{i} {shape = [{bn}, {step}]} @26
    %btt{i}: shared<{in}, [{step}, {bn}]> = permute %bt{i} {dims = [1, 0]} @26
    %ra{i}: register<{in}, [{bm}, {step}]> = load_shared %at{i} @25
    %rb{i}: register<{in}, [{step}, {bn}]> = load_shared %btt{i} @26
    %c{i}_: register<{acc}, [{bm}, {bn}]> = read %sum @27
    %d{i}: register<{acc}, [{bm}, {bn}]> = mma %ra{i}, %rb{i}, %c{i}_ @27
    assign %sum, %d{i} @27)",
                     {{"i", std::to_string(i)}});
  std::string constants;
  for (int i = 0; i < p.block_k / step; ++i)
    constants += fmt::format("  %k{}: int32 = const {{int = {}}}\n", i, i * step);
  return fill(
      R"(kernel matmul(%a: ptr<{in}>, %b: ptr<{in}>, %c: ptr<{acc}>) target {target} warps 4 from "matmul.cpp":1 {
  %c0: int32 = const {int = 0}
  %c1: int32 = const {int = 1}
  %m: int32 = const {int = {bm}}
  %n: int32 = const {int = {bn}}
  %bk: int32 = const {int = {bk}}
  %k: int32 = const {int = {k}}
  %stages: int32 = const {int = {stages}}
  %zero: {acc} = const {{zero}}
{constants}
  launch_grid %c1 @11
  %ga: global<{in}, [{bm}, {k}]> = global_view %a, %m, %k, %k, %c1 {rank = 2} @13
  %gb: global<{in}, [{bn}, {k}]> = global_view %b, %n, %k, %k, %c1 {rank = 2} @14
  %gc: global<{acc}, [{bm}, {bn}]> = global_view %c, %m, %n, %n, %c1 {rank = 2} @15
  %sa: shared<{in}, [{stages}, {bm}, {bk}]> = shared_alloc {dtype = {in}, shape = [{stages}, {bm}, {bk}]} @16
  %sb: shared<{in}, [{stages}, {bn}, {bk}]> = shared_alloc {dtype = {in}, shape = [{stages}, {bn}, {bk}]} @17
  %zeros: register<{acc}, [{bm}, {bn}]> = broadcast %zero {shape = [{bm}, {bn}]} @18
  %sum: var<{acc}, [{bm}, {bn}]> = var %zeros @18
  %first: int32 = const {int = 0}
  %stage: var<int32> = var %first @19
  for %i: int32 in %c0, %k, %bk @20 {
    %s: int32 = read %stage @21
    %ta: shared<{in}, [{bm}, {bk}]> = index %sa, %s @21
    %tb: shared<{in}, [{bn}, {bk}]> = index %sb, %s @22
    copy_async %ga, %ta, %c0, %i {dims = [0, 1]} @21
    copy_async %gb, %tb, %c0, %i {dims = [0, 1]} @22
    copy_async_wait_all @23
    sync @24{products}
    %s1: int32 = add %s, %c1 @28
    %s2: int32 = rem %s1, %stages @28
    assign %stage, %s2 @28
  }
  %r: register<{acc}, [{bm}, {bn}]> = read %sum @30
  store_global %gc, %r, %c0, %c0 {dims = [0, 1]} @31
})",
      {{"constants", constants},
       {"products", fill(products, {{"step", std::to_string(step)}})},
       {"target", p.target},
       {"zero", p.accumulator.is_float() ? "float = 0" : "int = 0"},
       {"in", std::string(p.in.name())},
       {"acc", std::string(p.accumulator.name())},
       {"bm", std::to_string(p.block_m)},
       {"bn", std::to_string(p.block_n)},
       {"bk", std::to_string(p.block_k)},
       {"k", std::to_string(p.k)},
       {"stages", std::to_string(p.stages)}});
}

CompiledKernel check_matmul(const Matmul& p) {
  SCOPED_TRACE(std::string(p.in.name()) + ", " + std::string(p.accumulator.name()));
  std::mt19937 random(37);
  Buffer a(p.in, p.block_m * p.k), b(p.in, p.block_n * p.k), c(p.accumulator, p.block_m * p.block_n);
  // Small integers: every sum is exact, so there is one right answer.
  for (Buffer* x : {&a, &b})
    for (int64_t i = 0; i < x->size(); ++i)
      x->set(i, static_cast<double>(random() % 5) - (p.in == uint8 ? 0 : 2));
  c.fill(99);
  CompiledKernel kernel = compile(matmul_kernel(p));
  run(kernel, {&a, &b, &c});
  for (int i = 0; i < p.block_m; ++i)
    for (int j = 0; j < p.block_n; ++j) {
      double expected = 0;
      for (int x = 0; x < p.k; ++x) expected += a.get(i * p.k + x) * b.get(j * p.k + x);
      if (c.get(i * p.block_n + j) != expected) {
        ADD_FAILURE() << i << ", " << j << " is " << c.get(i * p.block_n + j) << ", not " << expected << "\n"
                      << kernel.ptx;
        return kernel;
      }
    }
  expect_assembles(kernel);
  return kernel;
}

TEST(Mma, EveryTypeAssemblesAndIsRight) {
  EXPECT_THAT(check_matmul({}).ptx, HasSubstr("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"));
  EXPECT_THAT(check_matmul({.accumulator = float16}).ptx,
              HasSubstr("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16"));
  EXPECT_THAT(check_matmul({.in = bfloat16}).ptx,
              HasSubstr("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"));
  EXPECT_THAT(check_matmul({.in = tfloat32}).ptx,
              HasSubstr("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"));
  EXPECT_THAT(check_matmul({.in = float32, .block_k = 32}).ptx,
              HasSubstr("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"));
  EXPECT_THAT(check_matmul({.in = int8, .accumulator = int32}).ptx,
              HasSubstr("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"));
  EXPECT_THAT(check_matmul({.in = uint8, .accumulator = int32, .block_k = 128}).ptx,
              HasSubstr("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32"));
  EXPECT_THAT(check_matmul({.in = float8_e4m3, .target = "sm_90a"}).ptx,
              HasSubstr("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"));
  EXPECT_THAT(check_matmul({.in = float8_e5m2, .target = "sm_100a"}).ptx,
              HasSubstr("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32"));
}

TEST(Mma, EightBitFloatsNeedALaterTarget) {
  EXPECT_THAT(compile_error(matmul_kernel({.in = float8_e4m3})),
              HasSubstr("mma of 8-bit floats needs sm_89 or later, the kernel is for sm_80"));
}

/// What stands between the loop's label and the branch back.
std::string loop_of(const std::string& ptx) {
  const size_t begin = ptx.find("for");
  const size_t label = ptx.find(":\n", begin);
  const std::string name = ptx.substr(ptx.rfind('\n', label) + 1, label - ptx.rfind('\n', label) - 1);
  return ptx.substr(label, ptx.find("bra", ptx.find(name + ";", label) - 20) - label);
}

int64_t count_of(const std::string& text, const std::string& what) {
  int64_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

TEST(Mma, TheLoopHoldsLittleElse) {
  const std::string loop = loop_of(check_matmul({}).ptx);
  // Each of 4 warps has a box of 32 x 32, 4 steps of k: 8 products, 2 loads of a and 2 of b a step.
  EXPECT_EQ(count_of(loop, "mma.sync"), 4 * 8) << loop;
  EXPECT_EQ(count_of(loop, "ldmatrix.sync.aligned.m8n8.x4.shared"), 4 * 4) << loop;
  EXPECT_THAT(loop, Not(HasSubstr("ld.shared"))) << loop;
  EXPECT_THAT(loop, Not(HasSubstr("mov.b32 \t%f"))) << "sums move: " << loop;
  EXPECT_EQ(count_of(loop, "mov."), 1) << "the stage; sums stay where they are: " << loop;
  // One address register for a and one for b a step, found by adding the stage to what was swizzled before.
  EXPECT_EQ(count_of(loop, "xor."), 0) << loop;
  EXPECT_EQ(count_of(loop, "shr."), 0) << loop;
}

}  // namespace
}  // namespace imbrex::codegen::testing
