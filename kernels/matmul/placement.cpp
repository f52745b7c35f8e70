// SPDX-License-Identifier: Apache-2.0
#include "matmul/placement.h"

#include <algorithm>
#include <utility>

#include "repacker.h"
#include "row_tensors.h"
#include "scratch_like.h"

namespace imbrex {
namespace {

using kernels::MatrixStridesArguments;

constexpr int64_t kUnitBytes = 16;  // of addresses and strides that TMA takes, and of the widest vector

/// The matrices of a tensor, as they lie in memory. Strides that nothing depends on are 0, or 1 for neighbours.
struct Placed {
  uint64_t address;
  DataType dtype;
  int64_t matrices, rows, columns;  // one matrix: shared by all
  int64_t batch, row, column;       // strides, in elements

  explicit Placed(const DeviceTensor& t) : address(t.address()), dtype(t.dtype()) {
    const size_t first = t.shape().size() - 2;
    matrices = first == 0 ? 1 : t.shape()[0];
    rows = t.shape()[first], columns = t.shape()[first + 1];
    batch = matrices == 1 ? 0 : t.strides()[0];
    row = t.strides()[first], column = t.strides()[first + 1];
    settle();
  }
  /// Dense copies, whose rows begin at multiples of 16 bytes.
  Placed(const Placed& of, uint64_t at) : Placed(of) {
    const int64_t unit = kUnitBytes / dtype.bytes();
    address = at;
    row = (columns + unit - 1) / unit * unit;
    column = 1;
    if (batch == 0) matrices = 1;
    batch = matrices == 1 ? 0 : rows * row;
    settle();
  }

  Placed transposed() const {
    Placed t = *this;
    std::swap(t.rows, t.columns);
    std::swap(t.row, t.column);
    return t;
  }
  /// Bytes of such copies.
  int64_t bytes() const { return std::max<int64_t>(matrices, 1) * rows * row * dtype.bytes(); }
  int64_t unit() const { return unit_of(address, dtype, rows == 1 ? 0 : row, matrices == 1 ? 0 : batch); }
  bool has_units_of_16_bytes() const { return unit() * dtype.bytes() == kUnitBytes; }
  MatrixStridesArguments strides() const {
    const int64_t u = unit();
    return {static_cast<int>(u), rows == 1 ? 0 : row / u, matrices == 1 ? 0 : batch / u};
  }

 private:
  void settle() {
    if (columns == 1 && row != 1) column = 1;
  }
};

/// Finds room for the copies of one call, and makes them.
class Copier {
 public:
  Copier(Until until, const Device& device, const Stream& stream, Placement& placement)
      : until_(until),
        device_(device),
        stream_(stream),
        placement_(placement),
        repacker_(device, stream, until == Until::kLaunched) {}

  /// The matrices in rows that begin at multiples of 16 bytes, after make().
  Placed operator()(const Placed& from) {
    Placed to(from, kUnitBytes);  // where it would be, for compiling
    if (until_ == Until::kLaunched) {
      placement_.copied.push_back(Workspace::on(stream_, device_, to.bytes()));
      to.address = placement_.copied.back().address();
    }
    repacker_.add({from.dtype, to.matrices, from.rows, from.columns, to.row, from.address, from.batch,
                   from.row, from.column, to.address, to.strides()});
    return to;
  }
  void make() { placement_.copies = repacker_.copy(); }

