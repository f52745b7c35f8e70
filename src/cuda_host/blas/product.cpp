// SPDX-License-Identifier: Apache-2.0
#include "cuda_host/blas/product.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <mutex>
#include <set>
#include <string>

#include "core/float_formats.h"
#include "cuda_host/abi/driver_functions.h"

extern "C" void imbrexNoteStandIn(const char* function);

namespace imbrex::blas {
namespace {

int64_t bytes_of(int type) {
  switch (type) {
    case kDouble:
      return 8;
    case kFloat:
    case kInt32:
      return 4;
    case kHalf:
    case kBfloat16:
      return 2;
    case kInt8:
      return 1;
    default:
      return 0;
  }
}

template <class T>
T read(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
double load(int type, const std::byte* from) {
  switch (type) {
    case kDouble:
      return read<double>(from);
    case kFloat:
      return read<float>(from);
    case kHalf:
      return arith::f16_to_f32(read<uint16_t>(from));
    case kBfloat16:
      return arith::bf16_to_f32(read<uint16_t>(from));
    case kInt32:
      return read<int32_t>(from);
    default:
      return read<int8_t>(from);
  }
}

template <class T>
void write(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}
template <class T>
T saturated(double value) {
  const double rounded = std::nearbyint(value);
  if (std::isnan(rounded)) return 0;
  return static_cast<T>(std::clamp(rounded, static_cast<double>(std::numeric_limits<T>::min()),
                                   static_cast<double>(std::numeric_limits<T>::max())));
}
void store(int type, std::byte* to, double value) {
  switch (type) {
    case kDouble:
      return write(to, value);
    case kFloat:
      return write(to, static_cast<float>(value));
    case kHalf:
      return write(to, arith::f32_to_f16(static_cast<float>(value)));
    case kBfloat16:
      return write(to, arith::f32_to_bf16(static_cast<float>(value)));
    case kInt32:
      return write(to, saturated<int32_t>(value));
    default:
      return write(to, saturated<int8_t>(value));
  }
}

/// A matrix's bytes on the host.
class HostMatrix {
 public:
  HostMatrix(const Matrix& matrix, int64_t rows, int64_t columns)
      : leading_(matrix.leading), by_rows_(matrix.by_rows), element_(bytes_of(matrix.type)) {
    const int64_t lines = matrix.by_rows ? rows : columns, length = matrix.by_rows ? columns : rows;
    if (lines > 0 && length > 0)
      bytes_.resize(static_cast<size_t>(((lines - 1) * matrix.leading + length) * element_));
    line_bytes_ = length * element_;
    lines_ = lines;
  }
  bool fetch(CUdeviceptr from, CUstream stream) {
    return bytes_.empty() || cuMemcpyDtoHAsync_v2(bytes_.data(), from, bytes_.size(), stream) == CUDA_SUCCESS;
  }
  /// Line by line: what lies between lines is not the matrix's.
  bool put(CUdeviceptr to, CUstream stream) const {
    const auto pitch = static_cast<size_t>(leading_ * element_);
    for (int64_t line = 0; line < lines_; ++line) {
      const size_t at = static_cast<size_t>(line) * pitch;
      if (cuMemcpyHtoDAsync_v2(to + at, bytes_.data() + at, static_cast<size_t>(line_bytes_), stream) !=
          CUDA_SUCCESS)
        return false;
    }
    return true;
  }
  std::byte* at(int64_t row, int64_t column) {
    const int64_t index = by_rows_ ? row * leading_ + column : column * leading_ + row;
    return bytes_.data() + index * element_;
  }

 private:
  int64_t leading_;
  bool by_rows_;
  int64_t element_, line_bytes_ = 0, lines_ = 0;
  std::vector<std::byte> bytes_;
};

/// op(matrix) of rows x columns as double: row by row, or column by column.
std::vector<double> widened(const Matrix& matrix, HostMatrix& host, int64_t rows, int64_t columns,
                            bool is_transposed, bool by_rows) {
  std::vector<double> out(static_cast<size_t>(rows * columns));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      out[static_cast<size_t>(by_rows ? r * columns + c : c * rows + r)] =
          load(matrix.type, is_transposed ? host.at(c, r) : host.at(r, c));
  return out;
}

double finished(int epilogue, double value) {
  if ((epilogue & kRelu) != 0) return std::max(value, 0.0);
  if ((epilogue & kGelu) == 0) return value;
  constexpr double kRootOfTwoByPi = 0.7978845608028654;  // the approximation by tanh, as cuBLASLt's
  return 0.5 * value * (1 + std::tanh(kRootOfTwoByPi * (value + 0.044715 * value * value * value)));
}

bool fetch_scalar(const Product& p, const void* from, double& value) {
  std::byte bytes[8] = {};
  const auto size = static_cast<size_t>(bytes_of(p.scale));
  if (from == nullptr) return false;
  if (p.pointer_mode == kOnHost)
    std::memcpy(bytes, from, size);
  else if (cuMemcpyDtoHAsync_v2(bytes, reinterpret_cast<CUdeviceptr>(from), size, p.stream) != CUDA_SUCCESS)
    return false;
  value = load(p.scale, bytes);
  return true;
}

Status multiply(const Product& p, int64_t which, double alpha, double beta) {
  const bool ta = p.operation_a != kPlain, tb = p.operation_b != kPlain;
  HostMatrix a(p.a, ta ? p.k : p.m, ta ? p.m : p.k), b(p.b, tb ? p.n : p.k, tb ? p.k : p.n);
  HostMatrix c(p.c, p.m, p.n), d(p.d, p.m, p.n);
  HostMatrix bias({.type = p.bias_type, .leading = p.m}, p.m, 1);
  const auto address = [&](const Matrix& matrix) {
    return matrix.of(which) +
           (matrix.each.empty() ? static_cast<uint64_t>(which * matrix.stride * bytes_of(matrix.type)) : 0);
  };
  bool good = alpha == 0 || (a.fetch(address(p.a), p.stream) && b.fetch(address(p.b), p.stream));
  good = good && (beta == 0 || c.fetch(address(p.c), p.stream));
  if ((p.epilogue & kBias) != 0)
    good = good && bias.fetch(p.bias + static_cast<uint64_t>(which * p.bias_stride * bytes_of(p.bias_type)),
                              p.stream);
  if (!good) return kExecutionFailed;
  std::vector<double> wide_a, wide_b;
  if (alpha != 0) {
    wide_a = widened(p.a, a, p.m, p.k, ta, false);
    wide_b = widened(p.b, b, p.k, p.n, tb, false);
  }
  std::vector<double> column(static_cast<size_t>(p.m));
  for (int64_t j = 0; j < p.n; ++j) {
    std::fill(column.begin(), column.end(), 0.0);
    for (int64_t l = 0; alpha != 0 && l < p.k; ++l) {
      const double factor = wide_b[static_cast<size_t>(j * p.k + l)];
      const double* from = wide_a.data() + l * p.m;
      for (int64_t i = 0; i < p.m; ++i) column[static_cast<size_t>(i)] += from[i] * factor;
    }
    for (int64_t i = 0; i < p.m; ++i) {
      double value = alpha == 0 ? 0 : alpha * column[static_cast<size_t>(i)];
      if (beta != 0) value += beta * load(p.c.type, c.at(i, j));
      if ((p.epilogue & kBias) != 0) value += load(p.bias_type, bias.at(i, 0));
      store(p.d.type, d.at(i, j), finished(p.epilogue, value));
    }
  }
  return d.put(address(p.d), p.stream) ? kSuccess : kExecutionFailed;
}

}  // namespace

Status refuse(const char* function, const char* what) {
  static std::mutex mutex;
  static std::set<std::string> told;
  const std::lock_guard lock(mutex);
  if (told.insert(std::string(function) + what).second)
    std::fprintf(stderr,
                 "imbrex: %s: the stand-in for cuBLAS does not have this: %s (CUBLAS_STATUS_NOT_SUPPORTED)\n",
                 function, what);
  return kNotSupported;
}

const char* name(Status status) {
  switch (status) {
    case kSuccess:
      return "CUBLAS_STATUS_SUCCESS";
    case kNotInitialized:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case kInvalidValue:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case kExecutionFailed:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case kNotSupported:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
  return "unknown status";
}

int scale_of_compute(int compute) {
  switch (compute) {
    case 64:
    case 65:  // CUBLAS_COMPUTE_16F
      return kHalf;
    case 68:
    case 69:
    case 74:
    case 75:
    case 77:
    case 78:  // 32F and what may be done in less
      return kFloat;
    case 70:
    case 71:  // 64F
      return kDouble;
    case 72:
    case 73:  // 32I
      return kInt32;
    default:
      return -1;
  }
}

Status run(const Product& p) {
  for (const Matrix* matrix : {&p.a, &p.b, &p.c, &p.d})
    if (bytes_of(matrix->type) == 0)
      return refuse(p.function, "elements that are complex, or of float8 or less");
  if (p.operation_a > kConjugated || p.operation_b > kConjugated || p.operation_a < 0 || p.operation_b < 0)
    return kInvalidValue;
  if ((p.epilogue & ~(kNoEpilogue | kRelu | kBias | kGelu)) != 0)
    return refuse(p.function, "epilogues for gradients or with an auxiliary output");
  if (p.m < 0 || p.n < 0 || p.k < 0 || p.batch < 0) return kInvalidValue;
  const auto is_short = [](const Matrix& matrix, int64_t rows, int64_t columns) {
    return matrix.leading < std::max<int64_t>(1, matrix.by_rows ? columns : rows);
  };
  const bool ta = p.operation_a != kPlain, tb = p.operation_b != kPlain;
  if (is_short(p.a, ta ? p.k : p.m, ta ? p.m : p.k) || is_short(p.b, tb ? p.n : p.k, tb ? p.k : p.n) ||
      is_short(p.d, p.m, p.n))
    return kInvalidValue;
  int capturing = 0;
  if (cuStreamIsCapturing(p.stream, &capturing) != CUDA_SUCCESS) return kExecutionFailed;
  if (capturing != 0) return refuse(p.function, "calls while the stream is captured");
  double alpha = 0, beta = 0;
  if (!fetch_scalar(p, p.alpha, alpha) || !fetch_scalar(p, p.beta, beta)) return kInvalidValue;
  imbrexNoteStandIn(p.function);
  if (p.m == 0 || p.n == 0) return kSuccess;
  for (int64_t i = 0; i < p.batch; ++i)
    if (const Status status = multiply(p, i, alpha, beta); status != kSuccess) return status;
  return kSuccess;
}

}  // namespace imbrex::blas
