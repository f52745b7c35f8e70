// SPDX-License-Identifier: Apache-2.0
// wgmma in kernels: every type, width, major-ness and place of A against exact sums of small integers, with
// every checker on; several warp groups; sums carried on, scaled, saturated; what is refused; what the
// virtual GPU says of a fence or wait that is missing. The PTX of each type is assembled.
#include <gmock/gmock.h>

#include <random>

#include "../ptxas.h"
#include "codegen/codegen.h"
#include "imbrex/runtime/compile.h"
#include "ir/ir.h"
#include "kit.h"
#include "passes/pipeline.h"

namespace imbrex::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Product {
  DataType a = float16, b = float16, d = float32;
  int64_t m = 64, n = 64, k = 64;
  int warp_groups = 1;
  bool a_in_registers = false, a_mn_major = false, b_mn_major = false;
  bool negate_a = false, negate_b = false;
  friend std::ostream& operator<<(std::ostream& out, const Product& p) {
    return out << p.d.name() << "[" << p.m << ", " << p.n << "] = " << p.a.name() << " x " << p.b.name()
               << ", k " << p.k << ", warp groups " << p.warp_groups
               << (p.a_in_registers ? ", A in registers" : "") << (p.a_mn_major ? ", A m-major" : "")
               << (p.b_mn_major ? ", B n-major" : "") << (p.negate_a ? ", -A" : "")
               << (p.negate_b ? ", -B" : "");
  }
};

/// One product of whole tiles, brought by TMA; what lies contiguous in global memory does so in shared
/// memory.
auto product_kernel(const Product& p) {
  return [p](Ptr<> a_ptr, Ptr<> b_ptr, Ptr<> d_ptr) {
    grid(1);
    warps(4 * p.warp_groups);
    const Shape a_shape = p.a_mn_major ? Shape{p.k, p.m} : Shape{p.m, p.k};
    const Shape b_shape = p.b_mn_major ? Shape{p.k, p.n} : Shape{p.n, p.k};
    auto s_a = shared_tensor(p.a, a_shape);
    auto s_b = shared_tensor(p.b, b_shape);
    auto loaded = mbarrier::alloc(1);
    sync();
    if (auto warp = single_warp()) {
      if (auto thread = single_thread()) mbarrier::arrive_and_expect_tx(loaded, s_a.nbytes() + s_b.nbytes());
      tma::global_to_shared(global_view(a_ptr, p.a, {a_shape[0], a_shape[1]}), s_a, {0, 0}, loaded);
      tma::global_to_shared(global_view(b_ptr, p.b, {b_shape[0], b_shape[1]}), s_b, {0, 0}, loaded);
    }
    mbarrier::wait(loaded, 0);
    auto a = p.a_mn_major ? s_a.transpose() : s_a;
    auto b = p.b_mn_major ? s_b : s_b.transpose();
    auto acc = wgmma::accumulator(p.d, {p.m, p.n});
    const wgmma::MmaOptions options{.scale_d = false, .negate_a = p.negate_a, .negate_b = p.negate_b};
    if (p.a_in_registers) {
      auto r_a = load_shared(a);
      wgmma::fence();
      wgmma::mma(r_a, b, acc, options);
    } else {
      wgmma::fence();
      wgmma::mma(a, b, acc, options);
    }
    wgmma::commit_group();
    wgmma::wait_group(0);
    store_global(global_view(d_ptr, p.d, {p.m, p.n}), acc, {0, 0});
  };
}

/// Integers that every type holds and whose sums of products are exact, also in float16.
std::vector<double> small_integers(DataType type, int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> out(static_cast<size_t>(count));
  for (double& x : out) x = static_cast<double>(random() % 5) - (type == uint8 ? 0 : 2);
  return out;
}

