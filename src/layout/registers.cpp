// SPDX-License-Identifier: Apache-2.0
// Fragments. In all of them lane = 4g + q: g (0...7) walks rows, q (0...3) walks columns, and elements that
// share a 32-bit register are neighbours in k (or n).
#include "layout/registers.h"

#include <algorithm>
#include <numeric>

#include "layout/layout_data.h"

namespace imbrex::layout {
namespace {

Mode thread(int64_t extent, int64_t stride) { return {extent, stride, Axis::kThread}; }
Mode reg(int64_t extent, int64_t stride) { return {extent, stride, Axis::kRegister}; }

// Elements in one 32-bit register (64-bit elements use one of their own).
int64_t packed_in_register(int element_bits) { return std::max(1, 32 / element_bits); }

struct MmaShape {
  int64_t m, n, k;
  int bits;
};
constexpr MmaShape kMmaShapes[] = {
    {16, 8, 16, 16}, {16, 8, 8, 16},                                   // f16, bf16
    {16, 8, 8, 32},  {16, 8, 4, 32},                                   // tf32
    {16, 8, 32, 8},  {16, 8, 16, 8},  {8, 8, 16, 8},                   // s8, u8, e4m3, e5m2
    {16, 8, 64, 4},  {16, 8, 32, 4},                                   // s4, u4
    {16, 8, 256, 1}, {16, 8, 128, 1},                                  // b1
    {8, 8, 4, 64},   {16, 8, 4, 64},  {16, 8, 8, 64}, {16, 8, 16, 64}  // f64
};

}  // namespace

MmaFragments mma_fragments(int64_t m, int64_t n, int64_t k, int input_bits) {
  bool known = std::any_of(std::begin(kMmaShapes), std::end(kMmaShapes), [&](const MmaShape& s) {
    return s.m == m && s.n == n && s.k == k && s.bits == input_bits;
  });
  if (!known) {
    std::vector<std::string> shapes;
    for (const MmaShape& s : kMmaShapes)
      if (s.bits == input_bits) shapes.push_back(fmt::format("m{}n{}k{}", s.m, s.n, s.k));
    fail(fmt::format("mma.sync has no shape m{}n{}k{} for {}-bit elements", m, n, k, input_bits),
         {fmt::format("shapes of {} bits: {}", input_bits,
                      shapes.empty() ? "none" : fmt::format("{}", fmt::join(shapes, ", ")))});
  }
  int64_t e = packed_in_register(input_bits);
  int64_t row_halves = m / 8, k_blocks = k / (4 * e);
  return {
      Layout({m, k},
             {{reg(row_halves, e), thread(8, 4)}, {reg(k_blocks, row_halves * e), thread(4, 1), reg(e, 1)}}),
      Layout({k, n}, {{reg(k_blocks, e), thread(4, 1), reg(e, 1)}, {thread(8, 4)}}),
      Layout({m, n}, {{reg(row_halves, 2), thread(8, 4)}, {thread(4, 1), reg(2, 1)}}),
  };
}

MmaFragments mma_tile(int64_t m, int64_t n, int64_t k, int input_bits, int64_t warps_m, int64_t warps_n) {
  const int64_t k_step = 256 / input_bits;
  const MmaFragments one = mma_fragments(16, 8, k_step, input_bits);
  if (warps_m < 1 || warps_n < 1 || m % (16 * warps_m) != 0 || n % (8 * warps_n) != 0 || k % k_step != 0)
    fail(fmt::format("{} x {} warps share a product of {} x {} x {} in blocks of 16 x 8 x {}", warps_m,
                     warps_n, m, n, k, k_step));
  const int64_t rows = m / (16 * warps_m), columns = n / (8 * warps_n), steps = k / k_step;
  const Layout a_warps({warps_m, 1}, {{thread(warps_m, warps_n)}, {}}, {thread(warps_n, 1)});
  const Layout b_warps({1, warps_n}, {{}, {thread(warps_n, 1)}}, {thread(warps_m, warps_n)});
  return {a_warps * local({rows, steps}) * one.a, b_warps * local({steps, columns}) * one.b,
          spatial({warps_m, warps_n}) * local({rows, columns}) * one.c};
}

MmaScales mma_scales(int64_t m, int64_t n, int64_t blocks, int64_t warps_m, int64_t warps_n) {
  if (warps_m < 1 || warps_n < 1 || m % (16 * warps_m) != 0 || n % (8 * warps_n) != 0 || blocks < 1)
    fail(fmt::format("{} x {} warps share the scales of a product of {} x {}", warps_m, warps_n, m, n));
  // Threads 0 and 1 of four lend the scales of rows g and g + 8, thread 0 that of column g; the others hold copies.
  const Layout a({16, blocks}, {{thread(2, 1), thread(8, 4)}, {reg(blocks, 1)}}, {thread(2, 2)});
  const Layout b({blocks, 8}, {{reg(blocks, 1)}, {thread(8, 4)}}, {thread(4, 1)});
  const Layout a_warps({warps_m, 1}, {{thread(warps_m, warps_n)}, {}}, {thread(warps_n, 1)});
  const Layout b_warps({1, warps_n}, {{}, {thread(warps_n, 1)}}, {thread(warps_m, warps_n)});
  return {a_warps * local({m / (16 * warps_m), 1}) * a, b_warps * local({1, n / (8 * warps_n)}) * b};
}

Layout ldmatrix(int matrices, bool transposed) {
  if (matrices != 1 && matrices != 2 && matrices != 4) fail(fmt::format("ldmatrix of {} matrices", matrices));
  Shape shape{8 * matrices, 8};
  if (transposed) return Layout(shape, {{reg(matrices, 2), thread(4, 1), reg(2, 1)}, {thread(8, 4)}});
  return Layout(shape, {{reg(matrices, 2), thread(8, 4)}, {thread(4, 1), reg(2, 1)}});
}

Layout wgmma_accumulator(int64_t n) {
  if (n < 8 || n > 256 || n % 8 != 0)
    fail(fmt::format("wgmma accumulator with n = {}; n is a multiple of 8 from 8 to 256", n));
  return Layout({64, n},
                {{thread(4, 32), reg(2, 2), thread(8, 4)}, {reg(n / 8, 4), thread(4, 1), reg(2, 1)}});
}

Layout wgmma_a(int element_bits) {
  if (element_bits != 1 && element_bits != 8 && element_bits != 16 && element_bits != 32)
    fail(fmt::format("wgmma has no A operand of {}-bit elements", element_bits));
  int64_t e = packed_in_register(element_bits);
  return Layout({64, 8 * e},
                {{thread(4, 32), reg(2, e), thread(8, 4)}, {reg(2, 2 * e), thread(4, 1), reg(e, 1)}});
}

int64_t wgmma_columns(int64_t n, bool is_integer) {
  const auto exists = [&](int64_t columns) {
    return columns % 8 == 0 && (!is_integer || columns % 16 == 0 || columns == 8 || columns == 24);
  };
  for (int64_t columns = std::min<int64_t>(n, 256); columns >= 8; --columns)
    if (n % columns == 0 && exists(columns)) return columns;
  fail(fmt::format("wgmma has no instructions for n = {}", n),
       {is_integer ? "n is 8, 24 or a multiple of 16" : "n is a multiple of 8"});
}

namespace {
int64_t blocks_of_64(int64_t m, int64_t warp_groups) {
  if (m % (64 * warp_groups) != 0)
    fail(fmt::format("wgmma of {} rows by {} warp groups; m is a multiple of 64 for each", m, warp_groups));
  return m / (64 * warp_groups);
}
}  // namespace

Layout wgmma_accumulator_tile(int64_t m, int64_t n, int64_t columns, int64_t warp_groups) {
  const int64_t blocks = blocks_of_64(m, warp_groups), registers = columns / 2, instructions = n / columns;
  return Layout({m, n}, {{thread(warp_groups, 128), reg(blocks, instructions * registers), thread(4, 32),
                          reg(2, 2), thread(8, 4)},
                         {reg(instructions, registers), reg(columns / 8, 4), thread(4, 1), reg(2, 1)}});
}

Layout wgmma_a_tile(int64_t m, int64_t k, int element_bits, int64_t warp_groups) {
  const int64_t e = packed_in_register(element_bits), steps = k / (8 * e);
  const int64_t blocks = blocks_of_64(m, warp_groups);
  return Layout(
      {m, k}, {{thread(warp_groups, 128), reg(blocks, steps * 4 * e), thread(4, 32), reg(2, e), thread(8, 4)},
               {reg(steps, 4 * e), reg(2, 2 * e), thread(4, 1), reg(e, 1)}});
}

std::string_view tensor_memory_shape_name(TensorMemoryShape shape) {
  constexpr std::string_view kNames[] = {"32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2"};
  return kNames[static_cast<size_t>(shape)];
}

namespace {

// What one 16-lane (or, for 32x32b, 32-lane) access leaves in a warp.
Layout tensor_memory_warp(TensorMemoryShape shape, int64_t n, int64_t p) {
  auto blocks = [&](int64_t columns) {
    if (n < 1 || n % columns != 0)
      fail(fmt::format("tcgen05 {} with {} columns of elements: a multiple of {} is needed",
                       tensor_memory_shape_name(shape), n, columns));
    return n / columns;
  };
  switch (shape) {
    case TensorMemoryShape::k32x32b:
      return Layout({32, n}, {{thread(32, 1)}, {reg(blocks(p), p), reg(p, 1)}});
    case TensorMemoryShape::k16x64b:
      return Layout({16, n},
                    {{thread(2, 1), thread(8, 4)}, {reg(blocks(2 * p), p), thread(2, 2), reg(p, 1)}});
    case TensorMemoryShape::k16x128b:
      return Layout({16, n},
                    {{reg(2, p), thread(8, 4)}, {reg(blocks(4 * p), 2 * p), thread(4, 1), reg(p, 1)}});
    case TensorMemoryShape::k16x256b:
      return Layout({16, n}, {{reg(2, 2 * p), thread(8, 4)},
                              {reg(blocks(8 * p), 4 * p), thread(4, 1), reg(2, p), reg(p, 1)}});
    case TensorMemoryShape::k16x32bx2:
      return Layout({16, n}, {{thread(16, 1)}, {thread(2, 16), reg(blocks(2 * p), p), reg(p, 1)}});
  }
  throw InternalError("unknown tensor-memory shape");
}

void check_warps(int64_t warps, int per_register) {
  if (warps < 1 || warps > 4) fail(fmt::format("tcgen05 access by {} warps; 1 to 4 reach the lanes", warps));
  if (per_register != 1 && per_register != 2 && per_register != 4)
    fail(fmt::format("{} elements in a 32-bit register", per_register));
}

}  // namespace

Layout tensor_memory_registers(TensorMemoryShape shape, int64_t warps, int64_t n, int per_register) {
  check_warps(warps, per_register);
  Layout warp = tensor_memory_warp(shape, n, per_register);
  if (shape != TensorMemoryShape::k32x32b) warp = local({2, 1}) * warp;
  return spatial({warps, 1}) * warp;
}

Layout tensor_memory_half_registers(TensorMemoryShape shape, int64_t warps, int64_t n, int per_register) {
  check_warps(warps, per_register);
  if (shape == TensorMemoryShape::k32x32b)
    fail("tcgen05 32x32b reads 32 lanes of every warp, the tile has 16");
  return spatial({warps, 1}) * tensor_memory_warp(shape, n, per_register);
}

Layout thread_rows(int64_t threads, int64_t elements) {
  return Layout({threads, elements}, {{{threads, 1, Axis::kThread}}, {{elements, 1, Axis::kRegister}}});
}

Layout coalesced(const Shape& shape, int64_t threads, int dtype_bits, int max_vector_bytes) {
  if (threads < 1 || dtype_bits < 1 || max_vector_bytes < 1)
    fail(fmt::format("coalesced: {} threads, {} bits, vectors of {} bytes", threads, dtype_bits,
                     max_vector_bytes));
  if (shape.empty()) return Layout().replicate_to(threads);

  int64_t vector = 1;
  while (shape.back() % (2 * vector) == 0 && 2 * vector * dtype_bits <= 8 * max_vector_bytes) vector *= 2;
  Shape vectors = shape;
  vectors.back() /= vector;

  // Distributes the threads over the dimensions, last first; `share` says how many of the rest a dimension
  // takes.
  auto distribute = [&](auto share) {
    Shape shares(vectors.size(), 1);
    int64_t rest = threads;
    for (size_t d = vectors.size(); d-- > 0;) {
      shares[d] = share(vectors[d], rest);
      rest /= shares[d];
    }
    return shares;
  };
  auto vectors_per_thread = [&](const Shape& shares) {
    int64_t count = 1;
    for (size_t d = 0; d < shares.size(); ++d) count *= ceil_div(vectors[d], shares[d]);
    return count;
  };
  Shape even = distribute([](int64_t extent, int64_t rest) { return std::gcd(extent, rest); });
  Shape full = distribute([](int64_t extent, int64_t rest) { return std::min(extent, rest); });
  const Shape& threads_along = vectors_per_thread(full) < vectors_per_thread(even) ? full : even;

  std::vector<Modes> modes(shape.size());
  int64_t thread_stride = 1, reg_stride = vector;
  for (size_t d = shape.size(); d-- > 0;) {
    int64_t turns = ceil_div(vectors[d], threads_along[d]);
    modes[d] = {reg(turns, reg_stride), thread(threads_along[d], thread_stride)};
    if (d + 1 == shape.size()) modes[d].push_back(reg(vector, 1));
    thread_stride *= threads_along[d];
    reg_stride *= turns;
  }
  return Layout(shape, std::move(modes), {thread(threads / thread_stride, thread_stride)});
}

}  // namespace imbrex::layout
