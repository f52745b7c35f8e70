// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/cublas_lt.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <optional>
#include <vector>

#include "imbrex/core/error.h"
#include "runtime/device/stream_handle.h"

namespace imbrex::runtime {
namespace {

using Status = int;
using Handle = void*;

// Enumerators of the library's ABI (cublasLt.h, library_types.h).
constexpr int kCompute32F = 68, kCompute64F = 70, kCompute32I = 72, kCompute32FFastTf32 = 77;
constexpr int kR32F = 0, kR64F = 1, kR16F = 2, kR8I = 3, kR32I = 10, kR16BF = 14, kR8E4M3 = 28, kR8E5M2 = 29;
constexpr int kDescTransposeA = 3, kDescFastAccumulation = 25, kOpTranspose = 1, kPreferenceMaxWorkspace = 1;
constexpr int kDescEpilogue = 7, kDescBiasPointer = 8;
constexpr int kEpilogueNone = 1, kEpilogueRelu = 2, kEpilogueBias = 4, kEpilogueGelu = 32;  // Relu | Bias ...
constexpr size_t kWorkspace = 64 << 20;  // twice what the manual recommends for Hopper
constexpr int kSuggestions = 8;

struct Heuristic {
  uint64_t algorithm[8];
  size_t workspace;
  Status state;
  float waves;
  int reserved[4];
};

/// The functions we call, each by the name of its symbol.
struct Library {
  size_t (*cublasLtGetVersion)() = nullptr;
  Status (*cublasLtCreate)(Handle*) = nullptr;
  Status (*cublasLtDestroy)(Handle) = nullptr;
  Status (*cublasLtMatmulDescCreate)(Handle*, int, int) = nullptr;
  Status (*cublasLtMatmulDescDestroy)(Handle) = nullptr;
  Status (*cublasLtMatmulDescSetAttribute)(Handle, int, const void*, size_t) = nullptr;
  Status (*cublasLtMatrixLayoutCreate)(Handle*, int, uint64_t, uint64_t, int64_t) = nullptr;
  Status (*cublasLtMatrixLayoutDestroy)(Handle) = nullptr;
  Status (*cublasLtMatmulPreferenceCreate)(Handle*) = nullptr;
  Status (*cublasLtMatmulPreferenceDestroy)(Handle) = nullptr;
  Status (*cublasLtMatmulPreferenceSetAttribute)(Handle, int, const void*, size_t) = nullptr;
  Status (*cublasLtMatmulAlgoGetHeuristic)(Handle, Handle, Handle, Handle, Handle, Handle, Handle, int,
                                           Heuristic*, int*) = nullptr;
  Status (*cublasLtMatmul)(Handle, Handle, const void*, const void*, Handle, const void*, Handle, const void*,
                           const void*, Handle, void*, Handle, const void*, void*, size_t,
                           CUstream_st*) = nullptr;
  std::string why_not;

  Library() {
    void* library = open();
    if (library == nullptr) {
      why_not = "cuBLASLt is not installed (libcublasLt.so.13 or .12; IMBREX_CUBLASLT names the file)";
      return;
    }
    auto find = [&](auto& function, const char* symbol) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, symbol));
      if (function == nullptr) why_not = fmt::format("cuBLASLt lacks {}", symbol);
    };
#define FIND(symbol) find(symbol, #symbol)
    FIND(cublasLtGetVersion), FIND(cublasLtCreate), FIND(cublasLtDestroy), FIND(cublasLtMatmulDescCreate);
    FIND(cublasLtMatmulDescDestroy), FIND(cublasLtMatmulDescSetAttribute), FIND(cublasLtMatrixLayoutCreate);
    FIND(cublasLtMatrixLayoutDestroy), FIND(cublasLtMatmulPreferenceCreate),
        FIND(cublasLtMatmulPreferenceDestroy);
    FIND(cublasLtMatmulPreferenceSetAttribute), FIND(cublasLtMatmulAlgoGetHeuristic), FIND(cublasLtMatmul);
#undef FIND
  }

  static void* open() {
    std::vector<std::string> names;
    if (const char* file = std::getenv("IMBREX_CUBLASLT")) names.emplace_back(file);
    for (const char* folder : {"", "/usr/local/cuda/lib64/"})
      for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"})
        names.push_back(std::string(folder) + name);
    for (const std::string& name : names)
      if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    return nullptr;
  }
};

const Library& library() {
  static const Library library;
  return library;
}

