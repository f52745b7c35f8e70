// SPDX-License-Identifier: Apache-2.0
// The tuning space a kernel declares over its own members:
//
//   static auto space() {
//     return Space<MatmulV0>()
//         .choose<&MatmulV0::block_m, &MatmulV0::block_n>({{128, 64}, {128, 128}, {128, 256}})
//         .choose<&MatmulV0::block_k>({16, 32, 64});
//   }
//
// Its configurations are the product of the choices, of which the last varies fastest; the first
// configuration is the default. `--config block_m=128,block_n=64` sets the members by name.
#pragma once

#include <string>
#include <tuple>
#include <vector>

#include "imbrex/lang/kernel_parameters.h"

namespace imbrex {

/// A member of a kernel, by name, and its value as constant_bits() represents it.
struct Setting {
  std::string name;
  int64_t bits = 0;
  friend bool operator==(const Setting&, const Setting&) = default;
};
using Configuration = std::vector<Setting>;

namespace detail {

struct Member {
  std::string_view name;
  DataType dtype;  // float64 for floating members, any_type for DataType members, else int64
  int64_t (*get)(const void* kernel);
  void (*set)(void* kernel, int64_t bits);
};

template <auto M>
constexpr std::string_view member_name() {
  std::string_view text = __PRETTY_FUNCTION__;  // ends in "Kernel::block_m]", or ")]" or "; ...]" after it
  text = text.substr(text.find("M = "));
  text = text.substr(0, text.find_first_of(";]"));
  text = text.substr(text.rfind("::") + 2);  // of Clang's "(anonymous namespace)::Kernel::block_m", too
  return text.substr(0, text.find(')'));
}

template <class P>
struct MemberPointer;
template <class K, class T>
struct MemberPointer<T K::*> {
  static_assert(kIsConstant<T>,
                "a tuned member must be a bool, integer, enumeration, float, double or DataType");
  using Kernel = K;
  using Type = T;
};

template <auto M>
constexpr Member member() {
  using K = typename MemberPointer<decltype(M)>::Kernel;
  using T = typename MemberPointer<decltype(M)>::Type;
  constexpr DataType kind = std::is_floating_point_v<T>   ? float64
                            : std::is_same_v<T, DataType> ? any_type
                                                          : int64;
  return {member_name<M>(), kind,
          [](const void* kernel) { return constant_bits(static_cast<const K*>(kernel)->*M); },
          [](void* kernel, int64_t bits) {
            if constexpr (std::is_floating_point_v<T>)
              static_cast<K*>(kernel)->*M = static_cast<T>(std::bit_cast<double>(bits));
            else if constexpr (std::is_same_v<T, DataType>)
              static_cast<K*>(kernel)->*M = DataType{static_cast<DataType::Code>(bits)};
            else
              static_cast<K*>(kernel)->*M = static_cast<T>(bits);
          }};
}

}  // namespace detail

/// The tuning space of a kernel type, erased.
class TuningSpace {
 public:
  /// Number of configurations; 1 (the struct as it is) for an empty space.
  size_t size() const;
  /// Configuration `i`; 0 is the default.
  Configuration configuration(size_t i) const;
  std::vector<Configuration> configurations() const;
  /// Sets members of *kernel by name. Throws CompileError for a name that is not in the space, naming the
  /// nearest one. Values outside the declared choices are allowed.
  void apply(void* kernel, const Configuration& configuration) const;
  /// The current values of the tuned members.
  Configuration read(const void* kernel) const;
  /// "block_m=128 block_n=64 block_k=16".
  std::string to_string(const Configuration& configuration) const;
  /// Reads what to_string() writes; throws CompileError for an unknown name or a malformed value.
  Configuration parse(std::string_view text) const;

 protected:
  void add(std::vector<detail::Member> members, std::vector<std::vector<int64_t>> rows);

 private:
  const detail::Member& find(std::string_view name) const;

  struct Choice {
    std::vector<detail::Member> members;
    std::vector<std::vector<int64_t>> rows;
  };
  std::vector<Choice> choices_;
};

/// The tuning space of kernel K; see the head of this file.
template <class K>
class Space : public TuningSpace {
 public:
  /// The member takes each of the values.
  template <auto M>
  Space& choose(std::initializer_list<typename detail::MemberPointer<decltype(M)>::Type> values) {
    std::vector<std::vector<int64_t>> rows;
    for (const auto& value : values) rows.push_back({constant_bits(value)});
    add({detail::member<M>()}, std::move(rows));
    return *this;
  }
  /// The members together take each of the rows.
  template <auto M1, auto M2, auto... Ms>
  Space& choose(std::initializer_list<std::tuple<typename detail::MemberPointer<decltype(M1)>::Type,
                                                 typename detail::MemberPointer<decltype(M2)>::Type,
                                                 typename detail::MemberPointer<decltype(Ms)>::Type...>>
                    values) {
    std::vector<std::vector<int64_t>> rows;
    for (const auto& value : values)
      std::apply([&](const auto&... v) { rows.push_back({constant_bits(v)...}); }, value);
    add({detail::member<M1>(), detail::member<M2>(), detail::member<Ms>()...}, std::move(rows));
    return *this;
  }
};

}  // namespace imbrex
