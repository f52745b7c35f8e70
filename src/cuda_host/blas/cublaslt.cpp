// SPDX-License-Identifier: Apache-2.0
// cuBLASLt: descriptors, one "algorithm" that is always found, and cublasLtMatmul.
#include <cstring>
#include <new>

#include "cuda_host/blas/product.h"

using namespace imbrex::blas;

namespace {

/// What programs keep for us, in place or made by Create: cublasLtMatrixLayoutOpaque_t, cublasLtMatmulDescOpaque_t,
/// cublasLtMatmulPreferenceOpaque_t.
struct Layout {
  int32_t type = 0, order = 0, batch = 1, batch_mode = 0;
  uint64_t rows = 0, columns = 0;
  int64_t leading = 0, stride = 0;
};
struct Description {
  int32_t compute = 0, scale = 0, pointer_mode = 0;
  int32_t operation_a = 0, operation_b = 0, operation_c = 0, epilogue = kNoEpilogue, bias_type = -1;
  uint64_t bias = 0;
  int64_t bias_stride = 0;
};
struct Preference {
  uint64_t workspace = 0;
};
static_assert(sizeof(Layout) <= 64 && sizeof(Description) <= 256);

struct Algorithm {
  uint64_t data[8];
};
struct Found {
  Algorithm algorithm;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

constexpr const char* kMatmul = "cublasLtMatmul";

/// Numbers of attributes: cublasLtMatrixLayoutAttribute_t, cublasLtMatmulDescAttributes_t.
void* place(Layout& layout, int attribute, size_t& bytes) {
  switch (attribute) {
    case 0:
      return bytes = 4, &layout.type;
    case 1:
      return bytes = 4, &layout.order;
    case 2:
      return bytes = 8, &layout.rows;
    case 3:
      return bytes = 8, &layout.columns;
    case 4:
      return bytes = 8, &layout.leading;
    case 5:
      return bytes = 4, &layout.batch;
    case 6:
      return bytes = 8, &layout.stride;
    case 8:
      return bytes = 4, &layout.batch_mode;
    default:
      return nullptr;
  }
}
void* place(Description& description, int attribute, size_t& bytes) {
  switch (attribute) {
    case 0:
      return bytes = 4, &description.compute;
    case 1:
      return bytes = 4, &description.scale;
    case 2:
      return bytes = 4, &description.pointer_mode;
    case 3:
      return bytes = 4, &description.operation_a;
    case 4:
      return bytes = 4, &description.operation_b;
    case 5:
      return bytes = 4, &description.operation_c;
    case 7:
      return bytes = 4, &description.epilogue;
    case 8:
      return bytes = 8, &description.bias;
    case 10:
      return bytes = 8, &description.bias_stride;
    case 26:
      return bytes = 4, &description.bias_type;
    default:
      return nullptr;
  }
}

template <class Thing>
Status set(Thing* thing, int attribute, const void* from, size_t given) {
  size_t bytes = 0;
  if (thing == nullptr || from == nullptr) return kInvalidValue;
  void* to = place(*thing, attribute, bytes);
  if (to == nullptr) return refuse(kMatmul, "an attribute that it was given");
  if (given < bytes) return kInvalidValue;
  std::memcpy(to, from, bytes);
  return kSuccess;
}
template <class Thing>
Status get(Thing* thing, int attribute, void* to, size_t given, size_t* written) {
  size_t bytes = 0;
  if (thing == nullptr) return kInvalidValue;
  const void* from = place(*thing, attribute, bytes);
  if (from == nullptr) return refuse(kMatmul, "an attribute that it was asked for");
  if (written != nullptr) *written = bytes;
  if (to == nullptr) return given == 0 ? kSuccess : kInvalidValue;
  if (given < bytes) return kInvalidValue;
  std::memcpy(to, from, bytes);
  return kSuccess;
}
template <class Thing>
Status create(Thing** to, const Thing& value) {
  if (to == nullptr) return kInvalidValue;
  *to = new Thing(value);
  return kSuccess;
}
template <class Thing>
Status init(Thing* to, size_t bytes, const Thing& value) {
  if (to == nullptr || bytes < sizeof value) return kInvalidValue;
  *to = value;
  return kSuccess;
}

Layout layout_of(int type, uint64_t rows, uint64_t columns, int64_t leading) {
  Layout layout;
  layout.type = type;
  layout.rows = rows;
  layout.columns = columns;
  layout.leading = leading;
  return layout;
}
Description description_of(int compute, int scale) {
  Description description;
  description.compute = compute;
  description.scale = scale;
  return description;
}

Matrix matrix(const void* at, const Layout& layout) {
  return {.at = reinterpret_cast<CUdeviceptr>(at),
          .type = layout.type,
          .leading = layout.leading,
          .by_rows = layout.order == 1,
          .stride = layout.stride};
}

/// What the stand-in does not have of a call; null where it has all.
const char* lacks(const Description& d, const Layout& a, const Layout& b, const Layout& c,
                  const Layout& out) {
  for (const Layout* layout : {&a, &b, &c, &out}) {
    if (layout->order > 1) return "orders of elements other than by columns and by rows";
    if (layout->batch_mode != 0) return "batches by pointers";
  }
  if (d.operation_c != kPlain) return "a transposed C";
  if (d.pointer_mode > kOnDevice) return "a vector for alpha";
  if (scale_of_compute(d.compute) < 0) return "this compute type";
  if ((d.epilogue & ~(kNoEpilogue | kRelu | kBias | kGelu)) != 0)
    return "epilogues for gradients or with an auxiliary output";
  return nullptr;
}

}  // namespace

BLAS_API cublasLtCreate(void** handle) {
  if (handle == nullptr) return kInvalidValue;
  *handle = new int(0);
  return kSuccess;
}
BLAS_API cublasLtDestroy(void* handle) {
  delete static_cast<int*>(handle);
  return kSuccess;
}
extern "C" __attribute__((visibility("default"))) size_t cublasLtGetVersion() {
  return IMBREX_CUDART_MAJOR * 10000;
}
extern "C" __attribute__((visibility("default"))) size_t cublasLtGetCudartVersion() {
  return IMBREX_CUDART_MAJOR * 1000;
}

extern "C" __attribute__((visibility("default"))) const char* cublasLtGetStatusName(Status status) {
  return name(status);
}
extern "C" __attribute__((visibility("default"))) const char* cublasLtGetStatusString(Status status) {
  return name(status);
}

BLAS_API cublasLtMatrixLayoutCreate(Layout** layout, int type, uint64_t rows, uint64_t columns,
                                    int64_t leading) {
  return create(layout, layout_of(type, rows, columns, leading));
}
BLAS_API cublasLtMatrixLayoutInit_internal(Layout* layout, size_t bytes, int type, uint64_t rows,
                                           uint64_t columns, int64_t leading) {
  return init(layout, bytes, layout_of(type, rows, columns, leading));
}
BLAS_API cublasLtMatrixLayoutDestroy(Layout* layout) {
  delete layout;
  return kSuccess;
}
BLAS_API cublasLtMatrixLayoutSetAttribute(Layout* layout, int attribute, const void* from, size_t bytes) {
  return set(layout, attribute, from, bytes);
}
BLAS_API cublasLtMatrixLayoutGetAttribute(Layout* layout, int attribute, void* to, size_t bytes,
                                          size_t* written) {
  return get(layout, attribute, to, bytes, written);
}

BLAS_API cublasLtMatmulDescCreate(Description** description, int compute, int scale) {
  return create(description, description_of(compute, scale));
}
BLAS_API cublasLtMatmulDescInit_internal(Description* description, size_t bytes, int compute, int scale) {
  return init(description, bytes, description_of(compute, scale));
}
BLAS_API cublasLtMatmulDescDestroy(Description* description) {
  delete description;
  return kSuccess;
}
BLAS_API cublasLtMatmulDescSetAttribute(Description* description, int attribute, const void* from,
                                        size_t bytes) {
  // Hints: how many SMs, fast accumulation of float8.
  constexpr int kSmCount = 15, kFastAccumulation = 25;
  if (attribute == kSmCount || attribute == kFastAccumulation) return kSuccess;
  return set(description, attribute, from, bytes);
}
BLAS_API cublasLtMatmulDescGetAttribute(Description* description, int attribute, void* to, size_t bytes,
                                        size_t* written) {
  return get(description, attribute, to, bytes, written);
}

BLAS_API cublasLtMatmulPreferenceCreate(Preference** preference) { return create(preference, Preference()); }
BLAS_API cublasLtMatmulPreferenceInit_internal(Preference* preference, size_t bytes) {
  return init(preference, bytes, Preference());
}
BLAS_API cublasLtMatmulPreferenceDestroy(Preference* preference) {
  delete preference;
  return kSuccess;
}
// All of them say how fast and with how much memory.
BLAS_API cublasLtMatmulPreferenceSetAttribute(Preference*, int, const void*, size_t) { return kSuccess; }

BLAS_API cublasLtMatmulAlgoGetHeuristic(void*, const Description* description, const Layout* a,
                                        const Layout* b, const Layout* c, const Layout* d, const Preference*,
                                        int asked, Found* found, int* count) {
  if (description == nullptr || a == nullptr || b == nullptr || d == nullptr || count == nullptr || asked < 1)
    return kInvalidValue;
  *count = 0;
  if (const char* what = lacks(*description, *a, *b, c == nullptr ? *d : *c, *d))
    return refuse(kMatmul, what);
  *found = {};
  *count = 1;
  return kSuccess;
}

BLAS_API cublasLtMatmul(void*, const Description* description, const void* alpha, const void* a,
                        const Layout* a_layout, const void* b, const Layout* b_layout, const void* beta,
                        const void* c, const Layout* c_layout, void* d, const Layout* d_layout,
                        const Algorithm*, void*, size_t, CUstream stream) {
  if (description == nullptr || a_layout == nullptr || b_layout == nullptr || d_layout == nullptr)
    return kInvalidValue;
  const Layout& c_or_d = c_layout == nullptr ? *d_layout : *c_layout;
  if (const char* what = lacks(*description, *a_layout, *b_layout, c_or_d, *d_layout))
    return refuse(kMatmul, what);
  const bool is_transposed = description->operation_a != kPlain;
  Product product{.function = kMatmul,
                  .m = static_cast<int64_t>(d_layout->rows),
                  .n = static_cast<int64_t>(d_layout->columns),
                  .k = static_cast<int64_t>(is_transposed ? a_layout->rows : a_layout->columns),
                  .batch = d_layout->batch,
                  .operation_a = description->operation_a,
                  .operation_b = description->operation_b,
                  .a = matrix(a, *a_layout),
                  .b = matrix(b, *b_layout),
                  .c = matrix(c == nullptr ? d : c, c_or_d),
                  .d = matrix(d, *d_layout),
                  .scale = description->scale,
                  .alpha = alpha,
                  .beta = beta,
                  .pointer_mode = description->pointer_mode,
                  .epilogue = description->epilogue,
                  .bias = description->bias,
                  .bias_type = description->bias_type < 0 ? d_layout->type : description->bias_type,
                  .bias_stride = description->bias_stride,
                  .stream = stream};
  const auto disagrees = [](const Layout& layout, bool transposed, int64_t rows, int64_t columns) {
    return static_cast<int64_t>(transposed ? layout.columns : layout.rows) != rows ||
           static_cast<int64_t>(transposed ? layout.rows : layout.columns) != columns;
  };
  if (disagrees(*a_layout, is_transposed, product.m, product.k) ||
      disagrees(*b_layout, description->operation_b != kPlain, product.k, product.n) ||
      ((description->epilogue & kBias) != 0 && description->bias == 0))
    return kInvalidValue;
  return run(product);
}

#define MISSING(symbol) \
  BLAS_API symbol() { return refuse(#symbol, "this function"); }
#include "cuda_host/blas/missing_lt.def"
#undef MISSING