 private:
  Until until_;
  Device device_;
  const Stream& stream_;
  Placement& placement_;
  Repacker repacker_;
};

/// An operand as TMA reads it, and whether it has k first.
struct Operand {
  Placed at;
  bool k_first;
};
Operand operand(const DeviceTensor& t, bool k_first, Copier& copy) {
  Operand o{Placed(t), k_first};
  if (o.at.row == 1 && (o.at.column != 1 || o.at.columns == 1)) o = {o.at.transposed(), !o.k_first};
  // The tensor cores take operands of 8 bits with k contiguous only.
  if (t.dtype().bits() == 8 && o.k_first) return {copy(o.at.transposed()), false};
  if (o.at.column != 1 || !o.at.has_units_of_16_bytes()) o.at = copy(o.at);
  return o;
}

bool is_aligned(const DeviceTensor& t) { return t.address() % kUnitBytes == 0; }
bool has_whole_rows(const DeviceTensor& t) { return t.shape()[1] * t.dtype().bytes() % kUnitBytes == 0; }
/// Whether dense kernels can take what a product is added to and stored in.
bool has_dense_result(const DeviceTensor& c, const MatmulOptions& options) {
  for (const DeviceTensor* t : {&c, &options.bias, &options.residual})
    if (!t->is_null() && (!t->is_dense() || !is_aligned(*t))) return false;
  return c.shape().size() == 2;
}

}  // namespace

bool is_dense_call(const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& c,
                   const MatmulOptions& options) {
  for (const DeviceTensor* t : {&a, &b})
    if (t->shape().size() != 2 || !t->is_dense() || !is_aligned(*t) || !has_whole_rows(*t)) return false;
  if ((options.a_is_km || options.b_is_kn) && a.dtype().bits() == 8) return false;
  return has_dense_result(c, options);
}

bool is_dense_but_for_k(const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& c,
                        const MatmulOptions& options) {
  if (options.a_is_km || options.b_is_kn) return false;
  for (const DeviceTensor* t : {&a, &b})
    if (t->shape().size() != 2 || !t->is_dense() || has_whole_rows(*t)) return false;
  return has_dense_result(c, options);
}
Placement::Placement(Until until, const Problem& problem, const DeviceTensor& a, const DeviceTensor& b,
                     const DeviceTensor& c, const MatmulOptions& o) {
  Copier copy(until, a.device(), o.stream, *this);
  Placed c_at(c);
  // Where the columns of C are contiguous, C^T = B A^T is computed.
  const bool swaps = c_at.column != 1;
  if (swaps) c_at = c_at.transposed();
  const Operand x = operand(a, o.a_is_km, copy), y = operand(b, o.b_is_kn, copy);
  const Operand &rows = swaps ? y : x, &columns = swaps ? x : y;

  Placed residual = c_at;
  if (o.beta != 0 && !o.residual.is_null()) {
    residual = Placed(o.residual);
    if (swaps) residual = residual.transposed();
    if (residual.column != 1) residual = copy(residual);
  }
  copy.make();
  DeviceTensor bias = o.bias;
  const bool is_column = !bias.is_null() && is_column_bias(bias, problem.n);
  if (!bias.is_null() && (!bias.is_dense() || bias.address() % kUnitBytes != 0)) {
    bias = scratch_like(o.bias, o.stream, copied);
    if (until == Until::kLaunched) bias.copy_from(o.bias, o.stream);
  }

  const auto address_of = [](const DeviceTensor& t) { return t.is_null() ? 0 : t.address(); };
  const int64_t n = swaps ? problem.m : problem.n;
  const bool has_tma_rows = c_at.has_units_of_16_bytes() && n * c.dtype().bytes() % kUnitBytes == 0;
  // Rows that begin within a sector of 32 bytes are stored faster by threads.
  const bool has_whole_sectors = c_at.rows == 1 || c_at.row * c.dtype().bytes() % 32 == 0;
  product = {.m = swaps ? problem.n : problem.m,
             .n = n,
             .k = problem.k,
             .dtype = a.dtype(),
             .c_type = c.dtype(),
             .a = rows.at.address,
             .b = columns.at.address,
             .c = c_at.address,
             .a_is_km = rows.k_first,
             .b_is_kn = columns.k_first,
             .alpha = o.alpha,
             .scales_a = factors_of(swaps ? o.scale_b : o.scale_a, kernels::Factors::kPerRow),
             .scales_b = factors_of(swaps ? o.scale_a : o.scale_b, kernels::Factors::kPerColumn),
             .scale_a = address_of(swaps ? o.scale_b : o.scale_a),
             .scale_b = address_of(swaps ? o.scale_a : o.scale_b),
             .bias = bias,
             .is_column_bias = is_column != swaps,
             .beta = o.beta,
             .residual = residual.address,
             .activation = o.activation,
             .strides = Product::Strides{.batch = {.matrices = problem.matrices,
                                                   .a = rows.at.strides(),
                                                   .b = columns.at.strides(),
                                                   .c = c_at.strides(),
                                                   .c_has_tma_rows = has_tma_rows && has_whole_sectors},
                                         .residual = residual.strides()}};
}

}  // namespace imbrex
