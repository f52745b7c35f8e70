// SPDX-License-Identifier: Apache-2.0
// The steps of imbrex/kernels/parts/epilogue.h on every ladder: against float64, with odd sizes, all checkers
// on; and kernels without steps, whose code is that of kernels without the machinery.
#include "imbrex/kernels/parts/epilogue.h"

#include <gmock/gmock.h>

#include <functional>

#include "../full.h"
#include "../ptxas.h"
#include "activations.h"
#include "codegen/codegen.h"
#include "imbrex/kernels/ampere_matmul/matmul_v4.h"
#include "imbrex/kernels/blackwell_matmul/matmul_v6.h"
#include "imbrex/kernels/hopper_matmul/matmul_h7.h"
#include "imbrex/kernels/matmul/ampere_fused_a.h"
#include "imbrex/kernels/matmul/blackwell_fused_a.h"
#include "imbrex/kernels/matmul/hopper_fused_a.h"
#include "imbrex/kernels/matmul/matmul_h8.h"
#include "imbrex/kernels/matmul/matmul_h9.h"
#include "imbrex/kernels/matmul/matmul_skinny.h"
#include "imbrex/kernels/matmul/matmul_stream_k.h"
#include "imbrex/kernels/parts/apply_steps.h"
#include "imbrex/runtime/compare.h"
#include "ir/ir.h"
#include "kit.h"
#include "matmul/matmul_choice.h"
#include "passes/pipeline.h"

namespace imbrex::testing {
namespace {

using namespace kernels;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// A product, its operands and the float64 sums.
struct Problem {
  Device device;
  int64_t m, n, k;
  DataType dtype;
  DeviceTensor a, b;
  std::vector<double> sums;

  Problem(const char* target, DataType dtype, int64_t m, int64_t n, int64_t k)
      : device(Device::virtual_gpu({.target = target, .seed = 5, .checks = vgpu::CheckSet::all()})),
        m(m),
        n(n),
        k(k),
        dtype(dtype),
        a(random(dtype, {m, k})),
        b(random(dtype, {n, k})),
        sums(static_cast<size_t>(m * n)) {
    const std::vector<double> x = a.to_host().to_doubles(), y = b.to_host().to_doubles();
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j)
        for (int64_t l = 0; l < k; ++l) sums[i * n + j] += x[i * k + l] * y[j * k + l];
  }
  DeviceTensor random(DataType type, std::vector<int64_t> shape) {
    return DeviceTensor::random(device, type, std::move(shape), ++streams);
  }
  DeviceTensor output(DataType type) const {
    DeviceTensor c = DeviceTensor::empty(device, type, {m, n});
    c.poison();
    return c;
  }
  /// Launches with the operands, c and what the steps take; Blackwell's kernels have one type.
  template <class K, class... Args>
  void run(const K& kernel, const DeviceTensor& c, const Args&... steps) const {
    Kernel<K> ready(kernel, device);
    LaunchReport report;
    if constexpr (std::string_view(K::target) == "sm_100a")
      report = ready(m, n, k, a, b, c, steps...);
    else
      report = ready(product_sizes(kernel, m, n, k), dtype, a, b, c, steps...);
    EXPECT_TRUE(report.clean()) << report.virtual_report.format();
  }
  /// c[i, j] = f(sum, i, j).
  void expect(const DeviceTensor& c, const std::function<double(double, int64_t, int64_t)>& f) const {
    std::vector<double> expected(sums.size());
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) expected[i * n + j] = f(sums[i * n + j], i, j);
    const Comparison comparison = compare(c.to_host(), expected, default_tolerance(c.dtype()));
    EXPECT_TRUE(comparison.passed) << comparison.format();
  }

  uint64_t streams = 0;
};

constexpr Activation kActivations[] = {Activation::kNone,    Activation::kRelu, Activation::kGelu,
                                       Activation::kGeluErf, Activation::kSilu, Activation::kGeluFast};

