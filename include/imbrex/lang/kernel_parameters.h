// SPDX-License-Identifier: Apache-2.0
// What a kernel is to the compiler and the runtime: a struct whose operator() is traced.
//
//   struct Scale {
//     int block = 1024;  // a tile size: a member, which can be tuned
//
//     void operator()(Int32 n,                    // a run-time scalar
//                     float factor,               // a compile-time constant
//                     Ptr<float32> x_ptr) const;  // a device pointer
//   };
//
//   type of a parameter                what it is            part of a compiled kernel's key
//   Int32, Float32, ... (Var)          a run-time scalar     no
//   Ptr<T>, Ptr<>                      a device pointer      no
//   bool, integers, enumerations,      a compile-time        yes
//     float, double, DataType            constant
//
// A struct of such parameters is a parameter too, if it lists the types of its members, in order:
//
//   struct Scaling {
//     using Parameters = ParameterList<Float32>;
//     Float32 factor;
//   };
//
// At launch its members are separate arguments, in its place, or members of a struct of the caller's (see
// Kernel in imbrex/runtime/kernel.h). A type that is none of these fails to compile.
#pragma once

#include <array>
#include <bit>
#include <span>
#include <string_view>
#include <utility>

#include "imbrex/lang/pointer.h"

namespace imbrex {

enum class ParameterKind : uint8_t { kScalar, kPointer, kConstant };

struct ParameterInfo {
  ParameterKind kind;
  /// kScalar: its type; kPointer: the type it points to, any_type for Ptr<>; kConstant: int64 for integers,
  /// else any_type.
  DataType dtype;
  uint8_t position = 0;  ///< which parameter of operator() it is, or is a member of
};

/// The types of the members of a struct that is a kernel parameter.
template <class... T>
struct ParameterList {};

namespace detail {

/// The arguments of the kernel being traced, by position.
class Arguments {
 public:
  virtual Handle handle(size_t i) const = 0;     // kScalar (a variable), kPointer
  virtual int64_t constant(size_t i) const = 0;  // kConstant, as constant_bits() gives it

 protected:
  ~Arguments() = default;
};

template <class T>
inline constexpr bool kIsConstant =
    std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, DataType>;

/// How a parameter of type T is passed; specialised for scalars and pointers.
template <class T>
struct Parameter {
  static_assert(kIsConstant<T>,
                "a kernel parameter must be a run-time scalar (Int32, ...), a Ptr<type>, or a compile-time "
                "bool, integer, enumeration, float, double or DataType, passed by value");
  static constexpr ParameterInfo kInfo{ParameterKind::kConstant,
                                       std::is_integral_v<T> && !std::is_same_v<T, bool> ? int64 : any_type};
  static T get(const Arguments& arguments, size_t i) {
    const int64_t bits = arguments.constant(i);
    if constexpr (std::is_floating_point_v<T>)
      return static_cast<T>(std::bit_cast<double>(bits));
    else if constexpr (std::is_same_v<T, DataType>)
      return DataType{static_cast<DataType::Code>(bits)};
    else
      return static_cast<T>(bits);
  }
};
template <DataType D>
struct Parameter<Var<D>> {
  static constexpr ParameterInfo kInfo{ParameterKind::kScalar, D};
  static Var<D> get(const Arguments& arguments, size_t i) { return Var<D>(arguments.handle(i)); }
};
template <DataType D>
struct Parameter<Ptr<D>> {
  static constexpr ParameterInfo kInfo{ParameterKind::kPointer, D};
  static Ptr<D> get(const Arguments& arguments, size_t i) { return Ptr<D>(arguments.handle(i)); }
};

template <class T>
concept ParameterStruct = requires {
  typename T::Parameters;
};

template <class... Lists>
struct Concat {
  using List = ParameterList<>;
};
template <class... A>
struct Concat<ParameterList<A...>> {
  using List = ParameterList<A...>;
};
template <class... A, class... B, class... Rest>
struct Concat<ParameterList<A...>, ParameterList<B...>, Rest...>
    : Concat<ParameterList<A..., B...>, Rest...> {};

/// A parameter, or several, with structs resolved into their members.
template <class T>
struct Flat {
  using List = ParameterList<T>;
};
template <class... T>
struct Flat<ParameterList<T...>> : Concat<typename Flat<T>::List...> {};
template <ParameterStruct T>
struct Flat<T> : Flat<typename T::Parameters> {};

template <class T>
constexpr size_t kFlatCount = 1;
template <class... T>
constexpr size_t kFlatCount<ParameterList<T...>> = (0 + ... + kFlatCount<T>);
template <ParameterStruct T>
constexpr size_t kFlatCount<T> = kFlatCount<typename T::Parameters>;

/// The parameter whose first argument is the one at `next`, which moves past it.
template <class T>
T take_parameter(const Arguments& arguments, size_t& next);
template <class T, class... Members>
T take_members(const Arguments& arguments, [[maybe_unused]] size_t& next, ParameterList<Members...>) {
  return T{take_parameter<Members>(arguments, next)...};  // from left to right, in braces
}
template <class T>
T take_parameter(const Arguments& arguments, size_t& next) {
  if constexpr (ParameterStruct<T>)
    return take_members<T>(arguments, next, typename T::Parameters());
  else
    return Parameter<T>::get(arguments, next++);
}

/// "T" as the compiler spells it; used for the kernel's name.
template <class T>
constexpr std::string_view type_name() {
  std::string_view text = __PRETTY_FUNCTION__;  // "... [with T = ns::Name; ...]" or "... [T = ns::Name]"
  const size_t begin = text.find("T = ") + 4;
  return text.substr(begin, text.find_first_of(";]", begin) - begin);
}

template <class Call>
struct SignatureOf {
  static_assert(kNever<Call>, "a kernel's operator() must be `void operator()(...) const`");
};
template <class K, class... Args>
struct SignatureOf<void (K::*)(Args...) const> {
  static constexpr size_t kWritten = sizeof...(Args);  // parameters in the source text
  static constexpr size_t kCount = kFlatCount<ParameterList<Args...>>;
  static constexpr auto kParameters = [] {
    std::array<ParameterInfo, kCount + 1> all{};
    size_t next = 0;
    uint8_t position = 0;
    const auto add = [&]<class... T>(ParameterList<T...>) {
      ((all[next] = Parameter<T>::kInfo, all[next++].position = position), ...);
      ++position;
    };
    (add(typename Flat<Args>::List()), ...);
    return all;
  }();
  static void run(const void* kernel, const Arguments& arguments) {
    run(kernel, arguments, std::index_sequence_for<Args...>());
  }

