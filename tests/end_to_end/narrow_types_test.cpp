// SPDX-License-Identifier: Apache-2.0
// Floats of 8, 6 and 4 bits in kernels: conversions as the chip rounds them, TMA copies, registers of them.
#include <gmock/gmock.h>

#include "core/float_formats.h"
#include "kit.h"

namespace imbrex::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr DataType kNarrow[] = {float8_e4m3, float8_e5m2, float6_e2m3, float6_e3m2,
                                float4_e2m1, float8_e8m0, float8_ue4m3};

/// Numbers around every value of every narrow format: ties, neighbours of ties, overflow, specials.
std::vector<float> interesting() {
  std::vector<float> numbers{0.0f,  -0.0f,  INFINITY, -INFINITY, NAN,
                             1e30f, -1e30f, 1e-30f,   0x1p-127f, 0x1p127f};
  for (DataType type : {float8_e4m3, float8_e5m2, float6_e2m3, float6_e3m2, float4_e2m1}) {
    const arith::FloatFormat& format = arith::float_format(type);
    for (uint64_t bits = 0; bits + 1 < uint64_t{1} << (format.bits - 1); ++bits) {
      const auto low = static_cast<float>(arith::decode(format, bits)),
                 high = static_cast<float>(arith::decode(format, bits + 1));
      if (!std::isfinite(low) || !std::isfinite(high)) continue;
      const float tie = low + (high - low) / 2;
      for (float x : {low, tie, std::nextafter(tie, 0.0f), std::nextafter(tie, INFINITY)}) {
        numbers.push_back(x);
        numbers.push_back(-x);
      }
    }
  }
  numbers.resize((numbers.size() + 1023) / 1024 * 1024, 1.0f);
  return numbers;
}

double rounded(DataType type, double x) {
  const arith::FloatFormat& format = arith::float_format(type);
  const arith::Rounding rounding =
      type == float8_e8m0 ? arith::Rounding::kTowardZero : arith::Rounding::kNearestEven;
  return arith::decode(format, arith::encode(format, x, {.rounding = rounding, .satfinite = true}));
}

TEST(NarrowTypes, ConversionsRoundAsTheFormatsDo) {
  const std::vector<float> numbers = interesting();
  const auto n = static_cast<int64_t>(numbers.size());
  for (DataType type : kNarrow) {
    SCOPED_TRACE(std::string(type.name()));
    Machine machine(Arch::kSm100a);
    DeviceTensor x = machine.tensor(float32, numbers), y = machine.output(float32, {n});
    machine.run(
        [type, n](Ptr<float32> x_ptr, Ptr<float32> y_ptr) {
          grid(n / 1024);
          Int32 at = block_idx.x * 1024;
          auto in = load_global(global_view(x_ptr, {n}), {at}, {1024});
          store_global(global_view(y_ptr, {n}), in.to(type).to(float32), {at});
        },
        x, y);
    // The sign of e8m0 is dropped by the chip in a way nobody has written down: magnitudes only.
    expect_elements(y, [&](int64_t i) {
      return type == float8_e8m0 && !(numbers[i] > 0) ? values<float>(y)[i] : rounded(type, numbers[i]);
    });
  }
}

TEST(NarrowTypes, ScalarsConvertToo) {
  for (DataType type : kNarrow) {
    SCOPED_TRACE(std::string(type.name()));
    Machine machine(Arch::kSm100a);
    DeviceTensor y = machine.output(float32, {1});
    machine.run(
        [type](Float32 x, Ptr<float32> y_ptr) {
          grid(1);
          warps(1);
          store_global(global_view(y_ptr, {1}), full(float32, {1}, cast(cast(x, type), float32)), {0});
        },
        2.7f, y);
    expect_elements(y, [&](int64_t) { return rounded(type, 2.7f); });
  }
}

TEST(NarrowTypes, FourBitTilesByTmaAndInRegisters) {
  constexpr int64_t kM = 70, kN = 320;
  for (uint64_t seed : {0, 1, 2}) {
    Machine machine(Arch::kSm100a, seed);
    DeviceTensor x = machine.random(float4_e2m1, {kM, kN}), y = machine.output(float32, {kM, kN}),
                 z = machine.output(float4_e2m1, {kM, kN});
    machine.run(
        [](Ptr<float4_e2m1> x_ptr, Ptr<float32> y_ptr, Ptr<float4_e2m1> z_ptr) {
          grid(cdiv(kM, 32), cdiv(kN, 64));
          Int32 i = 32 * block_idx.x, j = 64 * block_idx.y;
          auto tile = shared_tensor(float4_e2m1, {32, 64}), doubled = shared_tensor(float4_e2m1, {32, 64});
          auto barrier = mbarrier::alloc(1);
          sync();
          if (auto warp = single_warp()) {
            if (auto thread = single_thread()) mbarrier::arrive_and_expect_tx(barrier, tile.nbytes());
            tma::global_to_shared(global_view(x_ptr, {kM, kN}), tile, {i, j}, barrier);
          }
          mbarrier::wait(barrier, 0);
          auto numbers = load_shared(tile).to(float32);
          store_global(global_view(y_ptr, {kM, kN}), numbers, {i, j});
          store_shared(doubled, (2.0f * numbers).to(float4_e2m1));
          fence::proxy_async();
          sync();
          if (auto warp = single_warp()) {
            tma::shared_to_global(doubled, global_view(z_ptr, {kM, kN}), {i, j});
            tma::commit_group();
            tma::wait_group(0, {.read = true});
          }
        },
        x, y, z);
    const std::vector<double> in = x.to_host().to_doubles();
    expect_elements(y, [&](int64_t i, int64_t j) { return in[i * kN + j]; });
    expect_elements(z, [&](int64_t i, int64_t j) { return rounded(float4_e2m1, 2 * in[i * kN + j]); });
  }
}