void expect_product(const Product& p) {
  SCOPED_TRACE(::testing::PrintToString(p));
  Machine machine(Arch::kSm90a);
  const std::vector<double> a = small_integers(p.a, p.m * p.k, 1), b = small_integers(p.b, p.n * p.k, 2);
  DeviceTensor d = machine.output(p.d, {p.m, p.n});
  machine.run(product_kernel(p), machine.tensor(p.a, a), machine.tensor(p.b, b), d);
  const double sign = p.negate_a != p.negate_b ? -1 : 1;
  expect_elements(d, [&](int64_t i, int64_t j) {
    double sum = 0;
    for (int64_t x = 0; x < p.k; ++x)
      sum += a[p.a_mn_major ? x * p.m + i : i * p.k + x] * b[p.b_mn_major ? x * p.n + j : j * p.k + x];
    return sign * sum;
  });
}

/// ptxas takes the kernel and has nothing to say: no spills announced, no serialised products.
void expect_assembles(const Product& p) {
  SCOPED_TRACE(::testing::PrintToString(p));
  const auto lambda = product_kernel(p);
  using K = LambdaKernel<decltype(lambda), Arch::kSm90a>;
  const std::shared_ptr<ir::Function> function =
      Kernel<K>(K(lambda)).trace(int64_t{0}, int64_t{0}, int64_t{0});
  passes::run_pipeline(*function, {});
  EXPECT_EQ(ptxas_says(codegen::generate(*function, {}).ptx, "-arch=sm_90a"), "");
}

// ---- forms

TEST(Wgmma, EveryWidth) {
  for (int64_t n = 8; n <= 256; n += 8) expect_product({.n = n, .k = 32});
}

const std::vector<Product> kTypes = {
    {.a = float16, .b = float16},
    {.a = float16, .b = float16, .d = float16},
    {.a = bfloat16, .b = bfloat16},
    {.a = tfloat32, .b = tfloat32},
    {.a = float32, .b = float32},
    {.a = float8_e4m3, .b = float8_e4m3},
    {.a = float8_e4m3, .b = float8_e5m2, .d = float16},
    {.a = float8_e5m2, .b = float8_e4m3},
    {.a = float8_e5m2, .b = float8_e5m2, .d = float16},
    {.a = int8, .b = int8, .d = int32},
    {.a = int8, .b = uint8, .d = int32},
    {.a = uint8, .b = int8, .d = int32},
    {.a = uint8, .b = uint8, .d = int32},
};

TEST(Wgmma, EveryTypeFromSharedMemoryAndFromRegisters) {
  for (Product p : kTypes)
    for (bool a_in_registers : {false, true}) {
      p.a_in_registers = a_in_registers;
      p.n = 48;
      expect_product(p);
      p.n = 8;
      p.k = 128;
      expect_product(p);
    }
}

TEST(Wgmma, WidthsOfIntegers) {
  for (int64_t n : {8, 16, 24, 32, 80, 240, 256})
    expect_product({.a = int8, .b = int8, .d = int32, .n = n, .k = 32});
  expect_product({.a = int8, .b = uint8, .d = int32, .n = 272, .k = 32});
}

TEST(Wgmma, EitherDimensionMayBeContiguous) {
  for (DataType type : {float16, bfloat16})
    for (bool a : {false, true})
      for (bool b : {false, true})
        for (int64_t n : {32, 64, 192})
          expect_product({.a = type, .b = type, .n = n, .a_mn_major = a, .b_mn_major = b});
  expect_product({.n = 24, .k = 48, .b_mn_major = true});
  expect_product({.n = 128, .a_in_registers = true, .b_mn_major = true});
}

TEST(Wgmma, TilesOfSeveralInstructions) {
  expect_product({.m = 192, .n = 40, .k = 16});
  expect_product({.m = 128, .n = 320, .k = 80});
  expect_product({.m = 128, .n = 512, .k = 32});
  expect_product({.a = bfloat16, .b = bfloat16, .m = 128, .n = 96, .k = 256, .a_mn_major = true});
  expect_product({.d = float16, .m = 128, .n = 264, .a_in_registers = true});
  expect_product({.a = float8_e5m2, .b = float8_e4m3, .m = 128, .n = 72, .k = 256, .a_in_registers = true});
}

