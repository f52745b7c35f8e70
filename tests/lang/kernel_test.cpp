// SPDX-License-Identifier: Apache-2.0
// Whole kernels: names, parameters, and the IR of the library's kernels as golden files. To accept a change,
// run with IMBREX_BLESS=1 and review the difference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>

#include "../skip.h"
#include "imbrex/kernels/blackwell_matmul/matmul_v0.h"
#include "imbrex/kernels/layer_norm.h"
#include "imbrex/kernels/softmax.h"
#include "imbrex/kernels/vector_add.h"
#include "layout/layout.h"
#include "snippet.h"
#include "specialised.h"

namespace imbrex {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::Pointer;

void expect_golden(const std::string& name, const std::unique_ptr<ir::Function>& traced) {
#if !defined(__GNUC__) || defined(__clang__)
  IMBREX_SKIP(gcc);
#endif
  ir::Function& function = *traced;
  passes::promote_constant_variables(function);
  ir::verify(function);
  // The path of the source depends on where and how the test was compiled: keep the file's name.
  std::string text = ir::print(function);
  const size_t from = text.find("from \"") + 6;
  text.erase(from, text.rfind('/', text.find('"', from)) + 1 - from);
  const std::string path = std::string(IMBREX_SOURCE_DIR "/tests/lang/golden/") + name + ".ir";
  if (std::getenv("IMBREX_BLESS")) std::ofstream(path) << text;
  std::ifstream in(path);
  std::stringstream expected;
  expected << in.rdbuf();
  EXPECT_EQ(text, expected.str()) << "differs from " << path;
}

TEST(Golden, BlackwellMatmulV0) {
  expect_golden("blackwell_matmul_v0", lang::trace(kernels::BlackwellMatmulV0{}, {512, 256}, "sm_100a"));
}
TEST(Golden, VectorAdd) { expect_golden("vector_add", lang::trace(kernels::VectorAdd{})); }
TEST(Golden, Softmax) { expect_golden("softmax", lang::trace(kernels::Softmax{}, {1000})); }
TEST(Golden, LayerNorm) { expect_golden("layer_norm", lang::trace(kernels::LayerNorm{}, {1000})); }

TEST(Golden, Specialised) { expect_golden("specialised", lang::trace(testing::Specialised{}, {1000, 512})); }

/// Every op of the table that a kernel can contain.
struct EveryOp {
  void operator()(Int32 m, Ptr<float16> p, Ptr<int32> c) const {
    grid(m);
    cluster(2);
    auto g = global_view(p, {m, 64});
    auto s = shared_tensor(float16, {2, 128, 64});
    auto t = tcgen05::alloc(float32, {128, 128});
    auto barriers = mbarrier::alloc({1});
    tcgen05::relinquish_alloc_permit();
    sync();
    Int32 x = block_idx.x + grid_dim.x * cluster_rank();
    auto [q, r] = fast_divmod(x, m);
    assume(m > 0);
    for (Loop loop : forever()) {
      x -= 1;
      loop.break_if(x == 0);
    }
    for (Int32 i : range(m)) x += i;
    if (auto arm = when(x != 0)) x = min(x, q) + max(x, r) + cdiv(x, 2);
    x = ((x << 1) >> 2) % 3 + ((x & 1) | (x ^ 3)) / 2 + ~x;
    check(x <= 3 && !(x < 2 || x >= 7));
    Float32 y = select(x > 1, abs(-x), 2).to(float32);
    y = exp(y) + exp2(y) + log(y) + sqrt(y) + rsqrt(y) + tanh(y) + sin(y) + cos(y) + round(y) + floor(y) +
        ceil(y) + fma(y, y, y);
    printf("%f\n", y);
    copy_async(g, s[0], {x, 0});
    copy_async_commit_group();
    copy_async_wait_group(0);
    copy_async_wait_all();
    fence::proxy_async();
    if (auto thread = single_thread()) {
      mbarrier::arrive(barriers[0]);
      mbarrier::expect_tx(barriers[0], 8);
      mbarrier::arrive_and_expect_tx(barriers[0], 8);
      mbarrier::wait(barriers[0], 0);
    }
    if (auto warp = single_warp()) {
      tcgen05::mma(s[0], s[1].transpose(), t, {.enable_input_d = true});
      tcgen05::commit(barriers[0]);
      tma::global_to_shared(g, s[0], {x, 0}, barriers[0]);
      tma::shared_to_global(s[0], g, {x, 0});
      tma::commit_group();
      auto response = shared_tensor(int32, clc::kResponseShape);
      clc::try_cancel(response, barriers[0]);
      mbarrier::arrive(remote_barrier(barriers[0], 1));
      x += clc::query(response).x;
      tma::wait_group(0);
    }
    cluster_sync();
    tcgen05::fence_before_thread_sync();
    tcgen05::fence_after_thread_sync();
    auto acc = tcgen05::load(t);
    tcgen05::wait_load();
    tcgen05::store(t, mma(load_shared(s[0]), load_shared(s[1].transpose()), acc) * y);
    tcgen05::wait_store();
    tcgen05::dealloc(t);
    RegisterTensor tile = load_global(g, {x, 0}, {128, 64});
    annotate_layout(tile, layout::local({1, 64}) * layout::spatial({128, 1}));
    tile += register_tensor(float16, {128, 64}, [](auto i, auto j) { return i + j; });
    tile = relayout(tile.reshape({64, 128}).transpose() + full(float16, {128, 64}, 1));
    tile -= sum(tile, {.axis = 1, .keep = true});
    auto counts = global_view(c, {128});
    x += counts[x] + any(tile > 0).to(int32);
    auto rows = load_global(counts, {0}, {128});
    scatter(g, gather(g, {rows.reshape({128, 1}), 0}, {128, 64}), {rows.reshape({128, 1}), 0});
    atomic::add(counts, 1, {rows});
    semaphore::wait(counts[0], atomic::exch(counts[1], 2));
    semaphore::release(counts[0], 0);
    store_shared(s[0].slice({0, 0}, {128, 64}), tile);
    store_global(g, load_shared(s[0]), {x, 0});
    print_tensor(tile);
  }
};

/// The ops that only Hopper has, and those of launches that neither of the others uses.
struct EveryHopperOp {
  void operator()(Ptr<float16> p) const {
    grid(1);
    warps(8);
    griddepcontrol::wait();
    auto s = shared_tensor(float16, {128, 64});
    tma::global_to_shared(global_view(p, {128, 64}), s, {0, 0}, mbarrier::alloc(1));
    if (auto group = warp_group(0, 4)) {
      setmaxnreg(240);
      auto d = wgmma::accumulator(float32, {64, 128});
      wgmma::fence();
      wgmma::mma(s.slice({0, 0}, {64, 64}), s.transpose(), d, {.scale_d = false});
      wgmma::commit_group();
      wgmma::wait_group(0);
    }
    griddepcontrol::launch_dependents();
  }
};

/// The ops of block-scaled products.
struct EveryScaledOp {
  void operator()(Int32 m) const {
    grid(m);
    auto s = shared_tensor(float8_e4m3, {128, 128});
    auto s_scale = shared_tensor(float8_e8m0, {1, 1, 2, 256});
    auto d = tcgen05::alloc(float32, {128, 128});
    auto scale = tcgen05::alloc(float8_e8m0, {128, 4});
    if (auto warp = single_warp()) {
      tcgen05::copy(tcgen05::scale_factor_matrix(s_scale), scale);
      tcgen05::scaled_mma(s, s.transpose(), d, scale, scale, {.enable_input_d = false});
      tcgen05::shift(d);
    }
  }
};

/// Products with block scales on tensor cores that take registers.
struct EveryGraphicsOp {
  void operator()(Ptr<float32> p) const {
    grid(1);
    warps(4);
    auto a = zeros(float8_e4m3, {64, 64});
    auto scale = full(float8_e8m0, {64, 2}, 1);
    store_global(global_view(p, {64, 64}),
                 mma_scaled(a, scale, a.transpose(), scale.transpose(), zeros(float32, {64, 64})), {0, 0});
  }
};

/// Rows in order, products by threads, places that are data, and what ends.
struct EveryRowOp {
  void operator()(Int32 m, Ptr<uint64> table, Ptr<int32> p) const {
    grid(m);
    return_if(block_idx.x > 7);
    auto g = global_view(pointer_at<float32>(global_view(table, {4})[0]), {64, 64});
    auto rows = load_global(global_view(p, {64}), {0}, {64}).reshape({64, 1});
    auto s = shared_tensor(float32, {64, 64});
    copy_async_gather(g, s, {rows, 0});
    auto tile = view(view(sort(cumsum(load_shared(s))), int4), float32);
    free_shared(s);
    auto scores = tcgen05::alloc(float32, {128, 64});
    tcgen05::store(tcgen05::view(scores, float16, {128, 128}), zeros(float16, {128, 128}));
    tcgen05::dealloc(scores);
    store_global(g, dot(tile, tile) + thread_index(), {0, 0});
  }
};

TEST(EveryOp, HasAFunctionOfTheLanguage) {
  std::set<ir::Opcode> seen;
  for (const auto& function :
       {lang::trace(EveryOp{}, {}, "sm_100a"), lang::trace(EveryHopperOp{}, {}, "sm_90a"),
        lang::trace(EveryScaledOp{}, {}, "sm_100a"), lang::trace(EveryGraphicsOp{}, {}, "sm_120a"),
        lang::trace(EveryRowOp{}, {}, "sm_100a")}) {
    ir::verify(*function);
    ir::walk(function->body, [&](const ir::Op& op) { seen.insert(op.code); });
  }
  for (int code = 0; code < static_cast<int>(ir::Opcode::kCount); ++code) {
    const auto opcode = static_cast<ir::Opcode>(code);
    if (opcode == ir::Opcode::kTensorMap) continue;  // a pass makes it, on the host
    EXPECT_TRUE(seen.contains(opcode)) << ir::info(opcode).mnemonic;
  }
}

TEST(KernelName, IsSnakeCase) {
  EXPECT_EQ(lang::kernel_name("imbrex::kernels::MatmulV0"), "matmul_v0");
  EXPECT_EQ(lang::kernel_name("VectorAdd"), "vector_add");
  EXPECT_EQ(lang::kernel_name("a::Reduce<b::Max, 128>"), "reduce_max_128");
  EXPECT_EQ(lang::kernel_name("main()::<lambda(int)>"), "lambda_int");
  EXPECT_EQ(kernel_entry<kernels::BlackwellMatmulV0>().type_name, "imbrex::kernels::BlackwellMatmulV0");
}

enum class Mode { kFast, kExact };

struct Parameters {
  std::string* seen;
  void operator()(Int32 m, int n, bool flag, Float32 scale, Mode mode, double x, DataType type, Ptr<int8> p,
                  UInt64) const {
    grid(1);
    (void)p;
    *seen = std::to_string(n) + (flag ? " true " : " false ") + (mode == Mode::kExact ? "exact " : "fast ") +
            std::to_string(x) + " " + std::string(type.name());
    check(m.to(float32) < scale);
  }
};

TEST(Signature, KindsAndConstants) {
  using Kind = ParameterKind;
  const auto parameters = KernelSignature<Parameters>::parameters();
  std::vector<Kind> kinds;
  for (const ParameterInfo& p : parameters) kinds.push_back(p.kind);
  EXPECT_THAT(kinds, ::testing::ElementsAre(Kind::kScalar, Kind::kConstant, Kind::kConstant, Kind::kScalar,
                                            Kind::kConstant, Kind::kConstant, Kind::kConstant, Kind::kPointer,
                                            Kind::kScalar));
  EXPECT_EQ(parameters[3].dtype, float32);
  EXPECT_EQ(parameters[7].dtype, int8);

  std::string seen;
  auto function = lang::trace(Parameters{&seen}, {42, constant_bits(true), constant_bits(Mode::kExact),
                                                  constant_bits(2.5), constant_bits(bfloat16)});
  EXPECT_EQ(seen, "42 true exact 2.500000 bfloat16");
  ASSERT_EQ(function->params.size(), 4u);
  EXPECT_EQ(function->params[0]->name, "m");
  EXPECT_EQ(function->params[1]->name, "scale");
  EXPECT_EQ(function->params[2]->name, "p");
  EXPECT_EQ(function->params[3]->name, "arg3");  // it has no name
  EXPECT_TRUE(std::string_view(function->where.file).ends_with("kernel_test.cpp"));
}

struct Factor {
  using Parameters = ParameterList<Float32>;
  Float32 value;
};
struct Nothing {
  using Parameters = ParameterList<>;
};
struct Combined {
  using Parameters = ParameterList<Factor, int, Nothing, Ptr<float16>>;
  Factor factor;
  int number;
  Nothing nothing;
  Ptr<float16> pointer;
};
struct Structs {
  int64_t* seen;
  void operator()(Nothing, Combined combined, Int32 n, bool flag, Nothing) const {
    grid(n);
    *seen = combined.number * 10 + flag;
    check(combined.factor.value > 0.0f);
  }
};

TEST(Signature, StructsAreTheirMembers) {
  using Kind = ParameterKind;
  const auto parameters = KernelSignature<Structs>::parameters();
  std::vector<Kind> kinds;
  for (const ParameterInfo& p : parameters) kinds.push_back(p.kind);
  EXPECT_THAT(kinds, ::testing::ElementsAre(Kind::kScalar, Kind::kConstant, Kind::kPointer, Kind::kScalar,
                                            Kind::kConstant));
  int64_t seen = 0;
  auto function = lang::trace(Structs{&seen}, {7, 1});
  EXPECT_EQ(seen, 71);
  ASSERT_EQ(function->params.size(), 3u);
  EXPECT_EQ(function->params[0]->name, "combined");
  EXPECT_EQ(function->params[1]->name, "combined_1");
  EXPECT_EQ(function->params[2]->name, "n");
}

struct Ring {
  explicit Ring(int stages, SourceLocation where = SourceLocation::current())
      : full(mbarrier::alloc(std::vector<int64_t>(static_cast<size_t>(stages), 1), "full", where)) {}
  BarrierArray full;
};
struct Members {
  BarrierArray plain;
  Ring ring;
  Members() : plain(mbarrier::alloc({1, 1})), ring(2) {}
};
struct ManyBarriers {
  void operator()(Int32 n) const {
    grid(n);
    [[maybe_unused]] auto done = mbarrier::alloc(1);
    Ring keys(2), values(2);
    Ring long_one(3);
    Ring listed{2};
    [[maybe_unused]] auto copied = Ring(2);
    std::optional<Ring> maybe;
    maybe.emplace(2, SourceLocation::current());
    for (int i = 0; i < 2; ++i) Ring looped(1), other(1);
    Members members;
    static_cast<void>(Ring(2));
  }
};

TEST(Names, OfBarriersAreTheVariablesThatHoldThem) {
  const auto function = lang::trace(ManyBarriers{});
  std::vector<std::string> names;
  ir::walk(function->body, [&](const ir::Op& op) {
    if (op.code == ir::Opcode::kMbarrierAlloc) names.push_back(op.result()->name);
  });
  EXPECT_THAT(
      names, ::testing::ElementsAre("done", "keys.full", "values.full", "long_one.full", "listed.full",
                                    "copied.full", "maybe.full", "looped.full", "other.full", "looped.full_1",
                                    "other.full_1", "plain", "ring.full", "full"));
}

TEST(Signature, TheNumberOfConstantsIsChecked) {
  try {
    lang::trace(kernels::BlackwellMatmulV0{}, {512});
    FAIL();
  } catch (const CompileError& error) {
    EXPECT_THAT(
        error.what(),
        HasSubstr(
            "imbrex::kernels::BlackwellMatmulV0: 1 compile-time arguments given, its operator() has 2"));
  }
}

TEST(Launch, Shape) {
  struct Kernel {
    void operator()(Int32 n) const {
      grid(n, 2);
      warps(8);
      cluster(2);
      max_registers(168);
    }
  };
  auto function = lang::trace(Kernel{});
  EXPECT_EQ(function->warps, 8);
  EXPECT_EQ(function->cluster, (std::vector<int64_t>{2, 1, 1}));
  EXPECT_EQ(function->max_registers, 168);
  EXPECT_EQ(function->body.ops.back()->operands.size(), 2u);  // grid extents of 1 at the end are left out
}

TEST(LaunchErrors, All) {
  struct NoGrid {
    void operator()(Int32) const { sync(); }
  };
  try {
    lang::trace(NoGrid{});
    FAIL();
  } catch (const CompileError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the kernel does not say its grid"));
  }
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) { grid(1); }),
              HasSubstr("grid: the grid is given twice"));
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) { warps(33); }),
              HasSubstr("warps: 33 warps; a CTA has 1 to 32"));
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) { cluster(4, 4, 4); }),
              HasSubstr("cluster: a cluster of 4 x 4 x 4 CTAs; it has 1 to 16"));
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) { max_registers(256); }),
              HasSubstr("max_registers: 256 registers per thread"));
}

TEST(Trace, NestsAndSurvivesErrors) {
  auto function = testing::trace_snippet([](Int32& m, Int32&, Pointer&) {
    EXPECT_NE(error_of([](Int32&, Int32&, Pointer&) { warps(0); }), "");
    EXPECT_EQ(lang::trace(kernels::VectorAdd{})->name, "vector_add");
    check(m == 1);  // this trace goes on
  });
  EXPECT_EQ(function->body.ops.back()->code, ir::Opcode::kCheck);
}

// The bar of the design: the largest kernel's text in 10 ms, of which tracing must be a small part.
TEST(Trace, TakesMicroseconds) {
#ifndef NDEBUG
  IMBREX_SKIP(optimisation);
#endif
  lang::trace(kernels::BlackwellMatmulV0{}, {512, 256}, "sm_100a");  // reads the source file
  double best = 1;
  for (int i = 0; i < 20; ++i) {
    const std::clock_t start = std::clock();  // of this process alone
    lang::trace(kernels::BlackwellMatmulV0{}, {512, 256}, "sm_100a");
    best = std::min(best, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  EXPECT_LT(best, 1e-3);
}

}  // namespace
}  // namespace imbrex
