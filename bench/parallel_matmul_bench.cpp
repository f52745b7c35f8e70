// SPDX-License-Identifier: Apache-2.0
// Products fused with their collectives, on the CUDA GPUs of this machine, beside cuBLASLt's best suggestion and NCCL in the same
// process. What programs call is verified at random elements against float64, as its rival is, and timed as bench_collectives
// does: device time per call in captured graphs, of the slowest rank, contenders in turns, medians of 5. Three copies of the
// weights take turns, so that they come from memory. bench/parallel_rivals.py times PyTorch's asynchronous tensor
// parallelism, which cannot be captured, for the same cases.
//
//   bench_parallel_matmul [--ranks N] [--seconds S] [--first I] [--last I] [--candidates] [--prepare]
//
// --ranks virtual:4: see rank_place.h; --seconds: no case begins after so many; --first, --last: of the cases; --candidates: other tiles, and other ways to the
// same result, by themselves; --prepare: compiles what the cases launch, and times nothing.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "imbrex/core/error.h"
#include "imbrex/kernels/matmul.h"
#include "imbrex/parallel.h"
#include "imbrex/runtime.h"
#include "nccl_rival.h"
#include "rank_numbers.h"
#include "rank_place.h"
#include "rank_timing.h"
#include "ranks/fused_products.h"
#include "runtime/measure/cublas_lt.h"

using namespace imbrex;
using namespace imbrex::parallel;

namespace {

constexpr int kTurns = 5, kCopies = 3;

struct Arguments {
  RankPlace place;
  int first = 0, last = 1 << 20;
  double seconds = 1e9;
  bool has_candidates = false, only_prepares = false;
};

enum class Kind { kGather, kScatter, kReduce };
constexpr const char* kNames[] = {"all-gather + matmul", "matmul + reduce-scatter", "matmul + all-reduce"};
struct BenchCase {
  Kind kind;
  int64_t m, n, k;  // before they are dealt out
};
constexpr BenchCase kCases[] = {{Kind::kGather, 8192, 8192, 8192},   {Kind::kGather, 8192, 28672, 8192},
                                {Kind::kGather, 4096, 28672, 8192},  {Kind::kGather, 1024, 8192, 8192},
                                {Kind::kGather, 256, 8192, 8192},    {Kind::kGather, 64, 8192, 8192},
                                {Kind::kScatter, 8192, 8192, 28672}, {Kind::kScatter, 8192, 8192, 8192},
                                {Kind::kScatter, 4096, 8192, 28672}, {Kind::kScatter, 1024, 8192, 8192},
                                {Kind::kScatter, 256, 8192, 8192},   {Kind::kScatter, 64, 8192, 8192},
                                {Kind::kReduce, 64, 8192, 28672},    {Kind::kReduce, 1024, 8192, 28672},
                                {Kind::kReduce, 8192, 8192, 28672}};

/// The case with sizes that so many ranks divide.
BenchCase dealt_out(BenchCase c, int ranks) {
  const auto multiple = [](int64_t size, int64_t unit) { return std::max(size - size % unit, unit); };
  c.m = multiple(c.m, ranks);
  int64_t& shared = c.kind == Kind::kGather ? c.n : c.k;
  shared = multiple(shared, int64_t{8} * ranks);  // rows begin at multiples of 16 bytes
  return c;
}

MatmulChoice tile(int m, int n, int stages, int consumers, int cluster_m, int cluster_n,
                  bool swap_ab = false) {
  MatmulChoice choice;
  choice.block_m = m;
  choice.block_n = n;
  choice.stages = stages;
  choice.consumers = consumers;
  choice.cluster_m = cluster_m;
  choice.cluster_n = cluster_n;
  choice.swap_ab = swap_ab;
  choice.ctas = 132;
  return choice;
}

std::vector<MatmulChoice> candidates(const BenchCase& c) {
  const auto stored_whole = [](MatmulChoice choice, int slices) {
    choice.store_stages = slices;
    return choice;
  };
  if (c.m >= 4096 && c.kind != Kind::kGather)
    return {tile(128, 256, 4, 2, 2, 1), stored_whole(tile(128, 256, 3, 2, 2, 1), 4),
            stored_whole(tile(128, 192, 4, 2, 2, 1), 3), stored_whole(tile(128, 256, 3, 2, 2, 1), 2)};
  if (c.m >= 4096)
    return {tile(128, 256, 4, 2, 2, 1), tile(128, 256, 4, 2, 1, 2), tile(256, 128, 3, 2, 1, 2),
            tile(128, 192, 4, 2, 1, 2)};
  if (c.m >= 1024)
    return {tile(128, 256, 4, 2, 2, 1), tile(128, 192, 4, 2, 2, 1), tile(128, 128, 5, 2, 2, 1)};
  if (c.m >= 256) return {tile(128, 64, 7, 2, 1, 1), tile(64, 128, 7, 1, 1, 1), tile(128, 128, 5, 2, 1, 1)};
  return {tile(32, 64, 12, 1, 1, 1, true), tile(64, 64, 10, 1, 1, 1, true), tile(64, 64, 10, 1, 1, 1)};
}

/// A case on one rank: its operands, and what multiplies them.
class Case {
 public:
  Case(Communicator& ranks, const Numbers& numbers, const BenchCase& c)
      : ranks_(ranks),
        numbers_(numbers),
        c_(c),
        gathers_(c.kind == Kind::kGather),
        mine_(RowsOfRank::of(c.m, ranks.size(), ranks.rank())),
        n_(gathers_ ? c.n / ranks.size() : c.n),
        k_(gathers_ ? c.k : c.k / ranks.size()),
        a_(empty(gathers_ ? mine_.count : c.m, k_)),
        all_a_(empty(c.m, k_)),
        product_(empty(c.m, n_)),
        y_(c.kind == Kind::kReduce ? ranks.symmetric(bfloat16, {c.m, n_}) : SymmetricTensor()),
        out_(gathers_                  ? empty(c.m, n_)
             : c.kind == Kind::kReduce ? y_.mine()
                                       : empty(mine_.count, n_)) {
    if (!gathers_) numbers.fill(a_, a_seed(ranks.rank()));
    numbers.fill(all_a_, a_seed(0));
    if (gathers_) a_.copy_from(rows(all_a_, mine_));
    for (int copy = 0; copy < kCopies; ++copy) {
      b_.push_back(empty(n_, k_));
      numbers.fill(b_.back(), b_seed(ranks.rank(), copy));
    }
    const FusedSizes sizes{.m = c.m, .n = n_, .k = k_};
    if (gathers_) {
      gather_.emplace(ranks, sizes);
      gathered_.emplace(ranks, sizes, SourceLocation::current());
    } else {
      scattered_.emplace(ranks, sizes, SourceLocation::current());
      if (c.kind == Kind::kScatter) scatter_.emplace(ranks, sizes);
      if (c.kind == Kind::kReduce) reduce_.emplace(ranks, sizes);
    }
  }

