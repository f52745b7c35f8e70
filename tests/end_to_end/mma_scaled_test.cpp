// SPDX-License-Identifier: Apache-2.0
// Products with block scales by mma.sync (sm_120a): every format, grids of warps, sums that go on, operands in bytes, and
// what is refused. Elements and scales are such that every sum is exact.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <random>

#include "../param_name.h"
#include "../ptxas.h"
#include "codegen/codegen.h"
#include "core/float_formats.h"
#include "ir/ir.h"
#include "kit.h"
#include "lang/trace.h"
#include "passes/pipeline.h"

namespace imbrex::testing {
namespace {

using ::testing::HasSubstr;

/// Numbers of the type with small absolute values, in steps of a half.
HostTensor halves(DataType dtype, std::vector<int64_t> shape, uint32_t seed) {
  HostTensor host(dtype, std::move(shape));
  std::mt19937 random(seed);
  for (int64_t i = 0; i < host.elements(); ++i) host.set(i, (static_cast<int>(random() % 9) - 4) * 0.5);
  return host;
}
/// Powers of two from 1/2 to 4; of ue4m3, multiples of a half too.
HostTensor scales(DataType dtype, std::vector<int64_t> shape, uint32_t seed) {
  HostTensor host(dtype, std::move(shape));
  std::mt19937 random(seed);
  for (int64_t i = 0; i < host.elements(); ++i)
    host.set(i, dtype == float8_e8m0 ? std::ldexp(1.0, static_cast<int>(random() % 4) - 1)
                                     : 0.5 * (1 + static_cast<int>(random() % 6)));
  return host;
}

struct Format {
  const char* name;
  DataType a, b, scale;
  int64_t block;
  DataType stored_a, stored_b;  // uint8: a byte an element
  int64_t step() const { return stored_a == float4_e2m1 ? 64 : 32; }

