// SPDX-License-Identifier: Apache-2.0
#include "imbrex/kernels/rows/rope.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <numeric>

#include "imbrex/runtime/caller_line.h"
#include "kernel_of_device.h"
#include "row_tensors.h"
#include "rows/row_call.h"
#include "rows/row_case.h"

namespace imbrex {
namespace {

constexpr int64_t kMostElements = 1024;  // of a head

/// Strides of heads and tokens, of which halves of a head are multiples too.
kernels::MatrixStridesArguments strides_of(const DeviceTensor& x, int64_t half) {
  const std::vector<int64_t>& shape = x.shape();
  const int64_t head = shape[1] == 1 ? 0 : x.strides()[1], token = shape[0] == 1 ? 0 : x.strides()[0];
  const int64_t unit = std::gcd(unit_of(x.address(), x.dtype(), head, token), half);
  return {static_cast<int>(unit), head / unit, token / unit};
}

}  // namespace

LaunchReport rope(const DeviceTensor& x, const DeviceTensor& cos, const DeviceTensor& sin,
                  const DeviceTensor& y, const RopeOptions& options, SourceLocation where) {
  const CallerLine caller(where);
  RowCall call("rope", "x", x);
  if (x.shape().size() != 3)
    call.refuse_first(fmt::format("has {} dimensions, not 3", x.shape().size()),
                      "make it [tokens, heads, d]");
  const int64_t tokens = x.shape()[0], heads = x.shape()[1], d = x.shape()[2];
  if (d % 2 != 0 || d > kMostElements)
    call.refuse_first(fmt::format("has heads of {} elements: they are even, at most {}", d, kMostElements),
                      "rotate a slice of it");
  call.result("y", y, {x.dtype()});
  if (cos.is_null() || cos.shape().size() != 2)
    call.refuse("cos", cos, "is not a table of [positions, d / 2]", "give it a row for each position");
  const int64_t positions = cos.shape()[0];
  call.check_dense("cos", cos, {positions, d / 2}, {float32});
  call.check_dense("sin", sin, {positions, d / 2}, {float32});
  const bool has_positions = !options.positions.is_null();
  if (has_positions) call.check_dense("positions", options.positions, {tokens}, {int32});
  if (!has_positions && positions < tokens)
    call.refuse("cos", cos, fmt::format("has {} positions for {} tokens", positions, tokens),
                "give it a row for each token, or positions");
  const int64_t half = d / 2, unit = std::gcd(half, int64_t{8});
  return kernel_of_device<kernels::Rope>(x.device())
      .on(options.stream)(tokens, heads, half / unit, static_cast<int>(unit),
                          static_cast<int>(std::bit_ceil(static_cast<uint64_t>(half))), x.dtype(),
                          x.address(), strides_of(x, half), cos.address(), sin.address(), positions,
                          has_positions, has_positions ? options.positions.address() : cos.address(),
                          y.address(), strides_of(y, half), options.interleaved, options.inverse);
}

namespace kernels {
namespace {

const KernelRegistration<Rope> registration{
    {"rope",
     "rotary position embedding of heads",
     {{"tokens", 19, "tokens"},
      {"heads", 5, "heads of a token"},
      {"d", 64, "elements of a head"},
      {"interleaved", 0, "1: pairs are neighbours"}}},
    [](Case& c, Kernel<Rope>& kernel) {
      const int64_t tokens = c.size("tokens"), heads = c.size("heads"), d = c.size("d"), half = d / 2,
                    unit = std::gcd(half, int64_t{8}), positions = tokens + 3;
      const bool interleaved = c.size("interleaved") != 0;
      HostTensor places(int32, {tokens});
      for (int64_t t = 0; t < tokens; ++t) places.set(t, static_cast<double>((t * 7 + 2) % positions));
      DeviceTensor x = c.input(bfloat16, {tokens, heads, d}), cos = c.input(float32, {positions, half}),
                   sin = c.input(float32, {positions, half}), position = c.input(places),
                   y = c.output(bfloat16, {tokens, heads, d});
      const MatrixStridesArguments strides{static_cast<int>(unit), d / unit, heads * d / unit};
      c.launch(kernel, tokens, heads, half / unit, static_cast<int>(unit),
               static_cast<int>(std::bit_ceil(static_cast<uint64_t>(half))), bfloat16, x, strides, cos, sin,
               positions, true, position, y, strides, interleaved, false);
      c.expect(y, [&](std::span<double> out) {
        const std::vector<double> in = c.values(x), cosines = c.values(cos), sines = c.values(sin),
                                  rows = c.values(position);
        for (int64_t head = 0; head < tokens * heads; ++head)
          for (int64_t j = 0; j < half; ++j) {
            const auto row = static_cast<int64_t>(rows[head / heads]);
            const int64_t first = head * d + (interleaved ? 2 * j : j),
                          second = first + (interleaved ? 1 : half);
            const double cosine = cosines[row * half + j], sine = sines[row * half + j];
            out[first] = in[first] * cosine - in[second] * sine;
            out[second] = in[second] * cosine + in[first] * sine;
          }
      });
    }};

}  // namespace
}  // namespace kernels
}  // namespace imbrex
