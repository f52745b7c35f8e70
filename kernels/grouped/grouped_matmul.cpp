// SPDX-License-Identifier: Apache-2.0
// imbrex::grouped_matmul: what it takes, and which tiles a call gets.
#include "imbrex/kernels/grouped/grouped_matmul.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>
#include <map>
#include <mutex>
#include <string_view>
#include <tuple>

#include "imbrex/core/error.h"
#include "imbrex/kernels/grouped/hopper_grouped.h"
#include "imbrex/kernels/grouped/weight_gradient.h"
#include "imbrex/lang/scalar.h"
#include "imbrex/runtime/caller_line.h"
#include "kernel_of_device.h"
#include "library_kernel.h"
#include "tensor_fact.h"
#include "whole_rows.h"

namespace imbrex {
namespace {

constexpr int64_t kMostGroups = 1024;

/// A call's tensors, checked: the extents of `a` and `c` as matrices, whether or not they are masked.
class GroupedCall {
 public:
  GroupedCall(const char* function, const Groups& groups, const DeviceTensor& a, const DeviceTensor& b,
              const DeviceTensor& c)
      : function_(function),
        groups_(groups),
        a_(a),
        tensors_{{"a", &a}, {"b", &b}, {"c", &c}, {"rows", &groups.rows}} {
    for (const auto& [name, t] : tensors_) check(name, *t);
    expect_dense("c", c), expect_dense("rows", groups.rows);
    if (!a.device().can_run("sm_90a"))
      refuse(fmt::format("no kernel for {}", a.device().name()), "it runs on devices of target sm_90a");
    for (const auto& [name, t] : tensors_)
      if (std::string_view(name) != "c" && share_memory(c, *t))  // one tensor may be given as both
        refuse(fmt::format("c and {} share memory", name),
               "write to a tensor of its own: tiles are stored while others are read");
    if (groups.rows.dtype() != int32 || groups.rows.shape().size() != 1)
      refuse("rows are not a vector of int32",
             "give it a number per group, and one more where groups are contiguous");
    count_ = groups.rows.shape()[0] - (groups.masked ? 0 : 1);
    if (count_ < 1 || count_ > kMostGroups)
      refuse(fmt::format("{} groups", count_), fmt::format("there are 1 to {}", kMostGroups));
    const size_t rank = groups.masked ? 3 : 2;
    if (a.shape().size() != rank)
      refuse(fmt::format("a has {} dimensions, not {}", a.shape().size(), rank),
             groups.masked ? "masked groups have room for equally many rows: [groups, room, columns]"
                           : "contiguous groups are the rows of one matrix");
    room_ = groups.masked ? a.shape()[1] : 0;
    rows_ = groups.masked ? a.shape()[0] * room_ : a.shape()[0];
    if (groups.masked) expect_groups("a", a);
  }

  int64_t count() const { return count_; }
  int64_t rows() const { return rows_; }
  int64_t room() const { return room_; }
  /// What GroupRows is compiled for: few numbers serve all.
  int most_groups() const {
    return static_cast<int>(std::max<int64_t>(128, std::bit_ceil(static_cast<uint64_t>(count_))));
  }
  int64_t mean_rows() const { return (rows_ + count_ - 1) / count_; }

  void check(const char* name, const DeviceTensor& t) const {
    if (t.is_null() || t.address() == 0)
      refuse(fmt::format("{} is null or released", name), "make it before the call, and release it after");
    if (&t.device().backend() != &a_.device().backend())
      refuse(fmt::format("{} is on '{}', a on '{}'", name, t.device().name(), a_.device().name()),
             "copy it to the same device");
    for (int64_t extent : t.shape())
      if (extent < 1) refuse(fmt::format("{} has an extent of {}", name, extent), "leave the call out");
  }
  /// What no copy is made of.
  void expect_dense(const char* name, const DeviceTensor& t) const {
    if (!t.is_dense()) refuse(fmt::format("{} is not dense", name), "copy it to a tensor without gaps");
    if (t.address() % 16 != 0)
      refuse(fmt::format("{} is at address 0x{:x}, not a multiple of 16", name, t.address()),
             "align the buffer");
  }
  /// The shape that a tensor must have; of a matrix with a row for each row of a, also where it is masked.
  void expect_shape(const char* name, const DeviceTensor& t, const std::vector<int64_t>& shape) const {
    if (t.shape() != shape)
      refuse(fmt::format("{} is [{}], not [{}]", name, fmt::join(t.shape(), ", "), fmt::join(shape, ", ")),
             groups_.masked
                 ? "a is [groups, room, k], b [groups, n, k] and c [groups, room, n]; of a gradient a is "
                   "[groups, room, p], b [groups, room, q] and c [groups, p, q]"
                 : "a is [m, k], b [groups, n, k] and c [m, n]; of a gradient a is [m, p], b [m, q] and c "
                   "[groups, p, q]");
  }
  /// `t` has a matrix for each group.
  void expect_groups(const char* name, const DeviceTensor& t) const {
    if (t.shape()[0] != count_)
      refuse(
          fmt::format("{} has {} groups, and rows {} numbers", name, t.shape()[0], groups_.rows.shape()[0]),
          groups_.masked
              ? "give each group a count"
              : "give the first row of each group, and behind them the end of the last: one number more");
  }
  std::vector<int64_t> with_rows(int64_t columns) const {
    if (groups_.masked) return {count_, room_, columns};
    return {rows_, columns};
  }
  void expect_multiple(const char* name, int64_t extent, int64_t of) const {
    if (extent % of != 0)
      refuse(fmt::format("{} is {}, not a multiple of {}", name, extent, of),
             "pad it: TMA moves units of 16 bytes");
  }