  void prepare() {
    prepare_matmul(multiplied(), b_[0], product_);
    if (gather_) gather_->prepare(a_, b_[0], out_);
    if (scatter_) scatter_->prepare(a_, b_[0], out_);
    if (reduce_) reduce_->prepare(a_, b_[0], y_);
  }
  /// What programs call.
  void call(int i, const Stream& stream) {
    const FusedOptions options{.bias = {}, .stream = stream};
    if (gather_) (*gather_)(a_, b(i), out_, options);
    if (scatter_) (*scatter_)(a_, b(i), out_, options);
    if (reduce_) (*reduce_)(a_, b(i), y_, options);
  }
  void multiply(int i, const Stream& stream) const {
    matmul(multiplied(), b(i), product_, {.stream = stream});
  }
  Carrier carrier() const {
    return gathers_ ? gathered_->carrier(chosen(Carrier::kKernel), c_.m, n_, k_)
                    : scattered_->carrier(c_.m, n_, k_);
  }
  MatmulChoice chosen(Carrier carrier) const {
    return gathers_ ? gathered_->choose(c_.m, n_, k_) : scattered_->choose(c_.m, n_, k_, carrier);
  }
  bool can_copy(const MatmulChoice& choice) const {
    return !gathers_ || cdiv(c_.m, ranks_.size()) % choice.block_m == 0;
  }
  std::string chosen_alone() const { return matmul_choice(c_.m, n_, k_, ranks_.device().multiprocessors()); }
  /// The fused kernel with these tiles.
  void fused(Until until, const MatmulChoice& choice, Carrier carrier, int64_t chunk_k, int i,
             const Stream& stream) {
    const FusedOptions options{.bias = {}, .stream = stream};
    const SourceLocation where = SourceLocation::current();
    if (gathers_)
      gathered_->run(until, choice, a_, b(i), out_, options, where, carrier, chunk_k);
    else
      scattered_->run(until, choice, a_, b(i), out_, options, where, carrier, y_of_all());
  }
  /// The product and a collective one after the other.
  void apart(Until until, int i, const Stream& stream) {
    const FusedOptions options{.bias = {}, .stream = stream};
    const SourceLocation where = SourceLocation::current();
    if (gathers_)
      gathered_->run_apart(until, a_, b(i), out_, options, where);
    else
      scattered_->run_apart(until, a_, b(i), out_, options, where, c_.kind == Kind::kReduce);
  }

