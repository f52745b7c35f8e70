// SPDX-License-Identifier: Apache-2.0
// Shared memory through every kind of layout: what one register layout stores, another loads.
#include <gmock/gmock.h>

#include "kit.h"
#include "layout/memory.h"
#include "layout/registers.h"

namespace imbrex::codegen::testing {
namespace {

using layout::Layout;
using layout::Swizzle;
using ::testing::HasSubstr;
using ::testing::Not;

std::string shape_text(const layout::Shape& shape) {
  std::string out;
  for (int64_t n : shape) out += (out.empty() ? "" : ", ") + std::to_string(n);
  return "[" + out + "]";
}

/// y = x, through registers of layout `from`, shared memory, and registers of layout `to`.
std::string through_shared(DataType type, const Layout& from, const Layout& shared, const Layout& to,
                           int warps, int64_t offset) {
  const int64_t rows = from.shape()[0], columns = from.shape()[1];
  return fill(R"(kernel through(%x: ptr<{t}>, %y: ptr<{t}>) target sm_90a warps {w} from "through.cpp":1 {
  %c0: int32 = const {int = 0}
  %c1: int32 = const {int = 1}
  %rows: int32 = const {int = {rows}}
  %columns: int32 = const {int = {columns}}
  launch_grid %c1
  %gx: global<{t}, {shape}> = global_view %x, %rows, %columns, %columns, %c1 {rank = 2}
  %gy: global<{t}, {shape}> = global_view %y, %rows, %columns, %columns, %c1 {rank = 2}
  %s: shared<{t}, {shape}, {shared}> = shared_alloc {dtype = {t}, shape = {shape}, offset = {offset}}
  %a: register<{t}, {shape}, {from}> = load_global %gx, %c0, %c0 {shape = {shape}, dims = [0, 1]}
  store_shared %s, %a
  sync
  %b: register<{t}, {shape}, {to}> = load_shared %s
  store_global %gy, %b, %c0, %c0 {dims = [0, 1]}
})",
              {{"t", std::string(type.name())},
               {"w", std::to_string(warps)},
               {"rows", std::to_string(rows)},
               {"columns", std::to_string(columns)},
               {"shape", shape_text(from.shape())},
               {"shared", shared.to_string()},
               {"from", from.to_string()},
               {"to", to.to_string()},
               {"offset", std::to_string(offset)}});
}

CompiledKernel check_through(DataType type, const Layout& from, const Layout& shared, const Layout& to,
                             int warps, int64_t offset = 0) {
  SCOPED_TRACE(std::string(type.name()) + "\n  from   " + from.to_string() + "\n  shared " +
               shared.to_string() + "\n  to     " + to.to_string());
  std::mt19937 random(23);
  Buffer x(type, from.size()), y(type, from.size());
  fill_random(x, random);
  const CompiledKernel kernel = compile_as_is(through_shared(type, from, shared, to, warps, offset));
  run(kernel, {&x, &y});
  for (int64_t i = 0; i < x.size(); ++i)
    if (x.get(i) != y.get(i)) {
      ADD_FAILURE() << "element " << i << " is " << y.get(i) << ", not " << x.get(i) << "\n" << kernel.ptx;
      break;
    }
  return kernel;
}

const std::vector<Swizzle::Mode> kSwizzles = {Swizzle::kNone,        Swizzle::k32B,
                                              Swizzle::k64B,         Swizzle::k128B,
                                              Swizzle::k128BAtom32B, Swizzle::k128BAtom32BFlip8B,
                                              Swizzle::k128BAtom64B};

/// Register layouts of a [rows, columns] tensor for 128 threads, quite different from each other.
std::vector<Layout> register_layouts(int64_t rows, int64_t columns, int bits) {
  std::vector<Layout> out;
  out.push_back(layout::coalesced({rows, columns}, 128, bits));
  out.push_back(layout::coalesced({rows, columns}, 128, bits, 4));
  const int transposed[] = {1, 0};
  out.push_back(layout::coalesced({columns, rows}, 128, bits).permute(transposed));
  if (rows % 64 == 0 && columns % 8 == 0)
    out.push_back(layout::local({rows / 64, 1}) * layout::wgmma_accumulator(columns));
  return out;
}

