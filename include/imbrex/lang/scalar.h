// SPDX-License-Identifier: Apache-2.0
// Run-time scalars of a kernel being traced.
//
//   Int32 stage = 0;                  a variable: stage = ..., stage += 1, ++stage
//   auto next = (stage + 1) % 4;      a value: computed once, here; cannot be assigned
//
// C++ numbers mix freely with both and are compile-time constants of the kernel. Conversions are those of
// C++ (integral promotion, then the wider type, unsigned winning at equal width) with three differences, all
// because a C++ number's value is known here:
//   - a 64-bit C++ integer whose value fits does not widen a 32-bit operand (sizes are int64_t);
//   - a C++ floating-point number takes the floating type it meets (2.0 * x is float32 when x is);
//   - a floating value becomes an integer only by cast().
// && and || evaluate both sides: a traced program does not short-circuit.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "imbrex/core/dtype.h"
#include "imbrex/core/source_location.h"

namespace imbrex {

namespace ir {
struct Value;
}

namespace detail {

template <class>
inline constexpr bool kNever = false;

/// A value of the kernel being traced; the serial number tells one trace's values from another's.
struct Handle {
  ir::Value* value = nullptr;
  uint64_t trace = 0;
};

enum class Arith : uint8_t {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kRem,
  kCeilDiv,
  kMin,
  kMax,
  kAnd,
  kOr,
  kXor,
  kShl,
  kShr,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kLogicalAnd,
  kLogicalOr,
};
enum class Unary : uint8_t {
  kNeg,
  kNot,
  kLogicalNot,
  kAbs,
  kExp,
  kExp2,
  kLog,
  kSqrt,
  kRsqrt,
  kTanh,
  kSin,
  kCos,
  kRound,
  kFloor,
  kCeil,
};

}  // namespace detail

class Expr;
class GlobalTensor;
class SharedTensor;
class RegisterBase;

/// What run-time scalars, Expr (a value) and Var (a variable), have in common.
class Scalar {
 public:
  DataType dtype() const { return dtype_; }
  /// Converts; see cast().
  Expr to(DataType dtype, SourceLocation where = SourceLocation::current()) const;

  template <class T>
  requires std::same_as<T, bool>
  explicit operator T() const {
    static_assert(detail::kNever<T>,
                  "a traced value is not known while the kernel is being traced: instead of a C++ "
                  "if, for, while or ?: write `if (auto arm = when(condition))`, `for (auto i : range(n))`, "
                  "`loop.break_if(condition)` or `select(condition, a, b)`");
    return false;
  }

  /// Does not compile. Explicit, because an implicit one would tie with the operators; so where a C++ number is initialised
  /// with `=`, the compiler says only that it cannot convert.
  template <class T>
  requires(std::is_arithmetic_v<T> && !std::same_as<T, bool>) explicit operator T()
      const {  // a traced value is no C++ number: write `Int32 y = x` or `auto y = x`
    static_assert(detail::kNever<T>,
                  "a traced value is no C++ number, for the kernel is not running yet: hold it in `Int32 y = "
                  "x` or `auto y "
                  "= x`, convert it with `x.to(float32)`, and take what must be known when the kernel is "
                  "traced from an "
                  "int parameter or a member");
    return T{};
  }

  detail::Handle handle() const { return handle_; }

 protected:
  Scalar(detail::Handle handle, DataType dtype) : handle_(handle), dtype_(dtype) {}

