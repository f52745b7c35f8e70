// SPDX-License-Identifier: Apache-2.0
// cuBLAS: handles, and its products of real matrices. Everything else is in missing.def.
#include <cstring>

#include "cuda_host/abi/driver_functions.h"
#include "cuda_host/blas/product.h"

using namespace imbrex::blas;

namespace {

/// cublasHandle_t.
struct Handle {
  CUstream stream = nullptr;
  int pointer_mode = kOnHost, math_mode = 0, atomics_mode = 0, sm_count = 0;
};

constexpr int kVersion = IMBREX_CUDART_MAJOR * 10000;

struct Gemm {
  const char* function;
  Handle* handle;
  int operation_a, operation_b;
  int64_t m, n, k;
  const void* alpha;
  const void* beta;
};
Matrix matrix(const void* at, int type, int64_t leading, int64_t stride = 0) {
  return {.at = reinterpret_cast<CUdeviceptr>(at), .type = type, .leading = leading, .stride = stride};
}
Status gemm(const Gemm& g, const Matrix& a, const Matrix& b, const Matrix& c, int scale, int64_t batch = 1) {
  if (g.handle == nullptr) return kNotInitialized;
  if (scale < 0) return refuse(g.function, "this compute type");
  return run({.function = g.function,
              .m = g.m,
              .n = g.n,
              .k = g.k,
              .batch = batch,
              .operation_a = g.operation_a,
              .operation_b = g.operation_b,
              .a = a,
              .b = b,
              .c = c,
              .d = c,
              .scale = scale,
              .alpha = g.alpha,
              .beta = g.beta,
              .pointer_mode = g.handle->pointer_mode,
              .stream = g.handle->stream});
}

/// A batch by pointers, which lie in device memory.
bool fetch(const Handle& handle, const void* const* array, int batch, Matrix& matrix) {
  matrix.each.resize(static_cast<size_t>(batch));
  return batch == 0 ||
         cuMemcpyDtoHAsync_v2(matrix.each.data(), reinterpret_cast<CUdeviceptr>(array),
                              static_cast<size_t>(batch) * sizeof(void*), handle.stream) == CUDA_SUCCESS;
}

}  // namespace

BLAS_API cublasCreate_v2(Handle** handle) {
  if (handle == nullptr) return kInvalidValue;
  CUcontext context = nullptr;
  if (cuInit(0) != CUDA_SUCCESS) return kNotInitialized;
  if (cuCtxGetCurrent(&context) == CUDA_SUCCESS && context == nullptr)
    if (cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS || cuCtxSetCurrent(context) != CUDA_SUCCESS)
      return kNotInitialized;
  *handle = new Handle;
  return kSuccess;
}
BLAS_API cublasDestroy_v2(Handle* handle) {
  if (handle == nullptr) return kNotInitialized;
  delete handle;
  return kSuccess;
}
BLAS_API cublasGetVersion_v2(Handle*, int* version) {
  *version = kVersion;
  return kSuccess;
}
BLAS_API cublasGetProperty(int which, int* value) {
  *value = which == 0 ? IMBREX_CUDART_MAJOR : 0;
  return kSuccess;
}
extern "C" __attribute__((visibility("default"))) size_t cublasGetCudartVersion() {
  return IMBREX_CUDART_MAJOR * 1000;
}

#define ATTRIBUTE(get, set, type, field)           \
  BLAS_API set(Handle* handle, type value) {       \
    if (handle == nullptr) return kNotInitialized; \
    handle->field = value;                         \
    return kSuccess;                               \
  }                                                \
  BLAS_API get(Handle* handle, type* value) {      \
    if (handle == nullptr) return kNotInitialized; \
    *value = handle->field;                        \
    return kSuccess;                               \
  }
ATTRIBUTE(cublasGetStream_v2, cublasSetStream_v2, CUstream, stream)
ATTRIBUTE(cublasGetPointerMode_v2, cublasSetPointerMode_v2, int, pointer_mode)
ATTRIBUTE(cublasGetMathMode, cublasSetMathMode, int, math_mode)
ATTRIBUTE(cublasGetAtomicsMode, cublasSetAtomicsMode, int, atomics_mode)
ATTRIBUTE(cublasGetSmCountTarget, cublasSetSmCountTarget, int, sm_count)
#undef ATTRIBUTE
/// No header has it; NVIDIA's solver library calls it.
BLAS_API cublasSetEnvironmentMode(Handle* handle, int) {
  return handle == nullptr ? kNotInitialized : kSuccess;
}
BLAS_API cublasSetWorkspace_v2(Handle* handle, void*, size_t) {
  return handle == nullptr ? kNotInitialized : kSuccess;
}

extern "C" __attribute__((visibility("default"))) const char* cublasGetStatusName(Status status) {
  return name(status);
}
extern "C" __attribute__((visibility("default"))) const char* cublasGetStatusString(Status status) {
  return name(status);
}

