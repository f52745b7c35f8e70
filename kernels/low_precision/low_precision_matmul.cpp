// SPDX-License-Identifier: Apache-2.0
// imbrex::low_precision_matmul: what it takes, and the kernel and tiles for a number of rows.
#include "imbrex/kernels/low_precision_matmul.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "imbrex/core/error.h"
#include "imbrex/kernels/low_precision/decode_matmul.h"
#include "imbrex/kernels/low_precision/prefill_matmul.h"
#include "imbrex/runtime/caller_line.h"
#include "library_kernel.h"

namespace imbrex {

namespace {

using kernels::HopperLowPrecisionDecode;
using kernels::HopperLowPrecisionPrefill;

[[noreturn]] void refuse(std::string message, std::string help) {
  throw LaunchError(Diagnostic{{}, "low_precision_matmul: " + std::move(message), {}, std::move(help)});
}

std::string text_of(const DeviceTensor& t) {
  return fmt::format("{} [{}]", t.dtype().name(), fmt::join(t.shape(), ", "));
}

void check_group(int64_t group) {
  if (group < 16 || (group < 256 ? 256 % group != 0 : group % 256 != 0))
    refuse(fmt::format("groups of {}", group), "a group is 16, 32, 64, 128, or a multiple of 256");
}

/// The integer that stands for element `index`: signed numbers with an offset, floats by their bits.
HostTensor codes_of(const HostTensor& weights) {
  const DataType type = weights.dtype();
  HostTensor codes(uint8, weights.shape());
  auto* to = reinterpret_cast<uint8_t*>(codes.bytes().data());
  const auto* from = reinterpret_cast<const uint8_t*>(weights.bytes().data());
  const int bits = type.bits();
  const unsigned mask = (1u << bits) - 1,
                 offset = type.is_integer() && type.is_signed() ? 1u << (bits - 1) : 0;
  for (int64_t i = 0; i < codes.elements(); ++i) {
    const int64_t at = i * bits;
    unsigned pair = from[at / 8];
    if (at % 8 + bits > 8) pair |= static_cast<unsigned>(from[at / 8 + 1]) << 8;
    to[i] = static_cast<uint8_t>(((pair >> at % 8) + offset) & mask);
  }
  return codes;
}

bool is_small_float(DataType type) {
  return type == float8_e8m0 || type == float8_ue4m3 || type == float8_e4m3;
}

/// Factors of 8 bits as X's type, which must hold each of them.
HostTensor widened(const HostTensor& factors, DataType type) {
  HostTensor wide(type, factors.shape());
  for (int64_t i = 0; i < factors.elements(); ++i) {
    const double factor = factors.get(i);
    wide.set(i, factor);
    if (std::isfinite(factor) && wide.get(i) != factor)
      refuse(fmt::format("{} does not hold the factor {}", type.name(), factor),
             "take bfloat16 for x, c and the factors");
  }
  return wide;
}

void check_zero_points(const HostTensor& points, DataType type, const std::vector<int64_t>& shape) {
  if (!type.is_integer() || points.shape() != shape)
    refuse(fmt::format("zero points [{}] for weights of {}", fmt::join(points.shape(), ", "), type.name()),
           fmt::format("they are a matrix of the factors' shape, [{}], for weights that are integers",
                       fmt::join(shape, ", ")));
  const double least = type.is_signed() ? -std::ldexp(1.0, type.bits() - 1) : 0,
               most = least + std::ldexp(1.0, type.bits()) - 1;
  for (int64_t i = 0; i < points.elements(); ++i) {
    const double point = points.get(i);
    if (!(point >= least && point <= most) || point != std::floor(point))
      refuse(fmt::format("zero point {} for weights of {}", point, type.name()),
             fmt::format("zero points are integers from {} to {}", least, most));
  }
}

/// Tiles for few rows: all of them in one, CTAs for every multiprocessor, and as many stages as shared memory holds.
/// As measured on an H200.
HopperLowPrecisionDecode decode_for(int64_t m, const LowPrecisionWeights& w) {
  constexpr int64_t kMultiprocessors = 132, kSharedBytes = 225'000, kSharedBytesOfOne = 140'000,
                    kSharedBytesOfTwo = 112'000;
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
  kernel.stages =
      static_cast<int>(std::max<int64_t>(2, std::min({stages, kSharedBytes / stage, int64_t{8}})));
  return kernel;
}

/// Launches of one configuration on one device, one after the other: a Kernel is not for several threads.
template <class K>
LaunchReport launch(const K& configuration, const LowPrecisionWeights& w, const DeviceTensor& x,
                    const DeviceTensor& c, const Stream& stream) {
  struct Ready {
    Kernel<K> kernel;
    std::mutex turn;
    Ready(const K& configuration, const Device& device) : kernel(library_kernel(configuration, device)) {}
  };
  static std::mutex mutex;
  static auto& known = *new std::map<std::pair<const void*, std::string>, std::shared_ptr<Ready>>;
  const Device& device = x.device();
  const std::string key = tuning_space<K>().to_string(tuning_space<K>().read(&configuration));
  std::shared_ptr<Ready> ready;
  {
    const std::lock_guard lock(mutex);
    std::shared_ptr<Ready>& entry = known[{&device.backend(), key}];
    if (!entry) entry = std::make_shared<Ready>(configuration, device);
    ready = entry;
  }
  const std::lock_guard lock(ready->turn);
  return ready->kernel.on(stream)(x.shape()[0], w.n, w.k, w.group, w.has_zero_points ? 1 : 0, w.type,
                                  x.dtype(), x, w.words, w.scales, c);
}

}  // namespace

LowPrecisionWeights LowPrecisionWeights::pack(const Device& device, const HostTensor& weights,
                                              const HostTensor& given_scales, int64_t group,
                                              const HostTensor* zero_points, DataType wide_type) {
  const DataType type = weights.dtype();
  if (weights.shape().size() != 2 || type.bits() > 8 || type.is_bool() || type == float8_e8m0)
    refuse(fmt::format("weights of {} with {} dimensions", type.name(), weights.shape().size()),
           "weights are a matrix [n, k] of a type of at most 8 bits");
  check_group(group);
  const int64_t n = weights.shape()[0], k = weights.shape()[1];
  const std::vector<int64_t> expected{n, (k + group - 1) / group};
  const auto is_wide = [](DataType t) { return t == float16 || t == bfloat16; };
  const DataType given = given_scales.dtype();
  if (given_scales.shape() != expected || (!is_wide(given) && !is_small_float(given)))
    refuse(fmt::format("factors {} [{}]", given.name(), fmt::join(given_scales.shape(), ", ")),
           fmt::format("factors are float16, bfloat16, float8_e8m0, float8_e4m3 or float8_ue4m3, [{}, {}]: "
                       "one for every "
                       "{} of a row",
                       expected[0], expected[1], group));
  if (!is_wide(wide_type))
    refuse(fmt::format("factors for products of {}", wide_type.name()), "x and c are float16 or bfloat16");
  const HostTensor scales = is_wide(given) ? given_scales : widened(given_scales, wide_type);
  if (zero_points) check_zero_points(*zero_points, type, expected);
  return {type,
          n,
          k,
          group,
          DeviceTensor::from_host(device, kernels::pack_weights(codes_of(weights), type.bits())),
          DeviceTensor::from_host(device, kernels::pack_group_values(scales, zero_points)),
          zero_points != nullptr};
}

LaunchReport low_precision_matmul(const DeviceTensor& x, const LowPrecisionWeights& w, const DeviceTensor& c,
                                  const LowPrecisionOptions& options, SourceLocation where) {
  const CallerLine line(where);
  if (w.words.is_null() || w.scales.is_null()) refuse("weights that nobody packed", "make them by pack()");
  const DataType dtype = w.scales.dtype();
  for (const auto& [name, t] : {std::pair("x", &x), std::pair("c", &c)}) {
    if (t->is_null() || t->address() == 0)
      refuse(fmt::format("{} is null or released", name), "make it before the call, and release it after");
    if (t->shape().size() != 2 || !t->is_dense() || t->dtype() != dtype)
      refuse(fmt::format("{} is {}", name, text_of(*t)),
             fmt::format("it is a dense matrix of the factors' type, {}", dtype.name()));
    if (&t->device().backend() != &w.words.device().backend())
      refuse(fmt::format("{} is on another device than the weights", name), "copy it to theirs");
  }
  const int64_t m = x.shape()[0];
  if (x.shape()[1] != w.k || c.shape()[0] != m || c.shape()[1] != w.n || m < 1)
    refuse(fmt::format("x is [{}], c [{}], the weights [{}, {}]", fmt::join(x.shape(), ", "),
                       fmt::join(c.shape(), ", "), w.n, w.k),
           "x is [m, k], c [m, n], the weights [n, k], with m of 1 or more");
  if (w.k % 8 != 0)
    refuse(fmt::format("k = {}", w.k), "k is a multiple of 8: pad x and the weights with zeros");
  if (w.type == float7_e5m1 && dtype == float16)
    refuse("weights of float7_e5m1 do not fit float16", "give x, c and the factors the type bfloat16");
  if (!x.device().can_run("sm_90a"))
    refuse(fmt::format("no kernel for {} ({})", x.device().name(), x.device().target()),
           "products run on devices of target sm_90a");
  const bool is_prefill = m > 64 && w.group % HopperLowPrecisionPrefill::kBlockK == 0;
  return is_prefill ? launch(HopperLowPrecisionPrefill{}, w, x, c, options.stream)
                    : launch(decode_for(m, w), w, x, c, options.stream);
}

}  // namespace imbrex
