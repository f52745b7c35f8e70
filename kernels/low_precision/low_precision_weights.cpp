// SPDX-License-Identifier: Apache-2.0
// Weights and their factors as the products take them: checked, packed and copied to a device.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "imbrex/core/error.h"
#include "imbrex/kernels/low_precision/packed_weights.h"
#include "imbrex/kernels/low_precision_matmul.h"

namespace imbrex {

namespace {

[[noreturn]] void refuse(std::string message, std::string help) {
  throw LaunchError(Diagnostic{{}, "low_precision_matmul: " + std::move(message), {}, std::move(help)});
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

}  // namespace imbrex
