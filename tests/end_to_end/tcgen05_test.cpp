// SPDX-License-Identifier: Apache-2.0
// tcgen05 in the language: products of every kind and arrangement against float64, copies in every shape,
// transfers in every shape, shifts.
#include <gmock/gmock.h>

#include "imbrex/runtime/compile.h"
#include "kit.h"
#include "layout/memory.h"
#include "layout/registers.h"

namespace imbrex::testing {
namespace {

using layout::Layout;
using layout::Swizzle;
using ::testing::HasSubstr;

/// d = (-)a x (-)b, computed twice so that the second adds to the first.
struct Product {
  DataType a = float16, b = float16, d = float32;
  int64_t m = 128, n = 64, k = 64;
  bool a_is_mn_major = false, b_is_mn_major = false;
  std::optional<Swizzle> swizzle = {};  // none: what inference likes
  bool negate_a = false, negate_b = false;
  enum { kShared, kStored, kCopied } a_place = kShared;  // or in tensor memory, and how it got there
  int ctas = 1;
  bool has_computed_mask = false;  // of the commit
};

std::ostream& operator<<(std::ostream& out, const Product& p) {
  return out << p.a.name() << " x " << p.b.name() << " -> " << p.d.name() << ", " << p.m << " x " << p.n
             << " x " << p.k << (p.a_is_mn_major ? ", A MN-major" : "")
             << (p.b_is_mn_major ? ", B MN-major" : "")
             << (p.swizzle ? ", swizzle " + std::string(p.swizzle->name()) : "")
             << (p.a_place == Product::kShared ? "" : ", A in tensor memory") << ", CTAs " << p.ctas;
}

/// A tile of an operand as it lies in global and shared memory: [rows, k], or [k, rows] when rows are
/// contiguous.
SharedTensor operand_tile(const Product& p, DataType type, int64_t rows, bool is_mn_major) {
  const Shape shape = is_mn_major ? Shape{p.k, rows} : Shape{rows, p.k};
  auto tile = shared_tensor(type, shape);
  if (p.swizzle) annotate_layout(tile, layout::operand_tile(shape, std::max(8, type.bits()), *p.swizzle));
  return tile;
}

void multiply(const Product& p, const Ptr<>& a_ptr, const Ptr<>& b_ptr, const Ptr<>& d_ptr) {
  grid(p.ctas);
  if (p.ctas > 1) cluster(p.ctas);
  Int32 rank = 0;
  if (p.ctas > 1) rank = cluster_rank();
  const int64_t cta_m = p.m / p.ctas, cta_n = p.n / p.ctas;
  auto view = [&](const Ptr<>& pointer, DataType type, int64_t rows, bool is_mn_major) {
    return global_view(pointer, type, is_mn_major ? Scalars{p.k, rows} : Scalars{rows, p.k});
  };
  auto g_a = view(a_ptr, p.a, p.m, p.a_is_mn_major), g_b = view(b_ptr, p.b, p.n, p.b_is_mn_major);
  auto s_a = operand_tile(p, p.a, cta_m, p.a_is_mn_major), s_b = operand_tile(p, p.b, cta_n, p.b_is_mn_major);
  auto t_d = tcgen05::alloc(p.d, {cta_m, p.n}, {.cta_group = p.ctas});
  std::optional<TMemoryTensor> t_a;
  if (p.a_place != Product::kShared) t_a = tcgen05::alloc(p.a, {cta_m, p.k}, {.cta_group = p.ctas});
  auto loaded = mbarrier::alloc(1), done = mbarrier::alloc(1);
  sync();
  auto at = [&](const ScalarArg& row, bool is_mn_major) {
    return is_mn_major ? Scalars{0, row} : Scalars{row, 0};
  };
  if (auto warp = single_warp()) {
    if (auto thread = single_thread()) mbarrier::arrive_and_expect_tx(loaded, s_a.nbytes() + s_b.nbytes());
    tma::global_to_shared(g_a, s_a, at(rank * cta_m, p.a_is_mn_major), loaded);
    tma::global_to_shared(g_b, s_b, at(rank * cta_n, p.b_is_mn_major), loaded);
  }
  mbarrier::wait(loaded, 0);
  if (p.a_place == Product::kStored) {
    tcgen05::store(*t_a, load_global(g_a, {rank * cta_m, 0}, {cta_m, p.k}));
    tcgen05::wait_store();
  }
  if (p.ctas > 1)
    cluster_sync();
  else
    sync();
  if (auto warp = single_warp()) {
    if (auto leader = when(rank == 0)) {
      auto left = p.a_is_mn_major ? s_a.transpose() : s_a;
      auto right = p.b_is_mn_major ? s_b : s_b.transpose();
      if (p.a_place == Product::kCopied) tcgen05::copy(s_a, *t_a, {.cta_group = p.ctas});
      for (bool again : {false, true}) {
        const tcgen05::MmaOptions options{
            .enable_input_d = again, .cta_group = p.ctas, .negate_a = p.negate_a, .negate_b = p.negate_b};
        if (t_a)
          tcgen05::mma(*t_a, right, t_d, options);
        else
          tcgen05::mma(left, right, t_d, options);
      }
      if (p.ctas > 1)
        tcgen05::commit(done, {.cta_group = 2,
                               .multicast_mask = p.has_computed_mask ? ScalarArg(3 << rank) : ScalarArg(3)});
      else
        tcgen05::commit(done);
    }
  }
  mbarrier::wait(done, 0, {.scope = p.ctas > 1 ? Scope::kCluster : Scope::kCta});
  auto r_d = tcgen05::load(t_d);
  store_global(global_view(d_ptr, p.d, {p.m, p.n}), r_d, {rank * cta_m, 0});
  if (p.ctas > 1)
    cluster_sync();
  else
    sync();
  if (t_a) tcgen05::dealloc(*t_a);
  tcgen05::dealloc(t_d);
}

void check(const Product& p, int seeds = 1) {
  SCOPED_TRACE(::testing::PrintToString(p));
  for (int seed = 0; seed < seeds; ++seed) {
    Machine machine(Arch::kSm100a, static_cast<uint64_t>(seed));
    auto shape = [&](int64_t rows, bool is_mn_major) {
      return is_mn_major ? std::vector<int64_t>{p.k, rows} : std::vector<int64_t>{rows, p.k};
    };
    DeviceTensor a = machine.random(p.a, shape(p.m, p.a_is_mn_major)),
                 b = machine.random(p.b, shape(p.n, p.b_is_mn_major)), d = machine.output(p.d, {p.m, p.n});
    machine.run([p](Ptr<> a, Ptr<> b, Ptr<> d) { multiply(p, a, b, d); }, a, b, d);
    const std::vector<double> left = a.to_host().to_doubles(), right = b.to_host().to_doubles();
    const double sign = p.negate_a != p.negate_b ? -2 : 2;
    const auto expected = [&](int64_t i, int64_t j) {
      double sum = 0;
      for (int64_t x = 0; x < p.k; ++x)
        sum += (p.a_is_mn_major ? left[x * p.m + i] : left[i * p.k + x]) *
               (p.b_is_mn_major ? right[x * p.n + j] : right[j * p.k + x]);
      return sign * sum;
    };
    // The tensor core cuts float32 sums toward zero, at 25 bits below the largest term.
    const double tolerance = p.d == int32 ? 0 : p.d == float16 ? 4e-3 : p.a.bits() == 32 ? 2e-3 : 2e-6;
    expect_elements(d, expected, tolerance, std::sqrt(static_cast<double>(p.k)) * 4);
  }
}

TEST(Tcgen05Mma, KindsAndTypes) {
  for (DataType d : {float32, float16}) check({.d = d});
  check({.a = bfloat16, .b = bfloat16});
  check({.a = float32, .b = float32, .k = 32});
  check({.a = tfloat32, .b = tfloat32, .k = 32});
  for (DataType a : {int8, uint8})
    for (DataType b : {int8, uint8}) check({.a = a, .b = b, .d = int32, .n = 48, .k = 128});
}

TEST(Tcgen05Mma, FloatsOfEightSixAndFourBits) {
  const DataType types[] = {float8_e4m3, float8_e5m2, float6_e2m3, float6_e3m2, float4_e2m1};
  for (DataType a : types)
    for (DataType b : types) check({.a = a, .b = b, .k = 128});
  check({.a = float4_e2m1, .b = float6_e3m2, .d = float16, .n = 200, .k = 256});
}

TEST(Tcgen05Mma, MajorsAndSwizzles) {
  for (DataType type : {float16, float8_e5m2, float32})
    for (bool a_mn : {false, true})
      for (bool b_mn : {false, true})
        check({.a = type, .b = type, .n = 128, .k = 128, .a_is_mn_major = a_mn, .b_is_mn_major = b_mn});
  for (DataType type : {float16, int8})
    for (Swizzle::Mode mode : {Swizzle::kNone, Swizzle::k32B, Swizzle::k64B, Swizzle::k128B})
      for (bool is_mn : {false, true})
        check({.a = type,
               .b = type,
               .d = type == int8 ? int32 : float32,
               .n = 128,
               .k = 128,
               .a_is_mn_major = is_mn,
               .b_is_mn_major = is_mn,
               .swizzle = Swizzle{mode}});
  for (Swizzle::Mode mode : {Swizzle::kNone, Swizzle::k32B, Swizzle::k64B, Swizzle::k128B})
    check({.a = float32, .b = float32, .k = 64, .swizzle = Swizzle{mode}});
}

TEST(Tcgen05Mma, Negation) {
  check({.negate_a = true});
  check({.negate_b = true});
  check({.a = float8_e4m3, .b = float4_e2m1, .k = 128, .negate_a = true, .negate_b = true});
}

TEST(Tcgen05Mma, AInTensorMemory) {
  check({.a_place = Product::kStored});
  check({.a = bfloat16, .b = bfloat16, .m = 64, .n = 128, .k = 128, .a_place = Product::kStored});
  check({.a = float32, .b = float32, .k = 32, .a_place = Product::kStored});
  check({.a = float8_e4m3, .b = float8_e5m2, .k = 128, .a_place = Product::kStored});
  check({.a = int8, .b = int8, .d = int32, .k = 64, .a_place = Product::kStored});
  check({.m = 256, .n = 128, .a_place = Product::kStored});
  // The copy makes a byte of every element of less than a byte.
  for (DataType a : {float16, float8_e4m3, float6_e2m3, float6_e3m2, float4_e2m1})
    check({.a = a, .b = a == float16 ? float16 : float8_e4m3, .k = 128, .a_place = Product::kCopied});
}

// Scores are computed, rounded to float16 into half of the columns that they stand in, and multiplied from there.
void scores_times_values(const Ptr<float16>& q_ptr, const Ptr<float16>& k_ptr, const Ptr<float16>& v_ptr,
                         const Ptr<float32>& o_ptr, bool waits) {
  grid(1);
  auto s_q = shared_tensor(float16, {128, 64}), s_k = shared_tensor(float16, {64, 64}),
       s_v = shared_tensor(float16, {64, 64});
  auto t_s = tcgen05::alloc(float32, {128, 64}), t_o = tcgen05::alloc(float32, {128, 64});
  auto t_p = tcgen05::view(t_s.slice({0, 0}, {128, 32}), float16, {128, 64});
  auto loaded = mbarrier::alloc(1), scored = mbarrier::alloc(1), done = mbarrier::alloc(1);
  sync();
  if (auto warp = single_warp()) {
    if (auto thread = single_thread())
      mbarrier::arrive_and_expect_tx(loaded, s_q.nbytes() + s_k.nbytes() + s_v.nbytes());
    tma::global_to_shared(global_view(q_ptr, {128, 64}), s_q, {0, 0}, loaded);
    tma::global_to_shared(global_view(k_ptr, {64, 64}), s_k, {0, 0}, loaded);
    tma::global_to_shared(global_view(v_ptr, {64, 64}), s_v, {0, 0}, loaded);
    mbarrier::wait(loaded, 0);
    tcgen05::mma(s_q, s_k.transpose(), t_s, {.enable_input_d = false});
    tcgen05::commit(scored);
  }
  mbarrier::wait(scored, 0);
  tcgen05::store(t_p, (tcgen05::load(t_s) / 8).to(float16));
  if (waits) sync();
  if (auto warp = single_warp()) {
    tcgen05::mma(t_p, s_v, t_o, {.enable_input_d = false});
    tcgen05::commit(done);
  }
  mbarrier::wait(done, 0);
  store_global(global_view(o_ptr, {128, 64}), tcgen05::load(t_o), {0, 0});
  sync();
  tcgen05::dealloc(t_o);
  tcgen05::dealloc(t_s);
}

TEST(TensorMemoryView, ScoresBecomeAnOperand) {
  for (bool waits : {true, false}) {
    Machine machine(Arch::kSm100a);
    DeviceTensor q = machine.random(float16, {128, 64}), k = machine.random(float16, {64, 64}),
                 v = machine.random(float16, {64, 64}), o = machine.output(float32, {128, 64});
    const LaunchReport report =
        machine.launch([waits](Ptr<float16> q, Ptr<float16> k, Ptr<float16> v,
                               Ptr<float32> o) { scores_times_values(q, k, v, o, waits); },
                       q, k, v, o);
    EXPECT_EQ(report.clean(), waits) << report.virtual_report.format();
    if (!waits) continue;
    const std::vector<double> a = q.to_host().to_doubles(), b = k.to_host().to_doubles(),
                              c = v.to_host().to_doubles();
    HostTensor scores(float16, {128, 64});
    for (int64_t i = 0; i < 128; ++i)
      for (int64_t j = 0; j < 64; ++j) {
        double sum = 0;
        for (int64_t x = 0; x < 64; ++x) sum += a[i * 64 + x] * b[j * 64 + x];
        scores.set(i * 64 + j, sum / 8);
      }
    const std::vector<double> p = scores.to_doubles();
    expect_elements(
        o,
        [&](int64_t i, int64_t j) {
          double sum = 0;
          for (int64_t x = 0; x < 64; ++x) sum += p[i * 64 + x] * c[x * 64 + j];
          return sum;
        },
        1e-3, 8);  // a score between two float16 may have become the other one
  }
}

// The hardware wants allocations of falling sizes; here they are written the other way round.
TEST(TensorMemory, IsAllocatedInAnyOrder) {
  Machine machine(Arch::kSm100a);
  DeviceTensor x = machine.random(float32, {128, 8}), y = machine.output(float32, {3, 128, 8});
  machine.run(
      [](Ptr<float32> x_ptr, Ptr<float32> y_ptr) {
        grid(1);
        auto tile = load_global(global_view(x_ptr, {128, 8}), {0, 0}, {128, 8});
        auto small = tcgen05::alloc(float32, {128, 32}), large = tcgen05::alloc(float32, {128, 256}),
             middle = tcgen05::alloc(float32, {128, 96});
        const TMemoryTensor all[] = {small, large, middle};
        for (int i = 0; i < 3; ++i) {
          const int64_t last = all[i].shape(1) - 8;
          tcgen05::store(all[i].slice({0, last}, {128, 8}), tile + i);
          store_global(global_view(y_ptr, {3, 128, 8})[i], tcgen05::load(all[i].slice({0, last}, {128, 8})),
                       {0, 0});
        }
        sync();
        for (const TMemoryTensor& t : all) tcgen05::dealloc(t);
      },
      x, y);
  const std::vector<double> in = x.to_host().to_doubles();
  expect_elements(y, [&](int64_t t, int64_t i, int64_t j) {
    return static_cast<double>(static_cast<float>(in[i * 8 + j]) + static_cast<float>(t));
  });
}

TEST(TensorMemoryView, RowsHaveAsManyBits) {
  Machine machine(Arch::kSm100a);
  EXPECT_THAT(error_of<CompileError>([&] {
                machine.launch(
                    [](Int32 n) {
                      grid(n);
                      auto t = tcgen05::alloc(float32, {128, 64});
                      tcgen05::view(t, float16, {128, 64});
                    },
                    1);
              }),
              ::testing::HasSubstr("rows of 64 float32 have 2048 bits, those of 64 float16 1024"));
}

TEST(Tcgen05Mma, MoreThanOneInstruction) {
  check({.m = 256, .n = 256, .k = 32});
  check({.n = 384, .k = 32});
  check({.n = 264, .k = 32});
  check({.a = int8, .b = int8, .d = int32, .n = 40, .k = 32});
  check({.a = float8_e4m3, .b = float8_e4m3, .m = 384, .n = 96, .k = 64});
}

TEST(Tcgen05Mma, CommitsToAComputedMask) {
  check({.m = 256, .n = 64, .ctas = 2, .has_computed_mask = true}, 3);
}

TEST(Tcgen05Mma, Pairs) {
  check({.m = 256, .n = 128, .ctas = 2}, 3);
  check({.m = 128, .n = 64, .ctas = 2}, 3);
  check({.m = 128, .n = 128, .a_place = Product::kStored, .ctas = 2});
  check({.m = 128, .n = 128, .a_place = Product::kCopied, .ctas = 2});
  check({.m = 512, .n = 96, .ctas = 2});
  check({.a = float8_e4m3, .b = float4_e2m1, .m = 256, .n = 64, .k = 128, .ctas = 2});
  check({.a = float16, .b = float16, .m = 256, .n = 128, .a_place = Product::kStored, .ctas = 2});
  check({.a = float6_e3m2,
         .b = float8_e4m3,
         .m = 256,
         .n = 64,
         .k = 128,
         .a_place = Product::kCopied,
         .ctas = 2});
}

// ---- copies

/// y = x [rows, columns] by way of shared memory, tcgen05.cp and tcgen05.ld.
std::string check_copy(DataType type, int64_t rows, int64_t columns, const std::string& memory = "") {
  SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(columns) + " " + memory);
  Machine machine(Arch::kSm100a);
  DeviceTensor x = machine.random(type, {rows, columns}), y = machine.output(type, {rows, columns});
  auto kernel = [=](Ptr<> x_ptr, Ptr<> y_ptr) {
    grid(1);
    auto tile = shared_tensor(type, {rows, columns});
    auto t = tcgen05::alloc(type, {rows, columns});
    if (!memory.empty()) annotate_layout(t, Layout::parse(memory));
    auto done = mbarrier::alloc(1);
    store_shared(tile, load_global(global_view(x_ptr, type, {rows, columns}), {0, 0}, {rows, columns}));
    sync();
    if (auto warp = single_warp()) {
      tcgen05::copy(tile, t);
      tcgen05::commit(done);
    }
    mbarrier::wait(done, 0);
    store_global(global_view(y_ptr, type, {rows, columns}), tcgen05::load(t), {0, 0});
    sync();
    tcgen05::dealloc(t);
  };
  machine.run(kernel, x, y);
  const std::vector<double> in = x.to_host().to_doubles();
  expect_elements(y, [&](int64_t i, int64_t j) { return in[i * columns + j]; });
  using Traced = LambdaKernel<decltype(kernel), Arch::kSm100a>;
  return emit_ptx(*Kernel<Traced>(Traced(kernel)).trace(uint64_t{0}, uint64_t{0}));
}

TEST(Tcgen05Copy, EveryShape) {
  EXPECT_THAT(check_copy(float32, 128, 32), HasSubstr("tcgen05.cp.cta_group::1.128x256b "));
  EXPECT_THAT(check_copy(float16, 128, 8), HasSubstr("tcgen05.cp.cta_group::1.128x128b "));
  EXPECT_THAT(check_copy(float32, 64, 16, "[64: 64l1, 16: 16c1; rep 2l64; bits 32]"),
              HasSubstr(".64x128b.warpx2::02_13 "));
  EXPECT_THAT(check_copy(float32, 64, 16, "[64: 2l64 32l1, 16: 16c1; rep 2l32; bits 32]"),
              HasSubstr(".64x128b.warpx2::01_23 "));
  EXPECT_THAT(check_copy(float32, 32, 16, "[32: 32l1, 16: 16c1; rep 4l32; bits 32]"),
              HasSubstr(".32x128b.warpx4 "));
  // Two halves of the columns above one another take the lanes of one row each.
  EXPECT_THAT(check_copy(float32, 64, 16), HasSubstr(".128x256b "));
  check_copy(uint8, 128, 64);
  check_copy(int32, 128, 24);
}

TEST(Tcgen05Copy, TheLastLaneOfEveryQuarter) {
  Machine machine(Arch::kSm100a);
  DeviceTensor x = machine.random(int32, {128, 8}), rows = machine.random(int32, {4, 8}),
               y = machine.output(int32, {128, 8});
  machine.run(
      [](Ptr<int32> x_ptr, Ptr<int32> rows_ptr, Ptr<int32> y_ptr) {
        grid(1);
        auto tile = shared_tensor(int32, {4, 8});
        auto t = tcgen05::alloc(int32, {128, 8});
        auto done = mbarrier::alloc(1);
        tcgen05::store(t, load_global(global_view(x_ptr, {128, 8}), {0, 0}, {128, 8}));
        tcgen05::wait_store();
        store_shared(tile, load_global(global_view(rows_ptr, {4, 8}), {0, 0}, {4, 8}));
        sync();
        if (auto warp = single_warp()) {
          tcgen05::copy(tile, t.reshape({4, 32, 8}).slice({0, 31, 0}, {4, 1, 8}).reshape({4, 8}));
          tcgen05::commit(done);
        }
        mbarrier::wait(done, 0);
        store_global(global_view(y_ptr, {128, 8}), tcgen05::load(t), {0, 0});
        sync();
        tcgen05::dealloc(t);
      },
      x, rows, y);
  const std::vector<double> in = x.to_host().to_doubles(), last = rows.to_host().to_doubles();
  expect_elements(y,
                  [&](int64_t i, int64_t j) { return i % 32 == 31 ? last[i / 32 * 8 + j] : in[i * 8 + j]; });
}

TEST(Tcgen05Shift, MovesLanesDownByOne) {
  Machine machine(Arch::kSm100a);
  DeviceTensor x = machine.random(float32, {128, 16}), y = machine.output(float32, {128, 16});
  machine.run(
      [](Ptr<float32> x_ptr, Ptr<float32> y_ptr) {
        grid(1);
        auto t = tcgen05::alloc(float32, {128, 16});
        auto done = mbarrier::alloc(1);
        tcgen05::store(t, load_global(global_view(x_ptr, {128, 16}), {0, 0}, {128, 16}));
        tcgen05::wait_store();
        sync();
        if (auto warp = single_warp()) {
          tcgen05::shift(t);
          tcgen05::commit(done);
        }
        mbarrier::wait(done, 0);
        store_global(global_view(y_ptr, {128, 16}), tcgen05::load(t), {0, 0});
        sync();
        tcgen05::dealloc(t);
      },
      x, y);
  const std::vector<double> in = x.to_host().to_doubles();
  expect_elements(y, [&](int64_t i, int64_t j) { return in[(i % 32 == 31 ? i : i + 1) * 16 + j]; });
}

/// Each warp stores and loads its own quarter of the lanes, in a role of its own and in another order.
TEST(Tcgen05Transfer, ByWarpsAlone) {
  for (DataType type : {DataType(float32), DataType(float16)}) {
    Machine machine(Arch::kSm100a);
    DeviceTensor x = machine.random(type, {128, 24}), y = machine.output(type, {128, 24});
    machine.run(
        [type](Ptr<> x_ptr, Ptr<> y_ptr) {
          grid(1);
          warps(8);
          auto g_x = global_view(x_ptr, type, {128, 24}), g_y = global_view(y_ptr, type, {128, 24});
          auto t = tcgen05::alloc(type, {128, 24});
          sync();
          for (int i : {6, 4, 7, 5})  // warps 4 to 7 reach the same lanes as 0 to 3
            if (auto warp = single_warp(i)) {
              auto quarter = t.slice({32 * (i % 4), 0}, {32, 24});
              tcgen05::store(quarter, load_global(g_x, {32 * (i % 4), 0}, {32, 24}));
              if (i % 2) store_global(g_y, tcgen05::load(quarter), {32 * (i % 4), 0});
            }
          sync();
          for (int i : {0, 2})
            if (auto warp = single_warp(i))
              store_global(g_y, tcgen05::load(t.slice({32 * i, 0}, {32, 24})), {32 * i, 0});
          sync();
          tcgen05::dealloc(t);
        },
        x, y);
    const std::vector<double> in = x.to_host().to_doubles();
    expect_elements(y, [&](int64_t i, int64_t j) { return in[i * 24 + j]; });
  }
}

TEST(Tcgen05Transfer, WarpsReachNoOtherLanes) {
  Machine machine(Arch::kSm100a);
  const auto said = [&](int warp, int lane, int lanes) {
    return error_of<CompileError>([&] {
      machine.launch(
          [=](Ptr<float32> y_ptr) {
            grid(1);
            warps(4);
            auto t = tcgen05::alloc(float32, {128, 32});
            sync();
            if (auto role = single_warp(warp))
              store_global(global_view(y_ptr, {lanes, 32}), tcgen05::load(t.slice({lane, 0}, {lanes, 32})),
                           {0, 0});
            sync();
            tcgen05::dealloc(t);
          },
          machine.output(float32, {128, 32}));
    });
  };
  EXPECT_THAT(
      said(1, 64, 32),
      HasSubstr("warp 1 of the CTA reaches lanes 32 ... 63 of tensor memory, the tensor begins at lane 64"));
  EXPECT_THAT(said(0, 0, 128),
              HasSubstr("needs whole warp groups (128 threads, from a multiple of 128), it runs in warp 0"));
}

// ---- transfers

/// y = x through tensor memory, in registers as a shape of the instruction has them.
std::string check_transfer(DataType type, layout::TensorMemoryShape shape, int64_t columns, bool is_packed) {
  const int per_register = 32 / type.bits();
  const Layout registers = layout::tensor_memory_registers(shape, 4, columns, per_register);
  SCOPED_TRACE(registers.to_string());
  Machine machine(Arch::kSm100a);
  DeviceTensor x = machine.random(type, {128, columns}), y = machine.output(type, {128, columns});
  auto kernel = [=](Ptr<> x_ptr, Ptr<> y_ptr) {
    grid(1);
    auto t = tcgen05::alloc(type, {128, columns});
    // One 16-bit element in every column, as accumulators have them, or two.
    if (!is_packed)
      annotate_layout(t, layout::accumulator(layout::AccumulatorLayout::kD, columns, type.bits()));
    auto in = load_global(global_view(x_ptr, type, {128, columns}), {0, 0}, {128, columns});
    annotate_layout(in, registers);
    tcgen05::store(t, in);
    sync();
    auto out = tcgen05::load(t);
    annotate_layout(out, registers);
    store_global(global_view(y_ptr, type, {128, columns}), out, {0, 0});
    sync();
    tcgen05::dealloc(t);
  };
  machine.run(kernel, x, y);
  const std::vector<double> in = x.to_host().to_doubles();
  expect_elements(y, [&](int64_t i, int64_t j) { return in[i * columns + j]; });
  using Traced = LambdaKernel<decltype(kernel), Arch::kSm100a>;
  return emit_ptx(*Kernel<Traced>(Traced(kernel)).trace(uint64_t{0}, uint64_t{0}));
}

TEST(Tcgen05Transfer, EveryShapeAndCount) {
  using enum layout::TensorMemoryShape;
  for (auto shape : {k32x32b, k16x64b, k16x128b, k16x256b, k16x32bx2}) {
    const std::string name(layout::tensor_memory_shape_name(shape));
    for (int64_t columns : {8, 16, 24, 64, 128}) {
      const std::string ptx = check_transfer(float32, shape, columns, true);
      EXPECT_THAT(ptx, HasSubstr("tcgen05.ld.sync.aligned." + name + ".x"));
      EXPECT_THAT(ptx, HasSubstr("tcgen05.st.sync.aligned." + name + ".x"));
    }
    for (int64_t columns : {16, 64}) {
      check_transfer(float16, shape, columns, true);
      const std::string ptx = check_transfer(bfloat16, shape, columns, false);
      EXPECT_THAT(ptx, HasSubstr(".pack::16b"));
      EXPECT_THAT(ptx, HasSubstr(".unpack::16b"));
    }
  }
}

}  // namespace
}  // namespace imbrex::testing
