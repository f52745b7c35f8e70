// SPDX-License-Identifier: Apache-2.0
// They are those of one group.
#include "matmul/block_scaled.h"

#include <fmt/ranges.h>

#include "grouped/tiled_kernels.h"
#include "imbrex/core/error.h"
#include "imbrex/kernels/grouped/hopper_grouped.h"
#include "tensor_fact.h"
#include "whole_rows.h"

namespace imbrex {
namespace {

using kernels::Optional;
using Kernel8 =
    kernels::HopperGroupedMatmul<kernels::BlockScales, kernels::OneGroup, Optional<kernels::Scale>,
                                 Optional<kernels::ColumnBias>, Optional<kernels::RowBias>,
                                 Optional<kernels::Residual>, kernels::Activate, kernels::Convert>;
constexpr int64_t kBlock = kernels::BlockScales::kBlock;

[[noreturn]] void refuse(std::string message, std::vector<std::string> facts, std::string help) {
  throw LaunchError(Diagnostic{{}, "matmul: " + std::move(message), std::move(facts), std::move(help)});
}

void check_scales(const char* name, const DeviceTensor& t, const DeviceTensor& a,
                  const std::vector<int64_t>& shape, std::string_view what) {
  if (t.is_null())
    refuse("one operand has scales of blocks, the other none", {}, "give both scale_a and scale_b");
  if (t.dtype() != float32 || t.shape() != shape)
    refuse(fmt::format("{} is not float32 [{}]", name, fmt::join(shape, ", ")), {tensor_fact(name, t)},
           fmt::format("scales of blocks are {}, quotients rounded up", what));
  if (t.address() == 0 || &t.device().backend() != &a.device().backend())
    refuse(fmt::format("{} is released, or on another device than a", name), {tensor_fact(name, t)},
           "copy it to a's device");
  if (shape[1] > 1 && t.strides()[1] != 1)
    refuse(fmt::format("neighbours in a row of {} are {} apart", name, t.strides()[1]),
           {tensor_fact(name, t)}, "make its rows dense");
}

constexpr MatmulChoice kTiles[] = {grouped_tile(192, 128, 5, 3, 1, 1, 1),
                                   grouped_tile(128, 128, 6, 2, 1, 2, 2),
                                   grouped_tile(64, 128, 8, 1, 1, 1, 2)};

}  // namespace

bool has_block_scales(const Problem& p, const MatmulOptions& options) {
  const auto are_blocks = [](const DeviceTensor& t, int64_t rows) {
    return !t.is_null() && t.shape().size() == 2 && t.bytes() != float32.bytes() &&
           t.bytes() != float32.bytes() * rows;
  };
  return are_blocks(options.scale_a, p.m) || are_blocks(options.scale_b, p.n);
}

LaunchReport run_block_scaled(Until until, const Problem& p, const DeviceTensor& a, const DeviceTensor& b,
                              const DeviceTensor& c, const MatmulOptions& o) {
  const std::vector facts{tensor_fact("a", a), tensor_fact("b", b), tensor_fact("c", c)};
  if (a.dtype() != float8_e4m3)
    refuse(fmt::format("scales of blocks with operands of {}", a.dtype().name()), facts,
           "they are for float8_e4m3");
  if (c.shape().size() != 2 || a.shape().size() != 2 || b.shape().size() != 2 || o.a_is_km || o.b_is_kn)
    refuse("scales of blocks belong to matrices a [m, k] and b [n, k]", facts,
           "for several products call grouped_matmul()");
  if (c.dtype().bits() != 16)
    refuse("with scales of blocks c is of 16 bits", facts, "give it float16 or bfloat16");
  if (!c.is_dense() || c.address() % 16 != 0)
    refuse("with scales of blocks c is dense and begins at a multiple of 16 bytes", facts, "copy it");
  if (p.n % 8 != 0)
    refuse(fmt::format("with scales of blocks n is a multiple of 8; it is {}", p.n), facts,
           "pad the rows of b and those of c");
  const int64_t k_blocks = (p.k + kBlock - 1) / kBlock, n_blocks = (p.n + kBlock - 1) / kBlock;
  check_scales("scale_a", o.scale_a, a, {k_blocks, p.m}, "[k / 128, m]");
  check_scales("scale_b", o.scale_b, a, {n_blocks, k_blocks}, "[n / 128, k / 128]");
  if (!o.scale_b.is_dense()) refuse("scale_b is not dense", {tensor_fact("scale_b", o.scale_b)}, "copy it");
  if (!o.residual.is_null() && !o.residual.is_dense())
    refuse("with scales of blocks the residual is dense", {tensor_fact("residual", o.residual)}, "copy it");

  WholeRows whole(a.device(), o.stream, until == Until::kLaunched);
  const DeviceTensor a_rows = whole(a), b_rows = whole(b);
  LaunchReport copies = whole.copy();
  const int64_t k = a_rows.shape()[1];

  const bool has_bias = !o.bias.is_null(), is_column = has_bias && is_column_bias(o.bias, p.n);
  const DataType bias_type = has_bias ? o.bias.dtype() : c.dtype();
  const uint64_t bias = has_bias ? o.bias.address() : c.address();
  const uint64_t residual = o.residual.is_null() ? c.address() : o.residual.address();
  static auto& kernels =
      *new TiledKernels<Kernel8, std::tuple<>>;  // never freed: at exit the driver may be unloaded first
  LaunchReport report = kernels.run(
      a.device(), kTiles, p.m, p.n, k, a.dtype().bits(), {},
      [&](Kernel<Kernel8>& kernel, const Kernel8& tile) {
        const auto with_arguments = [&](const auto& use) {
          return use(kernels::product_sizes(tile, p.m, p.n, k, a.device().multiprocessors()), 1, 1, false, 0,
                     a.dtype(), c.address(), a_rows.address(), b_rows.address(), c.address(),
                     o.scale_a.address(), o.scale_a.strides()[0], o.scale_b.address(), o.alpha != 1, o.alpha,
                     is_column, bias_type, bias, has_bias && !is_column, bias_type, bias, o.beta != 0, o.beta,
                     residual, o.activation, c.dtype());
        };
        if (until == Until::kLaunched)
          return with_arguments([&](const auto&... all) { return kernel.on(o.stream)(all...); });
        with_arguments([&](const auto&... all) { kernel.prepare(all...); });
        return LaunchReport();
      });
  return copies.clean() ? report : copies;
}

}  // namespace imbrex
