// SPDX-License-Identifier: Apache-2.0
// Registered kernels: what the `imbrex` command lists, runs, verifies and tunes. Registering one takes a
// description and a function that sets up a problem, launches, and states the reference:
//
//   static const KernelRegistration<VectorAdd> registration{
//       {.name = "vector_add", .summary = "z = x + y", .sizes = {{"n", 100003, "elements"}}},
//       [](Case& c, Kernel<VectorAdd>& kernel) {
//         int64_t n = c.size("n");
//         DeviceTensor x = c.input(float32, {n}), y = c.input(float32, {n}), z = c.output(float32, {n});
//         c.launch(kernel, n, x, y, z);
//         c.expect(z, [&](std::span<double> out) {
//           std::vector<double> a = c.values(x), b = c.values(y);
//           for (int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
//         });
//       }};
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "imbrex/runtime/compare.h"
#include "imbrex/runtime/device_tensor.h"
#include "imbrex/runtime/kernel.h"

namespace imbrex {

/// A size that a registered kernel's problem has: --NAME on the command line.
struct SizeOption {
  std::string name;
  int64_t otherwise = 0;  // the default
  std::string help;
};

struct KernelDescription {
  std::string name;
  std::string summary;
  std::vector<SizeOption> sizes;
};

/// What several runs of one problem share, all with the same sizes, seed and device: tensors and references,
/// in the order in which the runs ask for them, made by the first run and used again by the others; and the
/// kernels that were launched, compiled and loaded.
struct CaseData {
  std::vector<DeviceTensor> inputs, outputs;
  std::vector<HostTensor> hosts;                         // of the inputs
  std::vector<std::vector<double>> references;           // of each expect()
  std::map<std::string, std::shared_ptr<void>> kernels;  // Kernel<K>, by K and its configuration

  /// Writes the inputs again, in case a kernel wrote over them.
  void restore_inputs();
  /// Whether the inputs are as they were made: a kernel that adds to one of them changes it with each launch.
  bool are_inputs_intact() const;
};

/// A matrix product C[m, n] = A[m, k] * B[n, k]^T that a case stated, for comparing with a library's.
struct StatedMatmul {
  DeviceTensor a, b, c;
};

/// Attention that a case stated, for comparing with a library's: o = softmax(scale q k^T) v for each head.
struct StatedAttention {
  DeviceTensor q, k, v, o;  ///< [heads, rows, d]; k and v have as many heads, or a divisor of that
  float scale = 1;
  bool causal = false;  ///< row i sees the columns up to i + columns - rows
};

/// One run of a registered kernel: its sizes, tensors, launch and verdict.
class Case {
 public:
  enum class Mode {
    kRun,      // launch and verify
    kTrace,    // no device: only trace, for `imbrex emit`
    kMeasure,  // hand the launch to `measure`; nothing is verified
  };
  /// Launches once, on a CUDA device without waiting unless `timed`.
  using Launcher = std::function<LaunchReport(bool timed)>;

  /// `device` may be left out when tracing. `sizes` has every size that the kernel's description declares.
  Case(Mode mode, std::optional<Device> device, std::map<std::string, int64_t> sizes, uint64_t seed);

  Mode mode() const { return mode_; }
  /// Takes tensors and references from `data`, and adds to it those that it lacks.
  void share(std::shared_ptr<CaseData> data) { data_ = std::move(data); }
  /// The kernel of this key in the shared data, made by `make` if there is none. Made anew when only tracing
  /// and when no data are shared.
  template <class Kernel, class Make>
  std::shared_ptr<Kernel> kernel(const std::string& key, const Make& make) {
    if (!data_ || mode_ == Mode::kTrace) return make();
    std::shared_ptr<void>& known = data_->kernels[key];
    if (!known) known = make();
    return std::static_pointer_cast<Kernel>(known);
  }
  /// kTrace: the target to compile for instead of the kernel's own; "" for that one.
  std::string target;
  /// kMeasure: called by launch().
  std::function<void(const Launcher&)> measure;
  /// kRun: called right before the launch, and after it has ended.
  std::function<void()> launching, launched;
  /// The value of a declared size.
  int64_t size(const std::string& name) const;

  /// A tensor of fresh random numbers (HostTensor::random), different for every call and every seed.
  DeviceTensor input(DataType dtype, std::vector<int64_t> shape, double deviation = 1.0);
  /// The numbers such a tensor gets, on the host: to derive several inputs from.
  HostTensor random(DataType dtype, std::vector<int64_t> shape, double deviation = 1.0);
  /// A tensor with the given contents.
  DeviceTensor input(const HostTensor& host);
  /// A tensor whose memory is poisoned with NaN bytes.
  DeviceTensor output(DataType dtype, std::vector<int64_t> shape);
  /// What an input holds, row-major, as float64. Empty when only tracing.
  std::vector<double> values(const DeviceTensor& input) const;

  /// Launches the kernel (or only traces it) with these arguments.
  template <class K, class... Args>
  void launch(Kernel<K>& kernel, const Args&... arguments) {
    if (mode_ == Mode::kTrace) {
      function = kernel.trace_for(target, arguments...);
      shape = kernel.shape(arguments...);
    } else if (mode_ == Mode::kMeasure) {
      measure([&](bool timed) { return timed ? kernel.launch_timed(arguments...) : kernel(arguments...); });
    } else {
      if (launching) launching();
      report = kernel.launch_timed(arguments...);
      is_launched_ = true;
      if (launched) launched();
    }
  }

