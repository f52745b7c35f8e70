// SPDX-License-Identifier: Apache-2.0
// What first attempts at a kernel call with the wrong kind of thing, and an error of compilation that says what to write
// instead; the author's line is the one that is "required from here". Nothing here compiles when it is used.
#pragma once

#include "imbrex/lang/control.h"
#include "imbrex/lang/launch.h"
#include "imbrex/lang/memory.h"
#include "imbrex/lang/mma.h"
#include "imbrex/lang/tensor.h"
#include "imbrex/lang/tma.h"

namespace imbrex {
namespace detail {

template <class T>
inline constexpr bool kIsPointer = false;
template <DataType T>
inline constexpr bool kIsPointer<Ptr<T>> = true;

template <class T>
concept NoTile = !std::convertible_to<const T&, TileArg>;
template <class T>
concept NoGlobal = !std::derived_from<T, GlobalTensor>;
template <class T>
concept NoShared = !std::derived_from<T, SharedTensor>;

template <class T>
constexpr void explain_tile() {
  if constexpr (NoTile<T>) {
    static_assert(NoGlobal<T>,
                  "a tensor of global memory where a register tensor is wanted: load the tile first, "
                  "`load_global(g, {row, column}, {rows, columns})`");
    static_assert(NoShared<T>,
                  "a shared tensor where a register tensor is wanted: load it first, `load_shared(s)` "
                  "(wgmma::mma() and tcgen05::mma() multiply shared tensors themselves)");
    static_assert(!ScalarLike<T> || !NoGlobal<T> || !NoShared<T>,
                  "a number where a register tensor is wanted: `full(float32, {m, n}, x)` is a tile of it, "
                  "`full(float32, {1}, x)` one element; a tensor in memory counts as a number in arithmetic, "
                  "so load it first, `load_shared(s) + 1`");
    static_assert(ScalarLike<T>,
                  "a register tensor is wanted here, as load_global() and arithmetic return it");
  }
}
template <class T>
constexpr void explain_global() {
  if constexpr (NoGlobal<T>) {
    constexpr bool is_tile = std::derived_from<T, RegisterBase>;
    static_assert(!kIsPointer<T>,
                  "a pointer where a tensor of global memory is wanted: give it a shape first, "
                  "`auto g = global_view(p, {m, n})`");
    static_assert(
        NoShared<T>,
        "a shared tensor where one of global memory is wanted: load_shared() and store_shared() are for "
        "those; copies take the source first, then the destination");
    static_assert(!is_tile,
                  "a register tensor where a tensor of global memory is wanted: stores take the destination "
                  "first, `store_global(g, tile, {row, column})`");
    static_assert(kIsPointer<T> || !NoShared<T> || is_tile,
                  "a tensor of global memory is wanted here, as global_view() returns it");
  }
}
template <class T>
constexpr void explain_shared() {
  if constexpr (NoShared<T>) {
    constexpr bool is_tile = std::derived_from<T, RegisterBase>;
    static_assert(
        NoGlobal<T>,
        "a tensor of global memory where a shared one is wanted: load_global() and store_global() are for "
        "those; copies take the source first, then the destination");
    static_assert(!is_tile,
                  "a register tensor where a shared one is wanted: stores take the destination first, "
                  "`store_shared(s, tile)`");
    static_assert(!NoGlobal<T> || is_tile, "a shared tensor is wanted here, as shared_tensor() returns it");
  }
}

/// The extents of shared and register tensors that are known only when the kernel runs.
template <class T>
constexpr void explain_extents() {
  static_assert(
      kNever<T>,
      "the extents of shared and register tensors are known when the kernel is traced: take them from an "
      "int parameter or a member, and let the tensor in global memory have the ragged edge");
}

}  // namespace detail

template <detail::NoGlobal T>
RegisterValue load_global(const T&, const Scalars&, const Shape&, const LoadOptions& = {}) {
  detail::explain_global<T>();
  return zeros(float32, {1});
}
template <detail::NoShared T>
RegisterValue load_shared(const T&) {
  detail::explain_shared<T>();
  return zeros(float32, {1});
}
template <class To, class T>
requires(detail::NoGlobal<To> || detail::NoTile<T>) void store_global(const To&, const T&, const Scalars&,
                                                                      const StoreOptions& = {}) {
  detail::explain_global<To>();
  detail::explain_tile<T>();
}
template <class To, class T>
requires(detail::NoShared<To> || detail::NoTile<T>) void store_shared(const To&, const T&) {
  detail::explain_shared<To>();
  detail::explain_tile<T>();
}
template <class From, class To>
requires(detail::NoGlobal<From> || detail::NoShared<To>) void copy_async(const From&, const To&,
                                                                         const Scalars&,
                                                                         const StoreOptions& = {}) {
  detail::explain_global<From>();
  detail::explain_shared<To>();
}
template <class A, class B>
requires(detail::NoTile<A> || detail::NoTile<B>) RegisterValue dot(const A&, const B&) {
  detail::explain_tile<A>();
  detail::explain_tile<B>();
  return zeros(float32, {1});
}
template <class A, class B, class C>
requires(detail::NoTile<A> || detail::NoTile<B> || detail::NoTile<C>) RegisterValue
    dot(const A&, const B&, const C&) {
  detail::explain_tile<A>();
  detail::explain_tile<B>();
  detail::explain_tile<C>();
  return zeros(float32, {1});
}
template <class A, class B, class C>
requires(detail::NoTile<A> || detail::NoTile<B> || detail::NoTile<C>) RegisterValue
    mma(const A&, const B&, const C&, const MmaOptions& = {}) {
  detail::explain_tile<A>();
  detail::explain_tile<B>();
  detail::explain_tile<C>();
  return zeros(float32, {1});
}
#define IMBREX_REDUCES_TILES(name)              \
  template <detail::NoTile T>                   \
  Expr name(const T&) {                         \
    detail::explain_tile<T>();                  \
    return name(zeros(float32, {1}));           \
  }                                             \
  template <detail::NoTile T>                   \
  RegisterValue name(const T&, ReduceOptions) { \
    detail::explain_tile<T>();                  \
    return zeros(float32, {1});                 \
  }
IMBREX_REDUCES_TILES(sum)
IMBREX_REDUCES_TILES(any)
IMBREX_REDUCES_TILES(all)
#undef IMBREX_REDUCES_TILES

template <class T = void>
SharedTensor shared_tensor(DataType, const Scalars&) {
  detail::explain_extents<T>();
  return SharedTensor(detail::Handle{});
}
template <class T = void>
RegisterValue zeros(DataType, const Scalars&) {
  detail::explain_extents<T>();
  return RegisterValue(detail::Handle{});
}
template <class T = void>
RegisterValue full(DataType, const Scalars&, const ScalarArg&) {
  detail::explain_extents<T>();
  return RegisterValue(detail::Handle{});
}
template <class T = void>
RegisterValue load_global(const GlobalTensor&, const Scalars&, const Scalars&, const LoadOptions& = {}) {
  detail::explain_extents<T>();
  return RegisterValue(detail::Handle{});
}

template <class T = void>
RegisterValue load_global(const GlobalTensor&, const Scalars&) {
  static_assert(detail::kNever<T>,
                "which tile? give its place and its shape: `load_global(g, {row, column}, {rows, columns})`");
  return RegisterValue(detail::Handle{});
}
template <class T = void>
void store_global(const GlobalTensor&, const TileArg&) {
  static_assert(detail::kNever<T>, "where to? give the tile's place: `store_global(g, tile, {row, column})`");
}

template <class T = void>
RegisterValue load_global(const GlobalTensor&) {
  static_assert(detail::kNever<T>,
                "which tile? give its place and its shape: `load_global(g, {row, column}, {rows, columns})`");
  return RegisterValue(detail::Handle{});
}
template <class T = void>
void store_global(const GlobalTensor&, const Scalars&, const TileArg&) {
  static_assert(detail::kNever<T>, "the tile comes before its place: `store_global(g, tile, {row, column})`");
}
template <class T = void>
RegisterValue load_shared(const SharedTensor&, const Scalars&) {
  static_assert(
      detail::kNever<T>,
      "load_shared() loads a whole tensor or view: `load_shared(s.slice({row, column}, {rows, columns}))`");
  return RegisterValue(detail::Handle{});
}
template <class T = void>
RegisterValue load_shared(const SharedTensor&, const Scalars&, const Shape&) {
  static_assert(
      detail::kNever<T>,
      "load_shared() loads a whole tensor or view: `load_shared(s.slice({row, column}, {rows, columns}))`");
  return RegisterValue(detail::Handle{});
}
template <class T = void>
void store_shared(const SharedTensor&, const TileArg&, const Scalars&) {
  static_assert(detail::kNever<T>,
                "store_shared() stores a whole tensor or view: "
                "`store_shared(s.slice({row, column}, {rows, columns}), tile)`");
}
template <class T = void>
void copy_async(const GlobalTensor&, const SharedTensor&) {
  static_assert(detail::kNever<T>,
                "copied from where? give the tile's place: `copy_async(g, s, {row, column})`");
}

// Numbers without braces around them: `zeros(float32, 64)`, `global_view(p, m, n)`.
#define IMBREX_MAKES_TILES(name, Result)                                                               \
  template <class First, class... More>                                                                \
  requires(std::integral<First> && (std::integral<More> && ...)) Result name(DataType, First,          \
                                                                             const More&...) {         \
    static_assert(detail::kNever<First>, "a shape stands in braces: `" #name "(float32, {m, n})`");    \
    return Result(detail::Handle{});                                                                   \
  }                                                                                                    \
  template <class T = void>                                                                            \
  Result name(const Shape&, DataType) {                                                                \
    static_assert(detail::kNever<T>, "the type comes before the shape: `" #name "(float32, {m, n})`"); \
    return Result(detail::Handle{});                                                                   \
  }                                                                                                    \
  template <class T = void>                                                                            \
  Result name(const Shape&) {                                                                          \
    static_assert(detail::kNever<T>,                                                                   \
                  "of which type? give it before the shape: `" #name "(float32, {m, n})`");            \
    return Result(detail::Handle{});                                                                   \
  }
IMBREX_MAKES_TILES(zeros, RegisterValue)
IMBREX_MAKES_TILES(shared_tensor, SharedTensor)
#undef IMBREX_MAKES_TILES

template <ScalarLike First, ScalarLike... More>
GlobalTensor global_view(const PtrArg&, const First&, const More&...) {
  static_assert(detail::kNever<First>, "a shape stands in braces: `global_view(p, {m, n})`");
  return GlobalTensor(detail::Handle{});
}
template <class T = void>
GlobalTensor global_view(const PtrArg&) {
  static_assert(detail::kNever<T>, "of which shape? a pointer has none: `global_view(p, {m, n})`");
  return GlobalTensor(detail::Handle{});
}
template <ScalarLike Offset, class... More>
RegisterValue load_global(const GlobalTensor&, const Offset&, const More&...) {
  static_assert(detail::kNever<Offset>,
                "offsets and shapes stand in braces: `load_global(g, {row, column}, {rows, columns})`, "
                "`load_global(g, {i}, {n})`");
  return RegisterValue(detail::Handle{});
}
template <ScalarLike Row, ScalarLike Column>
RegisterValue load_global(const GlobalTensor& g, const Row& row, const Column&, const Shape&) {
  return load_global(g, row);
}
template <ScalarLike Extent, class... More>
RegisterValue load_global(const GlobalTensor&, const Scalars&, const Extent&, const More&...) {
  static_assert(detail::kNever<Extent>,
                "offsets and shapes stand in braces: `load_global(g, {row, column}, {rows, columns})`, "
                "`load_global(g, {i}, {n})`");
  return RegisterValue(detail::Handle{});
}
template <ScalarLike Offset, class... More>
void store_global(const GlobalTensor&, const TileArg&, const Offset&, const More&...) {
  static_assert(
      detail::kNever<Offset>,
      "offsets stand in braces: `store_global(g, tile, {row, column})`, `store_global(g, tile, {i})`");
}

// What the launch and the roles are made of is fixed when the kernel is traced.
#define IMBREX_IS_FIXED(name)                                                                               \
  template <class... T>                                                                                     \
  requires(std::derived_from<T, Scalar> || ...) auto name(const T&...) {                                    \
    static_assert((detail::kNever<T> || ...), #name                                                         \
                  "() takes C++ numbers, known when the kernel is traced: take them from an int parameter " \
                  "or a member; only grid() is computed at each launch");                                   \
    return Guard(0);                                                                                        \
  }
IMBREX_IS_FIXED(warps)
IMBREX_IS_FIXED(cluster)
IMBREX_IS_FIXED(max_registers)
IMBREX_IS_FIXED(setmaxnreg)
#undef IMBREX_IS_FIXED
#define IMBREX_IS_A_ROLE(name, advice)                                                     \
  template <class... T>                                                                    \
  requires(std::derived_from<T, Scalar> || ...) Guard name(const T&...) {                  \
    static_assert((detail::kNever<T> || ...),                                              \
                  #name "() takes C++ numbers, known when the kernel is traced: " advice); \
    return Guard(0);                                                                       \
  }
IMBREX_IS_A_ROLE(thread_group, "the threads that meet a condition of run time are `when(condition)`")
IMBREX_IS_A_ROLE(warp_group, "the threads that meet a condition of run time are `when(condition)`")
IMBREX_IS_A_ROLE(single_warp,
                 "a C++ loop over all warps, with `when(i == w)` inside, chooses one of run time")
IMBREX_IS_A_ROLE(single_thread, "`when(thread_index() == i)` chooses one of run time")
#undef IMBREX_IS_A_ROLE
template <class T = void>
void grid(std::initializer_list<ScalarArg>) {
  static_assert(detail::kNever<T>, "the extents of the grid are arguments of their own: `grid(x, y)`");
}

template <class T>
requires(std::integral<T> && !std::same_as<T, bool>) RegisterValue sum(const TileArg&, T) {
  static_assert(detail::kNever<T>, "name the axis: `sum(x, {.axis = 1})`");
  return RegisterValue(detail::Handle{});
}
template <class To>
requires(std::is_arithmetic_v<To>) Expr cast(const NumArg&) {
  static_assert(detail::kNever<To>,
                "types of a kernel are values, not C++ types: `cast<float32>(x)`, `x.to(float32)`");
  return Expr({}, float32);
}
/// `std::cout << x` and streams like it.
template <class Stream, class T>
requires(std::derived_from<T, Scalar> || std::derived_from<T, Tensor>) && requires(Stream& out) {
  typename Stream::traits_type;
  out.flush();
}
Stream& operator<<(Stream& out, const T&) {
  static_assert(!std::derived_from<T, Scalar>,
                "a traced value has no value yet: the running kernel prints it, `printf(\"%d\\n\", x)`");
  static_assert(!std::derived_from<T, Tensor>,
                "a tensor has no elements yet: the running kernel prints them, `print_tensor(x)`");
  return out;
}

namespace tma {
template <class T = void>
void global_to_shared(const GlobalTensor&, const SharedTensor&, const Scalars&) {
  static_assert(imbrex::detail::kNever<T>,
                "which barrier says that the tile is there? `auto full = mbarrier::alloc(1)`, then "
                "`global_to_shared(g, s, {row, column}, full)`");
}
template <class From, class To>
requires(imbrex::detail::NoGlobal<From> ||
         imbrex::detail::NoShared<To>) void global_to_shared(const From&, const To&, const Scalars&,
                                                             const Barrier&, const LoadOptions& = {}) {
  imbrex::detail::explain_global<From>();
  imbrex::detail::explain_shared<To>();
}
template <class From, class To>
requires(imbrex::detail::NoShared<From> ||
         imbrex::detail::NoGlobal<To>) void shared_to_global(const From&, const To&, const Scalars&,
                                                             const StoreOptions& = {}) {
  imbrex::detail::explain_shared<From>();
  imbrex::detail::explain_global<To>();
}
}  // namespace tma

}  // namespace imbrex