  [[noreturn]] void refuse(const std::string& message, const std::string& help) const {
    Diagnostic told{{}, fmt::format("{}: {}", function_, message), {}, help};
    for (const auto& [name, t] : tensors_) add_fact(told, name, *t);
    throw LaunchError(std::move(told));
  }

 private:
  const char* function_;
  const Groups& groups_;
  const DeviceTensor& a_;
  std::vector<std::pair<const char*, const DeviceTensor*>> tensors_;
  int64_t count_ = 0, rows_ = 0, room_ = 0;
};

/// K with members of its own, made on the first request for a device.
template <class K, class Set>
Kernel<K>& kernel_with(const Device& device, int variant, const Set& set) {
  static std::mutex turn;
  // Never freed: at exit the driver may be unloaded first.
  static auto& kernels = *new std::map<std::pair<const void*, int>, std::unique_ptr<Kernel<K>>>;
  const std::lock_guard lock(turn);
  std::unique_ptr<Kernel<K>>& kernel = kernels[{&device.backend(), variant}];
  if (!kernel) {
    K instance;
    set(instance);
    kernel = std::make_unique<Kernel<K>>(library_kernel(instance, device));
  }
  return *kernel;
}

/// The tile for groups of about so many rows: few rows take 64 at a time, and are bound by the weights. Of scaled products,
/// where sums are scaled while other warp groups multiply, three of them are faster than two, unless tiles of 192 rows
/// leave too many of theirs empty.
template <class K>
K tile_for(const GroupedCall& call, DataType dtype) {
  constexpr int64_t kFew = 80, kTwo = 128, kThree = 192;
  constexpr double kFaster = 1.2;
  const int64_t rows = call.mean_rows();
  K k;
  k.block_k = 1024 / dtype.bits();
  if (rows <= kFew) {
    k.block_m = 64, k.block_n = 128, k.stages = 8, k.consumers = 1, k.cluster_m = k.cluster_n = 1;
  } else if (K::kScaled && static_cast<double>(cdiv(rows, kThree) * kThree) <
                               kFaster * static_cast<double>(cdiv(rows, kTwo) * kTwo)) {
    k.block_m = kThree, k.stages = 5, k.consumers = 3, k.cluster_n = 1, k.store_stages = 1;
  }
  return k;
}

}  // namespace

LaunchReport grouped_matmul(const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& c,
                            const Groups& groups, const GroupedMatmulOptions& options, SourceLocation where) {
  using namespace kernels;
  const CallerLine caller(where);
  const GroupedCall call("grouped_matmul", groups, a, b, c);
  if (b.shape().size() != 3)
    call.refuse(fmt::format("b has {} dimensions, not 3", b.shape().size()),
                "give it a matrix for each group");
  call.expect_groups("b", b);
  const int64_t n = b.shape()[1], k = b.shape()[2], m = call.rows();
  call.expect_shape("a", a, call.with_rows(k));
  call.expect_shape("b", b, {call.count(), n, k});
  call.expect_shape("c", c, call.with_rows(n));
  const bool is_float8 = a.dtype() == float8_e4m3;
  if (a.dtype() != b.dtype() || !(is_float8 || a.dtype() == float16 || a.dtype() == bfloat16))
    call.refuse("a and b are not both float16, both bfloat16 or both float8_e4m3", "convert them");
  if (is_float8 ? c.dtype() != float16 && c.dtype() != bfloat16 : c.dtype() != a.dtype())
    call.refuse(fmt::format("c is of {}", c.dtype().name()),
                is_float8 ? "it is float16 or bfloat16" : "give it the operands' type");
  call.expect_multiple("n", n, 8);
  const bool has_scales = !options.scale_a.is_null();
  if (has_scales == options.scale_b.is_null())
    call.refuse("one operand has scales, the other none", "give both or none");
  if (has_scales && !is_float8) call.refuse("operands of 16 bits have scales", "scales are for float8");
  WholeRows whole(a.device(), options.stream);
  const auto launch = [&]<class K>(const K& tile, const auto&... steps) {
    const DeviceTensor a_rows = whole(a), b_rows = whole(b);
    LaunchReport copies = whole.copy();
    Kernel<K>& kernel =
        kernel_with<K>(a.device(), tile.block_m * 1024 + tile.block_k, [&](K& instance) { instance = tile; });
    LaunchReport report = kernel.on(options.stream)(
        product_sizes(tile, m, n, a_rows.shape().back(), a.device().multiprocessors()), call.count(),
        call.most_groups(), groups.masked, call.room(), a.dtype(), groups.rows.address(), a_rows.address(),
        b_rows.address(), c.address(), steps...);
    return copies.clean() ? report : copies;
  };
  if (!is_float8) return launch(tile_for<HopperGroupedMatmul<>>(call, a.dtype()));
  if (!has_scales) return launch(tile_for<HopperGroupedMatmul<Convert>>(call, a.dtype()), c.dtype());
  const DeviceTensor &by_a = options.scale_a, &by_b = options.scale_b;
  for (const auto& [name, t] : {std::pair{"scale_a", &by_a}, {"scale_b", &by_b}}) {
    if (t->dtype() != float32)
      call.refuse(fmt::format("{} is of {}, not float32", name, t->dtype().name()), "convert it");
    if (&t->device().backend() != &a.device().backend())
      call.refuse(fmt::format("{} is on another device than a", name), "copy it to a's");
  }
  if (by_a.shape().size() == 1) {
    call.check("scale_a", by_a), call.expect_dense("scale_a", by_a);
    call.check("scale_b", by_b), call.expect_dense("scale_b", by_b);
    call.expect_shape("scale_a", by_a, {m});
    call.expect_shape("scale_b", by_b, {call.count(), n});
    return launch(tile_for<HopperGroupedMatmul<RowScale, GroupColumnScale, Convert>>(call, a.dtype()),
                  float32, by_a.address(), call.count(), by_b.address(), c.dtype());
  }
  constexpr int64_t kBlock = BlockScales::kBlock;
  const int64_t k_blocks = (k + kBlock - 1) / kBlock, n_blocks = (n + kBlock - 1) / kBlock;
  call.expect_shape("scale_a", by_a, {k_blocks, m});
  call.check("scale_b", by_b), call.expect_dense("scale_b", by_b);
  call.expect_shape("scale_b", by_b, {call.count(), n_blocks, k_blocks});
  if (m > 1 && by_a.strides()[1] != 1)
    call.refuse(fmt::format("scales of neighbouring rows of a are {} apart", by_a.strides()[1]),
                "scale_a is [k / 128, m], the scales of a row's blocks below each other");
  return launch(tile_for<HopperGroupedMatmul<BlockScales, Convert>>(call, a.dtype()), by_a.address(),
                by_a.strides()[0], by_b.address(), c.dtype());
}

LaunchReport grouped_matmul_weight_gradient(const DeviceTensor& a, const DeviceTensor& b,
                                            const DeviceTensor& c, const Groups& groups, const Stream& stream,
                                            SourceLocation where) {
  const CallerLine caller(where);
  const GroupedCall call("grouped_matmul_weight_gradient", groups, a, b, c);
  call.expect_dense("a", a), call.expect_dense("b", b);
  const int64_t p = a.shape().back(), q = b.shape().back();
  call.expect_shape("b", b, call.with_rows(q));
  call.expect_shape("c", c, {call.count(), p, q});
  if ((a.dtype() != float16 && a.dtype() != bfloat16) || a.dtype() != b.dtype() || a.dtype() != c.dtype())
    call.refuse("a, b and c are not all float16 or all bfloat16", "convert them");
  call.expect_multiple("the number of a's columns", p, 8);
  call.expect_multiple("the number of b's columns", q, 8);
  auto& kernel = kernel_with<kernels::HopperWeightGradient<>>(
      a.device(), 0, [&](auto& k) { k.ctas = a.device().multiprocessors(); });
  return kernel.on(stream)(call.rows(), p, q, call.count(), call.most_groups(), groups.masked, call.room(),
                           a.dtype(), groups.rows.address(), a.address(), b.address(), c.address());
}

}  // namespace imbrex
