// SPDX-License-Identifier: Apache-2.0
// Products by cuBLAS and cuBLASLt against sums in double precision. With an argument: what the stand-in does not have.
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "check.h"

#define BLAS(call) EXPECT((call) == CUBLAS_STATUS_SUCCESS)

template <class T>
struct Buffer {
  std::vector<T> host;
  T* device = nullptr;
  explicit Buffer(size_t count, bool poisoned = false) : host(count) {
    static std::mt19937 random(20261123);
    std::uniform_real_distribution<float> value(-1, 1);
    for (T& x : host) x = T(poisoned ? NAN : value(random));
    CHECK(cudaMalloc(&device, count * sizeof(T)));
    CHECK(cudaMemcpy(device, host.data(), count * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~Buffer() { cudaFree(device); }
  std::vector<T> back() const {
    std::vector<T> out(host.size());
    CHECK(cudaMemcpy(out.data(), device, out.size() * sizeof(T), cudaMemcpyDeviceToHost));
    return out;
  }
};

int at(int row, int column, int leading) { return column * leading + row; }

/// C of m x n, column by column, is near alpha op(A) op(B) + beta C0.
template <class In, class Out>
void expect_product(const In* a, const In* b, const Out* c0, const Out* c, bool ta, bool tb, int m, int n, int k, int lda,
                    int ldb, int ldc, double alpha, double beta, double tolerance) {
  for (int j = 0; j < n; ++j)
    for (int i = 0; i < m; ++i) {
      double sum = 0, size = 0;
      for (int l = 0; l < k; ++l) {
        const double term =
            double(float(a[ta ? at(l, i, lda) : at(i, l, lda)])) * double(float(b[tb ? at(j, l, ldb) : at(l, j, ldb)]));
        sum += term;
        size += std::fabs(term);
      }
      double expected = alpha * sum;
      if (beta != 0) expected += beta * double(float(c0[at(i, j, ldc)]));
      EXPECT(std::fabs(double(float(c[at(i, j, ldc)])) - expected) <= tolerance * (size + 1));
    }
}

template <class T>
void gemm_ex(cublasHandle_t handle, cudaDataType type, double tolerance) {
  const int m = 37, n = 19, k = 53, lda = 55, ldb = 60, ldc = 41;
  Buffer<T> a(lda * m), b(ldb * n), c(ldc * n);
  const float alpha = 1.5f, beta = -0.5f;
  BLAS(cublasGemmEx(handle, CUBLAS_OP_T, CUBLAS_OP_N, m, n, k, &alpha, a.device, type, lda, b.device, type, ldb, &beta,
                    c.device, type, ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
  expect_product(a.host.data(), b.host.data(), c.host.data(), c.back().data(), true, false, m, n, k, lda, ldb, ldc, alpha,
                 beta, tolerance);
}

void sgemm(cublasHandle_t handle) {
  const int m = 33, n = 7, k = 129, lda = 40, ldb = 9, ldc = 33;
  Buffer<float> a(lda * k), b(ldb * k), c(ldc * n, true), scalars(2);
  float* alpha = scalars.device;
  const float values[2] = {2, 0};  // beta is 0: what was in C, NaN here, is not read
  CHECK(cudaMemcpy(scalars.device, values, sizeof values, cudaMemcpyHostToDevice));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  BLAS(cublasSetStream(handle, stream));
  BLAS(cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_DEVICE));
  CHECK(cudaDeviceSynchronize());
  BLAS(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_T, m, n, k, alpha, a.device, lda, b.device, ldb, alpha + 1, c.device,
                   ldc));
  CHECK(cudaStreamSynchronize(stream));
  BLAS(cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_HOST));
  BLAS(cublasSetStream(handle, nullptr));
  expect_product(a.host.data(), b.host.data(), c.host.data(), c.back().data(), false, true, m, n, k, lda, ldb, ldc, 2, 0,
                 1e-6);
  const float one = 1;
  EXPECT(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 8, 8, 8, &one, a.device, 7, b.device, 8, &one, c.device, 8) ==
         CUBLAS_STATUS_INVALID_VALUE);
}

void batches(cublasHandle_t handle) {
  const int m = 5, n = 6, k = 7, count = 4;
  Buffer<float> a(m * k * count), b(k * n * count), c(m * n * count);
  const float alpha = 1, beta = 2;
  BLAS(cublasSgemmStridedBatched(handle, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &alpha, a.device, m, m * k, b.device, k,
                                 k * n, &beta, c.device, m, m * n, count));
  const std::vector<float> result = c.back();
  for (int i = 0; i < count; ++i)
    expect_product(&a.host[i * m * k], &b.host[i * k * n], &c.host[i * m * n], &result[i * m * n], false, false, m, n, k,
                   m, k, m, alpha, beta, 1e-6);
  float* pointers[3][count];
  for (int i = 0; i < count; ++i) {
    pointers[0][i] = a.device + i * m * k;
    pointers[1][i] = b.device + (count - 1 - i) * k * n;
    pointers[2][i] = c.device + i * m * n;
  }
  float*** arrays = nullptr;
  CHECK(cudaMalloc(&arrays, sizeof pointers));
  CHECK(cudaMemcpy(arrays, pointers, sizeof pointers, cudaMemcpyHostToDevice));
  float** first = reinterpret_cast<float**>(arrays);
  BLAS(cublasSgemmBatched(handle, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &alpha, first, m, first + count, k, &beta,
                          first + 2 * count, m, count));
  const std::vector<float> again = c.back();
  for (int i = 0; i < count; ++i)
    expect_product(&a.host[i * m * k], &b.host[(count - 1 - i) * k * n], &result[i * m * n], &again[i * m * n], false,
                   false, m, n, k, m, k, m, alpha, beta, 1e-6);
  CHECK(cudaFree(arrays));
}

void matmul_with_bias(cublasLtEpilogue_t epilogue) {
  const int m = 24, n = 11, k = 40;
  cublasLtHandle_t handle;
  BLAS(cublasLtCreate(&handle));
  Buffer<__half> a(k * m), b(k * n), d(m * n, true), bias(m);
  cublasLtMatmulDesc_t what;
  BLAS(cublasLtMatmulDescCreate(&what, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const cublasOperation_t transposed = CUBLAS_OP_T;
  BLAS(cublasLtMatmulDescSetAttribute(what, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed));
  BLAS(cublasLtMatmulDescSetAttribute(what, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
  BLAS(cublasLtMatmulDescSetAttribute(what, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias.device, sizeof bias.device));
  cublasLtMatrixLayout_t la, lb, ld;
  BLAS(cublasLtMatrixLayoutCreate(&la, CUDA_R_16F, k, m, k));
  BLAS(cublasLtMatrixLayoutCreate(&lb, CUDA_R_16F, k, n, k));
  BLAS(cublasLtMatrixLayoutCreate(&ld, CUDA_R_16F, m, n, m));
  cublasLtMatmulPreference_t preference;
  BLAS(cublasLtMatmulPreferenceCreate(&preference));
  cublasLtMatmulHeuristicResult_t found;
  int count = 0;
  BLAS(cublasLtMatmulAlgoGetHeuristic(handle, what, la, lb, ld, ld, preference, 1, &found, &count));
  EXPECT(count == 1);
  const float alpha = 1, beta = 0;
  BLAS(cublasLtMatmul(handle, what, &alpha, a.device, la, b.device, lb, &beta, d.device, ld, d.device, ld, &found.algo,
                      nullptr, 0, nullptr));
  const std::vector<__half> result = d.back();
  for (int j = 0; j < n; ++j)
    for (int i = 0; i < m; ++i) {
      double x = float(bias.host[i]);
      for (int l = 0; l < k; ++l) x += double(float(a.host[at(l, i, k)])) * double(float(b.host[at(l, j, k)]));
      const double expected = epilogue == CUBLASLT_EPILOGUE_BIAS        ? x
                              : epilogue == CUBLASLT_EPILOGUE_RELU_BIAS ? std::fmax(x, 0)
                                                                        : x * 0.5 * std::erfc(-x / std::sqrt(2.0));
      EXPECT(std::fabs(float(result[at(i, j, m)]) - expected) <= 2e-3 * (std::fabs(x) + 1));
    }
  cublasLtMatmulPreferenceDestroy(preference);
  cublasLtMatrixLayoutDestroy(la);
  cublasLtMatrixLayoutDestroy(lb);
  cublasLtMatrixLayoutDestroy(ld);
  cublasLtMatmulDescDestroy(what);
  BLAS(cublasLtDestroy(handle));
}

int main(int argc, char** argv) {
  cublasHandle_t handle;
  BLAS(cublasCreate(&handle));
  if (argc > 1) {
    Buffer<float> x(8), y(8);
    const float alpha = 1;
    EXPECT(cublasSaxpy(handle, 8, &alpha, x.device, 1, y.device, 1) == CUBLAS_STATUS_NOT_SUPPORTED);
    EXPECT(std::strcmp(cublasGetStatusName(CUBLAS_STATUS_NOT_SUPPORTED), "CUBLAS_STATUS_NOT_SUPPORTED") == 0);
    return 0;
  }
  sgemm(handle);
  gemm_ex<__half>(handle, CUDA_R_16F, 1e-3);
  gemm_ex<__nv_bfloat16>(handle, CUDA_R_16BF, 8e-3);
  batches(handle);
  for (const cublasLtEpilogue_t epilogue :
       {CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_RELU_BIAS, CUBLASLT_EPILOGUE_GELU_BIAS})
    matmul_with_bias(epilogue);
  BLAS(cublasDestroy(handle));
  std::printf("fine\n");
}
