// SPDX-License-Identifier: Apache-2.0
// imbrex::matmul with packed weights: what it takes, and the kernel and tiles for a device and a number of rows.
#include "imbrex/kernels/low_precision_matmul.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <vector>

#include "imbrex/core/error.h"
#include "imbrex/kernels/low_precision/ampere_low_precision.h"
#include "imbrex/kernels/low_precision/blackwell_low_precision.h"
#include "imbrex/kernels/low_precision/decode_matmul.h"
#include "imbrex/kernels/low_precision/direct_matmul.h"
#include "imbrex/kernels/low_precision/prefill_matmul.h"
#include "imbrex/kernels/low_precision/widen_rows.h"
#include "imbrex/runtime/caller_line.h"
#include "imbrex/runtime/device_limits.h"
#include "imbrex/runtime/workspace.h"
#include "kernel_of_device.h"
#include "library_kernel.h"
#include "matmul/matmul_launch.h"
#include "repacker.h"
#include "row_tensors.h"
#include "scratch_like.h"
#include "tensor_fact.h"

namespace imbrex {

namespace {

using kernels::ActivationRowsArguments;
using kernels::AmpereLowPrecision;
using kernels::BlackwellLowPrecision;
using kernels::HopperLowPrecisionDecode;
using kernels::HopperLowPrecisionDirect;
using kernels::HopperLowPrecisionPrefill;
using kernels::MatrixStridesArguments;
using kernels::PackedFinishArguments;

constexpr int64_t kUnitBytes = 16;  // of the rows' addresses
constexpr int64_t kMostDecoded = 64, kMostDecodedOnHopper = 32;

/// Errors name the function that was called.
class Refusal {
 public:
  explicit Refusal(const char* function) : function_(function) {}
  [[noreturn]] void operator()(const std::string& message, std::string help) const {
    throw LaunchError(Diagnostic{{}, fmt::format("{}: {}", function_, message), {}, std::move(help)});
  }

