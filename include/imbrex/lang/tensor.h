// SPDX-License-Identifier: Apache-2.0
// Tensors of a kernel being traced, in four places:
//
//   GlobalTensor    a view of global memory, made by global_view()            (memory.h)
//   SharedTensor    in the CTA's shared memory, made by shared_tensor()       (memory.h)
//   TMemoryTensor   in tensor memory, made by tcgen05::alloc()                (tcgen05.h)
//   RegisterValue   spread over the registers of a thread group; what loads and arithmetic return
//   RegisterTensor  a variable that holds one: `RegisterTensor acc = zeros(float32, {m, n}); acc += x;`
//
// A C++ object of these is a handle: a copy names the same tensor. Shapes are C++ numbers, except the extents
// of global tensors, which may be run-time scalars. transpose(), permute(), reshape(), slice() and [] are
// views: no data moves.
//
// Arithmetic on register tensors is element by element. Shapes broadcast as numpy's do: aligned at the last
// dimension, where an extent of 1 or a missing dimension repeats. A scalar operand takes the tensor's element
// type; two tensors of different types are converted as scalars of those types would be (scalar.h).
#pragma once

#include <initializer_list>
#include <tuple>
#include <vector>

#include "imbrex/lang/scalar.h"

namespace imbrex {

namespace layout {
class Layout;
}

/// Extents known at compile time.
using Shape = std::vector<int64_t>;
/// Extents or offsets that may be run-time scalars.
using Scalars = std::vector<ScalarArg>;

/// What all tensors have in common. CompileError where a dimension does not exist.
class Tensor {
 public:
  DataType dtype() const;
  int rank() const;
  /// Extent of dimension `i`; negative `i` counts from the end. An error where it is known only at run time.
  int64_t shape(int i) const;
  Shape shape() const;
  /// Bytes of all elements together; extents must be known.
  int64_t nbytes() const;

  detail::Handle handle() const { return handle_; }

 protected:
  explicit Tensor(detail::Handle handle) : handle_(handle) {}
  detail::Handle handle_;
};

namespace detail {

Handle permute(const Tensor& t, const Shape& dims, SourceLocation where);
Handle transpose(const Tensor& t, SourceLocation where);
Handle reshape(const Tensor& t, const Shape& shape, SourceLocation where);
Handle slice(const Tensor& t, const Scalars& offsets, const Shape& shape, SourceLocation where);
Handle index(const Tensor& t, const ScalarArg& i);
Expr memory_item(const Tensor& t, const Scalars& index, SourceLocation where);

/// The views that tensors in memory share.
template <class Derived>
class MemoryTensor : public Tensor {
 public:
  explicit MemoryTensor(Handle handle) : Tensor(handle) {}
  /// t[i]: entry `i` of the leading dimension, which is dropped. Of a vector it is one element, which functions and
  /// operators read as a scalar: `Int32 begin = g_offsets[i]`.
  Derived operator[](const ScalarArg& i) const { return Derived(detail::index(*this, i)); }
  /// The box of this shape at the offsets, one offset per dimension.
  Derived slice(const Scalars& offsets, const Shape& shape,
                SourceLocation where = SourceLocation::current()) const {
    return Derived(detail::slice(*this, offsets, shape, where));
  }
  /// Dimension i of the result is dimension dims[i].
  Derived permute(const Shape& dims, SourceLocation where = SourceLocation::current()) const {
    return Derived(detail::permute(*this, dims, where));
  }
  /// Swaps the last two dimensions.
  Derived transpose(SourceLocation where = SourceLocation::current()) const {
    return Derived(detail::transpose(*this, where));
  }
  /// The same elements in row-major order under another shape.
  Derived reshape(const Shape& shape, SourceLocation where = SourceLocation::current()) const {
    return Derived(detail::reshape(*this, shape, where));
  }