/// cudaDataType, for the types cuBLASLt multiplies.
std::optional<int> data_type(DataType dtype) {
  if (dtype == float32 || dtype == tfloat32) return kR32F;
  if (dtype == float64) return kR64F;
  if (dtype == float16) return kR16F;
  if (dtype == bfloat16) return kR16BF;
  if (dtype == float8_e4m3) return kR8E4M3;
  if (dtype == float8_e5m2) return kR8E5M2;
  if (dtype == int8) return kR8I;
  if (dtype == int32) return kR32I;
  return std::nullopt;
}

class Matmul : public CublasLtMatmul {
 public:
  Matmul(const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& c,
         const CublasLtEpilogue& epilogue)
      : a_(a), b_(b), c_(c), epilogue_(epilogue) {}
  ~Matmul() override {
    const Library& lt = library();
    for (Handle layout : {layout_a_, layout_b_, layout_c_})
      if (layout != nullptr) lt.cublasLtMatrixLayoutDestroy(layout);
    if (preference_ != nullptr) lt.cublasLtMatmulPreferenceDestroy(preference_);
    if (operation_ != nullptr) lt.cublasLtMatmulDescDestroy(operation_);
    if (handle_ != nullptr) lt.cublasLtDestroy(handle_);
  }

  /// "" or why it cannot be.
  std::string prepare() {
    const Library& lt = library();
    const std::optional<int> in = data_type(a_.dtype()), out = data_type(c_.dtype());
    if (!in || !out || a_.dtype() != b_.dtype())
      return fmt::format("cuBLASLt does not multiply {} by {} to {}", a_.dtype().name(), b_.dtype().name(),
                         c_.dtype().name());
    const int64_t m = c_.shape().at(0), n = c_.shape().at(1), k = a_.shape().at(1);
    int compute = kCompute32F, scale = kR32F;
    if (a_.dtype() == tfloat32) compute = kCompute32FFastTf32;
    if (a_.dtype() == float64) compute = kCompute64F, scale = kR64F;
    if (a_.dtype() == int8) compute = kCompute32I, scale = kR32I;
    is_integer_ = scale == kR32I, is_double_ = scale == kR64F;
    // It counts columns first: our row-major C is its C^T = B A^T, with B^T and A^T as they lie in memory.
    const size_t workspace = kWorkspace;
    const int transpose = kOpTranspose;
    if (lt.cublasLtCreate(&handle_) != 0 || lt.cublasLtMatmulDescCreate(&operation_, compute, scale) != 0 ||
        lt.cublasLtMatmulDescSetAttribute(operation_, kDescTransposeA, &transpose, sizeof transpose) != 0 ||
        lt.cublasLtMatrixLayoutCreate(&layout_b_, *in, k, n, k) != 0 ||
        lt.cublasLtMatrixLayoutCreate(&layout_a_, *in, k, m, k) != 0 ||
        lt.cublasLtMatrixLayoutCreate(&layout_c_, *out, n, m, n) != 0 ||
        lt.cublasLtMatmulPreferenceCreate(&preference_) != 0 ||
        lt.cublasLtMatmulPreferenceSetAttribute(preference_, kPreferenceMaxWorkspace, &workspace,
                                                sizeof workspace) != 0)
      return "cuBLASLt cannot be set up";
    // Of 8-bit floats, sums as the tensor cores keep them: faster, and what our kernels do.
    const signed char fast = 1;
    if (a_.dtype().is_float() && a_.dtype().bits() == 8 &&
        lt.cublasLtMatmulDescSetAttribute(operation_, kDescFastAccumulation, &fast, sizeof fast) != 0)
      return "cuBLASLt has no fast accumulation";
    if (const std::string why_not = set_epilogue(); !why_not.empty()) return why_not;
    workspace_ = DeviceTensor::empty(a_.device(), uint8, {static_cast<int64_t>(kWorkspace)});
    suggestions_.resize(kSuggestions);
    int found = 0;
    const Status status =
        lt.cublasLtMatmulAlgoGetHeuristic(handle_, operation_, layout_b_, layout_a_, layout_c_, layout_c_,
                                          preference_, kSuggestions, suggestions_.data(), &found);
    suggestions_.resize(found);
    std::erase_if(suggestions_, [](const Heuristic& each) { return each.state != 0; });
    if (status != 0 || suggestions_.empty())
      return fmt::format("cuBLASLt has no algorithm for {} x {} x {} in {}", m, n, k, a_.dtype().name());
    return "";
  }