/// Every step at once, of kernel template K, whose default tiles are those of `tiles`.
#define IMBREX_ALL_STEPS(K) K<Scale, ScaleBy, ColumnBias, RowBias, Activate, Residual, Convert>
template <class K>
void expect_all_steps(const K& kernel, DataType dtype, int64_t m, int64_t n, int64_t k,
                      std::initializer_list<DataType> results) {
  Problem p(K::target, dtype, m, n, k);
  const DeviceTensor factor = p.random(float32, {1}), columns = p.random(dtype, {n}),
                     rows = p.random(float32, {m});
  const std::vector<double> column = columns.to_host().to_doubles(), row = rows.to_host().to_doubles();
  const double f = factor.to_host().get(0);
  size_t next = 0;
  for (DataType result : results) {
    const Activation function = kActivations[(next++ + static_cast<size_t>(m)) % std::size(kActivations)];
    const DeviceTensor before = p.random(result, {m, n}), c = p.output(result);
    const std::vector<double> old = before.to_host().to_doubles();
    p.run(kernel, c, 0.25f, factor, dtype, columns, float32, rows, function, -1.5f, before, result);
    p.expect(c, [&](double x, int64_t i, int64_t j) {
      return activation(function, 0.25 * x * f + column[j] + row[i]) - 1.5 * old[i * n + j];
    });
  }
}

TEST(Epilogue, OfHopper) {
  expect_all_steps(IMBREX_ALL_STEPS(HopperMatmulH7){}, bfloat16, 200, 328, 72, {bfloat16, float16});
  expect_all_steps(IMBREX_ALL_STEPS(HopperMatmulH7){.block_n = 64, .store_n = 32}, float16, 130, 72, 40,
                   {float32});
  // A pair of CTAs has six tiles, of five blocks of k: its consumers take turns, the ring does not come
  // round.
  expect_all_steps(IMBREX_ALL_STEPS(HopperMatmulH9){.ctas = 2}, bfloat16, 200, 584, 264, {bfloat16, float16});
  expect_all_steps(IMBREX_ALL_STEPS(HopperMatmulH9){.block_n = 176, .stages = 4, .store_n = 32, .ctas = 2},
                   float16, 300, 328, 256, {float32, float16});
  expect_all_steps(IMBREX_ALL_STEPS(HopperMatmulH8){.stages = 4, .split_k = 2}, bfloat16, 200, 331, 200,
                   {bfloat16, float32});
  // All columns are in one cluster's tile, and in two CTAs'.
  expect_all_steps(IMBREX_ALL_STEPS(HopperMatmulH8){.block_n = 64, .stages = 4, .cluster_n = 2}, bfloat16,
                   130, 104, 72, {bfloat16, float32});
}

TEST(Epilogue, OfSkinnyHopper) {
  expect_all_steps(IMBREX_ALL_STEPS(HopperMatmulSkinny){}, bfloat16, 13, 131, 72, {bfloat16, float32});
}

TEST(Epilogue, OfAmpere) {
  expect_all_steps(IMBREX_ALL_STEPS(AmpereMatmulV4){}, float16, 131, 264, 72, {float16});
  expect_all_steps(IMBREX_ALL_STEPS(AmpereMatmulV4){.block_m = 64, .block_n = 64, .warps_m = 2, .warps_n = 2},
                   bfloat16, 70, 65, 40, {bfloat16, float32});
}

TEST(Epilogue, OfBlackwell) {
  expect_all_steps(IMBREX_ALL_STEPS(BlackwellMatmulV6){}, float16, 262, 264, 72,
                   {float16, bfloat16, float32});
}

TEST(Epilogue, StepsInAnyOrderAndNumber) {
  Problem p("sm_90a", float16, 77, 136, 40);
  const DeviceTensor c = p.random(float16, {p.m, p.n});
  const std::vector<double> old = c.to_host().to_doubles();
  p.run(HopperMatmulH7<Silu, Residual>{}, c, 2.0f, c);  // in place
  p.expect(c, [&](double x, int64_t i, int64_t j) {
    return activation(Activation::kSilu, x) + 2 * old[i * p.n + j];
  });
}