  /// Does not compile; see Scalar.
  template <class T>
  requires std::is_arithmetic_v<T>
  explicit operator T() const {  // an element is read when the kernel runs: write `Int32 y = g[i]`
    static_assert(
        kNever<T>,
        "an element of memory is read when the kernel runs, so it is no C++ number: `Int32 y = g[i]`");
    return T{};
  }
};

}  // namespace detail

// A handle may be set to another tensor, elements are not assigned: `g[i] = g_other[j]` would set a temporary handle.
#define IMBREX_IS_STORED_TO(Name, advice)                                               \
  Name(const Name&) = default;                                                          \
  Name& operator=(const Name&)& = default;                                              \
  template <class T>                                                                    \
  void operator=(const T&) {                                                            \
    static_assert(detail::kNever<T>, "elements of a tensor are not assigned: " advice); \
  }                                                                                     \
  template <class T>                                                                    \
  void operator+=(const T&) {                                                           \
    static_assert(detail::kNever<T>, "elements of a tensor are not assigned: " advice   \
                                     "; atomic::add() adds where several threads may"); \
  }
/// See the head of this file.
class GlobalTensor : public detail::MemoryTensor<GlobalTensor> {
 public:
  using MemoryTensor::MemoryTensor;
  IMBREX_IS_STORED_TO(GlobalTensor,
                      "store a tile by `store_global(g, tile, {row, column})`, a number by "
                      "`store_global(g, full(g.dtype(), {1}, x), {row, column})`")
  /// The element at the index, one number per dimension, or the only one: a scalar that all threads of the executing
  /// group read, and that is the same in all as long as nobody else writes it. Any thread group. [PTX: ld.global]
  Expr item(const Scalars& index = {}, SourceLocation where = SourceLocation::current()) const {
    return detail::memory_item(*this, index, where);
  }
};
/// See the head of this file.
class SharedTensor : public detail::MemoryTensor<SharedTensor> {
 public:
  using MemoryTensor::MemoryTensor;
  IMBREX_IS_STORED_TO(SharedTensor,
                      "store a tile of the tensor's shape by `store_shared(s, tile)`, a part of it by "
                      "`store_shared(s.slice({row, column}, {rows, columns}), tile)`")
  /// As GlobalTensor::item(). What other threads stored is there after a sync(). [PTX: ld.shared]
  Expr item(const Scalars& index = {}, SourceLocation where = SourceLocation::current()) const {
    return detail::memory_item(*this, index, where);
  }
};
#undef IMBREX_IS_STORED_TO
/// See the head of this file.
class TMemoryTensor : public detail::MemoryTensor<TMemoryTensor> {
  using MemoryTensor::MemoryTensor;
};

class RegisterValue;

/// What RegisterValue and RegisterTensor have in common.
class RegisterBase : public Tensor {
 public:
  /// Converts every element; see cast().
  RegisterValue to(DataType dtype, SourceLocation where = SourceLocation::current()) const;
  /// The box of this shape at the offsets. No data moves between threads: each thread must hold its share of
  /// the box, as it does of accumulators where offset and extent of the columns are multiples of 8.
  RegisterValue slice(const Shape& offsets, const Shape& shape,
                      SourceLocation where = SourceLocation::current()) const;
  /// Dimension i of the result is dimension dims[i].
  RegisterValue permute(const Shape& dims, SourceLocation where = SourceLocation::current()) const;
  /// Swaps the last two dimensions.
  RegisterValue transpose(SourceLocation where = SourceLocation::current()) const;
  /// The same elements in row-major order under another shape.
  RegisterValue reshape(const Shape& shape, SourceLocation where = SourceLocation::current()) const;
  /// The element at the index (one number per dimension, inside the shape), or the only one: a scalar, the same in all
  /// threads of the group, which all execute it. Moves through shared memory unless every thread holds the element.
  Expr item(const Scalars& index = {}, SourceLocation where = SourceLocation::current()) const;