 private:
  const char* function_;
};

constexpr int64_t kMultiprocessors = 132;

/// Tiles for weights that go straight to registers, where that is faster, as measured on an H200: every multiprocessor has one
/// CTA, whose part of X stays in shared memory.
std::optional<HopperLowPrecisionDirect> direct_for(int64_t m, const LowPrecisionWeights& w) {
  constexpr int64_t kSharedBytes = 225'000, kMostGroups = 256;  // of a CTA, which one TMA instruction loads
  const int64_t tiles_n = (w.n + kernels::kWeightTileN - 1) / kernels::kWeightTileN;
  const bool is_faster =
      m <= 8 || (m <= 16 && w.type.is_integer() && w.type.bits() >= 3 && w.type.bits() <= 7);
  if (!is_faster || w.has_zero_points || tiles_n <= kMultiprocessors / 2 || tiles_n > kMultiprocessors ||
      w.group > kernels::kWeightTileK)
    return {};
  HopperLowPrecisionDirect kernel;
  if (m <= 8) {
    kernel.block_m = 8;
    kernel.row_tiles = 1;
    kernel.k_tiles = 4;
    kernel.split_k = 1;
  }
  const int64_t stage_k = kernel.k_tiles * kernels::kWeightTileK, part = kernel.split_k * stage_k,
                cta_k = (w.k + part - 1) / part * stage_k, values = cta_k / w.group,
                rows = kernel.row_tiles * kernels::kWeightTileN;
  const int64_t sums = 4 * kernel.block_m * rows * (kernel.k_tiles + 1);
  if (values > kMostGroups || 2 * (cta_k * kernel.block_m + values * rows) + sums > kSharedBytes) return {};
  return kernel;
}

/// Tiles for few rows: all of them in one, CTAs for every multiprocessor, and as many stages as shared memory holds.
/// As measured on an H200.
HopperLowPrecisionDecode decode_for(int64_t m, const LowPrecisionWeights& w) {
  constexpr int64_t kSharedBytes = 225'000, kSharedBytesOfOne = 140'000, kSharedBytesOfTwo = 114'000;
  HopperLowPrecisionDecode kernel;
  kernel.block_m = m <= 8 ? 8 : m <= 16 ? 16 : m <= 32 ? 32 : 64;
  const int64_t tiles_n = (w.n + kernels::kWeightTileN - 1) / kernels::kWeightTileN;
  kernel.split_k = 1;
  const bool is_wide = tiles_n > 2 * kMultiprocessors;  // two CTAs for each multiprocessor, or more
  if (!is_wide && tiles_n > kMultiprocessors / 2 && tiles_n <= kMultiprocessors && kernel.block_m <= 16) {
    kernel.row_tiles = 1;
    kernel.k_tiles = 4;
  } else {
    if (is_wide || kernel.block_m > 16) kernel.k_tiles = 1;
    const int64_t ctas = (tiles_n + 1) / 2, stages_k = w.k / (kernels::kWeightTileK * kernel.k_tiles);
    while (kernel.split_k < 8 && 2 * ctas * kernel.split_k <= kMultiprocessors &&
           stages_k >= 4 * kernel.split_k)
      kernel.split_k *= 2;
  }
  const int64_t rows = kernel.row_tiles * kernels::kWeightTileN,
                stage_k = kernel.k_tiles * kernels::kWeightTileK;
  const int64_t values =
      (w.has_zero_points ? 2 : 1) * kernel.k_tiles * std::max<int64_t>(1, kernels::kWeightTileK / w.group);
  const int64_t stage = rows * stage_k * w.type.bits() / 8 + 2 * stage_k * kernel.block_m + 2 * rows * values;
  // Wide products have two CTAs on each multiprocessor. Others have one, by what it takes of shared memory: of a grid that
  // starts while the one before ends, two might land on one multiprocessor, and none on another.
  const bool is_shared = is_wide && 2 * stage <= kSharedBytesOfTwo;
  const int64_t stages = is_shared ? kSharedBytesOfTwo / stage : (kSharedBytesOfOne + stage - 1) / stage;
  const int64_t parts = kernel.split_k > 1 ? 4 * kernel.block_m * rows : 0;  // what the cluster's CTAs send
  kernel.stages =
      static_cast<int>(std::max<int64_t>(2, std::min({stages, (kSharedBytes - parts) / stage, int64_t{8}})));
  return kernel;
}

/// Tiles for many rows. Of few there are smaller ones, so that every multiprocessor has a CTA: with two consumers that have rows of
/// W of their own, with one, or with two that divide k. As measured on an H200.
HopperLowPrecisionPrefill prefill_for(int64_t m, const LowPrecisionWeights& w) {
  constexpr int64_t kSharedBytes = 225'000;
  HopperLowPrecisionPrefill kernel;
  if (m > 256) return kernel;
  const int64_t tiles_n = (w.n + kernels::kWeightTileN - 1) / kernels::kWeightTileN;
  const bool has_enough_rows = tiles_n >= 2 * kMultiprocessors;
  kernel.block_m = m <= 64 ? 64 : 128;
  kernel.stages = m <= 64 ? 8 : 6;
  kernel.consumers = m <= 64 && !has_enough_rows ? 1 : 2;
  kernel.k_parts = m > 64 && m <= 128 && !has_enough_rows ? 2 : 1;
  const int64_t values = (w.has_zero_points ? 2 : 1) * std::max<int64_t>(1, kernels::kWeightTileK / w.group);
  const int64_t x_stages = kernel.stages * kernel.block_m * HopperLowPrecisionPrefill::kBlockK * 2,
                weight_stage = kernel.consumers * kernels::kWeightTileN *
                               (kernels::kWeightTileK * w.type.bits() / 8 + 2 * values),
                sums = kernel.k_parts > 1 ? kernels::kWeightTileN * kernel.block_m * 4 : 0,
                results = kernel.consumers * kernels::kWeightTileN * 64 * 2;
  const int64_t left = kSharedBytes - x_stages - results - sums;
  kernel.weight_stages = static_cast<int>(std::clamp<int64_t>(left / weight_stage, 1, 4));
  return kernel;
}

/// Tiles for every other target: the largest that shared memory holds.
AmpereLowPrecision ampere_for(int64_t m, const LowPrecisionWeights& w, DataType x_type,
                              const Device& device) {
  constexpr int64_t kAlignment = 2048;  // what tensors of a stage may leave between each other
  const int64_t most = shared_bytes_per_cta(device) - kAlignment;
  AmpereLowPrecision kernel;
  const auto take = [&](int block_m, int row_tiles, int k_tiles, int warp_rows, int stages) {
    kernel = {.block_m = block_m,
              .row_tiles = row_tiles,
              .k_tiles = k_tiles,
              .warp_rows = warp_rows,
              .stages = stages};
    const int64_t rows = row_tiles * kernels::kWeightTileN, stage_k = k_tiles * kernels::kWeightTileK;
    const int64_t values =
        (w.has_zero_points ? 2 : 1) * k_tiles * std::max<int64_t>(1, kernels::kWeightTileK / w.group);
    const int64_t stage =
        rows * stage_k * w.type.bits() / 8 + x_type.bytes() * stage_k * block_m + 2 * rows * values;
    return std::max(stages * stage, 4 * block_m * rows * k_tiles) <= most;
  };
  if (m > 64 && take(64, 4, 1, 32, 2)) return kernel;
  if (m > 32 && (take(64, 2, 1, 16, 2) || take(64, 1, 1, 16, 2))) return kernel;
  if (m > 16 && (take(32, 1, 2, 16, 2) || take(32, 1, 1, 16, 2))) return kernel;
  const int block_m = m <= 8 ? 8 : 16;
  if (take(block_m, 1, 2, 32, 3) || take(block_m, 1, 2, 32, 2)) return kernel;
  take(block_m, 1, 1, 16, 2);
  return kernel;
}

/// Launches of one configuration on one device, one after the other: a Kernel is not for several threads.
template <class K, class... Args>
LaunchReport launch(const K& configuration, const Device& device, const Stream& stream,
                    const Args&... arguments) {
  struct Ready {
    Kernel<K> kernel;
    std::mutex turn;
    Ready(const K& configuration, const Device& device) : kernel(library_kernel(configuration, device)) {}
  };
  static std::mutex mutex;
  static auto& known = *new std::map<std::pair<const void*, std::string>, std::shared_ptr<Ready>>;
  const std::string key = tuning_space<K>().to_string(tuning_space<K>().read(&configuration));
  std::shared_ptr<Ready> ready;
  {
    const std::lock_guard lock(mutex);
    std::shared_ptr<Ready>& entry = known[{&device.backend(), key}];
    if (!entry) entry = std::make_shared<Ready>(configuration, device);
    ready = entry;
  }
  const std::lock_guard lock(ready->turn);
  return ready->kernel.on(stream)(arguments...);
}

MatrixStridesArguments strides_of(uint64_t address, DataType dtype, int64_t rows, int64_t row) {
  const int64_t unit = unit_of(address, dtype, rows == 1 ? 0 : row, 0);
  return {static_cast<int>(unit), rows == 1 ? 0 : row / unit, 0};
}

/// Activations where the kernels can read them, and the columns that they have there: k, or the next multiple of 8.
struct PlacedRows {
  ActivationRowsArguments<> rows;
  int64_t k;
  Workspace repacked, widened;
  LaunchReport copies;  // of the first copy in which something was found, if any
};

PlacedRows place(const DeviceTensor& x, DataType wide, bool is_widened, const Stream& stream) {
  const int64_t m = x.shape()[0], k = x.shape()[1];
  PlacedRows placed{.rows = {x.dtype(), x.address(), strides_of(x.address(), x.dtype(), m, x.strides()[0])},
                    .k = k,
                    .repacked = {},
                    .widened = {},
                    .copies = {}};
  ActivationRowsArguments<>& rows = placed.rows;
  if (k > 1 && x.strides()[1] != 1) {
    const int64_t unit = kUnitBytes / x.dtype().bytes(), row = (k + unit - 1) / unit * unit;
    placed.repacked = Workspace::on(stream, x.device(), m * row * x.dtype().bytes());
    rows.address = placed.repacked.address();
    rows.strides = strides_of(rows.address, x.dtype(), m, row);
    Repacker repacker(x.device(), stream);
    repacker.add({x.dtype(), 1, m, k, row, x.address(), 0, x.strides()[0], x.strides()[1], rows.address,
                  rows.strides});
    placed.copies = repacker.copy();
  }
  const bool has_units =
      rows.strides.unit * x.dtype().bytes() == kUnitBytes && k * x.dtype().bytes() % kUnitBytes == 0;
  if (has_units && (x.dtype() == wide || !is_widened)) return placed;
  constexpr int64_t kUnit = 8;
  placed.k = (k + kUnit - 1) / kUnit * kUnit;
  placed.widened = Workspace::on(stream, x.device(), m * placed.k * wide.bytes());
  const auto widen = [&](auto& kernel) {
    return kernel.on(stream)(m, k, placed.k / kUnit, static_cast<int>(kUnit), x.dtype(), rows.address,
                             rows.strides, wide, placed.widened.address());
  };
  LaunchReport copy = x.device().can_run("sm_90a")
                          ? widen(kernel_of_device<kernels::HopperWidenRows>(x.device()))
                          : widen(kernel_of_device<kernels::WidenRows>(x.device()));
  if (placed.copies.clean()) placed.copies = std::move(copy);
  rows.dtype = wide;
  rows.address = placed.widened.address();
  rows.strides = strides_of(rows.address, wide, m, placed.k);
  return placed;
}

void check(const Refusal& refuse, const DeviceTensor& x, const LowPrecisionWeights& w, const DeviceTensor& c,
           const MatmulOptions& o) {
  if (w.words.is_null() || w.scales.is_null()) refuse("weights that nobody packed", "make them by pack()");
  const DataType dtype = w.scales.dtype();
  for (const auto& [name, t] : {std::pair("x", &x), std::pair("c", &c), std::pair("scale_a", &o.scale_a),
                                std::pair("bias", &o.bias), std::pair("residual", &o.residual)}) {
    if (t->is_null() && t != &x && t != &c) continue;
    if (t->is_null() || t->address() == 0)
      refuse(fmt::format("{} is null or released", name), "make it before the call, and release it after");
    if (&t->device().backend() != &w.words.device().backend())
      refuse(fmt::format("{} is on another device than the weights", name), "copy it to theirs");
  }
  const bool has_bytes = x.dtype() == int8 || x.dtype() == float8_e4m3;
  if (x.shape().size() != 2 || (x.dtype() != dtype && !has_bytes))
    refuse(fmt::format("x is {}", tensor_text(x)),
           fmt::format("it is a matrix of the factors' type, {}, or of int8 or float8_e4m3", dtype.name()));
  if (c.shape().size() != 2 || c.dtype() != dtype)
    refuse(fmt::format("c is {}", tensor_text(c)),
           fmt::format("it is a matrix of the factors' type, {}", dtype.name()));
  const int64_t m = x.shape()[0];
  if (x.shape()[1] != w.k || c.shape()[0] != m || c.shape()[1] != w.n || m < 1)
    refuse(fmt::format("x is [{}], c [{}], the weights [{}, {}]", fmt::join(x.shape(), ", "),
                       fmt::join(c.shape(), ", "), w.n, w.k),
           "x is [m, k], c [m, n], the weights [n, k], with m of 1 or more");
  if (c.may_overlap()) refuse("elements of c share memory", "write to a tensor without strides of 0");
  if (w.n > 1 && c.strides()[1] != 1)
    refuse(fmt::format("the rows of c are not neighbours in memory: c is {}", tensor_text(c)),
           "give c a stride of 1 along its rows");
  const DeviceTensor& scale = o.scale_a;
  if (!scale.is_null() &&
      (scale.dtype() != float32 || !scale.is_dense() || (scale.bytes() != 4 && scale.bytes() != 4 * m)))
    refuse(fmt::format("scale_a is {}, neither one float32 nor {}, one per row of x", tensor_text(scale), m),
           fmt::format("make it float32 [1] or [{}], dense", m));
  if (!o.bias.is_null() && ((!is_column_bias(o.bias, w.n) && o.bias.shape() != std::vector<int64_t>{m, 1}) ||
                            (o.bias.dtype() != dtype && o.bias.dtype() != float32)))
    refuse(
        fmt::format("bias is {}, which does not fit c, {}", tensor_text(o.bias), tensor_text(c)),
        fmt::format("make it [{}], one per column, or [{}, 1], one per row, of c's type or float32", w.n, m));
  if (const DeviceTensor& r = o.residual;
      !r.is_null() && (r.shape() != c.shape() || r.dtype() != dtype || (w.n > 1 && r.strides()[1] != 1)))
    refuse(fmt::format("residual is {}, c is {}", tensor_text(r), tensor_text(c)),
           "give it c's shape and type, and a stride of 1 along its rows");
  if (w.type == float7_e5m1 && dtype == float16)
    refuse("weights of float7_e5m1 do not fit float16", "give x, c and the factors the type bfloat16");
  if (!x.device().can_run("sm_80"))
    refuse(fmt::format("no kernel for {} ({})", x.device().name(), x.device().target()),
           "products run on devices from sm_80 on");
}

/// The steps that the options ask for. `copied` keeps what was copied for them.
PackedFinishArguments finish_of(const MatmulOptions& o, const DeviceTensor& c,
                                std::vector<Workspace>& copied) {
  const int64_t m = c.shape()[0], n = c.shape()[1];
  PackedFinishArguments finish(c.address(), c.dtype());
  if (!o.scale_a.is_null()) {
    finish.factors = static_cast<int>(factors_of(o.scale_a, kernels::Factors::kPerRow));
    finish.row_factors = o.scale_a.address();
  }
  finish.scales = o.alpha != 1;
  finish.alpha = o.alpha;
  if (!o.bias.is_null()) {
    DeviceTensor bias = o.bias;
    if (!bias.is_dense() || bias.address() % kUnitBytes != 0) {
      bias = scratch_like(o.bias, o.stream, copied);
      bias.copy_from(o.bias, o.stream);
    }
    finish.has_column_bias = is_column_bias(bias, n);
    finish.has_row_bias = !finish.has_column_bias;
    finish.bias_type = bias.dtype();
    finish.bias = bias.address();
  }
  if (o.beta != 0) {
    const DeviceTensor& before = o.residual.is_null() ? c : o.residual;
    finish.has_residual = true;
    finish.beta = o.beta;
    finish.residual = before.address();
    finish.residual_strides = strides_of(before.address(), before.dtype(), m, before.strides()[0]);
  }
  finish.activation = o.activation;
  return finish;
}

LaunchReport multiply(const Refusal& refuse, const DeviceTensor& x, const LowPrecisionWeights& w,
                      const DeviceTensor& c, const MatmulOptions& options) {
  check(refuse, x, w, c, options);
  const Stream& stream = options.stream;
  const Device& device = x.device();
  const DataType dtype = w.scales.dtype();
  const int64_t m = x.shape()[0];
  const bool is_hopper = device.can_run("sm_90a"), is_blackwell = device.can_run("sm_100a"),
             is_prefill = is_hopper ? m > kMostDecodedOnHopper : is_blackwell && m > kMostDecoded;
  PlacedRows placed = place(x, dtype, is_hopper || is_prefill, stream);
  if (!placed.copies.clean()) return placed.copies;
  std::vector<Workspace> copied;
  const PackedFinishArguments finish = finish_of(options, c, copied);
  const int zero_points = w.has_zero_points ? 1 : 0;
  const MatrixStridesArguments c_strides = strides_of(c.address(), dtype, m, c.strides()[0]);
  const auto run = [&](const auto& kernel, const auto&... more) {
    return launch(kernel, device, stream, m, w.n, placed.k, w.group, zero_points, w.type, dtype, placed.rows,
                  w.words, w.scales, c, c_strides, finish, more...);
  };
  if (is_blackwell && is_prefill) return run(BlackwellLowPrecision{.block_m = m <= 128 ? 128 : 256});
  if (!is_hopper) return run(ampere_for(m, w, placed.rows.dtype, device));
  if (const auto direct = direct_for(m, w); !is_prefill && direct) return run(*direct);
  if (!is_prefill) return run(decode_for(m, w));
  constexpr int64_t kSector = 32;
  const bool c_has_tma_rows = c_strides.unit * dtype.bytes() == kUnitBytes &&
                              w.n * dtype.bytes() % kSector == 0 &&
                              c.strides()[0] * dtype.bytes() % kSector == 0;
  return run(prefill_for(m, w), c_has_tma_rows);
}

}  // namespace

LaunchReport low_precision_matmul(const DeviceTensor& x, const LowPrecisionWeights& w, const DeviceTensor& c,
                                  const LowPrecisionOptions& options, SourceLocation where) {
  const CallerLine line(where);
  return multiply(Refusal("low_precision_matmul"), x, w, c,
                  {.scale_a = options.scale_x, .stream = options.stream});
}

LaunchReport matmul(const DeviceTensor& a, const LowPrecisionWeights& b, const DeviceTensor& c,
                    const MatmulOptions& options, SourceLocation where) {
  const CallerLine line(where);
  const Refusal refuse("matmul");
  if (!options.scale_b.is_null() || options.b_is_kn)
    refuse("packed weights have their factors and their order already", "leave out scale_b and b_is_kn");
  if (options.a_is_km && !a.is_null() && a.shape().size() == 2)
    return multiply(refuse, a.transpose(), b, c, options);
  return multiply(refuse, a, b, c, options);
}

}  // namespace imbrex
