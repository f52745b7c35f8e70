// SPDX-License-Identifier: Apache-2.0
// The products that the stand-ins for cuBLAS and cuBLASLt answer, computed by the host: copied from the device on the
// call's stream, multiplied in double precision and rounded once, copied back.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda_host/abi/driver_types.h"

namespace imbrex::blas {

/// cublasStatus_t.
enum Status : int {
  kSuccess = 0,
  kNotInitialized = 1,
  kInvalidValue = 7,
  kExecutionFailed = 13,
  kNotSupported = 15
};
/// cudaDataType_t, cublasOperation_t, cublasPointerMode_t: those that are answered.
enum Type : int { kFloat = 0, kDouble = 1, kHalf = 2, kInt8 = 3, kInt32 = 10, kBfloat16 = 14 };
enum Operation : int { kPlain = 0, kTransposed = 1, kConjugated = 2 };
enum PointerMode : int { kOnHost = 0, kOnDevice = 1 };
/// cublasLtEpilogue_t, as bits.
enum Epilogue : int { kNoEpilogue = 1, kRelu = 2, kBias = 4, kGelu = 32 };

/// A matrix in device memory, or one for each product of a batch.
struct Matrix {
  CUdeviceptr at = 0;
  std::vector<CUdeviceptr> each = {};  // of a batch by pointers; else `at` and the stride
  int type = kFloat;
  int64_t leading = 0;  // elements from column to column, or row to row
  bool by_rows = false;
  int64_t stride = 0;  // elements from product to product
  CUdeviceptr of(int64_t product) const { return each.empty() ? at : each[static_cast<size_t>(product)]; }
};

/// D = epilogue(alpha op(A) op(B) + beta C), D being m x n and op(A) m x k.
struct Product {
  const char* function = "";  // the call, for messages
  int64_t m = 0, n = 0, k = 0, batch = 1;
  int operation_a = kPlain, operation_b = kPlain;
  Matrix a, b, c, d;
  int scale = kFloat;  // the type of alpha and beta
  const void *alpha = nullptr, *beta = nullptr;
  int pointer_mode = kOnHost;
  int epilogue = kNoEpilogue;
  CUdeviceptr bias = 0;  // of m elements
  int bias_type = kFloat;
  int64_t bias_stride = 0;
  CUstream stream = nullptr;
};

Status run(const Product& product);

/// "CUBLAS_STATUS_SUCCESS", ...
const char* name(Status status);

/// cublasComputeType_t to the type of alpha and beta; -1 where the stand-in does not have it.
int scale_of_compute(int compute);

/// Says once on stderr that `function` was called for something that is not there.
Status refuse(const char* function, const char* what);

}  // namespace imbrex::blas

#define BLAS_API extern "C" __attribute__((visibility("default"))) imbrex::blas::Status