  void multiply_by_cublas(int i, const Stream& stream) const {
    cublas_->launch(multiplied(), b(i), gathers_ ? out_ : product_, stream);
  }
  void collect_by_nccl(const NcclRival& nccl, const Stream& stream) const {
    const int rank = ranks_.rank();
    if (c_.kind == Kind::kGather) nccl.all_gather(rank, a_, all_a_, stream);
    if (c_.kind == Kind::kScatter) nccl.reduce_scatter(rank, product_, out_, stream);
    if (c_.kind == Kind::kReduce) nccl.all_reduce(rank, product_, out_, stream);
  }
  void one_after_the_other(const NcclRival& nccl, int i, const Stream& stream) const {
    if (gathers_) collect_by_nccl(nccl, stream);
    multiply_by_cublas(i, stream);
    if (!gathers_) collect_by_nccl(nccl, stream);
  }
  /// "" or why there is none.
  std::string find_cublas(runtime::GpuTimer& timer) {
    std::string why_not;
    cublas_ = runtime::CublasLtMatmul::make(multiplied(), b_[0], gathers_ ? out_ : product_, timer, &why_not);
    return cublas_ == nullptr ? why_not : "";
  }
  std::string cublas_name() const { return cublas_->name(); }

  /// The largest error at random elements over what the type allows, of two calls.
  double error_of(const RankCalls& run) {
    double worst = 0;
    for (int call = 0; call < 2; ++call) {
      out_.poison();
      ranks_.barrier();
      run(call, Stream());
      ranks_.synchronize();
      const HostTensor got = out_.to_host();
      const int rank = ranks_.rank();
      const int64_t first_row = c_.kind == Kind::kScatter ? mine_.first : 0;
      std::mt19937_64 random(static_cast<uint64_t>(call + 10 * rank));
      for (int i = 0; i < 300; ++i) {
        const auto element = static_cast<int64_t>(random() % static_cast<uint64_t>(got.elements()));
        const int64_t row = element / n_, column = element % n_;
        double sum = 0;
        for (int r = gathers_ ? rank : 0; r < (gathers_ ? rank + 1 : ranks_.size()); ++r)
          for (int64_t l = 0; l < k_; ++l)
            sum += numbers_.get(gathers_ ? a_seed(0) : a_seed(r), (first_row + row) * k_ + l) *
                   numbers_.get(b_seed(r, call), column * k_ + l);
        const double error = std::abs(got.get(element) - sum);
        const double allowed = std::abs(sum) / 128 + std::sqrt(static_cast<double>(c_.k)) / 100;
        worst = std::max(worst, std::isnan(error) ? 1e9 : error / allowed);
      }
      ranks_.barrier();
    }
    return worst;
  }
  bool divides() const { return c_.m % ranks_.size() == 0; }

 private:
  DeviceTensor empty(int64_t rows, int64_t columns) const {
    return DeviceTensor::empty(ranks_.device(), bfloat16, {std::max<int64_t>(rows, 1), columns});
  }
  DeviceTensor rows(const DeviceTensor& of, RowsOfRank part) const {
    return DeviceTensor::view(ranks_.device(), of.address() + static_cast<uint64_t>(part.first * k_) * 2,
                              bfloat16, {part.count, k_});
  }
  const DeviceTensor& multiplied() const { return gathers_ ? all_a_ : a_; }
  const DeviceTensor& b(int i) const { return b_[static_cast<size_t>(i % kCopies)]; }
  const SymmetricTensor* y_of_all() const { return c_.kind == Kind::kReduce ? &y_ : nullptr; }
  static int64_t a_seed(int rank) { return 1 + rank; }
  static int64_t b_seed(int rank, int copy) { return 100 + rank * kCopies + copy; }