TEST(Epilogue, OptionalSteps) {
  Problem p("sm_90a", bfloat16, 77, 33, 40);
  const DeviceTensor bias = p.random(bfloat16, {p.n});
  const std::vector<double> column = bias.to_host().to_doubles();
  using K = HopperMatmulH8<Optional<Scale>, Optional<ColumnBias>, Activate>;
  const DeviceTensor c = p.output(bfloat16);
  p.run(K{}, c, false, 2.0f, true, bfloat16, bias, Activation::kNone);
  p.expect(c, [&](double x, int64_t, int64_t j) { return x + column[j]; });
  p.run(K{}, c, true, 2.0f, false, bfloat16, c, Activation::kNone);
  p.expect(c, [&](double x, int64_t, int64_t) { return 2 * x; });
  p.run(K{}, c, false, 2.0f, false, bfloat16, c, Activation::kNone);
  p.expect(c, [&](double x, int64_t, int64_t) { return x; });
}

/// Rows reduced behind the product, after and before another step.
template <template <class...> class K>
void expect_rows(const K<Scale, ColumnBias, Softmax>& softmax, const K<RmsNorm, Convert>& norm,
                 DataType dtype, int64_t m, int64_t n, int64_t k) {
  Problem p(K<>::target, dtype, m, n, k);
  const DeviceTensor bias = p.random(dtype, {n}), c = p.output(dtype);
  const std::vector<double> column = bias.to_host().to_doubles();
  p.run(softmax, c, 0.5f, dtype, bias);
  const auto rows = [&](const auto& element) {
    std::vector<double> sums(static_cast<size_t>(m));
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) sums[i] += element(p.sums[i * n + j], j);
    return sums;
  };
  const auto exponential = [&](double x, int64_t j) { return std::exp(0.5 * x + column[j]); };
  const std::vector<double> sums = rows(exponential), squares = rows([](double x, int64_t) { return x * x; });
  p.expect(c, [&](double x, int64_t i, int64_t j) { return exponential(x, j) / sums[i]; });

  const DeviceTensor normed = p.output(float32);
  p.run(norm, normed, 0.125f, dtype, bias, float32);
  p.expect(normed, [&](double x, int64_t i, int64_t j) {
    return x / std::sqrt(squares[i] / static_cast<double>(n) + 0.125) * column[j];
  });
}

TEST(Epilogue, ReducesRowsOfHopper) {
  expect_rows<HopperMatmulH7>({}, {.store_n = 32}, bfloat16, 200, 248, 72);
  expect_rows<HopperMatmulH7>({}, {.store_n = 32}, float16, 130, 40, 40);  // most parts are beyond the row
  expect_rows<HopperMatmulH9>({.block_m = 64, .block_n = 256, .stages = 4, .ctas = 2},
                              {.block_n = 176, .stages = 4, .store_n = 32, .ctas = 2}, bfloat16, 856, 168,
                              200);
}

TEST(Epilogue, ReducesRowsOfAmpere) {
  expect_rows<AmpereMatmulV4>({}, {}, float16, 131, 256, 72);
  expect_rows<AmpereMatmulV4>({.block_n = 128, .warps_n = 2}, {.block_n = 128, .warps_n = 2}, bfloat16, 70,
                              65, 40);
}

TEST(Epilogue, ReducesRowsOfBlackwell) { expect_rows<BlackwellMatmulV6>({}, {}, float16, 262, 248, 72); }

/// Bytes of launches between the multiprocessors and memory, as the virtual GPU counts them.
struct Moved {
  int64_t written = 0, read = 0;
  void add(const LaunchReport& report) {
    const vgpu::Statistics& s = report.virtual_report.statistics;
    written += s.global_bytes_written + s.tma_bytes_stored;
    read += s.global_bytes_read + s.cp_async_bytes + s.tma_bytes_loaded;
  }
};

