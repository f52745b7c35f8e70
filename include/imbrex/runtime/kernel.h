// SPDX-License-Identifier: Apache-2.0
// Running kernels from C++: a Kernel<K> is called like a function.
//
//   Device device = Device::open("auto", "sm_80");
//   Kernel<VectorAdd> add({}, device);
//   DeviceTensor x = DeviceTensor::random(device, float32, {n}, 1),
//                y = DeviceTensor::random(device, float32, {n}, 2),
//                z = DeviceTensor::empty(device, float32, {n});
//   add(n, x, y, z).expect_clean();
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "imbrex/core/source_location.h"
#include "imbrex/lang/kernel_parameters.h"
#include "imbrex/lang/tuning_space.h"
#include "imbrex/runtime/autotune.h"
#include "imbrex/runtime/device.h"
#include "imbrex/runtime/device_tensor.h"
#include "imbrex/runtime/stream.h"

namespace imbrex {

class Cache;
namespace ir {
struct Function;
}

/// One argument of a launch: a number's bits, a tensor, or a raw device address.
struct LaunchArgument {
  int64_t value = 0;
  const DeviceTensor* tensor = nullptr;
};

/// What kernel K is compiled for: K::target where the kernel has one,
///
///     static constexpr const char* target = "sm_100a";
///
/// else "sm_80", which every supported GPU runs.
template <class K>
std::string kernel_target() {
  if constexpr (requires { K::target; })
    return K::target;
  else
    return "sm_80";
}

/// The tuning space K declares, or one without choices.
template <class K>
auto tuning_space() {
  if constexpr (requires { K::space(); })
    return K::space();
  else
    return Space<K>();
}

/// Kernel<K> without its type: compiles once per set of compile-time arguments, and launches.
///
/// The *shape* of a call, by which tuning results are found: the values of its integer parameters and the
/// bits of its other compile-time ones, in order, without pointers and run-time floating-point numbers.
class KernelBase {
 public:
  /// What is needed to choose among configurations: the space, and a maker of the kernel with one of them.
  struct Family {
    TuningSpace space;
    std::function<std::shared_ptr<const void>(const Configuration&)> make;
  };
  /// `kernel` is an instance of the type that `entry` describes. Without a device it can only be traced.
  KernelBase(const KernelEntry& entry, std::shared_ptr<const void> kernel, std::string target,
             std::optional<Device> device);
  ~KernelBase();
  KernelBase(KernelBase&&) noexcept;
  KernelBase& operator=(KernelBase&&) noexcept;

  /// For kernels that come with Imbrex: what operator() depends on besides its arguments, as text. What a launch needs
  /// to know of a compiled kernel is then kept in the cache under that, the kernel's type, the compile-time arguments and
  /// the sources Imbrex was built from, so that the first call of another process does not trace. Nothing is kept for
  /// types that another program may have too: of unnamed namespaces and lambdas.
  void keep_compiled_as(std::string members);

