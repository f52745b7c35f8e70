// SPDX-License-Identifier: Apache-2.0
// wmma in every shape and type it has here: loads and stores by rows and columns, products of small integers,
// which are exact in every type. Fragments are opaque, so everything is seen through memory.
#include <fmt/format.h>

#include <bit>

#include "core/float_formats.h"
#include "register_kernel.h"

namespace imbrex::vgpu {
namespace {

struct Case {
  int m, n, k;
  std::string type, accumulator;  // of A and B, of C and D
  int a_registers, b_registers, c_registers;
};

std::vector<uint8_t> encode(const std::vector<int>& values, const std::string& type) {
  std::vector<uint8_t> bytes;
  for (const int v : values) {
    uint64_t bits = static_cast<uint32_t>(v);
    size_t size = 4;
    if (type == "f16") bits = arith::f32_to_f16(static_cast<float>(v)), size = 2;
    if (type == "bf16") bits = arith::f32_to_bf16(static_cast<float>(v)), size = 2;
    if (type == "f32" || type == "tf32") bits = std::bit_cast<uint32_t>(static_cast<float>(v));
    if (type == "f64") bits = std::bit_cast<uint64_t>(static_cast<double>(v)), size = 8;
    if (type == "s8" || type == "u8") size = 1;
    for (size_t i = 0; i < size; ++i) bytes.push_back(static_cast<uint8_t>(bits >> 8 * i));
  }
  return bytes;
}

std::string registers(const char* prefix, int count) {
  std::string list;
  for (int i = 0; i < count; ++i) list += fmt::format("{}{}{}", i == 0 ? "" : ", ", prefix, i);
  return "{" + list + "}";
}

/// d = a b + c with matrices in global memory, A and B laid out as said, C and D by rows with a pitch of n
/// + 8.
std::string kernel(const Case& c, const char* a_layout, const char* b_layout, int a_pitch, int b_pitch) {
  const bool f64 = c.type == "f64";
  const std::string type = c.type, d = c.accumulator;
  const std::string shape = fmt::format("m{}n{}k{}", c.m, c.n, c.k);
  const std::string types = type == "f16" ? d + "." + d : d + "." + type + "." + type + "." + d;
  return fmt::format(
      R"(.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d)
{{
  .reg .{word} %a<8>, %b<8>;
  .reg .{acc_word} %c<8>;
  .reg .b64 %pa, %pb, %pc, %pd;
  ld.param.u64 %pa, [a];
  ld.param.u64 %pb, [b];
  ld.param.u64 %pc, [c];
  ld.param.u64 %pd, [d];
  wmma.load.a.sync.aligned.{la}.{shape}.global.{type} {ra}, [%pa], {sa};
  wmma.load.b.sync.aligned.{lb}.{shape}.global.{type} {rb}, [%pb], {sb};
  wmma.load.c.sync.aligned.row.{shape}.global.{acc} {rc}, [%pc], {sc};
  wmma.mma.sync.aligned.{la}.{lb}.{shape}{round}.{types} {rc}, {ra}, {rb}, {rc};
  wmma.store.d.sync.aligned.row.{shape}.global.{acc} [%pd], {rc}, {sc};
  ret;
}}
)",
      fmt::arg("word", f64 ? "f64" : "b32"),
      fmt::arg("acc_word", d == "f64"   ? "f64"
                           : d == "f32" ? "f32"
                                        : "b32"),
      fmt::arg("la", a_layout), fmt::arg("lb", b_layout), fmt::arg("shape", shape), fmt::arg("type", type),
      fmt::arg("acc", d), fmt::arg("ra", registers("%a", c.a_registers)),
      fmt::arg("rb", registers("%b", c.b_registers)), fmt::arg("rc", registers("%c", c.c_registers)),
      fmt::arg("sa", a_pitch), fmt::arg("sb", b_pitch), fmt::arg("sc", c.n + 8), fmt::arg("types", types),
      fmt::arg("round", f64 ? ".rn" : ""));
}

void check(const Case& c, bool a_by_columns, bool b_by_columns) {
  TestRandom random(static_cast<uint32_t>(c.m * 100 + c.k * 10 + a_by_columns * 2 + b_by_columns));
  const bool is_unsigned = c.type == "u8";
  const auto draw = [&] { return random.below(9) - (is_unsigned ? 0 : 4); };
  // Lines are longer than the matrix.
  const int a_pitch = (a_by_columns ? c.m : c.k) + 16, b_pitch = (b_by_columns ? c.k : c.n) + 16,
            d_pitch = c.n + 8;
  std::vector<int> a(static_cast<size_t>((a_by_columns ? c.k : c.m) * a_pitch), 77),
      b(static_cast<size_t>((b_by_columns ? c.n : c.k) * b_pitch), 77),
      d(static_cast<size_t>(c.m * d_pitch), 55);
  const auto a_at = [&](int i, int l) -> int& {
    return a[static_cast<size_t>(a_by_columns ? l * a_pitch + i : i * a_pitch + l)];
  };
  const auto b_at = [&](int l, int j) -> int& {
    return b[static_cast<size_t>(b_by_columns ? j * b_pitch + l : l * b_pitch + j)];
  };
  for (int i = 0; i < c.m; ++i)
    for (int l = 0; l < c.k; ++l) a_at(i, l) = draw();
  for (int l = 0; l < c.k; ++l)
    for (int j = 0; j < c.n; ++j) b_at(l, j) = draw();
  for (int i = 0; i < c.m; ++i)
    for (int j = 0; j < c.n; ++j) d[static_cast<size_t>(i * d_pitch + j)] = random.below(9) - 4;

  VirtualGpu gpu({.target = "sm_90a"});
  const Function k =
      gpu.load_module(kernel(c, a_by_columns ? "col" : "row", b_by_columns ? "col" : "row", a_pitch, b_pitch))
          .function("k");
  DeviceAddress da = to_device(gpu, encode(a, c.type)), db = to_device(gpu, encode(b, c.type)),
                dc = to_device(gpu, encode(d, c.accumulator)), dd = to_device(gpu, encode(d, c.accumulator));
  void* arguments[] = {&da, &db, &dc, &dd};
  const Report report = gpu.launch(k, {.block = {32}, .arguments = arguments});
  ASSERT_TRUE(report.clean()) << report.format();
  for (int i = 0; i < c.m; ++i)
    for (int j = 0; j < c.n; ++j)
      for (int l = 0; l < c.k; ++l) d[static_cast<size_t>(i * d_pitch + j)] += a_at(i, l) * b_at(l, j);
  const std::vector<uint8_t> expected = encode(d, c.accumulator);
  EXPECT_EQ(from_device<uint8_t>(gpu, dd, expected.size()), expected)
      << c.m << " " << c.n << " " << c.k << " " << c.type << " " << c.accumulator;
}

TEST(Wmma, EveryShapeTypeAndLayout) {
  for (const Case& c : {Case{16, 16, 16, "f16", "f32", 8, 8, 8}, Case{16, 16, 16, "f16", "f16", 8, 8, 4},
                        Case{32, 8, 16, "f16", "f32", 8, 8, 8}, Case{8, 32, 16, "f16", "f16", 8, 8, 4},
                        Case{16, 16, 16, "bf16", "f32", 4, 4, 8}, Case{32, 8, 16, "bf16", "f32", 8, 2, 8},
                        Case{8, 32, 16, "bf16", "f32", 2, 8, 8}, Case{16, 16, 8, "tf32", "f32", 4, 4, 8},
                        Case{16, 16, 16, "s8", "s32", 2, 2, 8}, Case{32, 8, 16, "u8", "s32", 4, 1, 8},
                        Case{8, 32, 16, "s8", "s32", 1, 4, 8}, Case{8, 8, 4, "f64", "f64", 1, 1, 2}})
    for (const bool a_by_columns : {false, true})
      for (const bool b_by_columns : {false, true}) check(c, a_by_columns, b_by_columns);
}

TEST(Wmma, MatricesBeyondTheirBufferAreFound) {
  const Case c{16, 16, 16, "f16", "f32", 8, 8, 8};
  VirtualGpu gpu({.target = "sm_90a"});
  const Function k = gpu.load_module(kernel(c, "row", "row", 16, 16)).function("k");
  DeviceAddress a = gpu.allocate(16 * 16 * 2), b = gpu.allocate(16 * 16 * 2 - 2),
                d = gpu.allocate(16 * 24 * 4);
  gpu.fill(a, 0, 512);
  gpu.fill(b, 0, 510);
  gpu.fill(d, 0, 16 * 24 * 4);
  void* arguments[] = {&a, &b, &d, &d};
  const Report report = gpu.launch(k, {.block = {32}, .arguments = arguments});
  ASSERT_EQ(report.findings.size(), 1u) << report.format();
  EXPECT_EQ(report.findings[0].kind, FindingKind::kOutOfBounds);
  EXPECT_NE(report.findings[0].place.ptx.find("wmma.load.b"), std::string::npos);
}

TEST(Wmma, WhatIsNotModelledIsRefused) {
  VirtualGpu gpu({.target = "sm_90a"});
  const Case c{8, 8, 32, "s4", "s32", 1, 1, 2};
  try {
    gpu.load_module(kernel(c, "row", "col", 32, 32));
    FAIL();
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("narrower than a byte"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace imbrex::vgpu