TEST(Wgmma, WarpGroupsShareTheRows) {
  expect_product({.m = 128, .n = 256, .warp_groups = 2});
  expect_product({.m = 384, .n = 48, .warp_groups = 3});
  expect_product({.m = 256, .n = 48, .warp_groups = 2, .a_mn_major = true});
  expect_product(
      {.a = int8, .b = int8, .d = int32, .m = 256, .n = 272, .warp_groups = 2, .a_in_registers = true});
}

TEST(Wgmma, Signs) {
  expect_product({.negate_a = true});
  expect_product({.a = tfloat32, .b = tfloat32, .negate_b = true});
  expect_product({.a = bfloat16, .b = bfloat16, .a_in_registers = true, .negate_a = true, .negate_b = true});
}

TEST(Wgmma, Assembles) {
  IMBREX_NEEDS_PTXAS();
  for (Product p : kTypes) {
    expect_assembles(p);
    p.a_in_registers = true;
    expect_assembles(p);
  }
  expect_assembles({.m = 128, .n = 256, .warp_groups = 2, .a_mn_major = true, .b_mn_major = true});
  expect_assembles({.m = 128, .n = 128, .a_in_registers = true, .b_mn_major = true, .negate_a = true});
}

// ---- sums

/// Copies both operands in by plain stores: the compiler orders them before the tensor cores' reads.
void store_operands(const SharedTensor& s_a, const SharedTensor& s_b, const Ptr<float16>& a,
                    const Ptr<float16>& b) {
  store_shared(s_a, load_global(global_view(a, {64, 64}), {0, 0}, {64, 64}));
  store_shared(s_b, load_global(global_view(b, {32, 64}), {0, 0}, {32, 64}));
  sync();
}

TEST(Wgmma, SumsAreCarriedOnAndChangedInBetween) {
  Machine machine(Arch::kSm90a);
  const std::vector<double> a = small_integers(float16, 64 * 64, 3), b = small_integers(float16, 32 * 64, 4);
  DeviceTensor d = machine.output(float32, {64, 32});
  machine.run(
      [](Int32 trips, Ptr<float16> a, Ptr<float16> b, Ptr<float32> d) {
        grid(1);
        auto s_a = shared_tensor(float16, {64, 64});
        auto s_b = shared_tensor(float16, {32, 64});
        store_operands(s_a, s_b, a, b);
        RegisterTensor acc = zeros(float32, {64, 32});
        for (Int32 trip : range(trips)) {
          acc *= 2;
          wgmma::fence();
          wgmma::mma(s_a, s_b.transpose(), acc, {.scale_d = trip != 1});  // trip 1 forgets what was before
          wgmma::mma(s_a, s_b.transpose(), acc, {.scale_d = true, .negate_a = true});
          wgmma::mma(s_a, s_b.transpose(), acc, {.scale_d = true});
          wgmma::commit_group();
          wgmma::wait_group(0);
        }
        store_global(global_view(d, {64, 32}), acc + 1, {0, 0});
      },
      4, machine.tensor(float16, a), machine.tensor(float16, b), d);
  expect_elements(d, [&](int64_t i, int64_t j) {
    double sum = 0;
    for (int64_t x = 0; x < 64; ++x) sum += a[i * 64 + x] * b[j * 64 + x];
    return 7 * sum + 1;  // sum, then 2 sum + sum, then 2 * 3 sum + sum
  });
}

TEST(Wgmma, SumsOfIntegersWrapOrStop) {
  for (bool saturate : {false, true}) {
    Machine machine(Arch::kSm90a);
    DeviceTensor d = machine.output(int32, {64, 8});
    machine.run(
        [saturate](Ptr<int32> d) {
          grid(1);
          auto s_a = shared_tensor(int8, {64, 32});
          auto s_b = shared_tensor(int8, {8, 32});
          store_shared(s_a, full(int8, {64, 32}, 100));
          store_shared(s_b, full(int8, {8, 32}, 100));
          sync();
          RegisterTensor acc = full(int32, {64, 8}, 2147483000);
          wgmma::fence();
          wgmma::mma(s_a, s_b.transpose(), acc, {.scale_d = true, .saturate = saturate});
          wgmma::commit_group();
          wgmma::wait_group(0);
          store_global(global_view(d, {64, 8}), acc, {0, 0});
        },
        d);
    expect_elements(d, [&](int64_t, int64_t) {
      return saturate ? 2147483647.0 : 2147483000.0 + 320000.0 - 4294967296.0;
    });
  }
}