TEST(SharedMemory, EverySwizzleWithEveryRegisterLayout) {
  for (Swizzle::Mode mode : kSwizzles)
    for (DataType type : {float16, float32, int8}) {
      const int64_t columns = 128 * 8 / type.bits();  // one swizzle span of 128 bytes
      const Layout shared = layout::operand_tile({64, columns}, type.bits(), Swizzle{mode});
      const std::vector<Layout> layouts = register_layouts(64, columns, type.bits());
      for (size_t i = 0; i < layouts.size(); ++i)
        check_through(type, layouts[i], shared, layouts[(i + 1) % layouts.size()], 4, mode == 0 ? 64 : 1024);
    }
}

TEST(SharedMemory, TypesOfEverySize) {
  for (DataType type : {boolean, int8, uint16, bfloat16, int32, float32, int64, float64, float8_e4m3})
    for (int64_t columns : {16, 40}) {
      const int bits = type.bits();
      const std::vector<Layout> layouts = register_layouts(64, columns, bits);
      for (const Layout& shared :
           {layout::row_major({64, columns}, bits), layout::padded_row_major({64, columns}, bits, 8)})
        check_through(type, layouts[0], shared, layouts[2], 4, 16);
    }
}

TEST(SharedMemory, ShapesThatAreNoPowersOfTwo) {
  for (int64_t columns : {24, 96, 224})
    for (Swizzle::Mode mode : {Swizzle::kNone, Swizzle::k32B, Swizzle::k64B}) {
      const int64_t span = Swizzle{mode}.span_bytes() / 2;
      if (columns % span != 0) continue;
      const std::vector<Layout> layouts = register_layouts(64, columns, 16);
      const Layout shared = layout::operand_tile({64, columns}, 16, Swizzle{mode});
      check_through(float16, layouts[0], shared, layouts[3], 4, 0);
      check_through(float16, layouts[2], shared, layouts[1], 4, 1024);
    }
  const std::vector<Layout> odd = register_layouts(9, 15, 32);
  check_through(float32, odd[0], layout::row_major({9, 15}, 32), odd[2], 4);
}

TEST(SharedMemory, OneRegisterServesManyRowsOfASwizzledTile) {
  // Eight vectors a thread in rows 16 apart: one address register, everything else in the offsets.
  const Layout registers = layout::coalesced({128, 64}, 128, 16);
  const CompiledKernel kernel = check_through(
      float16, registers, layout::operand_tile({128, 64}, 16, Swizzle{Swizzle::k128B}), registers, 4, 1024);
  size_t xors = 0;
  for (size_t at = kernel.ptx.find("xor.b32"); at != std::string::npos;
       at = kernel.ptx.find("xor.b32", at + 1))
    ++xors;
  EXPECT_EQ(xors, 1u) << kernel.ptx;
  EXPECT_THAT(kernel.ptx, HasSubstr("st.shared.v4.b32"));
  EXPECT_THAT(kernel.ptx, HasSubstr("ld.shared.v4.b32"));
}

