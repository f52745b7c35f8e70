// SPDX-License-Identifier: Apache-2.0
// Everything that ranks call together, by trials drawn by lot: which call, how many ranks, sizes that ranks do not divide, the
// schedule's seed, and how late each rank is. And what the others get where one rank fails in it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

#include "../full.h"
#include "../param_name.h"
#include "../skip.h"
#include "ended_waits.h"
#include "gpu_counts.h"
#include "imbrex/core/error.h"
#include "imbrex/parallel.h"
#include "imbrex/runtime.h"
#include "ranks/fused_products.h"

namespace imbrex::parallel {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

vgpu::Options options(uint64_t seed) {
  vgpu::Options options{.target = "sm_90a", .num_sms = 3, .seed = seed};
  options.memory_bytes = int64_t{1} << 26;
  return options;
}

enum class Call {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kAllGatherMatmul,
  kMatmulReduceScatter,
  kMatmulAllReduce,
  kAllGatherMatmulByCopies,
  kMatmulReduceScatterByCopies,
  kExperts
};
constexpr int kCalls = 9;
const char* name(Call call) {
  static constexpr const char* kNames[kCalls] = {"all_reduce",
                                                 "all_gather",
                                                 "reduce_scatter",
                                                 "all_gather_matmul",
                                                 "matmul_reduce_scatter",
                                                 "matmul_all_reduce",
                                                 "all_gather_matmul_by_copies",
                                                 "matmul_reduce_scatter_by_copies",
                                                 "experts"};
  return kNames[static_cast<size_t>(call)];
}

std::ostream& operator<<(std::ostream& out, Call call) { return out << name(call); }

struct Trial {
  Call call;
  int ranks;
  int64_t m, n, k;  // collectives: n elements; products: a rank's sizes; experts: m tokens of width n
  uint64_t seed;
};

/// Numbers that every rank can make of every other: whole ones, so that float16 sums are exact but for one rounding.
double number(const Trial& trial, int64_t which, int64_t i) {
  uint64_t bits = (static_cast<uint64_t>(i) << 20) + static_cast<uint64_t>(which) * 64 + trial.seed;
  bits = (bits ^ bits >> 30) * 0xBF58'476D'1CE4'E5B9u;
  return static_cast<double>((bits ^ bits >> 27) % 9) - 4;
}
DeviceTensor filled(const Device& device, DataType dtype, const std::vector<int64_t>& shape,
                    const std::function<double(int64_t)>& value) {
  HostTensor tensor(dtype, shape);
  for (int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, value(i));
  return DeviceTensor::from_host(device, tensor);
}
/// What ranks make together before they call: a call with inputs of several versions, whose result is always in the same place. What
/// an earlier call left where others store is then wrong for the next one.
struct Prepared {
  Call call;
  DeviceTensor result;
  std::vector<std::function<LaunchReport()>> runs;     // by version
  std::vector<std::function<double(int64_t)>> wanted;  // element by element
  std::map<size_t, std::vector<double>> kept = {};     // of those that were asked for

