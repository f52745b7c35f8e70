// SPDX-License-Identifier: Apache-2.0
// Reductions of every kind along every axis against plain loops.
#include <algorithm>
#include <cmath>

#include "kit.h"

namespace imbrex::codegen::testing {
namespace {

std::string shape_text(const std::vector<int>& shape) {
  std::string out;
  for (int n : shape) out += (out.empty() ? "" : ", ") + std::to_string(n);
  return "[" + out + "]";
}

/// y = reduce(x, axis) for a whole tensor of up to three dimensions, by one CTA.
std::string reduce_kernel(DataType type, const std::vector<int>& shape, int axis, const std::string& kind,
                          bool keep, int warps) {
  std::vector<int> result = shape;
  if (keep)
    result[axis] = 1;
  else
    result.erase(result.begin() + axis);
  std::string text =
      "kernel reduce(%x: ptr<{t}>, %y: ptr<{t}>) target sm_90a warps {w} from \"reduce.cpp\":1 {\n"
      "  %c0: int32 = const {int = 0}\n  %c1: int32 = const {int = 1}\n  launch_grid %c1\n";
  auto view = [&](const std::string& name, const std::string& pointer, const std::vector<int>& extents) {
    std::string operands, strides;
    int64_t stride = 1;
    for (size_t d = extents.size(); d-- > 0;) {
      const std::string base = "%" + name + std::to_string(d);
      text += "  " + base + "e: int32 = const {int = " + std::to_string(extents[d]) + "}\n";
      text += "  " + base + "s: int32 = const {int = " + std::to_string(stride) + "}\n";
      operands = ", " + base + "e" + operands;
      strides = ", " + base + "s" + strides;
      stride *= extents[d];
    }
    text += "  %" + name + ": global<{t}, " + shape_text(extents) + "> = global_view " + pointer + operands +
            strides + " {rank = " + std::to_string(extents.size()) + "}\n";
  };
  auto offsets = [](size_t n) {
    std::string out;
    for (size_t i = 0; i < n; ++i) out += ", %c0";
    return out;
  };
  auto dims = [](size_t n) {
    std::vector<int> out(n);
    for (size_t i = 0; i < n; ++i) out[i] = static_cast<int>(i);
    return shape_text(out);
  };
  view("gx", "%x", shape);
  view("gy", "%y", result);
  text += "  %r: register<{t}, " + shape_text(shape) + "> = load_global %gx" + offsets(shape.size()) +
          " {shape = " + shape_text(shape) + ", dims = " + dims(shape.size()) + "}\n";
  text += "  %s: register<{t}, " + shape_text(result) + "> = reduce %r {axis = " + std::to_string(axis) +
          ", kind = \"" + kind + "\", keep = " + (keep ? "true" : "false") + "}\n";
  text += "  store_global %gy, %s" + offsets(result.size()) + " {dims = " + dims(result.size()) + "}\n}";
  return fill(text, {{"t", std::string(type.name())}, {"w", std::to_string(warps)}});
}

void check_reduce(DataType type, const std::vector<int>& shape, int axis, const std::string& kind, bool keep,
                  int warps) {
  SCOPED_TRACE(kind + " of " + std::string(type.name()) + shape_text(shape) + " axis " +
               std::to_string(axis) + " warps " + std::to_string(warps));
  int64_t outer = 1, inner = 1;
  for (int d = 0; d < axis; ++d) outer *= shape[d];
  for (size_t d = axis + 1; d < shape.size(); ++d) inner *= shape[d];
  const int64_t extent = shape[axis];
  std::mt19937 random(11);
  Buffer x(type, outer * extent * inner), y(type, outer * inner);
  fill_random(x, random);
  if (kind == "all")
    for (int64_t i = 0; i < x.size(); ++i) x.set(i, random() % 64 != 0);
  if (type.is_integer() && type.bits() == 8)  // sums that stay in range
    for (int64_t i = 0; i < x.size(); ++i) x.set(i, static_cast<double>(random() % 2));
  run(compile(reduce_kernel(type, shape, axis, kind, keep, warps)), {&x, &y});
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i) {
      double expected = x.get(o * extent * inner + i);
      for (int64_t e = 1; e < extent; ++e) {
        const double value = x.get((o * extent + e) * inner + i);
        if (kind == "sum")
          expected += value;
        else if (kind == "max" || kind == "any")
          expected = std::max(expected, value);
        else
          expected = std::min(expected, value);
      }
      // Inputs are eighths, so float32 sums are exact in every order, and 16-bit results are rounded once.
      Buffer wrapped(type, 1);
      wrapped.set(0, expected);
      ASSERT_EQ(y.get(o * inner + i), wrapped.get(0)) << o << ", " << i;
    }
}

TEST(Reduce, EveryAxisAndKind) {
  for (const char* kind : {"sum", "max", "min"})
    for (int axis = 0; axis < 2; ++axis)
      for (bool keep : {false, true})
        for (int warps : {1, 4}) check_reduce(float32, {16, 64}, axis, kind, keep, warps);
}

TEST(Reduce, EveryType) {
  for (DataType t : {int8, uint8, int16, int32, uint32, int64, float16, bfloat16, float32, float64})
    for (int axis = 0; axis < 2; ++axis) {
      check_reduce(t, {8, 128}, axis, "sum", false, 4);
      check_reduce(t, {8, 128}, axis, "max", false, 4);
    }
  for (const char* kind : {"any", "all"})
    for (int axis = 0; axis < 2; ++axis) check_reduce(boolean, {8, 128}, axis, kind, true, 4);
}

TEST(Reduce, ShapesThatAreNoPowersOfTwo) {
  for (int axis = 0; axis < 2; ++axis) {
    check_reduce(float32, {12, 96}, axis, "sum", false, 4);
    check_reduce(float32, {3, 24}, axis, "sum", false, 4);
    check_reduce(int32, {5, 40}, axis, "max", true, 2);
    check_reduce(float32, {6, 224}, axis, "min", false, 4);
  }
}

TEST(Reduce, ThreeDimensionsAndVectors) {
  for (int axis = 0; axis < 3; ++axis) check_reduce(float32, {4, 8, 32}, axis, "sum", false, 4);
  check_reduce(float32, {4, 1024}, 1, "sum", true, 8);
  check_reduce(float32, {1, 4096}, 1, "max", false, 8);
  check_reduce(float32, {2, 8}, 1, "sum", false, 4);  // fewer elements than threads
}

TEST(Reduce, Assembles) {
  for (DataType t : {int32, float16, float64}) {
    expect_assembles(compile(reduce_kernel(t, {8, 128}, 0, "sum", false, 4)));
    expect_assembles(compile(reduce_kernel(t, {8, 128}, 1, "max", false, 4)));
  }
}

}  // namespace
}  // namespace imbrex::codegen::testing