  detail::Handle handle_;
  DataType dtype_;
};

/// A run-time value: the result of an operator. It can be copied and used, not assigned.
class Expr : public Scalar {
 public:
  Expr(detail::Handle handle, DataType dtype) : Scalar(handle, dtype) {}
  Expr(const Expr&) = default;
  Expr& operator=(const Expr&) = delete;

#define IMBREX_NOT_ASSIGNABLE(symbol)                                                                      \
  template <class T>                                                                                       \
  void operator symbol(T&&) {                                                                              \
    static_assert(detail::kNever<T>,                                                                       \
                  "`auto x = a + b` is a value and cannot be assigned: declare a variable with its type, " \
                  "such as `Int32 x = a + b`");                                                            \
  }
  IMBREX_NOT_ASSIGNABLE(=)
  IMBREX_NOT_ASSIGNABLE(+=)
  IMBREX_NOT_ASSIGNABLE(-=)
  IMBREX_NOT_ASSIGNABLE(*=)
  IMBREX_NOT_ASSIGNABLE(/=)
  IMBREX_NOT_ASSIGNABLE(%=)
  IMBREX_NOT_ASSIGNABLE(&=)
  IMBREX_NOT_ASSIGNABLE(|=)
  IMBREX_NOT_ASSIGNABLE(^=)
#undef IMBREX_NOT_ASSIGNABLE
};

/// block_idx.x, grid_dim.x and so on: an int32 that every CTA reads from the launch.
struct LaunchIndex {
  enum class Kind : uint8_t { kBlockIdx, kGridDim };
  Kind kind;
  uint8_t axis;
};

/// A scalar operand: a run-time scalar, a C++ number or one element of a tensor in memory, and the line it was written
/// on. Implicit, so that operators take any. An element (`g_offsets[i]`) is read where it is used: `Int32 x =
/// g_offsets[i]` reads it once.
class ScalarOperand {
 public:
  enum class Kind : uint8_t { kScalar, kInteger, kFloat, kLaunch, kElement };

  ScalarOperand(const Scalar& scalar, SourceLocation where = SourceLocation::current())
      : where(where), kind(Kind::kScalar), dtype(scalar.dtype()), handle(scalar.handle()) {}
  ScalarOperand(LaunchIndex index, SourceLocation where = SourceLocation::current())
      : where(where), kind(Kind::kLaunch), dtype(int32), launch(index) {}
  /// CompileError where it is used, unless the tensor or view has exactly one element.
  ScalarOperand(const GlobalTensor& element, SourceLocation where = SourceLocation::current());
  ScalarOperand(const SharedTensor& element, SourceLocation where = SourceLocation::current());
  template <class T>
  requires std::is_arithmetic_v<T> ScalarOperand(T number, SourceLocation where = SourceLocation::current())
      : where(where) {
    if constexpr (std::is_floating_point_v<T>) {
      kind = Kind::kFloat;
      dtype = float32;
      real = static_cast<double>(number);
    } else {
      kind = Kind::kInteger;
      dtype = std::is_same_v<T, bool> ? boolean
              : sizeof(T) == 8        ? (std::is_signed_v<T> ? int64 : uint64)
              : sizeof(T) == 4        ? (std::is_signed_v<T> ? int32 : uint32)
                                      : int32;
      integer = static_cast<int64_t>(number);
    }
  }

  bool is_number() const { return kind == Kind::kInteger || kind == Kind::kFloat; }