  /// Whether the result is that of version `v`; says where it is not.
  void check(size_t v) {
    const HostTensor got = result.to_host();
    std::vector<double>& exact = kept[v];
    for (int64_t i = std::ssize(exact); i < got.elements(); ++i) exact.push_back(wanted[v](i));
    for (int64_t i = 0; i < got.elements(); ++i)
      if (const double e = exact[static_cast<size_t>(i)];
          !(std::abs(got.get(i) - e) <= std::abs(e) / 64 + 1)) {
        ADD_FAILURE() << name(call) << ", version " << v << ": element " << i << " is " << got.get(i)
                      << ", not " << e;
        return;
      }
  }
  /// The others may store into it: a barrier must follow.
  void poison() { result.poison(); }
};

constexpr size_t kVersions = 3;

/// `add(trial)` for each version, whose numbers are others.
template <class Add>
void for_versions(const Trial& trial, const Add& add) {
  Trial version = trial;
  for (size_t v = 0; v < kVersions; ++v, version.seed += 50) add(version);
}

Prepared prepare_collective(const Trial& trial, Communicator& ranks) {
  const int64_t n = trial.n;
  const int size = ranks.size(), me = ranks.rank();
  const Device& device = ranks.device();
  const auto sum_of = [=](const Trial& version) {
    return [=](int64_t i) {
      double all = 0;
      for (int rank = 0; rank < size; ++rank) all += number(version, rank, i);
      return all;
    };
  };
  const auto input = [&](const Trial& version, const std::vector<int64_t>& shape) {
    return filled(device, float16, shape, [&](int64_t i) { return number(version, me, i); });
  };
  Prepared made{trial.call, {}, {}, {}};
  if (trial.call == Call::kAllReduce) {
    const auto all_reduce = std::make_shared<AllReduce>(ranks, 2);
    const SymmetricTensor x = ranks.symmetric(float16, {n}), y = ranks.symmetric(float16, {n});
    const auto kind = trial.seed % 3 == 0   ? AllReduce::Kind::kOneShot
                      : trial.seed % 3 == 1 ? AllReduce::Kind::kTwoShot
                                            : AllReduce::Kind::kAuto;
    made.result = y.mine();
    for_versions(trial, [&](const Trial& version) {
      const DeviceTensor mine = input(version, {n});
      made.runs.emplace_back([=] {
        DeviceTensor in = x.mine();
        in.copy_from(mine);
        return (*all_reduce)(x, y, kind);
      });
      made.wanted.emplace_back(sum_of(version));
    });
  } else if (trial.call == Call::kAllGather) {
    const auto all_gather = std::make_shared<AllGather>(ranks, 2);
    const SymmetricTensor y = ranks.symmetric(float16, {size, n});
    made.result = y.mine();
    for_versions(trial, [&](const Trial& version) {
      const DeviceTensor x = input(version, {n});
      made.runs.emplace_back([=] { return (*all_gather)(x, y); });
      made.wanted.emplace_back([=](int64_t i) { return number(version, i / n, i % n); });
    });
  } else {
    const auto reduce_scatter = std::make_shared<ReduceScatter>(ranks, 2);
    const SymmetricTensor x = ranks.symmetric(float16, {size, n});
    const DeviceTensor y = made.result = DeviceTensor::empty(device, float16, {n});
    for_versions(trial, [&](const Trial& version) {
      const DeviceTensor mine = input(version, {size, n});
      made.runs.emplace_back([=] {
        DeviceTensor in = x.mine();
        in.copy_from(mine);
        return (*reduce_scatter)(x, y);
      });
      made.wanted.emplace_back([=, sum = sum_of(version)](int64_t i) { return sum(me * n + i); });
    });
  }
  return made;
}

Prepared prepare_product(const Trial& trial, Communicator& ranks) {
  const int size = ranks.size(), me = ranks.rank();
  // No tile of those that copies bring has rows of two ranks.
  const int64_t rows = trial.call == Call::kAllGatherMatmulByCopies ? int64_t{64} * size : 1;
  const int64_t m = cdiv(trial.m, rows) * rows, n = trial.n, k = trial.k;
  const Device& device = ranks.device();
  const RowsOfRank mine = RowsOfRank::of(m, size, me);
  // A of rank r, or of all, are numbers r; B of rank r are numbers 100 + r.
  const auto element = [=](const Trial& version, int rank, int64_t a_of, int64_t row, int64_t column) {
    double sum = 0;
    for (int64_t l = 0; l < k; ++l)
      sum += number(version, a_of, row * k + l) * number(version, 100 + rank, column * k + l);
    return sum;
  };
  const auto b_of = [&](const Trial& version) {
    return filled(device, float16, {n, k}, [&](int64_t i) { return number(version, 100 + me, i); });
  };
  Prepared made{trial.call, {}, {}, {}};
  const SourceLocation where = SourceLocation::current();
  using Product =
      std::function<LaunchReport(const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& result)>;
  if (trial.call == Call::kAllGatherMatmul || trial.call == Call::kAllGatherMatmulByCopies) {
    const FusedSizes sizes{.m = m, .k = k, .dtype = float16};
    Product product;
    if (trial.call == Call::kAllGatherMatmul) {
      product = [made = std::make_shared<AllGatherMatmul>(ranks, sizes)](const auto&... tensors) {
        return (*made)(tensors...);
      };
    } else {
      const auto made = std::make_shared<GatheredProduct>(ranks, sizes, where);
      MatmulChoice choice = made->choose(m, n, k);
      choice.swap_ab = false;
      choice.block_m = choice.block_n = 64;
      choice.consumers = choice.cluster_m = choice.cluster_n = choice.split_k = 1;
      product = [=](const auto&... tensors) {
        return made->run(Until::kLaunched, choice, tensors..., {}, where, Carrier::kCopyEngines);
      };
    }
    const DeviceTensor c = made.result = DeviceTensor::empty(device, float16, {m, n});
    for_versions(trial, [&](const Trial& version) {
      const DeviceTensor x = filled(device, float16, {mine.count, k},
                                    [&](int64_t i) { return number(version, 0, mine.first * k + i); });
      made.runs.emplace_back([=, b = b_of(version)] { return product(x, b, c); });
      made.wanted.emplace_back([=](int64_t i) { return element(version, me, 0, i / n, i % n); });
    });
    return made;
  }
  const FusedSizes sizes{.m = m, .n = n, .dtype = float16};
  const auto sum_of = [=](const Trial& version) {
    return [=](int64_t i) {
      double all = 0;
      for (int rank = 0; rank < size; ++rank) all += element(version, rank, rank, i / n, i % n);
      return all;
    };
  };
  const auto a_of = [&](const Trial& version) {
    return filled(device, float16, {m, k}, [&](int64_t i) { return number(version, me, i); });
  };
  if (trial.call == Call::kMatmulReduceScatter || trial.call == Call::kMatmulReduceScatterByCopies) {
    Product product;
    if (trial.call == Call::kMatmulReduceScatter) {
      product = [made = std::make_shared<MatmulReduceScatter>(ranks, sizes)](const auto&... tensors) {
        return (*made)(tensors...);
      };
    } else {
      const auto made = std::make_shared<ScatteredProduct>(ranks, sizes, where);
      const MatmulChoice choice = made->choose(m, n, k, Carrier::kCopyEngines);
      product = [=](const auto&... tensors) {
        return made->run(Until::kLaunched, choice, tensors..., {}, where, Carrier::kCopyEngines);
      };
    }
    const DeviceTensor y = made.result = DeviceTensor::empty(device, float16, {mine.count, n});
    for_versions(trial, [&](const Trial& version) {
      made.runs.emplace_back([=, a = a_of(version), b = b_of(version)] { return product(a, b, y); });
      made.wanted.emplace_back([=, sum = sum_of(version)](int64_t i) { return sum(mine.first * n + i); });
    });
    return made;
  }
  const auto product = std::make_shared<MatmulAllReduce>(ranks, sizes);
  const SymmetricTensor y = ranks.symmetric(float16, {m, n});
  made.result = y.mine();
  for_versions(trial, [&](const Trial& version) {
    made.runs.emplace_back([=, a = a_of(version), b = b_of(version)] { return (*product)(a, b, y); });
    made.wanted.emplace_back(sum_of(version));
  });
  return made;
}

/// Experts that give back what they get.
Prepared prepare_experts(const Trial& trial, Communicator& ranks) {
  const int64_t tokens = std::max<int64_t>(trial.m - ranks.rank(), 1), width = trial.n, chosen = 2;
  const int me = ranks.rank(), experts = 2 * ranks.size();
  const Device& device = ranks.device();
  const auto exchange = std::make_shared<ExpertExchange>(
      ranks,
      ExpertSizes{.tokens = trial.m, .width = width, .experts = experts, .chosen = chosen, .dtype = float16},
      3);
  const DeviceTensor y = DeviceTensor::empty(device, float16, {tokens, width});
  Prepared made{trial.call, y, {}, {}};
  for_versions(trial, [&](const Trial& version) {
    const auto expert_of = [=](int64_t i) {
      return static_cast<double>((i * 5 + me + static_cast<int64_t>(version.seed)) % (experts + 1) - 1);
    };
    const DeviceTensor x = filled(device, float16, {tokens, width},
                                  [&](int64_t i) { return number(version, me, i); }),
                       choices = filled(device, int32, {tokens, chosen}, expert_of),
                       weights = filled(device, float32, {tokens, chosen},
                                        [](int64_t i) { return static_cast<double>(i % 3 + 1); });
    made.runs.emplace_back([=] {
      LaunchReport sent = exchange->dispatch(x, choices);
      if (!sent.clean()) return sent;
      DeviceTensor results = exchange->results();
      results.copy_from(exchange->rows());
      return exchange->combine(weights, y);
    });
    made.wanted.emplace_back([=](int64_t i) {
      double factor = 0;
      for (int64_t j = 0; j < chosen; ++j)
        if (expert_of(i / width * chosen + j) >= 0)
          factor += static_cast<double>((i / width * chosen + j) % 3 + 1);
      return factor * number(version, me, i);
    });
  });
  return made;
}

Prepared prepare(const Trial& trial, Communicator& ranks) {
  if (trial.call == Call::kExperts) return prepare_experts(trial, ranks);
  return trial.call < Call::kAllGatherMatmul ? prepare_collective(trial, ranks)
                                             : prepare_product(trial, ranks);
}

Trial drawn(uint64_t number) {
  std::mt19937_64 random(number);
  const auto between = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
  };
  constexpr int kRanks[] = {2, 3, 4, 8};
  Trial trial{.call = static_cast<Call>(number % kCalls),
              .ranks = kRanks[random() % 4],
              .m = between(1, 40),
              .n = between(1, 50),
              .k = 8 * between(1, 20),
              .seed = number % 50};
  if (trial.call < Call::kAllGatherMatmul) trial.n = between(1, 9000);
  if (trial.call > Call::kReduceScatter && number % 8 == 0) trial.m += 260;  // beyond few rows
  return trial;
}

