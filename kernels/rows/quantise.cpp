// SPDX-License-Identifier: Apache-2.0
#include "imbrex/kernels/rows/quantise.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "imbrex/runtime/caller_line.h"
#include "kernel_of_device.h"
#include "rows/quantise_codes.h"
#include "rows/row_call.h"
#include "rows/row_case.h"

namespace imbrex {

LaunchReport quantise_float8(const DeviceTensor& x, const DeviceTensor& q, const DeviceTensor& scale,
                             const QuantiseOptions& options, SourceLocation where) {
  const CallerLine caller(where);
  RowCall call("quantise_float8", "x", x);
  call.result("q", q, {float8_e4m3});
  const bool has_gate = !options.gate.is_null();
  if (has_gate) call.operand("gate", options.gate);
  if (options.block != 0 && options.block != 128)
    call.refuse_first(fmt::format("is to be quantised in blocks of {} columns", options.block),
                      "blocks have 128 columns, or 0 for whole rows");
  if (!x.device().can_run(kernels::QuantiseRows::target))
    call.refuse_first(fmt::format("is on '{}', which has no float8", x.device().name()),
                      "devices of target sm_90 and later have it");
  std::vector<int64_t> shape = x.shape();
  shape.back() = options.block == 0 ? 1 : (call.columns() + options.block - 1) / options.block;
  call.check_scale("scale", scale, shape);
  // Scales of matrices that are taken for one must lie so too.
  const bool is_batch = shape.size() == 3;
  const size_t row = shape.size() - 2;
  if (is_batch && scale.strides()[0] != scale.strides()[row] * shape[row]) call.keep_matrices();
  const bool merged = is_batch && call.row_shape().matrices == 1;
  const int64_t scale_row = merged && shape[row] == 1 ? scale.strides()[0] : scale.strides()[row];
  return kernel_of_device<kernels::QuantiseRows>(x.device())
      .on(options.stream)(call.spanned_shape(), call.is_whole(), options.block, call.arguments(x), has_gate,
                          call.arguments(has_gate ? options.gate : x), options.activation, call.arguments(q),
                          scale.address(), scale_row, scale.strides().back(),
                          is_batch ? scale.strides()[0] : 0);
}

std::vector<MatmulCode> quantise_codes() {
  using kernels::RowTile;
  constexpr int kUnit = 16;
  constexpr uint64_t kSomewhere = 4096;
  std::set<int> widths;
  for (int64_t n = kUnit; n <= RowTile::kMostColumns; n += kUnit) widths.insert(kernels::tile_columns_of(n));
  std::vector<MatmulCode> codes;
  const auto add = [&](int width, bool is_whole, int block) {
    const auto with_arguments = [=](const auto& use) {
      const auto operand = [](DataType dtype) {
        return kernels::RowOperandArguments<>{dtype, kSomewhere, {kUnit / dtype.bytes(), 1, 0}};
      };
      return use(kernels::RowShapeArguments{1, 64, width / kUnit, kUnit, width}, is_whole, block,
                 operand(bfloat16), false, operand(bfloat16), QuantiseOptions().activation,
                 operand(float8_e4m3), kSomewhere, int64_t{1}, int64_t{1}, int64_t{0});
    };
    const auto kernel = [] { return library_kernel(kernels::QuantiseRows(), std::nullopt); };
    codes.push_back(
        {fmt::format("bfloat16 to float8 behind a product, rows of {} columns{}, a scale for {}", width,
                     is_whole ? "" : " at a time", block == 0 ? "each" : fmt::format("{} of them", block)),
         [=] {
           return with_arguments([&](const auto&... all) { return std::vector{kernel().trace(all...)}; });
         },
         [=](Cache& folder) { with_arguments([&](const auto&... all) { kernel().ship(folder, all...); }); }});
  };
  for (const int block : {0, 128}) {
    for (const int width : widths) add(width, true, block);
    add(RowTile::kPartColumns, false, block);
  }
  return codes;
}

namespace kernels {
namespace {

std::vector<SizeOption> quantise_sizes() {
  std::vector<SizeOption> sizes = row_sizes(61, 1000);
  sizes.push_back({"block", 128, "columns of a scale: 128, or 0 for whole rows"});
  sizes.push_back({"gate", 0, "1: quantises silu(gate) * x"});
  return sizes;
}

const KernelRegistration<QuantiseRows> registration{
    {"quantise_float8", "rows to float8, with a scale per row or per 128 columns", quantise_sizes()},
    [](Case& c, Kernel<QuantiseRows>& kernel) {
      const RowCase rows(c);
      const int64_t block = c.size("block"), width = block == 0 ? rows.n : block,
                    blocks = (rows.n + width - 1) / width;
      const bool has_gate = c.size("gate") != 0;
      DeviceTensor x = rows.input(), gate = has_gate ? rows.input() : x,
                   q = c.output(float8_e4m3, {rows.m, rows.n}), scale = c.output(float32, {blocks, rows.m});
      c.launch(kernel, rows.spanned_shape(float8_e4m3.bytes()), rows.is_whole(), block, rows.operand(x),
               has_gate, rows.operand(gate), Activation::kSilu, rows.operand(q), scale, int64_t{1}, rows.m,
               int64_t{0});
      const auto value = [&](const std::vector<double>& in, const std::vector<double>& through, int64_t i) {
        return has_gate ? in[i] * through[i] / (1 + std::exp(-through[i])) : in[i];
      };
      const auto scale_of = [&](const std::vector<double>& in, const std::vector<double>& through, int64_t i,
                                int64_t b) {
        double largest = 0;
        for (int64_t j = b * width; j < std::min(rows.n, (b + 1) * width); ++j)
          largest = std::max(largest, std::abs(value(in, through, i * rows.n + j)));
        return largest > 0 ? largest / QuantiseRows::kLargest : 1;
      };
      c.expect(scale, [&](std::span<double> out) {
        const std::vector<double> in = c.values(x), through = c.values(gate);
        for (int64_t i = 0; i < rows.m; ++i)
          for (int64_t b = 0; b < blocks; ++b) out[b * rows.m + i] = scale_of(in, through, i, b);
      });
      c.expect(q, [&](std::span<double> out) {
        const std::vector<double> in = c.values(x), through = c.values(gate);
        for (int64_t i = 0; i < rows.m; ++i)
          for (int64_t b = 0; b < blocks; ++b) {
            const double by = scale_of(in, through, i, b);
            for (int64_t j = b * width; j < std::min(rows.n, (b + 1) * width); ++j)
              out[i * rows.n + j] = value(in, through, i * rows.n + j) / by;
          }
      });
    }};

}  // namespace
}  // namespace kernels
}  // namespace imbrex