size_t count_of(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

/// Fragments of `warps` warps above one another, of 8-, 16- or 32-bit elements.
struct Fragment {
  const char* name;
  DataType type;
  Layout layout;
  bool transposed;  ///< rows of 16 bytes run down a column: the tile is stored column by column
};
std::vector<Fragment> fragments(int warps) {
  const auto f16 = layout::mma_fragments(16, 8, 16, 16), tf32 = layout::mma_fragments(16, 8, 8, 32),
             f8 = layout::mma_fragments(16, 8, 32, 8);
  const auto stacked = [&](const Layout& one, layout::Shape repeat) {
    return layout::spatial({warps, 1}) * layout::local(repeat) * one;
  };
  return {{"A", float16, stacked(f16.a, {2, 4}), false},
          {"A of bfloat16, three blocks of k", bfloat16, stacked(f16.a, {1, 3}), false},
          {"A stored column by column", float16, stacked(f16.a, {1, 2}), true},
          {"B stored by columns", float16, stacked(f16.b, {1, 4}), true},
          {"B stored by rows", float16, stacked(f16.b, {1, 8}), false},
          {"B, three blocks of n", float16, stacked(f16.b, {2, 3}), false},
          {"C in 16 bits", bfloat16, stacked(f16.c, {1, 8}), false},
          {"C, one matrix a warp wide", float16, stacked(layout::ldmatrix(1, false), {1, 1}), false},
          {"A of tfloat32", tfloat32, stacked(tf32.a, {2, 4}), false},
          {"A of float32 as bits", float32, stacked(tf32.a, {1, 4}), false},
          {"A of bytes", int8, stacked(f8.a, {1, 2}), false},
          {"A of float8", float8_e4m3, stacked(f8.a, {2, 1}), false}};
}

TEST(MatrixMoves, FragmentsGoThroughLdmatrixAndStmatrix) {
  for (int warps : {1, 4})
    for (const Fragment& f : fragments(warps))
      for (Swizzle::Mode mode : {Swizzle::kNone, Swizzle::k32B, Swizzle::k64B, Swizzle::k128B}) {
        SCOPED_TRACE(f.name);
        const int bits = f.type.bits();
        layout::Shape shape = f.layout.shape();
        if (f.transposed) std::swap(shape[0], shape[1]);
        if (shape[1] * bits % (Swizzle{mode}.span_bytes() * 8) != 0) continue;
        Layout shared = mode == Swizzle::kNone ? layout::row_major(shape, bits)
                                               : layout::operand_tile(shape, bits, Swizzle{mode});
        if (f.transposed) shared = shared.transpose();
        const Layout plain = layout::coalesced(f.layout.shape(), 32 * warps, bits);
        const CompiledKernel load = check_through(f.type, plain, shared, f.layout, warps, 1024);
        EXPECT_THAT(load.ptx, HasSubstr("ldmatrix.sync.aligned.m8n8.x")) << load.ptx;
        EXPECT_THAT(load.ptx, Not(HasSubstr("ld.shared"))) << load.ptx;
        EXPECT_THAT(load.ptx, Not(HasSubstr("stmatrix"))) << load.ptx;
        const CompiledKernel store = check_through(f.type, f.layout, shared, plain, warps, 1024);
        EXPECT_THAT(store.ptx, HasSubstr("stmatrix.sync.aligned.m8n8.x")) << store.ptx;
        EXPECT_THAT(store.ptx, Not(HasSubstr("st.shared"))) << store.ptx;
        if (mode == Swizzle::kNone) expect_assembles(load), expect_assembles(store);
      }
}

TEST(MatrixMoves, TransposedOnesSaySo) {
  const Layout b = layout::local({2, 4}) * layout::mma_fragments(16, 8, 16, 16).b;  // [k, n] = [32, 32]
  const Layout plain = layout::coalesced({32, 32}, 32, 16);
  const CompiledKernel rows = check_through(float16, plain, layout::row_major({32, 32}, 16), b, 1);
  EXPECT_EQ(count_of(rows.ptx, "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"), 4u) << rows.ptx;
  const CompiledKernel columns =
      check_through(float16, plain, layout::row_major({32, 32}, 16).transpose(), b, 1);
  EXPECT_EQ(count_of(columns.ptx, "ldmatrix.sync.aligned.m8n8.x4.shared.b16"), 4u) << columns.ptx;
}

TEST(MatrixMoves, AWarpGroupsAccumulatorIsStoredInSixteenBits) {
  // 64 x 128 by 128 threads: 64 elements each, two a register, four registers an instruction.
  const Layout accumulator = layout::wgmma_accumulator(128), plain = layout::coalesced({64, 128}, 128, 16);
  const Layout shared = layout::operand_tile({64, 128}, 16, Swizzle{Swizzle::k128B});
  const CompiledKernel kernel = check_through(bfloat16, accumulator, shared, plain, 4, 1024);
  EXPECT_EQ(count_of(kernel.ptx, "stmatrix.sync.aligned.m8n8.x4.shared.b16"), 8u) << kernel.ptx;
  // Swizzling the thread's part once, and three of four k16 steps within the 128 bytes of a row.
  EXPECT_LE(count_of(kernel.ptx, "xor.b32"), 8u) << kernel.ptx;
}

TEST(MatrixMoves, WhatMatricesCannotReachGoesElementByElement) {
  const Layout b = layout::mma_fragments(16, 8, 32, 8).b, plain = layout::coalesced({32, 8}, 32, 8, 4);
  // Bytes are not transposed, rows of 12 bytes are not aligned, and a replicated tile has no one owner.
  EXPECT_THAT(check_through(int8, plain, layout::row_major({32, 8}, 8), b, 1).ptx,
              Not(HasSubstr("ldmatrix")));
  const Layout a = layout::mma_fragments(16, 8, 16, 16).a;
  EXPECT_THAT(check_through(float16, layout::coalesced({16, 16}, 32, 16),
                            layout::padded_row_major({16, 16}, 16, 4), a, 1)
                  .ptx,
              Not(HasSubstr("ldmatrix")));
  EXPECT_THAT(
      check_through(float16, layout::coalesced({16, 16}, 32, 16), layout::row_major({16, 16}, 16), a, 1, 8)
          .ptx,
      Not(HasSubstr("ldmatrix")))
      << "from an address that is a multiple of 8 bytes only";
  EXPECT_THAT(check_through(float16, a.replicate_to(64), layout::row_major({16, 16}, 16),
                            layout::coalesced({16, 16}, 64, 16), 2)
                  .ptx,
              Not(HasSubstr("stmatrix")));
}

TEST(SharedMemory, StagesAreIndexedAtRunTime) {
  // Stage i of a ring holds x + i; y collects them in another order.
  const std::string text =
      R"(kernel ring(%n: int32, %x: ptr<float16>, %y: ptr<float16>) target sm_90a warps 4 from "ring.cpp":1 {
  %c0: int32 = const {int = 0}
  %c1: int32 = const {int = 1}
  %c2: int32 = const {int = 2}
  %c3: int32 = const {int = 3}
  %c64: int32 = const {int = 64}
  %h1: float16 = const {float = 1.0}
  launch_grid %c1
  %size: int32 = mul %c64, %c64
  %gx: global<float16, [64, 64]> = global_view %x, %c64, %c64, %c64, %c1 {rank = 2}
  %gy: global<float16, [?, 64, 64]> = global_view %y, %n, %c64, %c64, %size, %c64, %c1 {rank = 3}
  %s: shared<float16, [3, 64, 64]> = shared_alloc {dtype = float16, shape = [3, 64, 64]}
  %v: register<float16, [64, 64]> = load_global %gx, %c0, %c0 {shape = [64, 64], dims = [0, 1]}
  %one: register<float16, [64, 64]> = broadcast %h1 {shape = [64, 64]}
  %acc: var<float16, [64, 64]> = var %v
  for %i: int32 in %c0, %c3, %c1 {
    %stage: shared<float16, [64, 64]> = index %s, %i
    %a: register<float16, [64, 64]> = read %acc
    store_shared %stage, %a
    %b: register<float16, [64, 64]> = add %a, %one
    assign %acc, %b
  }
  sync
  for %j: int32 in %c0, %n, %c1 {
    %k: int32 = sub %c2, %j
    %stage2: shared<float16, [64, 64]> = index %s, %k
    %part: shared<float16, [32, 64]> = slice %stage2, %c0, %c0 {shape = [32, 64]}
    %r: register<float16, [32, 64]> = load_shared %part
    %gj: global<float16, [64, 64]> = index %gy, %j
    store_global %gj, %r, %c0, %c0 {dims = [0, 1]}
  }
})";
  std::mt19937 random(1);
  Buffer x(float16, 64 * 64), y(float16, 3 * 64 * 64);
  fill_random(x, random);
  run(compile(text), {3, &x, &y});
  for (int stage = 0; stage < 3; ++stage)
    for (int i = 0; i < 32 * 64; ++i)
      ASSERT_EQ(y.get(stage * 64 * 64 + i), x.get(i) + (2 - stage)) << stage << ", " << i;
}

