// SPDX-License-Identifier: Apache-2.0
#include "imbrex/kernels/routed_swiglu.h"

#include <algorithm>
#include <cmath>

#include "imbrex/runtime/registry.h"
#include "random_indices.h"

namespace imbrex::kernels {

static const KernelRegistration<RoutedSwiglu> registration{
    {"routed_swiglu",
     "SwiGLU of the rows of experts, times the router's weights, to float8 with scales per 128 columns",
     {{"m", 37, "rows"},
      {"width", 640, "columns of y, a multiple of 128"},
      {"choices", 50, "weights of the router"},
      {"limited", 1, "1: the gate and the other half are limited"},
      {"bf16", 0, "1: x is bfloat16, 0: float16"}}},
    [](Case& c, Kernel<RoutedSwiglu>& kernel) {
      const int64_t m = c.size("m"), width = c.size("width"), choices = c.size("choices"),
                    blocks = width / RoutedSwiglu::kBlock;
      const bool has_limit = c.size("limited") != 0;
      const float limit = 1.25f;
      const DataType dtype = c.size("bf16") ? bfloat16 : float16;
      // Rows of no expert are to stay as they are.
      const HostTensor y_before = c.random(float8_e4m3, {m, width}),
                       scales_before = c.random(float32, {m, blocks});
      const HostTensor experts = random_indices(c, m, 8), choice_of = random_indices(c, m, choices);
      HostTensor rotated(int32, {m});  // so that not the same rows lack both
      for (int64_t i = 0; i < m; ++i) rotated.set(i, choice_of.get((i + 3) % m));
      DeviceTensor x = c.input(dtype, {m, 2 * width}, 2.0), expert = c.input(experts),
                   choice = c.input(rotated), weights = c.input(float32, {choices}), y = c.input(y_before),
                   scales = c.input(scales_before);
      c.launch(kernel, m, width, choices, has_limit, limit, dtype, x, expert, choice, weights, y, scales);
      const std::vector<double> in = c.values(x), of_choice = c.values(weights);
      const auto value = [=](int64_t i, int64_t j) {
        double gate = in[static_cast<size_t>(2 * i * width + j)],
               up = in[static_cast<size_t>((2 * i + 1) * width + j)];
        if (has_limit) {
          gate = std::min<double>(gate, limit);
          up = std::clamp<double>(up, -limit, limit);
        }
        const auto at = static_cast<int64_t>(rotated.get(i));
        return gate / (1 + std::exp(-gate)) * up * (at < 0 ? 1 : of_choice[static_cast<size_t>(at)]);
      };
      const auto scale = [=](int64_t i, int64_t b) {
        double largest = 0;
        for (int64_t j = b * RoutedSwiglu::kBlock; j < (b + 1) * RoutedSwiglu::kBlock; ++j)
          largest = std::max(largest, std::abs(value(i, j)));
        return largest > 0 ? largest / RoutedSwiglu::kLargest : 1;
      };
      c.expect(scales, [=](std::span<double> out) {
        for (int64_t i = 0; i < m * blocks; ++i)
          out[i] = experts.get(i / blocks) < 0 ? scales_before.get(i) : scale(i / blocks, i % blocks);
      });
      c.expect(y, [=](std::span<double> out) {
        for (int64_t i = 0; i < m; ++i)
          for (int64_t b = 0; b < blocks; ++b) {
            const double by = experts.get(i) < 0 ? 1 : scale(i, b);
            for (int64_t j = b * RoutedSwiglu::kBlock; j < (b + 1) * RoutedSwiglu::kBlock; ++j)
              out[i * width + j] = experts.get(i) < 0 ? y_before.get(i * width + j) : value(i, j) / by;
          }
      });
    }};

}  // namespace imbrex::kernels