  /// They do not compile: the elements are spread over threads.
  template <class I>
  Expr operator[](const I&) const {
    static_assert(
        detail::kNever<I>,
        "the elements of a register tensor are spread over threads: `x.item({i, j})` is one of them, the "
        "same in all threads, and `x.slice({row, column}, {rows, columns})` a box");
    return item();
  }
  template <class... I>
  Expr operator()(const I&... i) const {
    return (*this)[std::tuple(i...)];
  }

  template <class T>
  requires std::same_as<T, bool>
  explicit operator T() const {
    static_assert(detail::kNever<T>,
                  "a register tensor has no truth value: reduce it with any() or all() and use "
                  "`if (auto arm = when(...))`, or pick elements with select()");
    return false;
  }
  /// Does not compile; see Scalar.
  template <class T>
  requires(std::is_arithmetic_v<T> && !std::same_as<T, bool>) explicit operator T()
      const {  // a register tensor is no number: `Float32 y = sum(x)` or x.item({i, j})
    static_assert(
        detail::kNever<T>,
        "a register tensor is no number: reduce it, as in `Float32 y = sum(x)`, or take one element, "
        "`x.item({i, j})`; convert all of it with `x.to(float32)`");
    return T{};
  }

 protected:
  using Tensor::Tensor;
};

/// A register tensor that was computed. It can be used, not assigned.
class RegisterValue : public RegisterBase {
 public:
  explicit RegisterValue(detail::Handle handle) : RegisterBase(handle) {}
  RegisterValue(const RegisterValue&) = default;
  RegisterValue& operator=(const RegisterValue&) = delete;

#define IMBREX_NOT_ASSIGNABLE(symbol)                                                            \
  template <class T>                                                                             \
  void operator symbol(T&&) {                                                                    \
    static_assert(detail::kNever<T>,                                                             \
                  "this register tensor is a value and cannot be assigned: declare a variable, " \
                  "`RegisterTensor x = ...`");                                                   \
  }
  IMBREX_NOT_ASSIGNABLE(=)
  IMBREX_NOT_ASSIGNABLE(+=)
  IMBREX_NOT_ASSIGNABLE(-=)
  IMBREX_NOT_ASSIGNABLE(*=)
  IMBREX_NOT_ASSIGNABLE(/=)
#undef IMBREX_NOT_ASSIGNABLE
};

/// A register tensor as an argument, with the line it was written on.
class TileArg {
 public:
  TileArg(const RegisterBase& tensor, SourceLocation where = SourceLocation::current())
      : where(where), handle(tensor.handle()) {}
  SourceLocation where;
  detail::Handle handle;
};

/// A register tensor or a scalar as an argument.
class NumArg {
 public:
  NumArg(const RegisterBase& tensor, SourceLocation where = SourceLocation::current())
      : where(where), scalar(0, where), handle(tensor.handle()), is_tile(true) {}
  NumArg(const TileArg& tile)
      : where(tile.where), scalar(0, tile.where), handle(tile.handle), is_tile(true) {}
  template <ScalarLike T>
  NumArg(const T& number, SourceLocation where = SourceLocation::current())
      : where(where), scalar(number, where) {}
  NumArg(const ScalarOperand& number) : where(number.where), scalar(number) {}
  NumArg(const ScalarArg& number) : where(number.where), scalar(number) {}