// The product is neither written nor read again.
TEST(Epilogue, SavesTheTrafficOfTheProduct) {
  constexpr int64_t m = 256, n = 256, k = 64, bytes = m * n * 2;
  Problem p("sm_90a", bfloat16, m, n, k);
  const DeviceTensor c = p.output(bfloat16), x = p.output(bfloat16);
  const auto check = [&]<class... Steps>(HopperMatmulH7<Steps...> kernel, const auto&... steps) {
    Moved fused, unfused;
    fused.add(Kernel(kernel, p.device)(m, n, k, bfloat16, p.a, p.b, c, steps...));
    unfused.add(Kernel(HopperMatmulH7<>{}, p.device)(m, n, k, bfloat16, p.a, p.b, x));
    ApplySteps<Steps...> apply{.block_m = 16, .block_n = 256};
    unfused.add(Kernel(apply, p.device)(m, n, bfloat16, x, c, steps...));
    EXPECT_EQ(unfused.written - fused.written, bytes);
    EXPECT_EQ(unfused.read - fused.read, bytes);
  };
  check(HopperMatmulH7<Scale, Gelu>{}, 0.125f);
  check(HopperMatmulH7<Scale, Softmax>{}, 0.125f);
  check(HopperMatmulH7<Residual>{}, 1.0f, p.random(bfloat16, {m, n}));
}

TEST(Epilogue, RowsMustFitTheTile) {
  const auto error = [&](const auto& kernel, int64_t n, const auto&... steps) {
    using K = std::decay_t<decltype(kernel)>;
    Problem p(K::target, float16, 16, n, 16);
    return error_of<CompileError>([&] { p.run(kernel, p.output(float16), steps...); });
  };
  // The kernel's line, what was asked, what is allowed and what to do.
  const auto says = [](const char* file, int64_t columns, int64_t tile) {
    return AllOf(
        HasSubstr(file), HasSubstr("finish.check(n_size, block_n);"),
        HasSubstr(
            "rows of " + std::to_string(columns) + " columns are reduced, tiles have " +
            std::to_string(tile) +
            ": take a tile as wide as the matrix, or make the steps from the "
            "one that reduces on a kernel of their own, ApplySteps (imbrex/kernels/parts/apply_steps.h)"));
  };
  EXPECT_THAT(error(AmpereMatmulV4<Softmax>{}, 264), says("ampere_matmul/matmul_v4.h:", 264, 256));
  EXPECT_THAT(error(HopperMatmulH7<Scale, Softmax>{}, 264, 2.0f),
              says("hopper_matmul/matmul_h7.h:", 264, 256));
  EXPECT_THAT(error(BlackwellMatmulV6<Softmax>{}, 264), says("blackwell_matmul/matmul_v6.h:", 264, 256));
}

/// Large and special values: what approximations make of them.
TEST(Epilogue, ActivationsOfExtremes) {
  const std::vector<double> xs{0,   -0.0, 1e-6, -1e-6, 3,   -3,   6,    -6,   20,
                               -20, 44,   -44,  90,    -90, 1000, -1e4, 3e38, -3e38};
  Machine machine;
  const auto n = static_cast<int64_t>(xs.size());
  const DeviceTensor x = machine.tensor(float32, xs), y = machine.output(float32, {n});
  for (Activation function : kActivations) {
    machine.run(
        [=](int n, Ptr<float32> x, Ptr<float32> y) {
          grid(1);
          warps(1);
          auto in = load_global(global_view(x, {1, n}), {0, 0}, {1, 32});
          auto out = Activate{function}(in, {1, n, float32, 0, 0});
          store_global(global_view(y, {1, n}), out, {0, 0});
        },
        n, x, y);
    if (function == Activation::kGeluFast) {
      const std::vector<float> in = values<float>(x), got = values<float>(y);
      for (size_t j = 0; j < in.size(); ++j)
        EXPECT_LE(std::abs(got[j] - activation(function, in[j])), 3e-4 * std::abs(in[j])) << in[j];
      continue;
    }
    expect_elements(
        y, [&](int64_t i) { return activation(function, values<float>(x)[i]); }, 1e-6, 1);
  }
}

/// A step that does nothing.
struct Pass {
  using Parameters = ParameterList<>;
  RegisterValue operator()(const RegisterBase& x, const OutputTile&) const {
    return RegisterValue(x.handle());
  }
};