TEST(SharedMemory, RelayoutMovesAndRenames) {
  const std::vector<Layout> layouts = register_layouts(64, 32, 16);
  for (const Layout& from : layouts)
    for (const Layout& to : layouts) {
      const std::string text =
          fill(R"(kernel move(%x: ptr<float16>, %y: ptr<float16>) target sm_90a warps 4 from "move.cpp":1 {
  %c0: int32 = const {int = 0}
  %c1: int32 = const {int = 1}
  %rows: int32 = const {int = 64}
  %columns: int32 = const {int = 32}
  launch_grid %c1
  %gx: global<float16, [64, 32]> = global_view %x, %rows, %columns, %columns, %c1 {rank = 2}
  %gy: global<float16, [64, 32]> = global_view %y, %rows, %columns, %columns, %c1 {rank = 2}
  %a: register<float16, [64, 32], {from}> = load_global %gx, %c0, %c0 {shape = [64, 32], dims = [0, 1]}
  %b: register<float16, [64, 32], {to}> = relayout %a
  store_global %gy, %b, %c0, %c0 {dims = [0, 1]}
})",
               {{"from", from.to_string()}, {"to", to.to_string()}});
      std::mt19937 random(2);
      Buffer x(float16, 64 * 32), y(float16, 64 * 32);
      fill_random(x, random);
      const CompiledKernel kernel = compile_as_is(text);
      EXPECT_EQ(kernel.shared_bytes == 0, from == to);
      run(kernel, {&x, &y});
      for (int64_t i = 0; i < x.size(); ++i) ASSERT_EQ(y.get(i), x.get(i)) << i << "\n" << text;
    }
}

}  // namespace
}  // namespace imbrex::codegen::testing