TEST(Wgmma, OneGroupStaysUnderWay) {
  Machine machine(Arch::kSm90a);
  const std::vector<double> a = small_integers(float16, 64 * 64, 5), b = small_integers(float16, 32 * 64, 6);
  DeviceTensor d = machine.output(float32, {2, 64, 32});
  machine.run(
      [](Ptr<float16> a, Ptr<float16> b, Ptr<float32> d) {
        grid(1);
        auto s_a = shared_tensor(float16, {64, 64});
        auto s_b = shared_tensor(float16, {32, 64});
        store_operands(s_a, s_b, a, b);
        auto first = wgmma::accumulator(float32, {64, 32});
        auto second = wgmma::accumulator(float32, {64, 32});
        auto out = global_view(d, {2, 64, 32});
        wgmma::fence();
        wgmma::mma(s_a, s_b.transpose(), first, {.scale_d = false});
        wgmma::commit_group();
        wgmma::mma(s_a, s_b.transpose(), second, {.scale_d = false, .negate_b = true});
        wgmma::commit_group();
        wgmma::wait_group(1);
        store_global(out[0], first, {0, 0});
        wgmma::wait_group(0);
        store_global(out[1], second, {0, 0});
      },
      machine.tensor(float16, a), machine.tensor(float16, b), d);
  expect_elements(d, [&](int64_t which, int64_t i, int64_t j) {
    double sum = 0;
    for (int64_t x = 0; x < 64; ++x) sum += a[i * 64 + x] * b[j * 64 + x];
    return which == 0 ? sum : -sum;
  });
}

TEST(Wgmma, AccumulatorsAreCutIntoColumns) {
  Machine machine(Arch::kSm90a);
  const std::vector<double> a = small_integers(float16, 64 * 64, 7), b = small_integers(float16, 32 * 64, 8);
  DeviceTensor d = machine.output(float16, {64, 32});
  machine.run(
      [](Ptr<float16> a, Ptr<float16> b, Ptr<float16> d) {
        grid(1);
        auto s_a = shared_tensor(float16, {64, 64});
        auto s_b = shared_tensor(float16, {32, 64});
        store_operands(s_a, s_b, a, b);
        auto acc = wgmma::accumulator(float32, {64, 32});
        wgmma::fence();
        wgmma::mma(s_a, s_b.transpose(), acc, {.scale_d = false});
        wgmma::commit_group();
        wgmma::wait_group(0);
        auto out = global_view(d, {64, 32});
        for (int64_t width : {8, 16})  // columns 0 to 7, then 8 to 31 by 16 and 8
          store_global(out, acc.slice({0, width == 8 ? 0 : 16}, {64, width}).to(float16),
                       {0, width == 8 ? 0 : 16});
        store_global(out, (acc.slice({0, 8}, {64, 8}) + 1).to(float16), {0, 8});
      },
      machine.tensor(float16, a), machine.tensor(float16, b), d);
  expect_elements(d, [&](int64_t i, int64_t j) {
    double sum = 0;
    for (int64_t x = 0; x < 64; ++x) sum += a[i * 64 + x] * b[j * 64 + x];
    return j >= 8 && j < 16 ? sum + 1 : sum;
  });
}

// ---- registers of warp groups

