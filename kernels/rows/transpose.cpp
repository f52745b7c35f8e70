// SPDX-License-Identifier: Apache-2.0
#include "imbrex/kernels/rows/transpose.h"

#include <fmt/format.h>

#include <numeric>

#include "imbrex/runtime/caller_line.h"
#include "kernel_of_device.h"
#include "row_tensors.h"
#include "rows/row_call.h"
#include "rows/row_case.h"

namespace imbrex {
namespace {

/// A type of as many bits: what is moved is not read.
DataType carrier(int bits) { return bits == 8 ? uint8 : bits == 16 ? float16 : int32; }

kernels::MatrixStridesArguments strides_of(const DeviceTensor& x) {
  const size_t row = x.shape().size() - 2;
  const int64_t rows = x.shape()[row] == 1 ? 0 : x.strides()[row],
                batch = row == 0 || x.shape()[0] == 1 ? 0 : x.strides()[0];
  const int64_t unit = unit_of(x.address(), x.dtype(), rows, batch);
  return {static_cast<int>(unit), rows / unit, batch / unit};
}

}  // namespace

LaunchReport transpose(const DeviceTensor& x, const DeviceTensor& y, const Stream& stream,
                       SourceLocation where) {
  const CallerLine caller(where);
  RowCall call("transpose", "x", x, RowCall::Types::kAny);
  const int bits = x.dtype().bits();
  if (bits != 8 && bits != 16 && bits != 32)
    call.refuse_first(fmt::format("has elements of {} bits, not 8, 16 or 32", bits),
                      "view it as another type");
  std::vector<int64_t> shape = x.shape();
  std::swap(shape[shape.size() - 1], shape[shape.size() - 2]);
  call.check_written("y", y, shape, x.dtype());
  if (y.address() == x.address()) call.refuse_first("lies where y does", "write to memory of its own");
  const int64_t m = call.rows(), n = call.columns(), m_unit = std::gcd(m, int64_t{16}),
                n_unit = std::gcd(n, int64_t{16});
  return kernel_of_device<kernels::Transpose>(x.device())
      .on(stream)(call.matrices(), m / m_unit, static_cast<int>(m_unit), n / n_unit, static_cast<int>(n_unit),
                  carrier(bits), x.address(), strides_of(x), y.address(), strides_of(y));
}

namespace kernels {
namespace {

const KernelRegistration<Transpose> registration{
    {"transpose", "y[j, i] = x[i, j]", row_sizes(200, 136)}, [](Case& c, Kernel<Transpose>& kernel) {
      const RowCase rows(c);
      DeviceTensor x = rows.input(), y = c.output(rows.dtype, {rows.n, rows.m});
      const int64_t m_unit = std::gcd(rows.m, int64_t{16}), n_unit = std::gcd(rows.n, int64_t{16});
      c.launch(kernel, 1, rows.m / m_unit, static_cast<int>(m_unit), rows.n / n_unit,
               static_cast<int>(n_unit), rows.dtype, x, rows.operand(x).strides, y, rows.operand(y).strides);
      c.expect(y, [&](std::span<double> out) {
        const std::vector<double> in = c.values(x);
        for (int64_t i = 0; i < rows.m; ++i)
          for (int64_t j = 0; j < rows.n; ++j) out[j * rows.m + i] = in[i * rows.n + j];
      });
    }};

}  // namespace
}  // namespace kernels
}  // namespace imbrex