  SourceLocation where;
  Kind kind;
  DataType dtype;         ///< of the scalar; of a C++ number, what C++ says
  detail::Handle handle;  ///< kScalar, kElement
  union {
    int64_t integer = 0;
    double real;
    LaunchIndex launch;
  };
};

template <class T>
concept ScalarLike = std::is_constructible_v<ScalarOperand, const T&, SourceLocation>;

/// A scalar argument of a function: a scalar operand, with an explanation where a tile is given instead.
class ScalarArg : public ScalarOperand {
 public:
  template <ScalarLike T>
  requires(!std::is_arithmetic_v<T>)
      ScalarArg(const T& value, SourceLocation where = SourceLocation::current())
      : ScalarOperand(value, where) {}
  // By value: a lambda may name a constant of its surroundings without capturing it.
  template <class T>
  requires std::is_arithmetic_v<T> ScalarArg(T number, SourceLocation where = SourceLocation::current())
      : ScalarOperand(number, where) {}
  ScalarArg(const ScalarOperand& operand) : ScalarOperand(operand) {}
  template <std::derived_from<RegisterBase> T>
  ScalarArg(const T&, SourceLocation where = SourceLocation::current()) : ScalarOperand(0, where) {
    static_assert(
        detail::kNever<T>,
        "a register tensor is not a scalar: reduce it to one with any(x), all(x), sum(x), min(x) or max(x), "
        "or take one element with x.item({i, j})");
  }
};

namespace detail {

Expr binary(Arith op, const ScalarOperand& a, const ScalarOperand& b);
Expr unary(Unary op, const ScalarOperand& a);
Expr logical(Arith op, const ScalarOperand& a, const ScalarOperand& b);
Handle new_variable(DataType dtype, const ScalarOperand& init, SourceLocation where);
void assign(Handle& variable, DataType dtype, const ScalarOperand& value);
Expr read(const Scalar& variable, SourceLocation where);
/// The line most recently traced, for the few operators that cannot capture their own.
SourceLocation last_location();

/// A variable with the line of the operator applied to it.
template <class V>
struct Place {
  Place(V& variable, SourceLocation where = SourceLocation::current()) : variable(variable), where(where) {}
  V& variable;
  SourceLocation where;
};

}  // namespace detail

/// A run-time variable: `Int32 x = a + b;`. Copying one, or passing it by value, makes a new variable with
/// its current value, as with a C++ int.
template <DataType D>
class Var : public Scalar {
 public:
  static constexpr DataType kType = D;

  /// Does not compile: a variable begins with a value.
  template <class T = void>
  Var() : Scalar({}, D) {
    static_assert(detail::kNever<T>, "a variable begins with a value: `Int32 x = 0`");
  }
  /// Sets the variable each time control passes here. CompileError for a floating `init` of an integer
  /// variable.
  template <ScalarLike T>
  Var(const T& init, SourceLocation where = SourceLocation::current())
      : Scalar(detail::new_variable(D, ScalarArg(init, where), where), D) {}
  template <std::derived_from<RegisterBase> T>
  Var(const T& tile, SourceLocation where = SourceLocation::current())
      : Scalar(detail::new_variable(D, ScalarArg(tile, where), where), D) {}
  Var(const Var& other, SourceLocation where = SourceLocation::current())
      : Scalar(detail::new_variable(D, ScalarArg(other, where), where), D) {}
  /// Takes the variable over, so that functions can return one; `other` must be assigned before it is used
  /// again.
  Var(Var&& other) noexcept : Scalar(other.handle_, D) { other.handle_ = {}; }
  /// A variable that exists already: a kernel parameter.
  explicit Var(detail::Handle handle) : Scalar(handle, D) {}

  // Assigning a Var goes through ScalarArg too, which captures the line: this declaration only keeps the
  // implicit one away.
  Var& operator=(const Var&) requires detail::kNever<Var>;
  Var& operator=(const ScalarArg& value) {
    detail::assign(handle_, D, value);
    return *this;
  }

#define IMBREX_COMPOUND(symbol, op)                                                              \
  Var& operator symbol(const ScalarArg& value) {                                                 \
    const Expr result = detail::binary(detail::Arith::op, ScalarArg(*this, value.where), value); \
    detail::assign(handle_, D, ScalarArg(result, value.where));                                  \
    return *this;                                                                                \
  }
  IMBREX_COMPOUND(+=, kAdd)
  IMBREX_COMPOUND(-=, kSub)
  IMBREX_COMPOUND(*=, kMul)
  IMBREX_COMPOUND(/=, kDiv)
  IMBREX_COMPOUND(%=, kRem)
  IMBREX_COMPOUND(&=, kAnd)
  IMBREX_COMPOUND(|=, kOr)
  IMBREX_COMPOUND(^=, kXor)
  IMBREX_COMPOUND(<<=, kShl)
  IMBREX_COMPOUND(>>=, kShr)
#undef IMBREX_COMPOUND