 private:
  /// Where each parameter's arguments begin.
  static constexpr auto kStarts = [] {
    std::array<size_t, kWritten + 1> starts{};
    size_t next = 0, i = 0;
    ((starts[i++] = next, next += kFlatCount<Args>), ...);
    return starts;
  }();
  template <class T>
  static T at(const Arguments& arguments, size_t start) {
    return take_parameter<T>(arguments, start);
  }
  template <size_t... I>
  static void run(const void* kernel, [[maybe_unused]] const Arguments& arguments,
                  std::index_sequence<I...>) {
    (*static_cast<const K*>(kernel))(at<Args>(arguments, kStarts[I])...);
  }
};

}  // namespace detail

/// The 64 bits that represent a compile-time argument, in keys too.
template <class T>
requires detail::kIsConstant<T>
constexpr int64_t constant_bits(T value) {
  if constexpr (std::is_floating_point_v<T>)
    return std::bit_cast<int64_t>(static_cast<double>(value));
  else if constexpr (std::is_same_v<T, DataType>)
    return value.code;
  else
    return static_cast<int64_t>(value);
}

/// The parameters of K::operator(), in order, with structs resolved into their members.
template <class K>
struct KernelSignature {
  using Call = detail::SignatureOf<decltype(&K::operator())>;
  static constexpr size_t kCount = Call::kCount;
  static constexpr std::span<const ParameterInfo> parameters() {
    return std::span(Call::kParameters.data(), kCount);
  }
};

/// A kernel type, erased: what the compiler needs to trace one.
struct KernelEntry {
  std::string_view type_name;  ///< "ns::MatmulV0"
  std::span<const ParameterInfo> parameters;
  size_t written_parameters;  ///< how many operator() has: a struct counts once
  void (*run)(const void* kernel, const detail::Arguments& arguments);
};

template <class K>
const KernelEntry& kernel_entry() {
  static const KernelEntry entry{detail::type_name<K>(), KernelSignature<K>::parameters(),
                                 KernelSignature<K>::Call::kWritten, &KernelSignature<K>::Call::run};
  return entry;
}

}  // namespace imbrex
