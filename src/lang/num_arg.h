// SPDX-License-Identifier: Apache-2.0
// Arithmetic on operands that are tiles or scalars: what functions made of others are written in. Everything is traced at
// the line of the caller.
#pragma once

#include <fmt/format.h>

#include <array>
#include <optional>

#include "imbrex/lang/math.h"
#include "lang/tiles.h"

namespace imbrex::lang {

using detail::Arith;
using detail::Unary;

inline DataType type_of(const NumArg& a) {
  return a.is_tile ? RegisterValue(a.handle).dtype() : a.scalar.dtype;
}
inline RegisterValue tile_of(const NumArg& a) { return RegisterValue(a.handle); }
inline Expr scalar_of(const NumArg& a) { return Expr(a.scalar.handle, a.scalar.dtype); }

inline NumArg apply(Arith op, const NumArg& a, const NumArg& b) {
  if (a.is_tile || b.is_tile) return {detail::tile_binary(op, a, b), a.where};
  return {detail::binary(op, a.scalar, b.scalar), a.where};
}
inline NumArg apply(Unary op, const NumArg& a) {
  if (a.is_tile) return {detail::tile_unary(op, TileArg(tile_of(a), a.where)), a.where};
  return {detail::unary(op, a.scalar), a.where};
}
inline NumArg fused(const NumArg& a, const NumArg& b, const NumArg& c) {
  if (!a.is_tile) return {fma(a.scalar, b.scalar, c.scalar), a.where};
  return {fma(TileArg(tile_of(a), a.where), b, c), a.where};
}
inline NumArg choose(const NumArg& condition, const NumArg& a, const NumArg& b) {
  const SourceLocation where = condition.where;
  if (condition.is_tile) return {select(TileArg(tile_of(condition), where), a, b), where};
  if (!a.is_tile && !b.is_tile) return {select(condition.scalar, a.scalar, b.scalar), where};
  const Shape shape = tile_of(a.is_tile ? a : b).shape();
  return {select(TileArg(full(boolean, shape, condition.scalar, where), where), a, b), where};
}
inline NumArg converted(const NumArg& a, DataType to) {
  if (a.is_tile) return {cast(TileArg(tile_of(a), a.where), to), a.where};
  return {cast(a.scalar, to), a.where};
}

/// c[0] + x c[1] + x^2 c[2] + ...
template <size_t N>
NumArg polynomial(const NumArg& x, const std::array<double, N>& c) {
  NumArg sum = fused(x, NumArg(c[N - 1], x.where), NumArg(c[N - 2], x.where));
  for (size_t i = N - 2; i-- > 0;) sum = fused(sum, x, NumArg(c[i], x.where));
  return sum;
}

/// The type of the operands; C++ numbers take the type of the others.
inline DataType type_of_all(const Instruction& at, std::initializer_list<const NumArg*> operands) {
  std::optional<DataType> type;
  for (const NumArg* x : operands) {
    if (!x->is_tile && x->scalar.is_number()) continue;
    type = type ? common_type(at, *type, type_of(*x)) : type_of(*x);
  }
  return type.value_or(float32);
}

/// Runs `function` on operands of type `in` and gives its result the type `out`.
template <class F, class... Args>
NumArg in_type(const Instruction& at, DataType in, DataType out, F function, const Args&... operands) {
  const auto wide = [&](NumArg x) {
    x.where = at.where();
    return converted(x, in);
  };
  return converted(function(wide(operands)...), out);
}

/// Runs `function` on float32 and gives its result the type of the operands.
template <class F, class... Args>
NumArg in_float32(const char* name, F function, const NumArg& a, const Args&... more) {
  const Instruction at(name, a.where);
  const DataType type = type_of_all(at, {&a, &more...});
  if (type != float32 && type != float16 && type != bfloat16)
    at.fail(fmt::format("works on float32, float16 and bfloat16, not on {}", type.name()), {},
            "convert with .to(float32)");
  return in_type(at, float32, type, function, a, more...);
}

/// As in_float32(), but `of_doubles` on operands of float64.
template <class F, class D, class... Args>
NumArg in_float(const char* name, F function, D of_doubles, const NumArg& a, const Args&... more) {
  const Instruction at(name, a.where);
  if (type_of_all(at, {&a, &more...}) == float64)
    return in_type(at, float64, float64, of_doubles, a, more...);
  return in_float32(name, function, a, more...);
}

}  // namespace imbrex::lang