TEST(Setmaxnreg, WarpGroupsTakeAndGiveRegisters) {
  const auto kernel = [](Ptr<int32> d) {
    grid(1);
    warps(12);
    auto out = global_view(d, {3});
    for (int64_t i = 0; i < 3; ++i)
      if (auto group = warp_group(4 * i, 4)) {
        setmaxnreg(i == 0 ? 24 : i == 1 ? 240 : 168);  // 168 is what each has
        if (auto thread = single_thread()) store_global(out, full(int32, {1}, i), {i});
      }
  };
  Machine machine(Arch::kSm90a);
  DeviceTensor d = machine.output(int32, {3});
  machine.run(kernel, d);
  expect_elements(d, [](int64_t i) { return i; });
  using K = LambdaKernel<decltype(kernel), Arch::kSm90a>;
  const std::shared_ptr<ir::Function> function = Kernel<K>(K(kernel)).trace(int64_t{0});
  passes::run_pipeline(*function, {});
  const std::string ptx = codegen::generate(*function, {}).ptx;
  EXPECT_THAT(ptx, HasSubstr("setmaxnreg.dec.sync.aligned.u32 24;"));
  EXPECT_THAT(ptx, HasSubstr("setmaxnreg.inc.sync.aligned.u32 240;"));
  EXPECT_THAT(ptx, Not(HasSubstr("u32 168;")));
}

TEST(Setmaxnreg, MoreThanTheCtaBeganWithIsRefused) {
  const auto kernel = [](Ptr<int32> d, int producer) {
    grid(1);
    warps(12);
    for (int64_t i = 0; i < 3; ++i)
      if (auto group = warp_group(4 * i, 4)) {
        setmaxnreg(i == 0 ? producer : 240);
        if (auto thread = single_thread()) store_global(global_view(d, {3}), full(int32, {1}, i), {i});
      }
  };
  Machine machine(Arch::kSm90a);
  DeviceTensor d = machine.output(int32, {3});
  machine.run(kernel, d, 24);
  EXPECT_THAT(
      error_of<CompileError>([&] { machine.launch(kernel, d, 32); }),
      HasSubstr("the warp groups ask for 32, 240, 240 registers in each thread, 2048 with all warps; the CTA "
                "begins with 168 in each of 12 warps, 2016"));
}

/// What sets the registers of a warp group hides nothing of what its warps do.
TEST(Setmaxnreg, RolesInsideAWarpGroupAreSeen) {
  const auto kernel = [](Ptr<int32> d) {
    grid(1);
    warps(8);
    auto out = global_view(d, {3});
    if (auto producers = warp_group(4, 4)) {
      setmaxnreg(40);
      if (auto warp = single_warp(0)) store_global(out, full(int32, {1}, 0), {0});
      if (auto warp = single_warp(1)) store_global(out, full(int32, {1}, 1), {1});
    }
    if (auto consumers = warp_group(0, 4)) {
      setmaxnreg(232);
      store_global(out, full(int32, {1}, 2), {2});
      if (auto warp = single_warp(0)) store_global(out, full(int32, {1}, 3), {2});
      if (auto warp = single_warp(1)) store_global(out, full(int32, {1}, 4), {2});
    }
  };
  using K = LambdaKernel<decltype(kernel), Arch::kSm90a>;
  const Machine machine(Arch::kSm90a);
  const std::shared_ptr<ir::Function> function = Kernel<K>(K(kernel), machine.device()).trace(int64_t{0});
  const std::vector<ThreadGroup> groups = thread_groups(*function);
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[0].first_thread, 128);
  EXPECT_EQ(groups[0].threads, 32);
  EXPECT_EQ(groups[1].first_thread, 160);
  EXPECT_EQ(groups[2].first_thread, 0);
  EXPECT_EQ(groups[2].threads, 128);
}