  SourceLocation where;
  ScalarArg scalar;
  detail::Handle handle;
  bool is_tile = false;
};

namespace detail {
RegisterValue tile_binary(Arith op, const NumArg& a, const NumArg& b);
RegisterValue tile_unary(Unary op, const TileArg& a);
Handle new_tile_variable(const TileArg& init, SourceLocation where);
void assign_tile(const RegisterBase& variable, const NumArg& value);
}  // namespace detail

/// A variable that holds a register tensor. Its shape and element type are those of its first value;
/// assigning converts to that type and broadcasts to that shape.
class RegisterTensor : public RegisterBase {
 public:
  template <std::derived_from<RegisterBase> T>
  RegisterTensor(const T& init, SourceLocation where = SourceLocation::current())
      : RegisterBase(detail::new_tile_variable(TileArg(init, where), where)) {}
  RegisterTensor(const RegisterTensor& other, SourceLocation where = SourceLocation::current())
      : RegisterBase(detail::new_tile_variable(TileArg(other, where), where)) {}
  /// They do not compile: a variable has the shape, the type and the value of a first tile.
  template <class T>
  requires(std::derived_from<T, GlobalTensor> || std::derived_from<T, SharedTensor> || ScalarLike<T>)
      RegisterTensor(const T&)
      : RegisterBase(detail::Handle{}) {
    static_assert(!std::derived_from<T, GlobalTensor>,
                  "a tensor of global memory is no register tensor: load a tile of it, `RegisterTensor x = "
                  "load_global(g, {row, column}, {rows, columns})`");
    static_assert(!std::derived_from<T, SharedTensor>,
                  "a shared tensor is no register tensor: load it, `RegisterTensor x = load_shared(s)`");
    static_assert(std::derived_from<T, GlobalTensor> || std::derived_from<T, SharedTensor>,
                  "a number has no shape: `RegisterTensor x = full(float32, {m, n}, 0.5)`, or zeros()");
  }
  template <class T = void>
  RegisterTensor() : RegisterBase(detail::Handle{}) {
    static_assert(detail::kNever<T>,
                  "a register tensor begins with a value: `RegisterTensor x = zeros(float32, {m, n})`");
  }
  template <class T = void>
  RegisterTensor(DataType, const Shape&) : RegisterBase(detail::Handle{}) {
    static_assert(detail::kNever<T>,
                  "a register tensor begins with a value: `RegisterTensor x = zeros(float32, {m, n})`");
  }
  /// Takes the variable over; `other` must not be used any more.
  RegisterTensor(RegisterTensor&& other) noexcept : RegisterBase(other.handle_) { other.handle_ = {}; }