  friend Var& operator++(detail::Place<Var> x) {
    x.variable += ScalarArg(1, x.where);
    return x.variable;
  }
  friend Var& operator--(detail::Place<Var> x) {
    x.variable -= ScalarArg(1, x.where);
    return x.variable;
  }
  friend Expr operator++(detail::Place<Var> x, int) {
    Expr before = detail::read(x.variable, x.where);
    x.variable += ScalarArg(1, x.where);
    return before;
  }
  friend Expr operator--(detail::Place<Var> x, int) {
    Expr before = detail::read(x.variable, x.where);
    x.variable -= ScalarArg(1, x.where);
    return before;
  }
};

using Bool = Var<boolean>;
using Int8 = Var<int8>;
using Int16 = Var<int16>;
using Int32 = Var<int32>;
using Int64 = Var<int64>;
using UInt8 = Var<uint8>;
using UInt16 = Var<uint16>;
using UInt32 = Var<uint32>;
using UInt64 = Var<uint64>;
using Float16 = Var<float16>;
using BFloat16 = Var<bfloat16>;
using Float32 = Var<float32>;
using Float64 = Var<float64>;

#define IMBREX_BINARY(symbol, op)                                               \
  inline Expr operator symbol(const ScalarOperand& a, const ScalarOperand& b) { \
    return detail::binary(detail::Arith::op, a, b);                             \
  }
IMBREX_BINARY(+, kAdd)
IMBREX_BINARY(-, kSub)
IMBREX_BINARY(*, kMul)
IMBREX_BINARY(/, kDiv)
IMBREX_BINARY(%, kRem)
IMBREX_BINARY(&, kAnd)
IMBREX_BINARY(|, kOr)
IMBREX_BINARY(^, kXor)
IMBREX_BINARY(<<, kShl)
IMBREX_BINARY(>>, kShr)
IMBREX_BINARY(==, kEq)
IMBREX_BINARY(!=, kNe)
IMBREX_BINARY(<, kLt)
IMBREX_BINARY(<=, kLe)
IMBREX_BINARY(>, kGt)
IMBREX_BINARY(>=, kGe)
#undef IMBREX_BINARY

inline Expr operator-(const ScalarOperand& a) { return detail::unary(detail::Unary::kNeg, a); }
inline Expr operator~(const ScalarOperand& a) { return detail::unary(detail::Unary::kNot, a); }

// Exact matches: with a converting parameter these would tie with the built-in operators, to which a scalar
// also converts (by the conversion to bool that exists only to explain itself).
template <ScalarLike A, ScalarLike B>
requires std::derived_from<A, Scalar> || std::derived_from<B, Scalar> Expr operator&&(const A& a,
                                                                                      const B& b) {
  return detail::logical(detail::Arith::kLogicalAnd, ScalarOperand(a, detail::last_location()),
                         ScalarOperand(b, detail::last_location()));
}
template <ScalarLike A, ScalarLike B>
requires std::derived_from<A, Scalar> || std::derived_from<B, Scalar> Expr operator||(const A& a,
                                                                                      const B& b) {
  return detail::logical(detail::Arith::kLogicalOr, ScalarOperand(a, detail::last_location()),
                         ScalarOperand(b, detail::last_location()));
}
template <std::derived_from<Scalar> A>
Expr operator!(const A& a) {
  return detail::unary(detail::Unary::kLogicalNot, ScalarOperand(a, detail::last_location()));
}

/// (a + b - 1) / b, for integers a >= 0 and b > 0: how many tiles of size b cover a.
inline Expr cdiv(const ScalarArg& a, const ScalarArg& b) {
  return detail::binary(detail::Arith::kCeilDiv, a, b);
}
template <std::integral A, std::integral B>
constexpr std::common_type_t<A, B> cdiv(A a, B b) {
  return static_cast<std::common_type_t<A, B>>((a + b - 1) / b);
}

/// The smaller and the larger of two; of a number and a NaN, the number.
inline Expr min(const ScalarOperand& a, const ScalarOperand& b) {
  return detail::binary(detail::Arith::kMin, a, b);
}
inline Expr max(const ScalarOperand& a, const ScalarOperand& b) {
  return detail::binary(detail::Arith::kMax, a, b);
}
template <class A, class B>
requires std::is_arithmetic_v<A> && std::is_arithmetic_v<B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  using T = std::common_type_t<A, B>;
  return static_cast<T>(b) < static_cast<T>(a) ? static_cast<T>(b) : static_cast<T>(a);
}
template <class A, class B>
requires std::is_arithmetic_v<A> && std::is_arithmetic_v<B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  using T = std::common_type_t<A, B>;
  return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(b) : static_cast<T>(a);
}