  Communicator& ranks_;
  const Numbers& numbers_;
  BenchCase c_;
  bool gathers_;
  RowsOfRank mine_;
  int64_t n_, k_;
  DeviceTensor a_, all_a_, product_;
  SymmetricTensor y_;
  DeviceTensor out_;
  std::vector<DeviceTensor> b_;
  std::optional<AllGatherMatmul> gather_;
  std::optional<MatmulReduceScatter> scatter_;
  std::optional<MatmulAllReduce> reduce_;
  std::optional<GatheredProduct> gathered_;
  std::optional<ScatteredProduct> scattered_;
  std::unique_ptr<runtime::CublasLtMatmul> cublas_;
};

void time_candidates(Communicator& ranks, Case& one, const BenchCase& c, const RankTiming& timing) {
  const auto time = [&](const std::string& text, const RankCalls& compile, const RankCalls& run) {
    try {
      compile(0, Stream());
    } catch (const CompileError&) {
      return;
    }
    ranks.barrier();
    const double error = one.error_of(run);
    const double us = microseconds(ranks, timing, run);
    if (ranks.rank() == 0 || error > 1)
      fmt::print("   {:8.1f} us  {}{}\n", us, text, error > 1 ? "  WRONG" : "");
    std::fflush(stdout);
  };
  if (one.divides())
    time(
        "apart", [&](int i, const Stream& s) { one.apart(Until::kCompiled, i, s); },
        [&](int i, const Stream& s) { one.apart(Until::kLaunched, i, s); });
  const std::vector<int64_t> chunks_of_many_rows{0, 512, 2048, 8192}, chunks_of_few_rows{0, 128, 512};
  const auto time_fused = [&](const MatmulChoice& choice, Carrier carrier, int64_t chunk_k) {
    time(
        fmt::format("fused, {}{}{}", choice.text(),
                    carrier == Carrier::kCopyEngines ? ", by copy engines" : "",
                    chunk_k == 0 ? "" : fmt::format(", carried by {} of k", chunk_k)),
        [&](int i, const Stream& s) { one.fused(Until::kCompiled, choice, carrier, chunk_k, i, s); },
        [&](int i, const Stream& s) { one.fused(Until::kLaunched, choice, carrier, chunk_k, i, s); });
  };
  const MatmulChoice chosen = one.chosen(Carrier::kKernel), chosen_apart = one.chosen(Carrier::kCopyEngines);
  if (one.can_copy(chosen_apart)) time_fused(chosen_apart, Carrier::kCopyEngines, 0);
  for (const int64_t chunk_k : c.m >= 4096 ? chunks_of_many_rows : chunks_of_few_rows)
    if (chunk_k == 0 || c.kind == Kind::kGather) time_fused(chosen, Carrier::kKernel, chunk_k);
  for (const MatmulChoice& choice : candidates(c)) time_fused(choice, Carrier::kKernel, 0);
}

/// Ours over one after the other; 0 where there is no rival.
double run_case(Communicator& ranks, const Numbers& numbers, const NcclRival& nccl,
                const Arguments& arguments, const BenchCase& c) {
  Case one(ranks, numbers, c);
  one.prepare();
  if (arguments.only_prepares) return 0;
  const RankCalls ours = [&](int i, const Stream& s) { one.call(i, s); };
  std::vector<RankCalls> contenders{ours, [&](int i, const Stream& s) { one.multiply(i, s); }};
  std::vector<double> errors{one.error_of(ours)};
  std::string why_not = "no rival on a virtual node";
  if (!arguments.place.is_virtual) {
    runtime::GpuTimer timer(ranks.device());
    why_not = one.find_cublas(timer);
  }
  const bool has_rival = why_not.empty() && nccl.is_there() && one.divides();
  if (has_rival) {
    contenders.emplace_back([&](int i, const Stream& s) { one.one_after_the_other(nccl, i, s); });
    contenders.emplace_back([&](int i, const Stream& s) { one.multiply_by_cublas(i, s); });
    contenders.emplace_back([&](int, const Stream& s) { one.collect_by_nccl(nccl, s); });
    ranks.barrier();
    const Stream stream = Stream::create(ranks.device());  // NCCL takes no Stream()
    errors.push_back(one.error_of([&](int i, const Stream&) {
      one.one_after_the_other(nccl, i, stream);
      ranks.synchronize(stream);
    }));
  }
  const RankTiming timing = arguments.place.timing(c.m >= 4096 ? 6 : 24, kTurns);
  const std::vector<double> t = microseconds(ranks, timing, contenders);
  double worst = 0;
  for (const std::string& text :
       ranks.gather(fmt::format("{}", *std::max_element(errors.begin(), errors.end()))))
    worst = std::max(worst, std::stod(text));
  const bool tells = ranks.rank() == 0;
  if (tells && has_rival)
    fmt::print("| {}, {} x {} x {} | {:.1f} | {:.1f} | {:.1f}, {:.1f} | {:.2f} | {:.2f} | {:.1f} |{}\n",
               kNames[static_cast<int>(c.kind)], c.m, c.n, c.k, t[0], t[2], t[3], t[4], t[2] / t[0],
               t[2] / std::max(t[3], t[4]), t[1], worst > 1 ? " WRONG" : "");
  else if (tells)
    fmt::print("| {}, {} x {} x {} | {:.1f} | {} |{}\n", kNames[static_cast<int>(c.kind)], c.m, c.n, c.k,
               t[0], why_not, worst > 1 ? " WRONG" : "");
  if (tells && arguments.has_candidates)
    fmt::print("   error {:.2f} of what is allowed; {}; imbrex::matmul by {}\n", worst,
               one.carrier() == Carrier::kCopyEngines ? "copy engines" : "the kernel carries",
               one.chosen_alone());
  std::fflush(stdout);
  if (arguments.has_candidates) time_candidates(ranks, one, c, timing);
  return has_rival ? t[2] / t[0] : 0;
}

Arguments read_arguments(int argc, char** argv) {
  Arguments arguments;
  std::string ranks;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const auto value = [&] { return i + 1 < argc ? std::atof(argv[++i]) : 0; };
    if (word == "--candidates")
      arguments.has_candidates = true;
    else if (word == "--prepare")
      arguments.only_prepares = true;
    else if (word == "--ranks" && i + 1 < argc)
      ranks = argv[++i];
    else if (word == "--seconds")
      arguments.seconds = value();
    else if (word == "--first")
      arguments.first = static_cast<int>(value());
    else if (word == "--last")
      arguments.last = static_cast<int>(value());
    else
      throw LaunchError(
          Diagnostic{{}, fmt::format("{}?", word), {}, "the head of the source says how to call it"});
  }
  arguments.place = RankPlace::of(ranks);
  return arguments;
}

}  // namespace