 protected:
  /// `arguments` has one entry per parameter, compile-time ones included. Errors: see Kernel.
  /// `stream`: null is Stream().
  /// `where`: the caller's line, for what the virtual GPU finds about the order of calls.
  LaunchReport launch_arguments(std::span<const LaunchArgument> arguments, bool timed, const Stream* stream,
                                SourceLocation where);
  void prepare_arguments(std::span<const LaunchArgument> arguments);
  void ship_arguments(Cache& folder, std::span<const LaunchArgument> arguments) const;
  /// The IR as the front end made it, for `target` ("": the kernel's own). Throws CompileError.
  std::shared_ptr<ir::Function> trace_arguments(std::span<const LaunchArgument> arguments,
                                                const std::string& target = "") const;
  /// The shape of a call with these arguments.
  std::vector<int64_t> shape_of(std::span<const LaunchArgument> arguments) const;
  /// From now on each launch takes the configuration tuned for the nearest shape; with options, that of the very shape,
  /// which the first call tunes.
  void use_tuned(Family family, std::optional<AutotuneOptions> autotune = std::nullopt);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

namespace detail {

/// Throws LaunchError: a compile-time argument is out of its parameter's range.
[[noreturn]] void constant_does_not_fit(int64_t value, int bits, bool is_signed);

/// `argument` as an argument for a parameter of type T; does not compile where it cannot be one.
template <class T, class A>
LaunchArgument launch_argument(const A& argument) {
  constexpr ParameterInfo info = Parameter<T>::kInfo;
  if constexpr (info.kind == ParameterKind::kPointer) {
    static_assert(std::is_same_v<A, DeviceTensor> || std::is_integral_v<A>,
                  "a Ptr parameter takes a DeviceTensor or a device address");
    if constexpr (std::is_same_v<A, DeviceTensor>)
      return {0, &argument};
    else
      return {static_cast<int64_t>(argument), nullptr};
  } else if constexpr (info.kind == ParameterKind::kScalar) {
    static_assert(std::is_arithmetic_v<A>, "a run-time scalar parameter takes a C++ number");
    if constexpr (info.dtype == float32)
      return {std::bit_cast<int32_t>(static_cast<float>(argument)), nullptr};
    else if constexpr (info.dtype == float64)
      return {std::bit_cast<int64_t>(static_cast<double>(argument)), nullptr};
    else {
      static_assert(!info.dtype.is_float(),
                    "pass 16-bit and smaller floating-point numbers as float32 parameters");
      return {static_cast<int64_t>(argument), nullptr};
    }
  } else {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool> && std::is_integral_v<A>) {
      const T value = static_cast<T>(argument);
      const bool is_same = static_cast<int64_t>(value) == static_cast<int64_t>(argument);
      if (!is_same || (value < T{}) != (argument < A{}))
        constant_does_not_fit(static_cast<int64_t>(argument), 8 * sizeof(T), std::is_signed_v<T>);
    }
    return {constant_bits(static_cast<T>(argument)), nullptr};
  }
}

/// A struct that stands for several arguments of a call: its arguments() returns std::tie() of its members.
template <class A>
concept ArgumentStruct = requires(const A& a) {
  a.arguments();
};

/// The first argument of a launch, of a parameter of type T, and where the launch stands: a conversion is the one place
/// of a call with any number of arguments where a default argument knows the caller's line.
template <class T>
struct FirstArgument {
  LaunchArgument argument;
  SourceLocation where;
  template <class A>
  requires(!ArgumentStruct<A>)
      FirstArgument(const A& value, SourceLocation caller = SourceLocation::current())
      : argument(launch_argument<T>(value)), where(caller) {}
};

template <class A, class...>
inline constexpr bool begins_with_struct = ArgumentStruct<A>;

/// The arguments that `argument` stands for, as a tuple of references.
template <class A>
constexpr auto flat_arguments(const A& argument) {
  if constexpr (ArgumentStruct<A>)
    return std::apply(
        []<class... T>(T&&... members) {
          static_assert((std::is_lvalue_reference_v<T> && ...), "arguments() must return std::tie(...)");
          return std::tuple_cat(flat_arguments(members)...);
        },
        argument.arguments());
  else
    return std::tie(argument);
}

/// make() turns a call's arguments into one LaunchArgument per parameter of the kernel's operator().
template <class List>
struct LaunchArguments;
template <>
struct LaunchArguments<ParameterList<>> {
  struct First {};  // no call has one
  static std::array<LaunchArgument, 0> make() { return {}; }
};
template <class T, class... Params>
struct LaunchArguments<ParameterList<T, Params...>> {
  using First = FirstArgument<T>;
  template <class... Args>
  static std::array<LaunchArgument, 1 + sizeof...(Params)> make_behind(const First& first,
                                                                       const Args&... rest) {
    if constexpr ((ArgumentStruct<Args> || ...)) {
      return std::apply([&](const auto&... all) { return make_behind(first, all...); },
                        std::tuple_cat(flat_arguments(rest)...));
    } else if constexpr (1 + sizeof...(Args) == kCount) {
      return {first.argument, launch_argument<Params>(rest)...};
    } else {
      return explain_count<1 + sizeof...(Args)>();
    }
  }
  template <class... Args>
  static std::array<LaunchArgument, 1 + sizeof...(Params)> make(const Args&... arguments) {
    if constexpr ((ArgumentStruct<Args> || ...)) {
      return std::apply([](const auto&... all) { return make(all...); },
                        std::tuple_cat(flat_arguments(arguments)...));
    } else if constexpr (sizeof...(Args) == kCount) {
      return make_all(arguments...);
    } else {
      return explain_count<sizeof...(Args)>();
    }
  }