/// The PTX of a launch with these arguments for the steps.
template <class K, class... Args>
std::string ptx_of(const K& kernel, int64_t m, int64_t n, int64_t k, const Args&... steps) {
  Kernel<K> ready(kernel);
  const DeviceTensor a = DeviceTensor::shape_only(float16, {m, k}),
                     b = DeviceTensor::shape_only(float16, {n, k}),
                     c = DeviceTensor::shape_only(float16, {m, n});
  std::shared_ptr<ir::Function> function;
  if constexpr (std::string_view(K::target) == "sm_100a")
    function = ready.trace(m, n, k, a, b, c, steps...);
  else
    function = ready.trace(product_sizes(kernel, m, n, k), float16, a, b, c, steps...);
  function->name = "kernel";
  passes::run_pipeline(*function, {});
  return codegen::generate(*function, {}).ptx;
}

/// The same of a kernel that changes A by scales and an activation.
template <class K>
std::string ptx_of_fused_a(const K& kernel) {
  const DeviceTensor any = DeviceTensor::shape_only(float16, {1});
  std::shared_ptr<ir::Function> function =
      Kernel<K>(kernel).trace(1000, 1160, 584, float16, float16, any, any, any, float16, any, float16, any);
  passes::run_pipeline(*function, {});
  return codegen::generate(*function, {}).ptx;
}

/// What ptxas says of the kernel: nothing, when all is well.
std::string complaints_of(const std::string& ptx, const std::string& target) {
  return ptxas_says(ptx, "--warn-on-spills -arch=" + target);
}

// On the GPU a kernel that spills is an error.
TEST(Epilogue, AssemblesWithoutSpills) {
  IMBREX_NEEDS_PTXAS();
  const DeviceTensor any = DeviceTensor::shape_only(float32, {1});
  const auto check = [&](const auto& kernel, int64_t n, const auto&... steps) {
    using K = std::decay_t<decltype(kernel)>;
    EXPECT_EQ(complaints_of(ptx_of(kernel, 1000, n, 584, steps...), K::target), "")
        << kernel_entry<K>().type_name << " n = " << n;
  };
  const auto all = [&](const auto& kernel, int64_t n, DataType result) {
    check(kernel, n, 0.25f, any, float16, any, float32, any, Activation::kGeluErf, -1.5f, any, result);
  };
  all(IMBREX_ALL_STEPS(HopperMatmulH7){}, 1160, bfloat16);
  check(AmpereMatmulV4<Scale, ColumnBias, Gelu>{}, 1160, 0.25f, float16, any);
  // Strides and batches; results that TMA stores, and others.
  const auto batch = [&](const auto& kernel, int64_t n, bool has_tma_rows) {
    const BatchArguments lies{
        4, {8, 73, 90000}, {8, 73, 90000}, {has_tma_rows ? 8 : 1, 1168, 900000}, has_tma_rows};
    check(kernel, n, lies, 0.25f, float16, any, Activation::kGeluErf, -1.5f, any, 4,
          MatrixStridesArguments{1, 1163, 900000}, bfloat16);
  };
  batch(HopperMatmulH7<Batch, Scale, ColumnBias, Activate, BatchResidual, Convert>{}, 1160, true);
  batch(
      HopperMatmulH8<Batch, Scale, ColumnBias, Activate, BatchResidual, Convert>{.block_n = 256, .stages = 4},
      1159, false);
  EXPECT_EQ(complaints_of(ptx_of_fused_a(HopperMatmulFusedA<RowScale, ColumnScale, Silu>{}), "sm_90a"), "");
  EXPECT_EQ(complaints_of(ptx_of_fused_a(AmpereMatmulFusedA<RowScale, ColumnScale, Silu>{}), "sm_80"), "");
  EXPECT_EQ(complaints_of(ptx_of_fused_a(BlackwellMatmulFusedA<RowScale, ColumnScale, Silu>{}), "sm_100a"),
            "");
  check(AmpereMatmulV4<Scale, Softmax>{.block_m = 64}, 256, 0.25f);
  check(HopperMatmulH7<Scale, Softmax>{}, 256, 0.25f);
  all(IMBREX_ALL_STEPS(HopperMatmulH9){}, 1160, bfloat16);
  // The most that matmul() asks of it.
  using Most = HopperMatmulH9<ScaleBy, ScaleBy, Scale, Optional<ColumnBias>, Optional<RowBias>, Residual,
                              Activate, Convert>;
  for (bool by_row : {false, true})
    for (const Most& tiles :
         {Most{.store_n = by_row ? 32 : 64}, Most{.block_n = 176, .stages = 4, .store_n = by_row ? 32 : 64}})
      check(tiles, 1160, any, any, 0.25f, !by_row, float16, any, by_row, float32, any, -1.5f, any,
            Activation::kGeluErf, by_row ? float32 : bfloat16);
  check(HopperMatmulH9<Scale, Softmax>{.block_m = 64, .block_n = 256, .stages = 4}, 256, 0.25f);
}