/// Roles of one warp each ask for themselves, together for one number.
TEST(Setmaxnreg, IsAskedForByTheFourWarpsOfAWarpGroup) {
  const auto kernel = [](Ptr<int32> d, int last) {
    grid(1);
    warps(8);
    auto out = global_view(d, {5});
    for (int i = 0; i < 4; ++i)
      if (auto role = single_warp(i)) {
        setmaxnreg(i == 3 ? last : 40);
        store_global(out, full(int32, {1}, i), {i});
      }
    if (auto consumers = warp_group(4, 4)) {
      setmaxnreg(232);
      if (auto thread = single_thread()) store_global(out, full(int32, {1}, 4), {4});
    }
  };
  Machine machine(Arch::kSm90a);
  DeviceTensor d = machine.output(int32, {5});
  machine.run(kernel, d, 40);
  expect_elements(d, [](int64_t i) { return i; });
  EXPECT_THAT(error_of<CompileError>([&] { machine.launch(kernel, d, 48); }),
              HasSubstr("warp 3 of the CTA asks for 48 registers, warp 0 of the same warp group for 40"));
  EXPECT_THAT(error_of<CompileError>([&] {
                machine.launch(
                    [](Int32 n) {
                      grid(n);
                      warps(8);
                      if (auto role = single_warp(5)) setmaxnreg(40);
                    },
                    1);
              }),
              HasSubstr("warp 5 of the CTA asks for 40 registers, warp 4 of the same warp group for none"));
  using K = LambdaKernel<decltype(kernel), Arch::kSm90a>;
  const std::shared_ptr<ir::Function> function =
      Kernel<K>(K(kernel), machine.device()).trace(int64_t{0}, int64_t{40});
  EXPECT_EQ(thread_groups(*function).size(), 5u);
}

// ---- what is found

/// A product of which the named part is left out.
LaunchReport launch_without(const std::string& part) {
  Machine machine(Arch::kSm90a);
  DeviceTensor d = machine.output(float32, {64, 32});
  return machine.launch(
      [part](Ptr<float16> a, Ptr<float16> b, Ptr<float32> d) {
        grid(1);
        auto s_a = shared_tensor(float16, {64, 64});
        auto s_b = shared_tensor(float16, {32, 64});
        store_operands(s_a, s_b, a, b);
        RegisterTensor acc = zeros(float32, {64, 32});
        if (part != "fence") wgmma::fence();
        wgmma::mma(s_a, s_b.transpose(), acc, {.scale_d = true});
        wgmma::commit_group();
        if (part != "wait") wgmma::wait_group(0);
        store_global(global_view(d, {64, 32}), acc, {0, 0});
      },
      machine.random(float16, {64, 64}), machine.random(float16, {32, 64}), d);
}

TEST(WgmmaFindings, MissingFenceAndWait) {
  EXPECT_TRUE(launch_without("nothing").clean());
  EXPECT_THAT(launch_without("fence").virtual_report.format(), HasSubstr("wgmma"));
  EXPECT_THAT(launch_without("wait").virtual_report.format(), HasSubstr("wgmma"));
}

TEST(WgmmaErrors, SharedOperandsOfOtherTypesAreContiguousAlongK) {
  const Product p{.a = int8, .b = int8, .d = int32, .n = 64, .b_mn_major = true};
  Machine machine(Arch::kSm90a);
  const std::string error = error_of<CompileError>([&] {
    machine.launch(product_kernel(p), machine.random(int8, {64, 64}), machine.random(int8, {64, 64}),
                   machine.output(int32, {64, 64}));
  });
  EXPECT_THAT(error, HasSubstr("wgmma_mma"));
  EXPECT_THAT(error, HasSubstr("MN-major, which wgmma reads for 16-bit elements only, not 8-bit ones"));
}

TEST(WgmmaErrors, RowsForEveryWarpGroup) {
  const Product p{.m = 192, .warp_groups = 2};
  Machine machine(Arch::kSm90a);
  const std::string error = error_of<CompileError>([&] {
    machine.launch(product_kernel(p), machine.random(float16, {192, 64}), machine.random(float16, {64, 64}),
                   machine.output(float32, {192, 64}));
  });
  EXPECT_THAT(error,
              HasSubstr("wgmma_mma: 192 rows for 2 warp groups, of which each computes a multiple of 64"));
}

}  // namespace
}  // namespace imbrex::testing
