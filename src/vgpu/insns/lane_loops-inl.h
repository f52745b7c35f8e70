// SPDX-License-Identifier: Apache-2.0
// The loop over the lanes of a warp, the only one for instructions that compute: bodies are made here out of
// a scalar function. Compiled once for every SIMD target (Highway's foreach_target), so include it after that
// header and use it inside HWY_NAMESPACE.
//
// A register of up to 32 bits is 32 lanes of uint32_t, wider ones are 32 lanes of uint64_t; results are
// stored zero-extended. All lanes are computed unless few are active: scalar functions are total.

// Per-target include guard, as Highway does it.
#if defined(IMBREX_VGPU_LANE_LOOPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef IMBREX_VGPU_LANE_LOOPS_INL_H_
#undef IMBREX_VGPU_LANE_LOOPS_INL_H_
#else
#define IMBREX_VGPU_LANE_LOOPS_INL_H_
#endif

#include <bit>
#include <cstdint>
#include <type_traits>

#include "vgpu/machine/warp.h"
#include "vgpu/program/instruction.h"

#if defined(__clang__)
#define IMBREX_LANES _Pragma("clang loop vectorize(assume_safety)") for (int i = 0; i < kWarpSize; ++i)
#else
#define IMBREX_LANES _Pragma("GCC ivdep") for (int i = 0; i < kWarpSize; ++i)
#endif

HWY_BEFORE_NAMESPACE();
namespace imbrex::vgpu::HWY_NAMESPACE {

template <class T>
using Stored = std::conditional_t<sizeof(T) <= 4, uint32_t, uint64_t>;

template <class T>
inline T from_lane(Stored<T> bits) {
  if constexpr (std::is_floating_point_v<T>)
    return std::bit_cast<T>(bits);
  else
    return static_cast<T>(bits);
}
template <class T>
inline Stored<T> to_lane(T value) {
  if constexpr (std::is_floating_point_v<T>)
    return std::bit_cast<Stored<T>>(value);
  else
    return static_cast<Stored<T>>(static_cast<std::make_unsigned_t<T>>(value));
}

/// Below this many active lanes they are done one by one.
inline constexpr int kFewLanes = 4;

/// out[i] = f(i) for the active lanes; f is pure.
template <class R, class F>
[[gnu::always_inline]] inline void store_lanes(Stored<R>* out, Mask active, F f) {
  if (active == kAllLanes) {
    IMBREX_LANES out[i] = to_lane<R>(f(i));
  } else if (count_lanes(active) <= kFewLanes) {
    for_each_lane(active, [&](int i) { out[i] = to_lane<R>(f(i)); });
  } else {
    IMBREX_LANES {
      const Stored<R> result = to_lane<R>(f(i));
      out[i] = (active >> i & 1) != 0 ? result : out[i];
    }
  }
}

/// The mask of active lanes for which f(i) is true.
template <class F>
[[gnu::always_inline]] inline Mask lanes_where(Mask active, F f) {
  if (count_lanes(active) <= kFewLanes) {
    Mask out = 0;
    for_each_lane(active, [&](int i) { out |= f(i) ? lane_bit(i) : 0; });
    return out;
  }
  uint32_t truth[kWarpSize];
  IMBREX_LANES truth[i] = f(i) ? 1u : 0u;
  Mask out = 0;
  for (int i = 0; i < kWarpSize; ++i) out |= truth[i] << i;
  return out & active;
}

/// f as called with the instruction first, or without.
template <class F, class... A>
[[gnu::always_inline]] inline decltype(auto) apply(const Instruction& insn, A... a) {
  if constexpr (std::is_invocable_v<F, const Instruction&, A...>)
    return F{}(insn, a...);
  else
    return F{}(a...);
}

template <class R, class A, class F>
[[gnu::flatten]] Step exec_unary(Warp& w, const Instruction& n, Mask active) {
  const Stored<A>* a = w.reg<Stored<A>>(n.a);
  store_lanes<R>(w.reg<Stored<R>>(n.d), active, [&](int i) -> R { return apply<F>(n, from_lane<A>(a[i])); });
  return Step::kNext;
}
template <class R, class A, class B, class F>
[[gnu::flatten]] Step exec_binary(Warp& w, const Instruction& n, Mask active) {
  const Stored<A>* a = w.reg<Stored<A>>(n.a);
  const Stored<B>* b = w.reg<Stored<B>>(n.b);
  store_lanes<R>(w.reg<Stored<R>>(n.d), active,
                 [&](int i) -> R { return apply<F>(n, from_lane<A>(a[i]), from_lane<B>(b[i])); });
  return Step::kNext;
}
template <class R, class A, class B, class C, class F>
[[gnu::flatten]] Step exec_ternary(Warp& w, const Instruction& n, Mask active) {
  const Stored<A>* a = w.reg<Stored<A>>(n.a);
  const Stored<B>* b = w.reg<Stored<B>>(n.b);
  const Stored<C>* c = w.reg<Stored<C>>(n.c);
  store_lanes<R>(w.reg<Stored<R>>(n.d), active, [&](int i) -> R {
    return apply<F>(n, from_lane<A>(a[i]), from_lane<B>(b[i]), from_lane<C>(c[i]));
  });
  return Step::kNext;
}
/// Four operands; the fourth is list[0].
template <class R, class A, class B, class C, class D, class F>
[[gnu::flatten]] Step exec_quaternary(Warp& w, const Instruction& n, Mask active) {
  const Stored<A>* a = w.reg<Stored<A>>(n.a);
  const Stored<B>* b = w.reg<Stored<B>>(n.b);
  const Stored<C>* c = w.reg<Stored<C>>(n.c);
  const Stored<D>* d = w.reg<Stored<D>>(n.list[0]);
  store_lanes<R>(w.reg<Stored<R>>(n.d), active, [&](int i) -> R {
    return apply<F>(n, from_lane<A>(a[i]), from_lane<B>(b[i]), from_lane<C>(c[i]), from_lane<D>(d[i]));
  });
  return Step::kNext;
}

// Bodies out of a scalar function, given as a stateless lambda: unary<R, A>([](A a) -> R {...}). A first
// parameter `const Instruction&` gets the instruction, for modifiers known at decode time.
template <class R, class A = R, class F>
ExecFunction unary(F) {
  return &exec_unary<R, A, F>;
}
template <class R, class A = R, class B = A, class F>
ExecFunction binary(F) {
  return &exec_binary<R, A, B, F>;
}
template <class R, class A = R, class B = A, class C = A, class F>
ExecFunction ternary(F) {
  return &exec_ternary<R, A, B, C, F>;
}
template <class R, class A, class B, class C, class D, class F>
ExecFunction quaternary(F) {
  return &exec_quaternary<R, A, B, C, D, F>;
}

}  // namespace imbrex::vgpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