template <template <class...> class K>
using WithMost = K<Optional<ScaleBy>, Optional<ScaleBy>, Optional<Scale>, Optional<ColumnBias>,
                   Optional<RowBias>, Optional<Residual>, Activate, Convert>;

/// imbrex::matmul asks for these steps of any candidate that is not marked as too tight for them.
TEST(EpilogueAtLength, OfMatmulAssemblesForEveryCandidate) {
  IMBREX_AT_LENGTH();
  IMBREX_NEEDS_PTXAS();
  const DeviceTensor any = DeviceTensor::shape_only(float32, {1});
  const auto check = [&](auto kernel, const MatmulChoice& c, const auto&... workspace) {
    kernel.block_m = c.block_m;
    kernel.block_n = c.block_n;
    kernel.stages = c.stages;
    kernel.consumers = c.consumers;
    kernel.cluster_m = c.cluster_m;
    kernel.cluster_n = c.cluster_n;
    kernel.swap_ab = c.swap_ab;
    if constexpr (requires { kernel.split_k; }) {
      kernel.split_k = c.split_k;
      kernel.store_stages = c.store_stages;
      kernel.takes_turns = c.takes_turns;
    }
    for (int64_t n : {1160, 1161})
      EXPECT_EQ(complaints_of(
                    ptx_of(kernel, 1000, n, 584, workspace..., true, any, true, any, true, 0.25f, true,
                           float16, any, true, float32, any, true, -1.5f, any, Activation::kGeluErf, float32),
                    "sm_90a"),
                "")
          << c.text() << " n = " << n;
  };
  for (const MatmulChoice& c : matmul_candidates()) {
    if (c.is_tight) continue;
    if (c.method == MatmulChoice::Method::kGeneral) check(WithMost<HopperMatmulH8>(), c);
    if (c.method == MatmulChoice::Method::kStreamK)
      check(WithMost<HopperMatmulStreamK>(), c, any, DeviceTensor::shape_only(int32, {1}));
  }
}

TEST(Epilogue, OfNoStepsCostsNothing) {
  const auto check = [](const std::string& plain, const std::string& pass) {
    EXPECT_THAT(plain, Not(HasSubstr("ld.global")));
    EXPECT_THAT(plain, Not(HasSubstr("mul.f32")));
    EXPECT_TRUE(plain == pass) << "the PTX of kernels without steps, and with one that does nothing, differs";
  };
  check(ptx_of(HopperMatmulH7<>{}, 512, 512, 256), ptx_of(HopperMatmulH7<Pass>{}, 512, 512, 256));
  check(ptx_of(HopperMatmulH9<>{.block_n = 128}, 512, 512, 256),
        ptx_of(HopperMatmulH9<Pass>{.block_n = 128}, 512, 512, 256));
  check(ptx_of(HopperMatmulSkinny<>{}, 512, 512, 256), ptx_of(HopperMatmulSkinny<Pass>{}, 512, 512, 256));
  check(ptx_of(BlackwellMatmulV6<>{}, 512, 512, 256), ptx_of(BlackwellMatmulV6<Pass>{}, 512, 512, 256));
  check(ptx_of(AmpereMatmulV4<>{}, 512, 512, 256),
        ptx_of(AmpereMatmulV4<Pass>{.block_k = 64, .stages = 3}, 512, 512, 256));
}