int main(int argc, char** argv) try {
  const Arguments arguments = read_arguments(argc, argv);
  const auto begin = std::chrono::steady_clock::now();
  const RankPlace& place = arguments.place;
  const NcclRival nccl(place.is_virtual ? 0 : place.ranks);
  const Numbers numbers;
  run_ranks(place.where(), [&](Communicator& ranks) {
    const bool tells = ranks.rank() == 0 && !arguments.only_prepares;
    if (tells)
      fmt::print(
          "{} ranks on {}; {}. Microseconds; the bound is what perfect overlap of the two by itself would "
          "give:\n"
          "| product | ours | one after the other | cuBLASLt, NCCL by themselves | ratio | bound | "
          "imbrex::matmul "
          "by itself |\n|---|---|---|---|---|---|---|\n",
          ranks.size(), ranks.device().name(), nccl.name());
    double logs = 0, least = 1e9;
    int rows = 0;
    for (int i = 0; i < std::ssize(kCases); ++i) {
      if (i < arguments.first || i > arguments.last) continue;
      const double passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      if (std::stod(ranks.gather(fmt::format("{}", passed))[0]) > arguments.seconds) break;
      const BenchCase c{kCases[i].kind, place.size(kCases[i].m, 16), place.size(kCases[i].n, 32),
                        place.size(kCases[i].k, 32)};
      const double ratio = run_case(ranks, numbers, nccl, arguments, dealt_out(c, ranks.size()));
      if (ratio == 0) continue;
      logs += std::log(ratio), ++rows, least = std::min(least, ratio);
    }
    if (tells && rows > 0)
      fmt::print("geometric mean {:.3f} of {} rows, least {:.3f}\n", std::exp(logs / rows), rows, least);
  });
  return 0;
} catch (const Error& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