TEST(NarrowTypes, FourBitElementsInGlobalMemory) {
  for (int64_t n : {320, 62}) {
    constexpr int64_t kM = 37;
    Machine machine(Arch::kSm100a);
    DeviceTensor x = machine.random(float4_e2m1, {kM, n}), y = machine.output(float4_e2m1, {kM, n}),
                 z = machine.output(float32, {kM, n});
    machine.run(
        [n](Int32 m, Ptr<> x_ptr, Ptr<> y_ptr, Ptr<float32> z_ptr) {
          grid(cdiv(m, 16), cdiv(n, 64));
          Int32 i = 16 * block_idx.x, j = 64 * block_idx.y;
          auto in = load_global(global_view(x_ptr, float4_e2m1, {m, n}), {i, j}, {16, 64});
          auto numbers = in.to(float32);
          store_global(global_view(z_ptr, {m, n}), numbers, {i, j});
          store_global(global_view(y_ptr, float4_e2m1, {m, n}), (0.5f * numbers).to(float4_e2m1), {i, j});
        },
        kM, x, y, z);
    const std::vector<double> in = x.to_host().to_doubles();
    const std::vector<float> out = values<float>(z);
    for (size_t i = 0; i < in.size(); ++i) ASSERT_EQ(out[i], in[i]) << i;
    expect_elements(y, [&](int64_t i, int64_t j) { return rounded(float4_e2m1, 0.5 * in[i * n + j]); });
  }
}

/// What compiling says of a copy of a narrow tile.
template <class F>
std::string complaint(const F& kernel, DataType type, std::vector<int64_t> shape) {
  Machine machine(Arch::kSm100a);
  DeviceTensor x = machine.output(type, std::move(shape));
  const std::string compile = error_of<CompileError>([&] { machine.launch(kernel, x); });
  return compile.empty() ? error_of<LaunchError>([&] { machine.launch(kernel, x); }) : compile;
}

TEST(NarrowTypes, WhatIsNotMovedIsRefused) {
  const auto load = [](DataType type, int64_t n, int64_t columns) {
    return [=](Ptr<> x_ptr) {
      grid(1);
      auto tile = shared_tensor(type, {8, columns});
      auto barrier = mbarrier::alloc(1);
      sync();
      if (auto warp = single_warp())
        tma::global_to_shared(global_view(x_ptr, type, {8, n}), tile, {0, 0}, barrier);
    };
  };
  // Rows whose bytes are not a multiple of 16, counted in bits.
  EXPECT_THAT(complaint(load(float4_e2m1, 72, 32), float4_e2m1, {8, 72}),
              AllOf(HasSubstr("narrow_types_test.cpp"), HasSubstr("stride 0"), HasSubstr("36 bytes")));
  EXPECT_THAT(complaint(load(float6_e2m3, 192, 128), float6_e2m3, {8, 192}),
              AllOf(HasSubstr("extent 1"), HasSubstr("192"), HasSubstr("multiple of 128")));
  EXPECT_THAT(complaint(load(float6_e3m2, 256, 64), float6_e3m2, {8, 256}),
              AllOf(HasSubstr("narrow_types_test.cpp"), HasSubstr("rows of 128")));
  const auto store_six = [](Ptr<> x_ptr) {
    grid(1);
    auto tile = shared_tensor(float6_e2m3, {8, 128});
    if (auto warp = single_warp())
      tma::shared_to_global(tile, global_view(x_ptr, float6_e2m3, {8, 128}), {0, 0});
  };
  EXPECT_THAT(complaint(store_six, float6_e2m3, {8, 128}), HasSubstr("no 6-bit elements"));
  const auto odd_rows = [](Ptr<> x_ptr) {
    grid(1);
    auto in = load_global(global_view(x_ptr, float4_e2m1, {8, 33}), {0, 0}, {8, 32});
    store_global(global_view(x_ptr, float4_e2m1, {8, 33}), in, {0, 0});
  };
  EXPECT_THAT(complaint(odd_rows, float4_e2m1, {8, 33}),
              AllOf(HasSubstr("load_global"), HasSubstr("share bytes")));
}

}  // namespace
}  // namespace imbrex::testing