// What is compiled depends on neither m nor n nor k, but for how rows of C begin.
TEST(Epilogue, OneKernelServesAllSizes) {
  const auto check = [](const auto& kernel, const auto&... workspace) {
    const std::string of_any = ptx_of(kernel, 1, 16, 1, workspace...);
    EXPECT_TRUE(of_any == ptx_of(kernel, 4096, 28672, 8192, workspace...));
    EXPECT_TRUE(of_any == ptx_of(kernel, 777, 16 * 257, 131 * 8, workspace...));
    EXPECT_FALSE(of_any == ptx_of(kernel, 777, 8, 131 * 8, workspace...));
  };
  const DeviceTensor any = DeviceTensor::shape_only(float32, {1});
  check(HopperMatmulH8<Scale>{.split_k = 2}, 0.5f);
  check(HopperMatmulSkinny<>{});
  check(HopperMatmulStreamK<>{}, any, DeviceTensor::shape_only(int32, {1}));
}

/// A changed while it is loaded: normalised rows with weights and an activation, and integers with a scale a
/// row.
template <template <class...> class K>
void expect_fused_loads(DataType dtype, int64_t m, int64_t n, int64_t k) {
  Problem p(K<>::target, dtype, m, n, k);
  const DeviceTensor scale = p.random(float32, {m}), weight = p.random(dtype, {k});
  const std::vector<double> y = p.b.to_host().to_doubles(), s = scale.to_host().to_doubles(),
                            w = weight.to_host().to_doubles();
  const auto check = [&](const auto& kernel, const DeviceTensor& a, const auto& change,
                         const auto&... steps) {
    Kernel ready(kernel, p.device);
    const DeviceTensor c = p.output(dtype);
    const LaunchReport report = ready(m, n, k, a.dtype(), dtype, a, p.b, c, steps...);
    EXPECT_TRUE(report.clean()) << report.virtual_report.format();
    const std::vector<double> x = a.to_host().to_doubles();
    HostTensor rounded(dtype, {m, k});  // as the tensor cores get them
    for (int64_t i = 0; i < m; ++i)
      for (int64_t l = 0; l < k; ++l) rounded.set(i * k + l, change(x[i * k + l], i, l));
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        p.sums[i * n + j] = 0;
        for (int64_t l = 0; l < k; ++l) p.sums[i * n + j] += rounded.get(i * k + l) * y[j * k + l];
      }
    p.expect(c, [](double sum, int64_t, int64_t) { return sum; });
  };
  check(
      K<RowScale, ColumnScale, Silu>{}, p.a,
      [&](double x, int64_t i, int64_t l) { return activation(Activation::kSilu, x * s[i] * w[l]); }, float32,
      scale, dtype, weight);
  check(
      K<RowScale>{}, p.random(int8, {m, k}), [&](double x, int64_t i, int64_t) { return x * s[i]; }, float32,
      scale);
}

TEST(FusedLoads, OfHopper) { expect_fused_loads<HopperMatmulFusedA>(bfloat16, 200, 136, 144); }
TEST(FusedLoads, OfAmpere) { expect_fused_loads<AmpereMatmulFusedA>(float16, 131, 136, 80); }
TEST(FusedLoads, OfBlackwell) {
  expect_fused_loads<BlackwellMatmulFusedA>(bfloat16, 200, 136, 336);  // twice round the ring
  expect_fused_loads<BlackwellMatmulFusedA>(float16, 77, 40, 16);
}

/// The changed A is neither written nor read again.
template <template <class...> class K>
void expect_saved_loads(const auto& plain) {
  constexpr int64_t m = 256, n = 128, k = 192, bytes = m * k * 2;  // one column of tiles: A is loaded once
  Problem p(K<>::target, float16, m, n, k);
  const DeviceTensor c = p.output(float16), changed = DeviceTensor::empty(p.device, float16, {m, k});
  Moved fused, unfused;
  fused.add(Kernel(K<Scale, Silu>{}, p.device)(m, n, k, float16, float16, p.a, p.b, c, 0.5f));
  unfused.add(Kernel(ApplySteps<Scale, Silu>{.block_m = 16, .block_n = 256}, p.device)(m, k, float16, p.a,
                                                                                       changed, 0.5f));
  unfused.add(Kernel(plain, p.device)(m, n, k, float16, float16, changed, p.b, c));
  EXPECT_EQ(unfused.written - fused.written, bytes);
  EXPECT_EQ(unfused.read - fused.read, bytes);
}