  void take_fastest(GpuTimer& timer) {
    std::vector<GpuTimer::Launch> launches;
    for (size_t i = 0; i < suggestions_.size(); ++i)
      launches.push_back([this, i] {
        chosen_ = i;
        launch();
      });
    timer.measure(launches, {.launches = 1});  // loads them
    const std::vector<std::vector<double>> times = timer.measure(launches, {.launches = 5});
    size_t best = 0;
    for (size_t i = 1; i < times.size(); ++i)
      if (quartiles(times[i]).median < quartiles(times[best]).median) best = i;
    chosen_ = best;
  }

  std::string name() const override {
    const size_t version = library().cublasLtGetVersion();  // 130002 or 120803
    return fmt::format("cuBLASLt {}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
  }

  void launch() override { launch(a_, b_, c_, {}); }

  void launch(const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& c,
              const Stream& stream) override {
    const double one64 = 1, zero64 = 0;
    const int one32 = 1, zero32 = 0;
    const void* alpha = is_double_    ? static_cast<const void*>(&one64)
                        : is_integer_ ? static_cast<const void*>(&one32)
                                      : &epilogue_.alpha;
    const void* beta = is_double_    ? static_cast<const void*>(&zero64)
                       : is_integer_ ? static_cast<const void*>(&zero32)
                                     : &epilogue_.beta;
    void* result = reinterpret_cast<void*>(c.address());
    const void* before =
        epilogue_.residual.is_null() ? result : reinterpret_cast<void*>(epilogue_.residual.address());
    const Status status = library().cublasLtMatmul(
        handle_, operation_, alpha, reinterpret_cast<void*>(b.address()), layout_b_,
        reinterpret_cast<void*>(a.address()), layout_a_, beta, before, layout_c_, result, layout_c_,
        suggestions_[chosen_].algorithm, reinterpret_cast<void*>(workspace_.address()), kWorkspace,
        handle_on(a_.device(), stream, "cublasLtMatmul"));
    if (status != 0)
      throw DeviceError(Diagnostic{{}, fmt::format("cublasLtMatmul: status {}", status), {}, ""});
  }

 private:
  /// "" or why it cannot be.
  std::string set_epilogue() {
    using Activation = CublasLtEpilogue::Activation;
    if ((epilogue_.alpha != 1 || epilogue_.beta != 0) && (is_integer_ || is_double_))
      return "factors of integers and of float64 are not passed on to cuBLASLt";
    const bool has_bias = !epilogue_.bias.is_null();
    int code = has_bias ? kEpilogueBias : 0;
    if (epilogue_.activation == Activation::kRelu) code |= kEpilogueRelu;
    if (epilogue_.activation == Activation::kGelu) code |= kEpilogueGelu;
    if (code == 0) code = kEpilogueNone;
    const uint64_t bias = has_bias ? epilogue_.bias.address() : 0;
    const Library& lt = library();
    if (lt.cublasLtMatmulDescSetAttribute(operation_, kDescEpilogue, &code, sizeof code) != 0 ||
        (has_bias &&
         lt.cublasLtMatmulDescSetAttribute(operation_, kDescBiasPointer, &bias, sizeof bias) != 0))
      return "cuBLASLt does not take the epilogue";
    return "";
  }

  DeviceTensor a_, b_, c_, workspace_;
  CublasLtEpilogue epilogue_;
  Handle handle_ = nullptr, operation_ = nullptr, preference_ = nullptr;
  Handle layout_a_ = nullptr, layout_b_ = nullptr, layout_c_ = nullptr;
  std::vector<Heuristic> suggestions_;
  size_t chosen_ = 0;
  bool is_integer_ = false, is_double_ = false;
};

}  // namespace

std::unique_ptr<CublasLtMatmul> CublasLtMatmul::make(const DeviceTensor& a, const DeviceTensor& b,
                                                     const DeviceTensor& c, GpuTimer& timer,
                                                     std::string* why_not, const CublasLtEpilogue& epilogue) {
  *why_not = library().why_not;
  if (!why_not->empty()) return nullptr;
  auto matmul = std::make_unique<Matmul>(a, b, c, epilogue);
  *why_not = matmul->prepare();
  if (!why_not->empty()) return nullptr;
  matmul->take_fastest(timer);
  return matmul;
}

}  // namespace imbrex::runtime