  /// (Volatile, so that a number is not converted to a RegisterTensor on the way: NumArg takes it, with its line.)
  RegisterTensor& operator=(const volatile RegisterTensor& value) {
    detail::assign_tile(*this, NumArg(const_cast<const RegisterTensor&>(value), detail::last_location()));
    return *this;
  }
  RegisterTensor& operator=(const RegisterValue& value) {
    detail::assign_tile(*this, NumArg(value, detail::last_location()));
    return *this;
  }
  RegisterTensor& operator=(const NumArg& value) {
    detail::assign_tile(*this, value);
    return *this;
  }

#define IMBREX_COMPOUND(symbol, op)                                                                         \
  RegisterTensor& operator symbol(const NumArg& value) {                                                    \
    const RegisterValue result = detail::tile_binary(detail::Arith::op, NumArg(*this, value.where), value); \
    detail::assign_tile(*this, NumArg(result, value.where));                                                \
    return *this;                                                                                           \
  }
  IMBREX_COMPOUND(+=, kAdd)
  IMBREX_COMPOUND(-=, kSub)
  IMBREX_COMPOUND(*=, kMul)
  IMBREX_COMPOUND(/=, kDiv)
  IMBREX_COMPOUND(&=, kAnd)
  IMBREX_COMPOUND(|=, kOr)
  IMBREX_COMPOUND(^=, kXor)
#undef IMBREX_COMPOUND
};

#define IMBREX_BINARY(symbol, op)                                                  \
  inline RegisterValue operator symbol(const TileArg& a, const NumArg& b) {        \
    return detail::tile_binary(detail::Arith::op, a, b);                           \
  }                                                                                \
  inline RegisterValue operator symbol(const ScalarOperand& a, const TileArg& b) { \
    return detail::tile_binary(detail::Arith::op, a, b);                           \
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

/// Logical and, or and not of bool tensors. (Templates for the reason given in scalar.h.)
template <std::derived_from<RegisterBase> A, std::derived_from<RegisterBase> B>
RegisterValue operator&&(const A& a, const B& b) {
  return detail::tile_binary(detail::Arith::kLogicalAnd, NumArg(a, detail::last_location()),
                             NumArg(b, detail::last_location()));
}
template <std::derived_from<RegisterBase> A, std::derived_from<RegisterBase> B>
RegisterValue operator||(const A& a, const B& b) {
  return detail::tile_binary(detail::Arith::kLogicalOr, NumArg(a, detail::last_location()),
                             NumArg(b, detail::last_location()));
}
template <std::derived_from<RegisterBase> A>
RegisterValue operator!(const A& a) {
  return detail::tile_unary(detail::Unary::kLogicalNot, TileArg(a, detail::last_location()));
}
inline RegisterValue operator-(const TileArg& a) { return detail::tile_unary(detail::Unary::kNeg, a); }
inline RegisterValue operator~(const TileArg& a) { return detail::tile_unary(detail::Unary::kNot, a); }

/// The smaller and the larger, element by element. (The reductions take options: `max(x, {.axis = 1})`.)
inline RegisterValue min(const TileArg& a, const NumArg& b) {
  return detail::tile_binary(detail::Arith::kMin, a, b);
}
inline RegisterValue min(const ScalarOperand& a, const TileArg& b) {
  return detail::tile_binary(detail::Arith::kMin, a, b);
}
inline RegisterValue max(const TileArg& a, const NumArg& b) {
  return detail::tile_binary(detail::Arith::kMax, a, b);
}
inline RegisterValue max(const ScalarOperand& a, const TileArg& b) {
  return detail::tile_binary(detail::Arith::kMax, a, b);
}

/// a where the condition (a bool tensor) holds, else b, element by element; shapes broadcast.
RegisterValue select(const TileArg& condition, const NumArg& a, const NumArg& b);
/// select() under the name that array languages use.
inline RegisterValue where(const TileArg& condition, const NumArg& a, const NumArg& b) {
  return select(condition, a, b);
}

/// The functions of scalar.h, element by element.
inline RegisterValue abs(const TileArg& a) { return detail::tile_unary(detail::Unary::kAbs, a); }
inline RegisterValue exp(const TileArg& a) { return detail::tile_unary(detail::Unary::kExp, a); }
inline RegisterValue exp2(const TileArg& a) { return detail::tile_unary(detail::Unary::kExp2, a); }
inline RegisterValue log(const TileArg& a) { return detail::tile_unary(detail::Unary::kLog, a); }
inline RegisterValue sqrt(const TileArg& a) { return detail::tile_unary(detail::Unary::kSqrt, a); }
inline RegisterValue rsqrt(const TileArg& a) { return detail::tile_unary(detail::Unary::kRsqrt, a); }
inline RegisterValue tanh(const TileArg& a) { return detail::tile_unary(detail::Unary::kTanh, a); }
inline RegisterValue sin(const TileArg& a) { return detail::tile_unary(detail::Unary::kSin, a); }
inline RegisterValue cos(const TileArg& a) { return detail::tile_unary(detail::Unary::kCos, a); }
inline RegisterValue round(const TileArg& a) { return detail::tile_unary(detail::Unary::kRound, a); }
inline RegisterValue floor(const TileArg& a) { return detail::tile_unary(detail::Unary::kFloor, a); }
inline RegisterValue ceil(const TileArg& a) { return detail::tile_unary(detail::Unary::kCeil, a); }
RegisterValue fma(const TileArg& a, const NumArg& b, const NumArg& c);
RegisterValue cast(const TileArg& a, DataType dtype);
template <DataType D>
RegisterValue cast(const TileArg& a) {
  return cast(a, D);
}

struct ReduceOptions {
  int axis = -1;      ///< the dimension to reduce; negative counts from the end
  bool keep = false;  ///< leave it with extent 1, so that the result broadcasts against the operand
  Shape axes = {};    ///< several dimensions, in place of `axis`
};
/// Reductions along one dimension or several: `sum(x, {.axis = 1, .keep = true})`. Whole warps execute them; every
/// thread that holds a part of a row gets the row's result. any and all take bool tensors; min and max ignore
/// NaN.
RegisterValue sum(const TileArg& a, ReduceOptions options);
RegisterValue min(const TileArg& a, ReduceOptions options);
RegisterValue max(const TileArg& a, ReduceOptions options);
RegisterValue any(const TileArg& a, ReduceOptions options);
RegisterValue all(const TileArg& a, ReduceOptions options);
/// Reductions of all elements to one scalar, the same in all threads of the group: `when(any(x > y))`. Whole warps
/// execute them.
Expr sum(const TileArg& a);
Expr min(const TileArg& a);
Expr max(const TileArg& a);
Expr any(const TileArg& a);
Expr all(const TileArg& a);

/// A register tensor of which every element is `value`, or 0.
RegisterValue full(DataType dtype, const Shape& shape, const ScalarArg& value,
                   SourceLocation where = SourceLocation::current());
RegisterValue zeros(DataType dtype, const Shape& shape, SourceLocation where = SourceLocation::current());

namespace detail {

/// Opens the region of a tabulate op; element() closes it with what the user's function returned.
class Tabulation {
 public:
  Tabulation(DataType dtype, const Shape& shape, int arity, SourceLocation where);
  ~Tabulation();
  Expr index(int i) const;
  RegisterValue element(const ScalarArg& value);

 private:
  DataType dtype_;
  SourceLocation where_;
  uint64_t serial_;
  int exceptions_;
};

template <class F, int N>
RegisterValue tabulate(DataType dtype, const Shape& shape, const F& f, SourceLocation where) {
  Tabulation t(dtype, shape, N, where);
  if constexpr (N == 1) return t.element(f(t.index(0)));
  if constexpr (N == 2) return t.element(f(t.index(0), t.index(1)));
  if constexpr (N == 3) return t.element(f(t.index(0), t.index(1), t.index(2)));
  if constexpr (N == 4) return t.element(f(t.index(0), t.index(1), t.index(2), t.index(3)));
}

}  // namespace detail

/// A register tensor whose element at (i, j, ...) is f(i, j, ...), converted to dtype:
/// `register_tensor(boolean, {m, n}, [&](auto i, auto j) { return j <= i + diagonal; })`. The function takes
/// one index per dimension (one to four) and computes a scalar; it is traced once.
template <class F>
RegisterValue register_tensor(DataType dtype, const Shape& shape, const F& f,
                              SourceLocation where = SourceLocation::current()) {
  if constexpr (std::is_invocable_v<F, Expr>)
    return detail::tabulate<F, 1>(dtype, shape, f, where);
  else if constexpr (std::is_invocable_v<F, Expr, Expr>)
    return detail::tabulate<F, 2>(dtype, shape, f, where);
  else if constexpr (std::is_invocable_v<F, Expr, Expr, Expr>)
    return detail::tabulate<F, 3>(dtype, shape, f, where);
  else {
    static_assert(std::is_invocable_v<F, Expr, Expr, Expr, Expr>,
                  "register_tensor: the function must take one index for each dimension (one to four)");
    return detail::tabulate<F, 4>(dtype, shape, f, where);
  }
}

/// Demands this layout (imbrex/lang/layout.h) for the tensor. CompileError where its uses need another.
///
/// Where tensors that meet lie differently, whole warps move one of them as relayout() does: nobody has to write it.
/// CompileError in a thread group that is not whole warps.
void annotate_layout(const Tensor& t, const layout::Layout& layout,
                     SourceLocation where = SourceLocation::current());
/// The same elements in another register layout (inferred from its uses if left out), moved through shared
/// memory. Whole warps execute it.
RegisterValue relayout(const TileArg& a, SourceLocation where = SourceLocation::current());
RegisterValue relayout(const TileArg& a, const layout::Layout& layout,
                       SourceLocation where = SourceLocation::current());

}  // namespace imbrex