// Each once more with 64-bit sizes.
#define GEMM(letter, element, scale_type)                                                                    \
  IMBREX_GEMM(cublas##letter##gemm_v2, cublas##letter##gemmStridedBatched, cublas##letter##gemmBatched, int, \
              element, scale_type)                                                                           \
  IMBREX_GEMM(cublas##letter##gemm_v2_64, cublas##letter##gemmStridedBatched_64,                             \
              cublas##letter##gemmBatched_64, int64_t, element, scale_type)
#define IMBREX_GEMM(plain, strided, batched, size, element, scale_type)                                      \
  BLAS_API plain(Handle* h, int ta, int tb, size m, size n, size k, const void* alpha, const void* a,        \
                 size lda, const void* b, size ldb, const void* beta, void* c, size ldc) {                   \
    return gemm({#plain, h, ta, tb, m, n, k, alpha, beta}, matrix(a, element, lda), matrix(b, element, ldb), \
                matrix(c, element, ldc), scale_type);                                                        \
  }                                                                                                          \
  BLAS_API strided(Handle* h, int ta, int tb, size m, size n, size k, const void* alpha, const void* a,      \
                   size lda, long long sa, const void* b, size ldb, long long sb, const void* beta, void* c, \
                   size ldc, long long sc, size batch) {                                                     \
    return gemm({#strided, h, ta, tb, m, n, k, alpha, beta}, matrix(a, element, lda, sa),                    \
                matrix(b, element, ldb, sb), matrix(c, element, ldc, sc), scale_type, batch);                \
  }                                                                                                          \
  BLAS_API batched(Handle* h, int ta, int tb, size m, size n, size k, const void* alpha,                     \
                   const void* const* a, size lda, const void* const* b, size ldb, const void* beta,         \
                   void* const* c, size ldc, size batch) {                                                   \
    if (h == nullptr) return kNotInitialized;                                                                \
    Matrix ma = matrix(nullptr, element, lda), mb = matrix(nullptr, element, ldb),                           \
           mc = matrix(nullptr, element, ldc);                                                               \
    const auto count = static_cast<int>(batch);                                                              \
    if (!fetch(*h, a, count, ma) || !fetch(*h, b, count, mb) || !fetch(*h, c, count, mc))                    \
      return kExecutionFailed;                                                                               \
    return gemm({#batched, h, ta, tb, m, n, k, alpha, beta}, ma, mb, mc, scale_type, batch);                 \
  }
GEMM(S, kFloat, kFloat)
GEMM(D, kDouble, kDouble)
IMBREX_GEMM(cublasHgemm, cublasHgemmStridedBatched, cublasHgemmBatched, int, kHalf, kHalf)
IMBREX_GEMM(cublasHgemm_64, cublasHgemmStridedBatched_64, cublasHgemmBatched_64, int64_t, kHalf, kHalf)

#define IMBREX_GEMM_EX(plain, strided, batched, single, size)                                               \
  BLAS_API plain(Handle* h, int ta, int tb, size m, size n, size k, const void* alpha, const void* a,       \
                 int type_a, size lda, const void* b, int type_b, size ldb, const void* beta, void* c,      \
                 int type_c, size ldc, int compute, int) {                                                  \
    return gemm({#plain, h, ta, tb, m, n, k, alpha, beta}, matrix(a, type_a, lda), matrix(b, type_b, ldb),  \
                matrix(c, type_c, ldc), scale_of_compute(compute));                                         \
  }                                                                                                         \
  BLAS_API strided(Handle* h, int ta, int tb, size m, size n, size k, const void* alpha, const void* a,     \
                   int type_a, size lda, long long sa, const void* b, int type_b, size ldb, long long sb,   \
                   const void* beta, void* c, int type_c, size ldc, long long sc, size batch, int compute,  \
                   int) {                                                                                   \
    return gemm({#strided, h, ta, tb, m, n, k, alpha, beta}, matrix(a, type_a, lda, sa),                    \
                matrix(b, type_b, ldb, sb), matrix(c, type_c, ldc, sc), scale_of_compute(compute), batch);  \
  }                                                                                                         \
  BLAS_API batched(Handle* h, int ta, int tb, size m, size n, size k, const void* alpha,                    \
                   const void* const* a, int type_a, size lda, const void* const* b, int type_b, size ldb,  \
                   const void* beta, void* const* c, int type_c, size ldc, size batch, int compute, int) {  \
    if (h == nullptr) return kNotInitialized;                                                               \
    Matrix ma = matrix(nullptr, type_a, lda), mb = matrix(nullptr, type_b, ldb),                            \
           mc = matrix(nullptr, type_c, ldc);                                                               \
    const auto count = static_cast<int>(batch);                                                             \
    if (!fetch(*h, a, count, ma) || !fetch(*h, b, count, mb) || !fetch(*h, c, count, mc))                   \
      return kExecutionFailed;                                                                              \
    return gemm({#batched, h, ta, tb, m, n, k, alpha, beta}, ma, mb, mc, scale_of_compute(compute), batch); \
  }                                                                                                         \
  BLAS_API single(Handle* h, int ta, int tb, size m, size n, size k, const void* alpha, const void* a,      \
                  int type_a, size lda, const void* b, int type_b, size ldb, const void* beta, void* c,     \
                  int type_c, size ldc) {                                                                   \
    return gemm({#single, h, ta, tb, m, n, k, alpha, beta}, matrix(a, type_a, lda), matrix(b, type_b, ldb), \
                matrix(c, type_c, ldc), kFloat);                                                            \
  }
IMBREX_GEMM_EX(cublasGemmEx, cublasGemmStridedBatchedEx, cublasGemmBatchedEx, cublasSgemmEx, int)
IMBREX_GEMM_EX(cublasGemmEx_64, cublasGemmStridedBatchedEx_64, cublasGemmBatchedEx_64, cublasSgemmEx_64,
               int64_t)

#define MISSING(symbol) \
  BLAS_API symbol() { return refuse(#symbol, "this function"); }
#include "cuda_host/blas/missing.def"
#undef MISSING