  /// States the whole reference: `fill` writes it in float64, row-major. A tolerance below 0 stands for
  /// default_tolerance() of the element type, here and below.
  void expect(const DeviceTensor& output, const std::function<void(std::span<double>)>& fill,
              double tolerance = -1);
  /// States the reference element by element, for results too large to recompute whole: `element` gives the
  /// value at a row-major index. Checks at most `samples` elements: the corners and a seeded random choice.
  void expect_samples(const DeviceTensor& output, const std::function<double(int64_t)>& element,
                      int64_t samples, double tolerance = -1);
  /// The same with a bound for each element: how far what is rounded on the way may take it from its value.
  void expect_within(const DeviceTensor& output, const std::function<Bounded(int64_t)>& element,
                     int64_t samples);

  /// States C[m, n] = A[m, k] * B[n, k]^T of two inputs. Small products are checked whole; of large ones
  /// sampled elements, and all elements together by random projections of the rows.
  void expect_matmul(const DeviceTensor& c, const DeviceTensor& a, const DeviceTensor& b,
                     double tolerance = -1);
  /// The same for A[m, k] and B[n, k] given as float64, row-major.
  void expect_matmul(const DeviceTensor& c, std::span<const double> a, std::span<const double> b,
                     double tolerance = -1);

  // Results.
  LaunchReport report;
  std::vector<Comparison> comparisons;
  std::shared_ptr<ir::Function> function;    // kTrace: the traced kernel
  std::vector<int64_t> shape;                // kTrace: see KernelBase
  std::optional<StatedMatmul> matmul;        // what expect_matmul() stated
  std::optional<StatedAttention> attention;  // set by kernels that compute it
  double flop = 0;  // floating-point operations of the problem, for `imbrex bench`; set by expect_matmul()

  /// Bytes of all tensors made so far, inputs and outputs: what a launch must read and write at the least.
  int64_t tensor_bytes() const { return tensor_bytes_; }

  /// True when the kernel was launched, something was compared, and all of it passed.
  bool verified() const;
  /// The greatest error of all comparisons.
  double max_rel_err() const;

 private:
  DeviceTensor shared_input();
  /// Both factors of a product, row by row.
  using MatmulOperands = std::pair<std::span<const double>, std::span<const double>>;
  void expect_product(const DeviceTensor& c, int64_t k, const std::function<MatmulOperands()>& operands,
                      double tolerance);
  /// Compares some elements of `got` with the references that `make` gives for their row-major indices.
  void compare_samples(const HostTensor& got, int64_t samples, double tolerance,
                       const std::function<std::vector<double>(std::span<const int64_t>)>& make);
  /// The reference of the next expectation: shared, or made by `make`.
  std::vector<double> reference(const std::function<std::vector<double>()>& make);

  Mode mode_;
  std::optional<Device> device_;
  std::map<std::string, int64_t> sizes_;
  uint64_t seed_;
  uint64_t next_stream_ = 0;
  int64_t tensor_bytes_ = 0;
  bool is_launched_ = false;
  std::vector<std::pair<uint64_t, HostTensor>> inputs_;  // by device address
  std::shared_ptr<CaseData> data_;
  size_t next_input_ = 0, next_output_ = 0, next_reference_ = 0;  // in data_
};

/// A kernel the command knows, with its type erased.
struct RegisteredKernel {
  KernelDescription description;
  const KernelEntry* entry = nullptr;
  std::string target;  // what it is compiled for, "sm_100a"
  TuningSpace space;   // its first configuration is the default
  SourceLocation where;
  /// An instance with a configuration: what KernelBase takes.
  std::function<std::shared_ptr<const void>(const Configuration&)> make;
  /// Runs the case with a configuration given as name=value pairs. CompileError, LaunchError, DeviceError.
  std::function<void(Case&, const std::optional<Device>&, const Configuration&)> run;
};

/// Every registered kernel, in order of name.
const std::map<std::string, RegisteredKernel>& registered_kernels();
/// The kernel of that name; LaunchError with the nearest name when there is none.
const RegisteredKernel& registered_kernel(const std::string& name);

namespace detail {
/// InternalError when there is a kernel of this name.
void add_registered_kernel(RegisteredKernel kernel);
}  // namespace detail

/// A static object that registers kernel `K` at program start.
template <class K>
class KernelRegistration {
 public:
  KernelRegistration(KernelDescription description, std::function<void(Case&, Kernel<K>&)> run,
                     SourceLocation where = SourceLocation::current())
      : KernelRegistration(
            std::move(description), [run](Case& c, Kernel<K>& kernel, const K&) { run(c, kernel); }, where) {}
  /// `run` is also given the kernel's configuration.
  KernelRegistration(KernelDescription description, std::function<void(Case&, Kernel<K>&, const K&)> run,
                     SourceLocation where = SourceLocation::current()) {
    RegisteredKernel entry;
    entry.description = std::move(description);
    entry.entry = &kernel_entry<K>();
    entry.target = kernel_target<K>();
    entry.space = tuning_space<K>();
    entry.where = where;
    entry.make = [](const Configuration& configuration) -> std::shared_ptr<const void> {
      auto instance = std::make_shared<K>();
      tuning_space<K>().apply(instance.get(), configuration);
      return instance;
    };
    entry.run = [run](Case& c, const std::optional<Device>& device, const Configuration& configuration) {
      const TuningSpace space = tuning_space<K>();
      K instance{};
      space.apply(&instance, configuration);
      const auto make = [&] { return std::make_shared<Kernel<K>>(instance, device); };
      const std::string key = std::string(kernel_entry<K>().type_name) + " " + space.to_string(configuration);
      run(c, *c.kernel<Kernel<K>>(key, make), instance);
    };
    detail::add_registered_kernel(std::move(entry));
  }
};

}  // namespace imbrex