/// a if the condition (a bool) holds, else b; both are computed. [PTX: selp]
Expr select(const ScalarOperand& condition, const ScalarOperand& a, const ScalarOperand& b);

/// Converts: between floating types to nearest even, to integers toward zero, to bool by != 0. [PTX: cvt]
Expr cast(const ScalarOperand& a, DataType dtype);
template <DataType D>
Expr cast(const ScalarOperand& a) {
  return cast(a, D);
}

/// |a|.
inline Expr abs(const ScalarOperand& a) { return detail::unary(detail::Unary::kAbs, a); }
/// e^a, 2^a and the natural logarithm, by the approximate instructions; floating types.
inline Expr exp(const ScalarOperand& a) { return detail::unary(detail::Unary::kExp, a); }
inline Expr exp2(const ScalarOperand& a) { return detail::unary(detail::Unary::kExp2, a); }
inline Expr log(const ScalarOperand& a) { return detail::unary(detail::Unary::kLog, a); }
/// Square root rounded to nearest; 1 / sqrt(a) and tanh(a) by the approximate instructions; floating types.
inline Expr sqrt(const ScalarOperand& a) { return detail::unary(detail::Unary::kSqrt, a); }
inline Expr rsqrt(const ScalarOperand& a) { return detail::unary(detail::Unary::kRsqrt, a); }
inline Expr tanh(const ScalarOperand& a) { return detail::unary(detail::Unary::kTanh, a); }
/// The sine of an angle in radians; floating types but float64. Its absolute error is at most 2^-20.5 for |a| <= 2 pi
/// and 2^-14.7 for |a| <= 100 pi; narrower types are converted to float32 and back. [PTX: sin.approx]
inline Expr sin(const ScalarOperand& a) { return detail::unary(detail::Unary::kSin, a); }
/// The cosine, as sin(). [PTX: cos.approx]
inline Expr cos(const ScalarOperand& a) { return detail::unary(detail::Unary::kCos, a); }
/// The nearest integer (halves to even), the largest one not above and the smallest one not below; floating types.
/// [PTX: cvt.rni, cvt.rmi, cvt.rpi]
inline Expr round(const ScalarOperand& a) { return detail::unary(detail::Unary::kRound, a); }
inline Expr floor(const ScalarOperand& a) { return detail::unary(detail::Unary::kFloor, a); }
inline Expr ceil(const ScalarOperand& a) { return detail::unary(detail::Unary::kCeil, a); }
/// a * b + c, rounded once; floating types. [PTX: fma]
Expr fma(const ScalarOperand& a, const ScalarOperand& b, const ScalarOperand& c);

/// What fast_divmod() returns: `auto [group, in_group] = fast_divmod(i, width);`.
struct Divmod {
  Expr quotient, remainder;
};
/// a / b and a % b for 0 <= a < 2^31 and b > 0, where b is computed from the kernel's parameters alone
/// (CompileError otherwise): the division becomes a multiplication by a number that the host computes at
/// launch.
Divmod fast_divmod(const ScalarArg& a, const ScalarArg& b);

}  // namespace imbrex