  friend std::ostream& operator<<(std::ostream& out, const Format& f) { return out << f.name; }
};

/// As a tile of bytes holds them.
HostTensor in_bytes(const HostTensor& elements) {
  HostTensor bytes(uint8, elements.shape());
  const int shift = elements.dtype() == float4_e2m1 ? 2 : 0;
  for (int64_t i = 0; i < elements.elements(); ++i)
    bytes.set(i, static_cast<double>(arith::encode(arith::float_format(elements.dtype()), elements.get(i))
                                     << shift));
  return bytes;
}

const std::vector<Format> kFormats = {
    {"mxf8", float8_e4m3, float8_e4m3, float8_e8m0, 32, float8_e4m3, float8_e4m3},
    {"mxf8_mixed", float8_e5m2, float8_e4m3, float8_e8m0, 32, float8_e5m2, float8_e4m3},
    {"mxf6_mxf8", float6_e2m3, float8_e4m3, float8_e8m0, 32, uint8, float8_e4m3},
    {"mxf4_mxf6", float4_e2m1, float6_e3m2, float8_e8m0, 32, uint8, uint8},
    {"mxf4", float4_e2m1, float4_e2m1, float8_e8m0, 32, float4_e2m1, float4_e2m1},
    {"nvf4", float4_e2m1, float4_e2m1, float8_ue4m3, 16, float4_e2m1, float4_e2m1}};

struct Problem {
  int64_t m, n, k;  // in blocks of 16 x 8 x step
  int warps;
  int warps_m = 0, warps_n = 0;
};
const std::vector<Problem> kProblems = {{1, 1, 1, 1}, {1, 1, 3, 1},       {3, 5, 2, 1},
                                        {2, 3, 1, 2}, {4, 8, 4, 8, 2, 4}, {4, 4, 2, 4, 4, 1}};

class ScaledProducts : public ::testing::TestWithParam<Format> {};

TEST_P(ScaledProducts, OfTilesInRegisters) {
  const Format f = GetParam();
  for (const Problem& p : kProblems) {
    const int64_t m = 16 * p.m, n = 8 * p.n, k = f.step() * p.k, blocks = k / f.block;
    SCOPED_TRACE(fmt::format("{} x {} x {} by {} warps", m, n, k, p.warps));
    Machine machine(Arch::kSm120a);
    const HostTensor x = halves(f.a, {m, k}, 1), y = halves(f.b, {n, k}, 2),
                     x_scale = scales(f.scale, {m, blocks}, 3), y_scale = scales(f.scale, {n, blocks}, 4),
                     z = halves(float32, {m, n}, 5);
    const auto on_device = [&](const HostTensor& host) {
      return DeviceTensor::from_host(machine.device(), host);
    };
    DeviceTensor a = on_device(f.stored_a == uint8 ? in_bytes(x) : x),
                 b = on_device(f.stored_b == uint8 ? in_bytes(y) : y), sa = on_device(x_scale),
                 sb = on_device(y_scale), c = on_device(z), d = machine.output(float32, {m, n});
    MmaScaledOptions options{.warps_m = p.warps_m, .warps_n = p.warps_n};
    if (f.stored_a == uint8) options.a_type = f.a;
    if (f.stored_b == uint8) options.b_type = f.b;
    machine.run(
        [=](Ptr<> a, Ptr<> b, Ptr<> sa, Ptr<> sb, Ptr<float32> c, Ptr<float32> d) {
          grid(1);
          warps(p.warps);
          auto x = load_global(global_view(a, f.stored_a, {m, k}), {0, 0}, {m, k});
          auto y = load_global(global_view(b, f.stored_b, {n, k}), {0, 0}, {n, k});
          auto x_scale = load_global(global_view(sa, f.scale, {m, blocks}), {0, 0}, {m, blocks});
          auto y_scale = load_global(global_view(sb, f.scale, {n, blocks}), {0, 0}, {n, blocks});
          RegisterTensor sum = load_global(global_view(c, {m, n}), {0, 0}, {m, n});
          for (Int32 i : range(2)) {
            (void)i;
            sum = mma_scaled(x, x_scale, y.transpose(), y_scale.transpose(), sum, options);
          }
          store_global(global_view(d, {m, n}), sum, {0, 0});
        },
        a, b, sa, sb, c, d);
    expect_elements(d, [&](int64_t i, int64_t j) {
      double sum = z.get(i * n + j);
      for (int64_t l = 0; l < k; ++l)
        sum += 2 * x.get(i * k + l) * y.get(j * k + l) * x_scale.get(i * blocks + l / f.block) *
               y_scale.get(j * blocks + l / f.block);
      return sum;
    });
  }
}

// Through shared memory by ldmatrix, the 4-bit ones as bytes that are viewed.
TEST_P(ScaledProducts, OfTilesInSharedMemoryAssemble) {
  IMBREX_NEEDS_PTXAS();
  const Format f = GetParam();
  const int64_t m = 64, n = 64, k = 4 * f.step(), blocks = k / f.block;
  const auto traced = lang::trace(
      RetargetedLambda([=](Ptr<> a, Ptr<> sa, Ptr<float32> d) {
        grid(1);
        warps(4);
        const int64_t bytes = f.stored_a.bits() == 4 ? k / 2 : k;
        auto tile = shared_tensor(uint8, {m, bytes});
        copy_async(global_view(a, uint8, {m, bytes}), tile, {0, 0});
        copy_async_wait_all();
        sync();
        const auto operand = [&](DataType stored) {
          auto loaded = load_shared(tile);
          return stored == uint8 ? RegisterTensor(loaded) : RegisterTensor(view(loaded, stored));
        };
        auto scale = load_global(global_view(sa, f.scale, {m, blocks}), {0, 0}, {m, blocks});
        MmaScaledOptions options;
        if (f.stored_a == uint8) options.a_type = f.a;
        if (f.stored_b == uint8) options.b_type = f.b;
        auto x = operand(f.stored_a), y = operand(f.stored_b);
        store_global(global_view(d, {m, n}),
                     mma_scaled(x, scale, y.transpose(), scale.transpose(), zeros(float32, {m, n}), options),
                     {0, 0});
      }),
      {}, "sm_120a");
  passes::run_pipeline(*traced, {});
  const codegen::CompiledKernel compiled = codegen::generate(*traced, {});
  EXPECT_THAT(compiled.ptx, HasSubstr("ldmatrix.sync.aligned.m8n8.x4"));
  EXPECT_EQ(ptxas_says(compiled.ptx, "-arch=sm_120a"), "");
}

INSTANTIATE_TEST_SUITE_P(Formats, ScaledProducts, ::testing::ValuesIn(kFormats), ParamName());

/// Why a product of such operands is refused.
std::string refusal(DataType a, DataType scale, std::vector<int64_t> scale_shape,
                    const char* target = "sm_120a", MmaScaledOptions options = {}, int64_t k = 64) {
  try {
    const auto traced = lang::trace(
        RetargetedLambda([=](Ptr<> p, Ptr<float32> d) {
          grid(1);
          warps(1);
          auto x = load_global(global_view(p, a, {16, k}), {0, 0}, {16, k});
          auto s = load_global(global_view(p, scale, {scale_shape[0], scale_shape[1]}), {0, 0}, scale_shape);
          auto y = load_global(global_view(p, a, {16, k}), {0, 0}, {16, k});
          store_global(global_view(d, {16, 16}),
                       mma_scaled(x, s, y.transpose(), s.transpose(), zeros(float32, {16, 16}), options),
                       {0, 0});
        }),
        {}, target);
    passes::run_pipeline(*traced, {});
    codegen::generate(*traced, {});
  } catch (const CompileError& error) {
    return error.what();
  }
  return "";
}

TEST(ScaledProducts, SayWhatTheyDoNotTake) {
  EXPECT_EQ(refusal(float8_e4m3, float8_e8m0, {16, 2}), "");
  EXPECT_THAT(refusal(float16, float8_e8m0, {16, 2}), HasSubstr("a holds float16"));
  EXPECT_THAT(refusal(uint8, float8_e8m0, {16, 2}), HasSubstr("a_type"));
  EXPECT_THAT(refusal(float6_e3m2, float8_e8m0, {16, 2}),
              HasSubstr("give `view(a, uint6).to(uint8)`, and say .a_type = float6_e3m2"));
  EXPECT_THAT(refusal(float8_e4m3, float8_ue4m3, {16, 2}), HasSubstr("both are float8_e8m0"));
  EXPECT_THAT(refusal(float8_e4m3, float8_e8m0, {16, 4}),
              HasSubstr("one scale for 32 elements of k is [16, 2]"));
  EXPECT_THAT(refusal(float4_e2m1, float8_ue4m3, {16, 2}),
              HasSubstr("one scale for 16 elements of k is [16, 4]"));
  EXPECT_THAT(refusal(float8_e4m3, float8_e8m0, {16, 1}, "sm_120a", {}, 48),
              HasSubstr("multiples of 16, 8 and 32"));
  EXPECT_THAT(refusal(float8_e4m3, float8_e8m0, {16, 2}, "sm_120a", {.warps_m = 1}),
              HasSubstr("give both, or neither"));
  EXPECT_THAT(refusal(float8_e4m3, float8_e8m0, {16, 2}, "sm_120a", {.a_type = float8_e4m3}),
              HasSubstr("a_type says what bytes hold"));
  for (const char* target : {"sm_90a", "sm_100a", "sm_120"})
    EXPECT_THAT(refusal(float8_e4m3, float8_e8m0, {16, 2}, target), HasSubstr("needs target sm_120a"))
        << target;
}

}  // namespace
}  // namespace imbrex::testing