TEST(FusedLoads, SaveTheTrafficOfTheChangedOperand) {
  expect_saved_loads<AmpereMatmulFusedA>(AmpereMatmulFusedA<>{});
  expect_saved_loads<HopperMatmulFusedA>(HopperMatmulFusedA<>{});
  expect_saved_loads<BlackwellMatmulFusedA>(BlackwellMatmulFusedA<>{});
}

// A thread reads its row of A, which the swizzle spreads over the banks, whatever the type.
TEST(FusedLoads, OfBlackwellMeetNoBankConflicts) {
  const Device device =
      Device::virtual_gpu({.target = "sm_100a", .checks = vgpu::CheckSet::none(), .count_banks = true});
  const int64_t m = 128, n = 128, k = 192;
  for (DataType type : {float16, int8}) {
    const DeviceTensor a = DeviceTensor::random(device, type, {m, k}, 1),
                       b = DeviceTensor::random(device, float16, {n, k}, 2),
                       c = DeviceTensor::empty(device, float16, {m, n});
    const LaunchReport report =
        Kernel(BlackwellMatmulFusedA<Silu>{}, device)(m, n, k, type, float16, a, b, c);
    int64_t read = 0;
    for (const vgpu::BankUse& use : report.virtual_report.banks)
      if (!use.writes && use.bytes == 16) {
        read += 32 * use.bytes * use.accesses;
        EXPECT_EQ(use.wavefronts, use.ideal) << use.place.ptx;
      }
    EXPECT_EQ(read, m * k * type.bytes());
  }
}

/// Operands in each order of memory, [m, k] or [k, m], [n, k] or [k, n].
template <class K>
void expect_orders(K kernel, DataType dtype, int64_t m, int64_t n, int64_t k) {
  for (int orders = 0; orders < 4; ++orders) {
    Problem p(K::target, dtype, m, n, k);
    kernel.a_is_km = orders & 1, kernel.b_is_kn = orders & 2;
    const auto turned = [&](const DeviceTensor& t) {
      const HostTensor host = t.to_host();
      const int64_t rows = t.shape()[0], columns = t.shape()[1];
      HostTensor other(dtype, {columns, rows});
      for (int64_t i = 0; i < rows * columns; ++i) other.set(i % columns * rows + i / columns, host.get(i));
      return DeviceTensor::from_host(p.device, other);
    };
    if (kernel.a_is_km) p.a = turned(p.a);
    if (kernel.b_is_kn) p.b = turned(p.b);
    const DeviceTensor c = p.output(dtype);
    p.run(kernel, c);
    p.expect(c, [](double x, int64_t, int64_t) { return x; });
  }
}

TEST(Orders, OfHopper) {
  expect_orders(HopperMatmulH7<>{}, bfloat16, 200, 328, 72);
  expect_orders(HopperMatmulH7<>{.block_n = 192, .stages = 5, .store_stages = 1}, bfloat16, 264, 200, 136);
  expect_orders(HopperMatmulH7<>{.block_n = 64, .stages = 8, .store_stages = 1}, float16, 136, 72, 40);
  expect_orders(HopperMatmulH9<>{.block_n = 64, .stages = 3, .store_stages = 1, .ctas = 2}, bfloat16, 264,
                200, 264);
  expect_orders(HopperMatmulSkinny<>{}, bfloat16, 16, 136, 72);
  expect_orders(HopperMatmulSkinny<>{.block_m = 128, .block_k = 64, .stages = 8, .cluster_n = 4}, bfloat16,
                104, 136, 72);
}

}  // namespace
}  // namespace imbrex::testing
