// SPDX-License-Identifier: Apache-2.0
#include "ranks/fused_products.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "imbrex/core/error.h"
#include "imbrex/kernels/matmul.h"
#include "imbrex/runtime/caller_line.h"
#include "matmul/set_tiles.h"
#include "tensor_fact.h"

namespace imbrex::parallel {
namespace {

using kernels::GatheredRows;
using kernels::ScatteredRows;

[[noreturn]] void refuse(std::string message, std::vector<std::string> facts, std::string help) {
  throw LaunchError(Diagnostic{{}, std::move(message), std::move(facts), std::move(help)});
}

/// Products of 16-bit types, of dense matrices that TMA reaches; on Hopper where kernels reach the other ranks.
void check_operands(const char* call, bool reaches_peers, const char* a_name, const DeviceTensor& a,
                    const DeviceTensor& b, const char* c_name, const DeviceTensor& c,
                    const FusedOptions& options) {
  const std::pair<const char*, const DeviceTensor*> all[] = {{a_name, &a}, {"b", &b}, {c_name, &c}};
  std::vector<std::string> facts;
  for (const auto& [name, t] : all) {
    if (t->is_null()) refuse(fmt::format("{}: {} is null", call, name), {}, "pass all three operands");
    facts.push_back(tensor_fact(name, *t));
  }
  const auto fail = [&](std::string message, std::string help) {
    refuse(fmt::format("{}: {}", call, message), facts, std::move(help));
  };
  for (const auto& [name, t] : all)
    if (t->shape().size() != 2 || !t->is_dense())
      fail(fmt::format("{} is not a dense matrix", name), "pass dense tensors of two dimensions");
  if (a.dtype() != b.dtype() || a.dtype() != c.dtype() || (a.dtype() != float16 && a.dtype() != bfloat16))
    fail("the operands are not all float16 or all bfloat16", "convert them");
  if (a.shape()[1] != b.shape()[1]) fail("inner sizes differ", "both have k columns");
  if (b.shape()[0] != c.shape()[1])
    fail("the result does not have a column per row of b", "b is [n, k], the result has n columns");
  if (a.shape()[1] % 8 != 0 || b.shape()[0] < 1 || a.shape()[1] < 1)
    fail("k is not a multiple of 8", "pad k with zeros: TMA reads rows that begin at multiples of 16 bytes");
  if (reaches_peers && !a.device().can_run("sm_90a"))
    fail(fmt::format("no kernel for {} ({})", a.device().name(), a.device().target()),
         "these products run on devices of target sm_90a");
  if (!options.bias.is_null() &&
      (options.bias.shape() != std::vector<int64_t>{b.shape()[0]} || !options.bias.is_dense() ||
       (options.bias.dtype() != c.dtype() && options.bias.dtype() != float32)))
    fail(fmt::format("{} does not fit", tensor_fact("bias", options.bias)),
         fmt::format("make it [{}], of the result's type or float32", b.shape()[0]));
}

/// The tiles of imbrex::matmul that leave `spare` bytes of shared memory, the fastest of them by its model.
MatmulChoice choose_tiles(int64_t m, int64_t n, int64_t k, int multiprocessors, int64_t matrices,
                          int64_t spare) {
  constexpr int64_t kSharedMemory = 227 * 1024, kBarriers = 512, kStoreColumns = 64;
  const auto fits = [&](const MatmulChoice& c) {
    const int64_t stages = int64_t{c.stages} * (c.block_m + c.block_n) * c.block_k * 2;
    const int64_t rows = c.swap_ab ? c.block_n : c.block_m;  // all consumers' together
    // Columns are stored by pieces, with room of its own for a narrower last one.
    const int64_t columns = c.swap_ab                   ? std::min(c.block_m, 128)
                            : c.block_n < kStoreColumns ? c.block_n
                                                        : kStoreColumns + c.block_n % kStoreColumns;
    return stages + rows * columns * 2 + kBarriers + spare <= kSharedMemory;
  };
  std::vector<MatmulChoice> without;
  for (const MatmulChoice& c : matmul_candidates())
    if (c.method != MatmulChoice::Method::kGeneral || c.is_tight || !fits(c)) without.push_back(c);
  MatmulChoice choice = choose_matmul(m, n, k, false, multiprocessors, matrices, without);
  choice.store_stages = 1;
  choice.takes_turns = false;  // tiles of two consumers go to other ranks in one order
  return choice;
}

/// The kernel of a choice; made once.
template <class Kernels, class Choice>
auto& kernel_for(Kernels& kernels, Choice choice, const Device& device) {
  using Ready = typename Kernels::mapped_type::element_type;
  using K = decltype(Ready::tiles);
  choice.ctas = 0;  // a number of the launch
  auto& ready = kernels[choice];
  if (ready == nullptr) {
    K kernel;
    set_tile(kernel, choice);
    set_h8(kernel, choice);
    ready = std::make_unique<Ready>(kernel, device);
  }
  return *ready;
}

/// What a call passes for Optional<ColumnBias>, Activate and Convert.
struct StepArguments {
  StepArguments(const FusedOptions& options, const DeviceTensor& c)
      : has_bias(!options.bias.is_null()),
        bias_type(has_bias ? options.bias.dtype() : c.dtype()),
        bias(has_bias ? options.bias.address() : c.address()),
        activation(options.activation),
        result(c.dtype()) {}
  bool has_bias;
  DataType bias_type;
  uint64_t bias;
  Activation activation;
  DataType result;
  auto arguments() const { return std::tie(has_bias, bias_type, bias, activation, result); }
};

template <class Ready, class... Arguments>
LaunchReport launch(Ready& kernel, Until until, const Stream& stream, const Arguments&... arguments) {
  if (until == Until::kLaunched) return kernel.on(stream)(arguments...);
  kernel.prepare(arguments...);
  return {};
}

/// Of several launches those that found something, or the last.
void add(LaunchReport& all, LaunchReport next) {
  if (all.clean()) all = std::move(next);
}

/// The same of a small collective of rows of n elements, from x to y.
LaunchReport launch(SmallCollectiveCall& small, Communicator& ranks, Until until, const Stream& stream,
                    DataType dtype, int64_t n, uint64_t x, uint64_t y, SourceLocation where) {
  LaunchReport report;
  small.with_kernel(ranks, dtype, n, x, y, where, [&](auto& kernel, const auto&... arguments) {
    report = launch(kernel, until, stream, arguments...);
  });
  return report;
}

}  // namespace

RowsOfRank RowsOfRank::of(int64_t m, int ranks, int rank) {
  const int64_t each = cdiv(m, ranks), first = std::min(rank * each, m);
  return {first, std::min(each, m - first)};
}

FusedProduct::FusedProduct(Communicator ranks, int64_t parts, SourceLocation where)
    : ranks_(std::move(ranks)),
      most_parts_(parts),
      signals_(ranks_.signals(ranks_.size() * (parts + 1), where)),
      progress_(DeviceTensor::from_host(ranks_.device(), HostTensor(int32, {3}))) {}

kernels::RankSignalsArguments FusedProduct::signals_for(int64_t parts, SourceLocation where) const {
  if (parts > most_parts_)
    throw LaunchError(
        Diagnostic{where,
                   fmt::format("{} signals per pair of ranks, there are {}", parts, most_parts_),
                   {},
                   "make it for sizes as large as those of the largest call"});
  return {ranks_.size(), signals_.rank_stride_bytes(), ranks_.rank(),
          most_parts_,   signals_.all().address(),     progress_.address()};
}

// ---- all-gather + matmul

namespace {
constexpr int64_t kLeastChunkK = 128, kMostChunkK = 1024;
/// With so many columns most tiles come to rows that have all come before; but they look at the signals of all chunks. On two H100 with
/// 14336 columns chunks of all of k (8192) saved 1 and 8 % of the time (2048 and 4096 rows of each rank), with 4096 they cost 5 %.
constexpr int64_t kManyColumns = 8192, kManyRowsOfRank = 2048, kChunkOfManyColumns = 8192;
}  // namespace

GatheredProduct::GatheredProduct(Communicator ranks, const FusedSizes& largest, SourceLocation where)
    : FusedProduct(ranks, GatheredRows::parts(cdiv(largest.m, ranks.size()), largest.k, kLeastChunkK), where),
      largest_(largest),
      rows_(
          ranks_.symmetric(largest.dtype, {cdiv(largest.m, ranks.size()) * ranks.size(), largest.k}, where)),
      gather_(ranks_, where),
      small_gather_(ranks_, SmallCollective::kAllGather, Apart<AllGatherKernel<true>>::kCtas),
      copies_(ranks_) {}

MatmulChoice GatheredProduct::choose(int64_t m, int64_t n, int64_t k) const {
  constexpr int64_t kPiece = 16 << 10;
  return choose_tiles(m, n, k, ranks_.device().multiprocessors(), 1, kPiece);
}

Carrier GatheredProduct::carrier(const MatmulChoice& choice, int64_t m, int64_t n, int64_t k) const {
  const int64_t each = cdiv(m, ranks_.size()), tiles = each / choice.block_m * cdiv(n, choice.block_n);
  const auto elements = static_cast<double>(each * k);
  return ranks_.size() > 1 && each % choice.block_m == 0 &&
                 are_copies_hidden(ranks_.device(), 2 * elements, 2 * elements * static_cast<double>(n),
                                   tiles)
             ? Carrier::kCopyEngines
             : Carrier::kKernel;
}

void GatheredProduct::check(const DeviceTensor& x, const DeviceTensor& b, const DeviceTensor& c,
                            const FusedOptions& options, SourceLocation where) const {
  check_operands("AllGatherMatmul", reaches_peers(), "x", x, b, "c", c, options);
  const int64_t m = c.shape()[0], k = x.shape()[1];
  const RowsOfRank mine = RowsOfRank::of(m, ranks_.size(), ranks_.rank());
  if (x.shape()[0] != mine.count)
    refuse(fmt::format("AllGatherMatmul: rank {} of {} has {} of {} rows, x has {}", ranks_.rank(),
                       ranks_.size(), mine.count, m, x.shape()[0]),
           {tensor_fact("x", x), tensor_fact("c", c)}, "RowsOfRank::of() tells which rows a rank has");
  if (x.dtype() != largest_.dtype || m * k > largest_.m * largest_.k)
    refuse(fmt::format("AllGatherMatmul: made for {} rows of {} in {}", largest_.m, largest_.k,
                       largest_.dtype.name()),
           {tensor_fact("x", x), tensor_fact("c", c)},
           "make it for sizes as large as those of the largest call");
  ranks_.agree("AllGatherMatmul", x.dtype(), {m, k}, where);
}

LaunchReport GatheredProduct::run_apart(Until until, const DeviceTensor& x, const DeviceTensor& b,
                                        const DeviceTensor& c, const FusedOptions& options,
                                        SourceLocation where) {
  const CallerLine caller(where);
  check(x, b, c, options, where);
  const int64_t m = c.shape()[0], k = x.shape()[1], n = x.shape()[0] * k;
  const DeviceTensor all = DeviceTensor::view(ranks_.device(), rows_.mine().address(), x.dtype(), {m, k});
  const MatmulOptions steps{.bias = options.bias, .activation = options.activation, .stream = options.stream};
  LaunchReport gathered;
  if (small_gather_.takes(x.dtype(), n)) {
    gathered =
        launch(small_gather_, ranks_, until, options.stream, x.dtype(), n, x.address(), all.address(), where);
  } else {
    const int unit = unit_of_rows(n);
    gathered =
        launch(gather_.kernel, until, options.stream, n / unit, unit, gather_.ctas(n),
               Apart<AllGatherKernel<true>>::kCtas, ranks_.size(), rows_.rank_stride_bytes(), ranks_.rank(),
               x.dtype(), x, rows_.all().address(), gather_.signals.all().address(), gather_.calls);
  }
  if (until == Until::kCompiled) {
    prepare_matmul(all, b, c, steps);
    return {};
  }
  LaunchReport multiplied = matmul(all, b, c, steps, where);
  return gathered.clean() ? multiplied : gathered;
}

LaunchReport GatheredProduct::run_by_nccl(Until until, const DeviceTensor& x, const DeviceTensor& b,
                                          const DeviceTensor& c, const FusedOptions& options,
                                          SourceLocation where) {
  const CallerLine caller(where);
  check(x, b, c, options, where);
  const int64_t m = c.shape()[0], k = x.shape()[1], each = cdiv(m, ranks_.size());
  const DeviceTensor room = rows_.mine();
  if (each * ranks_.size() * k > room.shape()[0] * room.shape()[1])
    refuse(fmt::format("AllGatherMatmul: {} ranks with {} rows of {} each need more room than {} rows of {}",
                       ranks_.size(), each, k, largest_.m, largest_.k),
           {tensor_fact("x", x), tensor_fact("c", c)}, "make it for as many rows as the ranks divide");
  const auto rows_of = [&](int64_t first, int64_t count) {
    const auto offset = static_cast<uint64_t>(first * k * x.dtype().bytes());
    return DeviceTensor::view(ranks_.device(), room.address() + offset, x.dtype(), {count, k});
  };
  const MatmulOptions steps{.bias = options.bias, .activation = options.activation, .stream = options.stream};
  if (until == Until::kCompiled) {
    prepare_matmul(rows_of(0, m), b, c, steps);
    return {};
  }
  // A rank with fewer rows sends as many as the others, the last of them undefined, from where they belong.
  const DeviceTensor place = rows_of(ranks_.rank() * each, each);
  if (x.shape()[0] > 0 && x.shape()[0] < each)
    rows_of(ranks_.rank() * each, x.shape()[0]).copy_from(x, options.stream, where);
  ranks_.all_gather_by_nccl(x.shape()[0] == each ? x : place, rows_of(0, each * ranks_.size()),
                            options.stream, where);
  return matmul(rows_of(0, m), b, c, steps, where);
}

LaunchReport GatheredProduct::run(Until until, const MatmulChoice& choice, const DeviceTensor& x,
                                  const DeviceTensor& b, const DeviceTensor& c, const FusedOptions& options,
                                  SourceLocation where, Carrier carrier, int64_t chunk_k) {
  const CallerLine caller(where);
  check(x, b, c, options, where);
  const int64_t m = c.shape()[0], n = c.shape()[1], k = x.shape()[1];
  const int64_t each = cdiv(m, ranks_.size());
  const RowsOfRank mine = RowsOfRank::of(m, ranks_.size(), ranks_.rank());
  if (chunk_k == 0) {
    if (n >= kManyColumns && each >= kManyRowsOfRank) {
      chunk_k = kChunkOfManyColumns;
    } else {
      // As large as leaves each multiprocessor something to carry.
      chunk_k = kMostChunkK;
      while (chunk_k > 256 && GatheredRows::parts(each, k, chunk_k) < 2 * ranks_.device().multiprocessors())
        chunk_k /= 2;
    }
  }
  TiledKernel<K>& ready = kernel_for(kernels_, choice, ranks_.device());
  const bool keeps_own = each % choice.block_m != 0;
  const int64_t offset = mine.first * k * x.dtype().bytes();
  // A rank without rows passes an address that nobody reads.
  const uint64_t own = mine.count > 0 ? x.address() : rows_.mine().address();
  const uint64_t place = rows_.all().address() + static_cast<uint64_t>(mine.count > 0 ? offset : 0);
  const kernels::RankSignalsArguments signals = signals_for(GatheredRows::parts(each, k, chunk_k), where);
  const bool is_copied = carrier == Carrier::kCopyEngines;
  LaunchReport report;
  if (is_copied) {
    if (keeps_own) throw InternalError("copies of rows, and tiles with rows of two ranks");
    report = copies_.begin(until, signals, options.stream);
    copies_.fork(until, options.stream);
    for (int distance = 1; distance < ranks_.size(); ++distance)  // those first that want them first
      add(report,
          copies_.copy(until, signals, x.dtype(), mine.count * k, {own}, {place},
                       (ranks_.rank() + ranks_.size() - distance) % ranks_.size(), 0, options.stream, where));
  }
  add(report,
      launch(ready.kernel, until, options.stream, kernels::product_sizes(ready.tiles, m, n, k, choice.ctas),
             x.dtype(), rows_.mine().address(), b.address(), c.address(), signals, own, place, each, chunk_k,
             keeps_own, is_copied, StepArguments(options, c)));
  if (is_copied) copies_.join(until, options.stream);
  return report;
}

// ---- matmul + reduce-scatter

ScatteredProduct::ScatteredProduct(Communicator ranks, const FusedSizes& largest, SourceLocation where)
    // Tiles have 64 x 64 elements or more per signal, but for those of few rows.
    : FusedProduct(ranks, 8192 + 4 * cdiv(cdiv(largest.m, ranks.size()), 64) * cdiv(largest.n, 64), where),
      largest_(largest),
      add_(ranks_, where),
      small_add_(ranks_, SmallCollective::kAllReduce, Apart<OneShotAllReduce<true>>::kCtas),
      small_scatter_(ranks_, SmallCollective::kReduceScatter, Apart<OneShotAllReduce<true>>::kCtas),
      partials_(
          ranks_.symmetric(largest.dtype, {ranks_.size(), cdiv(largest.m, ranks_.size()), largest.n}, where)),
      copies_(ranks_),
      nowhere_(ranks_.symmetric(largest.dtype, {ranks_.size(), largest.n}, where)),
      steps_({}, ranks_.device()) {}

MatmulChoice ScatteredProduct::choose(int64_t m, int64_t n, int64_t k, Carrier carrier) const {
  return choose_tiles(cdiv(m, ranks_.size()), n, k, ranks_.device().multiprocessors(),
                      carrier == Carrier::kKernel ? ranks_.size() : 1, 0);
}

Carrier ScatteredProduct::carrier(int64_t m, int64_t n, int64_t k) const {
  const MatmulChoice choice = choose(m, n, k, Carrier::kCopyEngines);
  const int64_t each = cdiv(m, ranks_.size()), tiles = cdiv(each, choice.block_m) * cdiv(n, choice.block_n);
  const auto elements = static_cast<double>(each * n);
  return ranks_.size() > 1 && are_copies_hidden(ranks_.device(), 2 * elements,
                                                2 * elements * static_cast<double>(k), tiles)
             ? Carrier::kCopyEngines
             : Carrier::kKernel;
}

int64_t ScatteredProduct::rows_of_piece(const MatmulChoice& choice, int64_t each, int64_t n) const {
  const int64_t tile = choice.cluster_m * choice.block_m, rows = cdiv(each, tile),
                columns = cdiv(n, choice.cluster_n * choice.block_n);
  // Two pieces where either keeps all multiprocessors busy: the first has come when the first of the own rows are multiplied.
  const bool are_two = rows / 2 * columns * choice.cluster_m * choice.cluster_n * 10 >=
                       ranks_.device().multiprocessors() * int64_t{9};
  return (are_two ? cdiv(rows, 2) : rows) * tile;
}

void ScatteredProduct::check(const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& y,
                             const FusedOptions& options, bool to_all, SourceLocation where) const {
  const char* const call = to_all ? "MatmulAllReduce" : "MatmulReduceScatter";
  check_operands(call, reaches_peers(), "a", a, b, "y", y, options);
  const int64_t m = a.shape()[0], n = y.shape()[1];
  const int64_t each = cdiv(m, ranks_.size());
  const RowsOfRank mine = RowsOfRank::of(m, ranks_.size(), ranks_.rank());
  const std::vector<std::string> facts{tensor_fact("a", a), tensor_fact("y", y)};
  if (to_all && y.shape()[0] != m)
    refuse(fmt::format("{}: the product has {} rows, y has {}", call, m, y.shape()[0]), facts,
           "give y as many rows as a");
  if (!to_all && y.shape()[0] != mine.count)
    refuse(fmt::format("{}: rank {} of {} has {} of {} rows, y has {}", call, ranks_.rank(), ranks_.size(),
                       mine.count, m, y.shape()[0]),
           facts, "RowsOfRank::of() tells which rows a rank has");
  if (y.dtype() != largest_.dtype || n > largest_.n ||
      each * n > cdiv(largest_.m, ranks_.size()) * largest_.n)
    refuse(
        fmt::format("{}: made for {} rows of {} in {}", call, largest_.m, largest_.n, largest_.dtype.name()),
        facts, "make it for sizes as large as those of the largest call");
  ranks_.agree(call, a.dtype(), {m, n, a.shape()[1]}, where);
}

ScatteredProduct::Partial ScatteredProduct::multiply(Until until, const DeviceTensor& a,
                                                     const DeviceTensor& b, const DeviceTensor& y,
                                                     const FusedOptions& options, SourceLocation where,
                                                     bool to_all) {
  check(a, b, y, options, to_all, where);
  const int64_t m = a.shape()[0], n = y.shape()[1];
  Partial partial{.columns = n,
                  .rows_of_each = cdiv(m, ranks_.size()),
                  .mine = to_all ? RowsOfRank{0, m} : RowsOfRank::of(m, ranks_.size(), ranks_.rank())};
  const DeviceTensor sums =
      DeviceTensor::view(ranks_.device(), partials_.mine().address(), y.dtype(), {m, n});
  const MatmulOptions plain{.stream = options.stream};
  if (until == Until::kCompiled)
    prepare_matmul(a, b, sums, plain);
  else
    partial.multiplied = matmul(a, b, sums, plain, where);
  return partial;
}

LaunchReport ScatteredProduct::run_apart(Until until, const DeviceTensor& a, const DeviceTensor& b,
                                         const DeviceTensor& y, const FusedOptions& options,
                                         SourceLocation where, bool to_all) {
  const CallerLine caller(where);
  const Partial partial = multiply(until, a, b, y, options, where, to_all);
  const auto [first, count] = partial.mine;
  const int64_t n = partial.columns, of_each = (to_all ? a.shape()[0] : partial.rows_of_each) * n;
  SmallCollectiveCall& small = to_all ? small_add_ : small_scatter_;
  LaunchReport added;
  if (a.shape()[0] % (to_all ? 1 : ranks_.size()) == 0 && small.takes(y.dtype(), of_each)) {
    added = launch(small, ranks_, until, options.stream, y.dtype(), of_each, partials_.mine().address(),
                   y.address(), where);
    return partial.multiplied.clean() ? added : partial.multiplied;
  }
  // Without rows a rank adds nothing up, and meets the others.
  const int64_t offset = count > 0 ? first * n * y.dtype().bytes() : 0;
  const uint64_t from = partials_.all().address() + static_cast<uint64_t>(offset);
  const uint64_t result = count > 0 ? y.address() : nowhere_.mine().address();
  added = launch(add_.kernel, until, options.stream, count * n, add_.ctas(of_each),
                 Apart<OneShotAllReduce<true>>::kCtas, ranks_.size(), partials_.rank_stride_bytes(),
                 ranks_.rank(), y.dtype(), from, result, add_.signals.all().address(), add_.calls);
  return partial.multiplied.clean() ? added : partial.multiplied;
}

LaunchReport ScatteredProduct::run_by_nccl(Until until, const DeviceTensor& a, const DeviceTensor& b,
                                           const DeviceTensor& y, const FusedOptions& options,
                                           SourceLocation where, bool to_all) {
  const CallerLine caller(where);
  const Partial partial = multiply(until, a, b, y, options, where, to_all);
  const int64_t n = partial.columns, each = partial.rows_of_each;
  const auto rows = [&](int64_t first, int64_t count) {
    const auto offset = static_cast<uint64_t>(first * n * y.dtype().bytes());
    return DeviceTensor::view(ranks_.device(), partials_.mine().address() + offset, y.dtype(), {count, n});
  };
  // NCCL gives each rank equally many rows, the last of them perhaps of none; the sum is where the rank's part was.
  const DeviceTensor sum = to_all ? rows(0, a.shape()[0]) : rows(ranks_.rank() * each, each);
  if (until == Until::kLaunched && to_all)
    ranks_.all_reduce_by_nccl(sum, sum, options.stream, where);
  else if (until == Until::kLaunched)
    ranks_.reduce_scatter_by_nccl(rows(0, each * ranks_.size()), sum, options.stream, where);
  if (partial.mine.count == 0) return partial.multiplied;
  const StepArguments steps(options, y);
  LaunchReport finished = std::apply(
      [&](bool has_bias, DataType bias_type, uint64_t bias, Activation activation, DataType) {
        return launch(steps_, until, options.stream, partial.mine.count, n, y.dtype(), sum.address(),
                      y.address(), has_bias, bias_type, bias, activation);
      },
      steps.arguments());
  return partial.multiplied.clean() ? finished : partial.multiplied;
}

LaunchReport ScatteredProduct::run(Until until, const MatmulChoice& choice, const DeviceTensor& a,
                                   const DeviceTensor& b, const DeviceTensor& y, const FusedOptions& options,
                                   SourceLocation where, Carrier carrier, const SymmetricTensor* all) {
  const CallerLine caller(where);
  check(a, b, y, options, all != nullptr, where);
  const int64_t m = a.shape()[0], n = y.shape()[1], k = a.shape()[1];
  const int64_t each = cdiv(m, ranks_.size());
  const RowsOfRank mine = RowsOfRank::of(m, ranks_.size(), ranks_.rank());
  TiledKernel<K>& ready = kernel_for(kernels_, choice, ranks_.device());
  const int64_t cluster_ctas = choice.cluster_m * choice.cluster_n * choice.split_k;
  const int64_t tiles =
      cdiv(each, choice.cluster_m * choice.block_m) * cdiv(n, choice.cluster_n * choice.block_n);
  const bool has_rows = mine.count > 0;
  const uint64_t result = has_rows ? y.address() : nowhere_.mine().address();
  uint64_t to_all =
      nowhere_.all().address() + static_cast<uint64_t>(ranks_.rank() * largest_.n * y.dtype().bytes());
  if (all != nullptr && has_rows)
    to_all = all->all().address() + static_cast<uint64_t>(mine.first * n * y.dtype().bytes());
  const kernels::RankSignalsArguments signals =
      signals_for(ScatteredRows::parts(tiles, cluster_ctas, choice.consumers), where);
  if (carrier == Carrier::kCopyEngines && sent_.is_null())
    sent_ = DeviceTensor::empty(ranks_.device(), largest_.dtype,
                                {ranks_.size(), cdiv(largest_.m, ranks_.size()), largest_.n});
  const int64_t piece_rows = rows_of_piece(choice, each, n);
  const auto launch_tiles = [&](int which, int64_t rows, int distance, int64_t first_row) {
    return launch(ready.kernel, until, options.stream,
                  kernels::product_sizes(ready.tiles, rows, n, k, choice.ctas), a.dtype(), a.address(),
                  b.address(), result, signals, partials_.all().address(), m, each, all != nullptr, to_all,
                  which, distance, first_row, piece_rows, sent_.is_null() ? result : sent_.address(),
                  StepArguments(options, y));
  };
  if (carrier == Carrier::kKernel) return launch_tiles(ScatteredRows::kAllTiles, each, 0, 0);
  LaunchReport report;
  for (int distance = 1; distance < ranks_.size(); ++distance) {
    const int owner = (ranks_.rank() + distance) % ranks_.size();
    for (int64_t first = 0, piece = 0; first < each; first += piece_rows, ++piece) {
      add(report,
          launch_tiles(ScatteredRows::kTilesOfAnother, std::min(piece_rows, each - first), distance, first));
      copies_.fork(until, options.stream);
      add(report, copies_.copy(until, signals, y.dtype(), std::min(piece_rows, each - first) * n,
                               {sent_.address(), (owner * each + first) * n},
                               {partials_.all().address(), (ranks_.rank() * each + first) * n}, owner,
                               2 * piece, options.stream, where));
    }
  }
  add(report, launch_tiles(ScatteredRows::kOwnTiles, each, 0, 0));
  copies_.join(until, options.stream);
  return report;
}

// ---- imbrex/parallel/fused_matmul.h

AllGatherMatmul::AllGatherMatmul(Communicator ranks, const FusedSizes& largest, SourceLocation where)
    : product_(std::make_shared<GatheredProduct>(std::move(ranks), largest, where)) {}
MatmulReduceScatter::MatmulReduceScatter(Communicator ranks, const FusedSizes& largest, SourceLocation where)
    : product_(std::make_shared<ScatteredProduct>(std::move(ranks), largest, where)) {}
MatmulAllReduce::MatmulAllReduce(Communicator ranks, const FusedSizes& largest, SourceLocation where)
    : product_(std::make_shared<ScatteredProduct>(std::move(ranks), largest, where)) {}

namespace {
/// An extent, where there is one: operands are checked later.
int64_t extent(const DeviceTensor& t, size_t d) {
  return t.shape().size() > d ? std::max<int64_t>(t.shape()[d], 1) : 1;
}

LaunchReport gather(GatheredProduct& product, Until until, const DeviceTensor& x, const DeviceTensor& b,
                    const DeviceTensor& c, const FusedOptions& options, SourceLocation where) {
  const int64_t m = extent(c, 0), n = extent(c, 1), k = extent(x, 1);
  if (!product.reaches_peers()) return product.run_by_nccl(until, x, b, c, options, where);
  if (m <= kFewRows && m % product.ranks() == 0) return product.run_apart(until, x, b, c, options, where);
  const MatmulChoice choice = product.choose(m, n, k);
  return product.run(until, choice, x, b, c, options, where, product.carrier(choice, m, n, k));
}
LaunchReport scatter(ScatteredProduct& product, Until until, const DeviceTensor& a, const DeviceTensor& b,
                     const DeviceTensor& y, const FusedOptions& options, SourceLocation where,
                     const SymmetricTensor* all = nullptr) {
  const int64_t m = extent(a, 0), n = extent(b, 0), k = extent(a, 1);
  if (!product.reaches_peers()) return product.run_by_nccl(until, a, b, y, options, where, all != nullptr);
  // The sums begin at each rank's rows, which the kernel that adds them up takes by 16 bytes.
  const bool is_aligned = all != nullptr || cdiv(m, product.ranks()) * n * y.dtype().bytes() % 16 == 0;
  if (m <= kFewRows && options.bias.is_null() && options.activation == Activation::kNone && is_aligned)
    return product.run_apart(until, a, b, y, options, where, all != nullptr);
  const Carrier carrier = product.carrier(m, n, k);
  return product.run(until, product.choose(m, n, k, carrier), a, b, y, options, where, carrier, all);
}
}  // namespace

LaunchReport AllGatherMatmul::operator()(const DeviceTensor& x, const DeviceTensor& b, const DeviceTensor& c,
                                         const FusedOptions& options, SourceLocation where) {
  return gather(*product_, Until::kLaunched, x, b, c, options, where);
}
void AllGatherMatmul::prepare(const DeviceTensor& x, const DeviceTensor& b, const DeviceTensor& c,
                              const FusedOptions& options, SourceLocation where) {
  gather(*product_, Until::kCompiled, x, b, c, options, where);
}

LaunchReport MatmulReduceScatter::operator()(const DeviceTensor& a, const DeviceTensor& b,
                                             const DeviceTensor& y, const FusedOptions& options,
                                             SourceLocation where) {
  return scatter(*product_, Until::kLaunched, a, b, y, options, where);
}
void MatmulReduceScatter::prepare(const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& y,
                                  const FusedOptions& options, SourceLocation where) {
  scatter(*product_, Until::kCompiled, a, b, y, options, where);
}

LaunchReport MatmulAllReduce::operator()(const DeviceTensor& a, const DeviceTensor& b,
                                         const SymmetricTensor& y, const FusedOptions& options,
                                         SourceLocation where) {
  return scatter(*product_, Until::kLaunched, a, b, y.mine(), options, where, &y);
}
void MatmulAllReduce::prepare(const DeviceTensor& a, const DeviceTensor& b, const SymmetricTensor& y,
                              const FusedOptions& options, SourceLocation where) {
  scatter(*product_, Until::kCompiled, a, b, y.mine(), options, where, &y);
}

}  // namespace imbrex::parallel