 private:
  static constexpr size_t kCount = 1 + sizeof...(Params);
  template <size_t kGiven>
  static std::array<LaunchArgument, kCount> explain_count() {
    static_assert(
        kGiven == kCount,
        "the kernel's operator() takes another number of arguments: give one for each of its parameters, in "
        "order (given == wanted)");
    return {};
  }
  template <class A, class... Args>
  static std::array<LaunchArgument, 1 + sizeof...(Params)> make_all(const A& first, const Args&... rest) {
    return {launch_argument<T>(first), launch_argument<Params>(rest)...};
  }
};
template <class K, class... Params>
struct LaunchArguments<void (K::*)(Params...) const>
    : LaunchArguments<typename Flat<ParameterList<Params...>>::List> {};

}  // namespace detail

/// A kernel ready to be called. Compilation happens at the first call with each set of compile-time
/// arguments; the results are kept. Calls throw CompileError for a kernel that cannot be compiled,
/// LaunchError for arguments that do not fit, DeviceError for a device that fails. What the virtual GPU finds
/// wrong is in the LaunchReport.
template <class K>
class Kernel : public KernelBase {
  using Make = detail::LaunchArguments<decltype(&K::operator())>;
  using First = typename Make::First;

 public:
  /// Without a device the kernel can only be traced.
  explicit Kernel(K kernel = {}, std::optional<Device> device = std::nullopt)
      : KernelBase(kernel_entry<K>(), std::make_shared<const K>(std::move(kernel)), kernel_target<K>(),
                   std::move(device)) {}

  /// A kernel whose launches take the configuration tuned for the nearest shape of call on this device (see
  /// tuner.h), and the default one where none was tuned or the tuned one does not compile for the shape.
  static Kernel tuned(Device device) {
    Kernel kernel(K{}, std::move(device));
    kernel.use_tuned(family());
    return kernel;
  }

  /// A kernel whose first call of each shape tunes, unless that was done before, by whichever process: the winner is kept
  /// in the cache. That call takes seconds. The candidates run on the call's own arguments, after the device has been
  /// waited for; what they write is saved before, compared with what the default configuration writes, and restored, so
  /// that nothing of it is left when the call itself runs. Where the kernel is registered (registry.h) with a problem that
  /// makes such a call, the default configuration and the winner are also compared with its reference in float64, in
  /// tensors of their own; LaunchError where none of them is right. A candidate is run in this process: one that traps takes the
  /// CUDA context with it, as any launch does (`imbrex tune` tries them in another process, against the registered
  /// reference). Nothing is tuned, and tuned() is what it does, where that is switched off, and for calls with an address
  /// in place of a tensor. A call that would have to tune while its stream is being captured throws LaunchError:
  /// prepare() with the same arguments before.
  static Kernel autotuned(Device device, AutotuneOptions options = {}) {
    Kernel kernel(K{}, std::move(device));
    kernel.use_tuned(family(), std::move(options));
    return kernel;
  }