TEST(RankTrials, AreRightAndClean) {
  // IMBREX_RANK_TRIALS=1000 makes that many, IMBREX_RANK_TRIALS=200-299 those of these numbers.
  const char* const told = std::getenv("IMBREX_RANK_TRIALS");
  const std::string_view span = told != nullptr ? told : is_full() ? "1000" : "28";
  const size_t dash = span.find('-');
  const uint64_t first = dash == span.npos ? 0 : std::strtoull(span.data(), nullptr, 10);
  const uint64_t end = dash == span.npos ? std::strtoull(span.data(), nullptr, 10)
                                         : std::strtoull(span.data() + dash + 1, nullptr, 10) + 1;
  ASSERT_LT(first, end) << "IMBREX_RANK_TRIALS is " << span;
  for (uint64_t i = first; i < end && !HasFailure(); ++i) {
    const Trial trial = drawn(i);
    SCOPED_TRACE(::testing::Message()
                 << "trial " << i << ": " << name(trial.call) << ", " << trial.ranks << " ranks, " << trial.m
                 << " x " << trial.n << " x " << trial.k << ", seed " << trial.seed);
    run_ranks(Ranks::virtual_node(trial.ranks, options(trial.seed)), [&](Communicator& ranks) {
      Prepared ready = prepare(trial, ranks);
      ranks.barrier();
      std::mt19937 random(static_cast<unsigned>(1000 * i) + static_cast<unsigned>(ranks.rank()));
      for (size_t turn = 0; turn < 2; ++turn) {
        if (random() % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
        ready.runs[turn]().expect_clean();
        ranks.synchronize();
        ready.check(turn);
      }
    });
  }
}

/// Rounds of three calls drawn by lot, which follow one another without a barrier, by ranks that are late by times of their own.
void check_rounds(const Ranks& where, const std::vector<bool>& sizes_are_small, int rounds) {
  SCOPED_TRACE(::testing::Message() << where.count() << " ranks");
  run_ranks(where, [&](Communicator& ranks) {
    std::vector<Prepared> all;
    for (int call = 0; call < kCalls; ++call)
      for (const bool is_small : sizes_are_small)
        all.push_back(prepare({.call = static_cast<Call>(call),
                               .ranks = where.count(),
                               .m = is_small ? 37 : 291,
                               .n = call <= 2 ? (is_small ? 778 : 60001) : (is_small ? 50 : 104),
                               .k = is_small ? 136 : 200,
                               .seed = is_small ? 2u : 0u},
                              ranks));
    std::mt19937 lots(5), late(static_cast<unsigned>(100 + ranks.rank()));  // alike for all; of this rank
    const auto be_late = [&] {
      if (late() % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(late() % 300));
    };
    for (Prepared& each : all) {  // compiles
      each.runs[0]().expect_clean();
      ranks.synchronize();
    }
    for (int round = 0; round < rounds && !testing::Test::HasFailure(); ++round) {
      SCOPED_TRACE(::testing::Message() << "round " << round);
      const size_t first = lots() % all.size(), step = 1 + lots() % 3, version = lots() % kVersions;
      const auto drawn_at = [&](size_t i) -> Prepared& { return all[(first + i * step) % all.size()]; };
      for (size_t i = 0; i < 3; ++i) drawn_at(i).poison();
      ranks.barrier();
      for (size_t i = 0; i < 3; ++i) {
        be_late();
        drawn_at(i).runs[(version + i) % kVersions]().expect_clean();
      }
      ranks.synchronize();
      for (size_t i = 0; i < 3; ++i) drawn_at(i).check((version + i) % kVersions);
    }
  });
}

TEST(RankTrials, CallsThatFollowOneAnotherAreRight) {
  check_rounds(Ranks::virtual_node(3, options(6)), {true}, 12);
}

TEST(RankTrials, AThousandRoundsOnGpusAreRight) {
  if (Ranks::cuda_devices() < 2) IMBREX_SKIP(two_gpus);
  if (!Device::cuda(0).can_run("sm_90a")) IMBREX_SKIP(hopper);
  for (const int count : gpu_counts()) check_rounds(Ranks::cuda(count).patience(20), {true, false}, 1000);
}

// ---- one rank fails

enum class Fault { kEnds, kThrows, kIsLate, kCallsSomethingElse };
const char* name(Fault fault) {
  static constexpr const char* kNames[] = {"ends", "throws", "is_late", "calls_something_else"};
  return kNames[static_cast<size_t>(fault)];
}
std::ostream& operator<<(std::ostream& out, Fault fault) { return out << name(fault); }

/// What the ranks but the last get where that one fails instead of calling; each within so many seconds.
std::vector<std::string> errors_of(const Ranks& where, Call call, Fault fault, double* seconds) {
  const int last = where.count() - 1;
  const Trial trial{.call = call, .ranks = where.count(), .m = 20, .n = 24, .k = 16, .seed = 3};
  std::vector<std::string> errors(static_cast<size_t>(last));
  std::vector<double> took(errors.size());
  std::atomic<int> told = 0;  // ranks that have their error
  try {
    run_ranks(where, [&](Communicator& ranks) {
      const Prepared ready = prepare(trial, ranks);
      ranks.barrier();
      if (ranks.rank() == last) {
        if (fault == Fault::kEnds) return;
        if (fault == Fault::kThrows) throw DeviceError(Diagnostic{{}, "the disk is full", {}, ""});
        while (fault == Fault::kIsLate && told < last)
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (fault == Fault::kCallsSomethingElse) ranks.symmetric(int8, {7});
        return;
      }
      const auto begin = std::chrono::steady_clock::now();
      std::string& error = errors[static_cast<size_t>(ranks.rank())];
      try {
        const LaunchReport report = ready.runs[0]();
        if (!report.clean()) error = report.virtual_report.format();
        if (error.empty()) ranks.barrier();
      } catch (const Error& thrown) {
        error = thrown.what();
      }
      const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
      took[static_cast<size_t>(ranks.rank())] = passed.count();
      ++told;
    });
  } catch (const Error&) {
    // Of the rank that has failed.
  }
  *seconds = *std::max_element(took.begin(), took.end());
  return errors;
}

/// What each rank gets where the last one calls with a smaller size than the others.
void check_another_size(Ranks where, Call call) {
  SCOPED_TRACE(name(call));
  const int last = where.count() - 1;
  std::vector<std::string> errors(static_cast<size_t>(where.count()));
  run_ranks(where.patience(20), [&](Communicator& ranks) {
    const bool is_last = ranks.rank() == last;
    Trial trial{.call = call, .ranks = where.count(), .m = 20, .n = 24, .k = 16, .seed = 4};
    try {
      if (trial.call == Call::kExperts && is_last) trial.m = 19;
      const Prepared as_all = prepare(trial, ranks);
      if (trial.call <= Call::kReduceScatter) trial.n = 23;
      if (trial.call > Call::kReduceScatter) trial.k = 8;
      const Prepared smaller = prepare(trial, ranks);
      (is_last ? smaller : as_all).runs[0]();
    } catch (const Error& error) {
      errors[static_cast<size_t>(ranks.rank())] = error.what();
    }
  });
  for (const std::string& error : errors)
    EXPECT_THAT(error, ::testing::AllOf(HasSubstr("ranks call different things"),
                                        HasSubstr("rank " + std::to_string(last))));
}

/// `patience`: how long ranks wait for one that does not come, where nothing tells them at once.
void check_fault(Ranks where, Call call, Fault fault, double patience) {
  SCOPED_TRACE(::testing::Message() << name(call) << ", the last rank " << name(fault));
  const std::string failed = "rank " + std::to_string(where.count() - 1);
  double seconds = 0;
  where.patience(fault == Fault::kIsLate ? 1 : patience);
  for (const std::string& error : errors_of(where, call, fault, &seconds)) {
    EXPECT_THAT(error, HasSubstr(failed));
    if (fault == Fault::kThrows) {
      EXPECT_THAT(error, AnyOf(HasSubstr("the disk is full"), HasSubstr("endless-run")));
    }
  }
  EXPECT_LT(seconds, 100);  // on a busy machine, and long before that patience
}

constexpr Call kEveryCall[] = {Call::kAllReduce,
                               Call::kAllGather,
                               Call::kReduceScatter,
                               Call::kAllGatherMatmul,
                               Call::kMatmulReduceScatter,
                               Call::kMatmulAllReduce,
                               Call::kAllGatherMatmulByCopies,
                               Call::kMatmulReduceScatterByCopies,
                               Call::kExperts};
constexpr Fault kEveryFault[] = {Fault::kEnds, Fault::kThrows, Fault::kIsLate, Fault::kCallsSomethingElse};

TEST(RankTrials, AnotherSizeOfOneRankIsAnErrorOnAllInEveryCall) {
  for (const Call call : kEveryCall) check_another_size(Ranks::virtual_node(3, options(4)), call);
}
TEST(RankTrials, AFaultOfOneRankIsAnErrorOnTheOthersInEveryCall) {
  for (const Call call : kEveryCall)
    for (const Fault fault : kEveryFault) check_fault(Ranks::virtual_node(3, options(3)), call, fault, 200);
}

TEST(RankTrials, KernelsWhoseWaitsWereEndedEndInEveryCall) {
  for (const Call call : kEveryCall)
    for (const uint8_t byte : {0x77, 0xC3, 0xFF}) {
      SCOPED_TRACE(name(call));
      call_with_ended_waits(options(5), byte, [&](Communicator& ranks) {
        const Trial trial{.call = call, .ranks = 2, .m = 20, .n = 24, .k = 16, .seed = 5};
        return [ready = prepare(trial, ranks)] { ready.runs[0]().expect_clean(); };
      });
    }
}

/// On GPUs, each by itself: one that does not end keeps the others of a process from theirs.
class FaultsOnGpus : public ::testing::TestWithParam<std::tuple<Call, Fault>> {};
class SizesOnGpus : public ::testing::TestWithParam<Call> {};

TEST_P(FaultsOnGpus, AreErrorsOnTheOthers) {
  if (Ranks::cuda_devices() < 2) IMBREX_SKIP(two_gpus);
  if (!Device::cuda(0).can_run("sm_90a")) IMBREX_SKIP(hopper);
  const auto [call, fault] = GetParam();
  check_fault(Ranks::cuda(2), call, fault, 3);
}
TEST_P(SizesOnGpus, OfOneRankThatDifferAreAnErrorOnAll) {
  if (Ranks::cuda_devices() < 2) IMBREX_SKIP(two_gpus);
  if (!Device::cuda(0).can_run("sm_90a")) IMBREX_SKIP(hopper);
  check_another_size(Ranks::cuda(2), GetParam());
}
INSTANTIATE_TEST_SUITE_P(InEveryCall, FaultsOnGpus,
                         ::testing::Combine(::testing::ValuesIn(kEveryCall),
                                            ::testing::ValuesIn(kEveryFault)),
                         ParamName());
INSTANTIATE_TEST_SUITE_P(InEveryCall, SizesOnGpus, ::testing::ValuesIn(kEveryCall), ParamName());

}  // namespace
}  // namespace imbrex::parallel