  /// Launches with one argument per parameter of K::operator(), in order: a DeviceTensor or a device address
  /// for a pointer, a C++ number for a scalar, a value for a compile-time parameter. A parameter that is a
  /// struct takes one argument per member, or a struct that names them:
  ///
  ///     struct ScalingArguments {
  ///       float factor;
  ///       const DeviceTensor& bias;
  ///       auto arguments() const { return std::tie(factor, bias); }
  ///     };
  ///
  ///     kernel(n, x, ScalingArguments{.factor = 0.5f, .bias = bias});
  ///
  /// On a CUDA device the call does not wait for the kernel's end. On the virtual GPU the report names the line of the
  /// call where it races with another one.
  template <class... Args>
  LaunchReport operator()(First first, const Args&... rest) {
    return launch_arguments(Make::make_behind(first, rest...), false, nullptr, first.where);
  }
  /// Launches, waits for the end, and reports the time in LaunchReport::milliseconds.
  template <class... Args>
  LaunchReport launch_timed(First first, const Args&... rest) {
    return launch_arguments(Make::make_behind(first, rest...), true, nullptr, first.where);
  }
  /// The same for a call whose first argument is a struct, or that has none. The report does not know its line:
  /// kernel.on(Stream())(...) does.
  template <class... Args>
  requires(sizeof...(Args) == 0 || detail::begins_with_struct<Args...>) LaunchReport operator()(
      const Args&... arguments) {
    return launch_arguments(Make::make(arguments...), false, nullptr, {});
  }
  template <class... Args>
  requires(sizeof...(Args) == 0 || detail::begins_with_struct<Args...>) LaunchReport
      launch_timed(const Args&... arguments) {
    return launch_arguments(Make::make(arguments...), true, nullptr, {});
  }
  /// kernel.on(stream)(arguments...) and kernel.on(stream).launch_timed(arguments...): the same on a stream of the
  /// kernel's device. While the stream is being captured into a CUDA graph, launches are recorded: such a call throws
  /// LaunchError where it would have to compile first (see prepare) or is timed.
  auto on(const Stream& stream, SourceLocation where = SourceLocation::current()) {
    return OnStream{*this, stream, where};
  }
  /// Compiles and loads what a call with these arguments needs, and launches nothing: such a call can be captured
  /// into a CUDA graph. An autotuned kernel is tuned, which leaves the arguments' memory as it was.
  template <class... Args>
  void prepare(const Args&... arguments) {
    prepare_arguments(Make::make(arguments...));
  }
  /// Keeps in `folder` what such a call needs on any device of the kernel's target: its machine code, by ptxas, and where
  /// keep_compiled_as() was called what it takes to find it without tracing. Needs no device. Programs find it there as
  /// shipped code (IMBREX_CODE_DIR). Throws LaunchError without ptxas, DeviceError where the folder cannot be written,
  /// CompileError.
  template <class... Args>
  void ship(Cache& folder, const Args&... arguments) const {
    ship_arguments(folder, Make::make(arguments...));
  }
  /// Only traces: the IR as the front end made it. Throws CompileError.
  template <class... Args>
  std::shared_ptr<ir::Function> trace(const Args&... arguments) const {
    return trace_arguments(Make::make(arguments...));
  }
  /// The same for another target than the kernel's own ("" for that one).
  template <class... Args>
  std::shared_ptr<ir::Function> trace_for(const std::string& target, const Args&... arguments) const {
    return trace_arguments(Make::make(arguments...), target);
  }
  /// The shape of such a call (see KernelBase).
  template <class... Args>
  std::vector<int64_t> shape(const Args&... arguments) const {
    return shape_of(Make::make(arguments...));
  }

 private:
  static Family family() {
    return {tuning_space<K>(), [](const Configuration& configuration) {
              auto instance = std::make_shared<K>();
              tuning_space<K>().apply(instance.get(), configuration);
              return std::shared_ptr<const void>(std::move(instance));
            }};
  }

  /// What on() gives, for the call that follows at once: it refers to the kernel and to the stream.
  struct OnStream {
    Kernel& kernel;
    const Stream& stream;
    SourceLocation where;
    template <class... Args>
    LaunchReport operator()(const Args&... arguments) && {
      return kernel.launch_arguments(Make::make(arguments...), false, &stream, where);
    }
    template <class... Args>
    LaunchReport launch_timed(const Args&... arguments) && {
      return kernel.launch_arguments(Make::make(arguments...), true, &stream, where);
    }
  };
};

}  // namespace imbrex
