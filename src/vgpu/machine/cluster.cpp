// SPDX-License-Identifier: Apache-2.0
#include "vgpu/machine/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "vgpu/machine/checks.h"
#include "vgpu/machine/warp_places.h"

namespace imbrex::vgpu {

namespace {

constexpr int64_t kPlainQuantum = 128;
/// Stalls in a row, resolved by nothing but time-outs of try_wait, after which nothing will ever happen.
constexpr int kHopelessStalls = 4;
constexpr int64_t kDefaultBudget = int64_t{1} << 40;
constexpr size_t kMaxPictureLines = 64;
/// Instructions without progress from which on loops that go round for ever are looked for: those that read global memory, and
/// those that poll it or do neither. Every CTA of a GPU that polls has to be run up to there.
constexpr int64_t kSuspicious = int64_t{1} << 16, kSuspiciousEarly = int64_t{1} << 10;
/// Every so many instructions, as a power of two.
constexpr int kLookShift = 10, kLookShiftEarly = 8;
/// How long polls of memory that the program's threads see as well must repeat themselves before they are called endless: one of
/// those threads may be about to write.
constexpr std::chrono::seconds kHostMayWrite{4};
/// In run_warp: the split's own pc is up to date already.
constexpr uint32_t kPcIsKept = ~0u;

/// Either policy, with what is executed passed to the recorder.
template <class Checks>
struct Recorded : Checks {
  static void executed(Warp& warp, const Instruction& insn, Step step) {
    warp.cta().cluster().observe().executed(warp, insn, step);
  }
};

template <class Checks>
void tell_executed(Warp&, const Instruction&, Step) {}
template <class Checks>
requires requires { &Checks::executed; }
void tell_executed(Warp& warp, const Instruction& insn, Step step) { Checks::executed(warp, insn, step); }

/// Lanes that wait for others to meet them, which go on alone after a while (kMaxPark in warp.cpp).
bool has_parked_lanes(const Warp* warp) {
  Mask parked = warp->live();
  for (const Split& split : warp->splits()) parked &= ~split.mask;
  return parked != 0;
}

std::array<uint32_t, 3> split_index(int64_t index, const Dim3& extent) {
  return {static_cast<uint32_t>(index % extent.x), static_cast<uint32_t>(index / extent.x % extent.y),
          static_cast<uint32_t>(index / extent.x / extent.y)};
}

}  // namespace

Cluster::Cluster(const LaunchContext& launch, GridSlot& slot, int64_t number, uint64_t clock)
    : launch_(&launch),
      slot_(&slot),
      number_(number),
      id_(split_index(number, launch.clusters())),
      random_(launch.options.seed, static_cast<uint64_t>(number)),
      adversary_(random_, static_cast<uint64_t>(launch.cluster.count()),
                 static_cast<uint64_t>(launch.warps()), clock),
      async_(*this),
      log_(launch.program, launch.options.max_findings, launch.options.strictness),
      cached_ranges_(launch.program.code.size()),
      ctas_(make_ctas(*this)),
      observers_(launch, number, ctas_, log_),
      clock_(clock),
      clock_at_start_(clock),
      last_progress_(clock) {
  for (const std::unique_ptr<Cta>& cta : ctas_)
    for (const std::unique_ptr<Warp>& warp : cta->warps()) warps_.push_back(warp.get());
  statistics_.ctas = static_cast<int64_t>(ctas_.size());
  // From at once to hardly ever: then mostly when no warp can go on.
  if (!random_.is_plain()) async_interval_ = uint64_t{1} << (2 * random_.below(6));
}

Cluster::~Cluster() = default;

std::vector<std::unique_ptr<Cta>> Cluster::make_ctas(Cluster& cluster) {
  std::vector<std::unique_ptr<Cta>> ctas;
  const Dim3& extent = cluster.launch().cluster;
  for (int rank = 0; rank < extent.count(); ++rank) {
    std::array<uint32_t, 3> id = split_index(rank, extent);
    for (size_t i = 0; i < 3; ++i)
      id[i] += cluster.id()[i] * (i == 0 ? extent.x : i == 1 ? extent.y : extent.z);
    ctas.push_back(std::make_unique<Cta>(cluster, rank, id));
  }
  return ctas;
}

void Cluster::report(FindingKind kind, const Who& who, uint64_t address, std::string message,
                     std::string hint, BentRule rule) {
  Finding* finding = log_.open(kind, who, address, nullptr, rule);
  if (finding == nullptr) return;
  finding->message = std::move(message);
  finding->hint = std::move(hint);
}

void Cluster::report_fatal(FindingKind kind, const Who& who, uint64_t address, std::string message,
                           std::string hint) {
  report(kind, who, address, std::move(message), std::move(hint));
  stop();
}

int64_t Cluster::new_quantum() {
  return random_.is_plain() ? kPlainQuantum : static_cast<int64_t>(1 + random_.below(kPlainQuantum));
}

template <class Checks>
Step Cluster::run_warp(Warp& warp) {
  if (!resuming_ && !warp.pick()) return Step::kBlock;
  resuming_ = false;
  const Instruction* const code = program().code.data();
  Split* split = &warp.split();
  uint32_t pc = split->pc;
  Mask mask = split->mask;
  int64_t lanes = 0;
  const uint64_t begin = clock_;
  Step step = Step::kNext;
  while (clock_ - begin < static_cast<uint64_t>(quantum_left_)) {
    const Instruction& insn = code[pc];
    const Mask active = mask & (warp.predicate(insn.guard) ^ insn.guard_flip);
    if (active != mask) Checks::guard_read(warp, insn, mask);
    if (active == 0) {
      ++clock_;
      ++pc;
      continue;
    }
    split->pc = pc;
    Checks::before(warp, insn, active);
    step = insn.exec[Checks::kIndex](warp, insn, active);
    if (step == Step::kTurn) {
      // Not executed: how often the attempt is made depends on the host, so the clock must not count it.
      resuming_ = true;
      break;
    }
    tell_executed<Checks>(warp, insn, step);
    ++clock_;
    lanes += count_lanes(active);
    if (step == Step::kNext) {
      Checks::after(warp, insn, active);
      ++pc;
      continue;
    }
    if (step != Step::kBlock) Checks::after(warp, insn, active);
    if (step == Step::kYield) {
      ++pc;
      break;
    }
    if (step == Step::kBlock || !warp.has_current()) {
      if (warp.finished() || !warp.pick()) {
        pc = kPcIsKept;
        break;
      }
    }
    split = &warp.split();
    pc = split->pc;
    mask = split->mask;
  }
  if (pc != kPcIsKept) split->pc = pc;
  const int64_t executed = static_cast<int64_t>(clock_ - begin);
  quantum_left_ -= executed;
  warp.executed += executed;
  statistics_.instructions += executed;
  statistics_.lane_instructions += lanes;
  return step;
}

AsyncStep Cluster::run_async(bool pressing) {
  if (async_.empty()) return AsyncStep::kNone;
  if (!async_choice_) {
    if (!pressing && async_interval_ > 1 && !random_.once_in(async_interval_)) return AsyncStep::kNone;
    async_choice_ = random_.is_plain() ? 0 : random_.next();
  }
  // What no warp waits for any more may be done.
  const AsyncStep step = async_.run_one(*async_choice_, warps_.empty() ? nullptr : &adversary_);
  if (step == AsyncStep::kTurn) {
    slot_->publish(clock_);  // a turn is given by the clocks that others see
    return step;
  }
  async_choice_.reset();
  if (step == AsyncStep::kRan) {
    ++clock_;
    slot_->publish_progress(last_progress_);
  }
  return step;
}

template <class Checks>
Step Cluster::run_next_warp() {
  Warp& warp = *warps_[next_warp_];
  if (quantum_left_ <= 0) {
    if (adversary_.holds_back(warp, clock_)) {
      ++idle_warps_;
      choose_next_warp();
      return Step::kNext;
    }
    quantum_left_ = adversary_.stops_often(warp) ? int64_t{1} << random_.below(8) : new_quantum();
  }
  ran_last_ = &warp;
  const uint64_t before = clock_;
  const Step step = run_warp<Checks>(warp);
  slot_->publish_progress(last_progress_);  // before the clock, after which others may have their turn
  slot_->publish(clock_);
  if (step == Step::kTurn) return step;
  quantum_left_ = 0;
  idle_warps_ = clock_ == before ? idle_warps_ + 1 : 0;
  if (idle_warps_ == 0) adversary_.has_run(warp, clock_);
  if (warp.finished()) {
    warps_.erase(warps_.begin() + static_cast<ptrdiff_t>(next_warp_));
    if (warp.cta().finished()) check_cta_exit(warp.cta());
    if (next_warp_ >= warps_.size()) next_warp_ = 0;
  } else {
    choose_next_warp();
  }
  return step;
}

void Cluster::choose_next_warp() {
  if (idle_warps_ == 0 && !random_.is_plain() && random_.once_in(4))
    next_warp_ = random_.below(warps_.size());
  else if (++next_warp_ >= warps_.size())
    next_warp_ = 0;
}

bool Cluster::finds_endless_loops(uint64_t before) {
  const bool is_early = clock_ - last_progress_ <= kSuspicious;
  const bool is_due = (clock_ ^ before) >> (is_early ? kLookShiftEarly : kLookShift) != 0;
  if (clock_ - last_progress_ <= kSuspiciousEarly || !is_due || !loops_for_ever()) return false;
  report_endless(*ran_last_, "the warps go round in loops, or wait, and nothing can change any more",
                 "a loop waits for something that never comes");
  return true;
}

template <class Checks>
ClusterState Cluster::advance_with(int64_t slice) {
  const uint64_t end = clock_ + static_cast<uint64_t>(slice);
  const int64_t budget =
      launch_->options.instruction_budget > 0 ? launch_->options.instruction_budget : kDefaultBudget;
  const int64_t stall_budget = launch_->options.stall_budget;
  while (!warps_.empty() || !async_.empty()) {
    const bool draining = warps_.empty();
    const uint64_t before = clock_;
    // Where an operation waits for its turn, this round's warp has run already.
    if (!draining && !async_choice_) {
      if (stopped_) return ClusterState::kStopped;
      if (run_next_warp<Checks>() == Step::kTurn) {
        // Where several clusters poll, turns end where looks are due.
        return finds_endless_loops(before) ? ClusterState::kStopped : ClusterState::kNeedsTurn;
      }
    }
    if (observers_.is_enough()) {
      slot_->publish_progress(clock_);  // another cluster comes
      return ClusterState::kFinished;
    }
    // What an operation did may be what a warp looked at before was waiting for.
    AsyncStep step = run_async(draining);
    if (step == AsyncStep::kNone) {
      if (draining) break;
      if (!warps_.empty() && idle_warps_ >= warps_.size()) {
        idle_warps_ = 0;
        step = run_async(true);
        if (step == AsyncStep::kNone && !adversary_.relent() && !resolve_stall()) {
          report_deadlock();
          return ClusterState::kStopped;
        }
      }
    }
    if (step == AsyncStep::kTurn) return ClusterState::kNeedsTurn;
    if (step == AsyncStep::kRan) idle_warps_ = 0;
    const int64_t run = static_cast<int64_t>(clock_ - clock_at_start_);
    const int64_t stalled = static_cast<int64_t>(clock_ - last_progress_);
    if (!warps_.empty() && run > budget) {
      report_endless(*ran_last_,
                     fmt::format("the cluster executed {} instructions and has not finished", budget),
                     "raise Options::instruction_budget if the kernel really runs this long");
      return ClusterState::kStopped;
    }
    if (!warps_.empty() && stalled > stall_budget) {
      report_endless(
          *ran_last_,
          fmt::format("the cluster executed {} instructions without a store, an arrival or an exit",
                      stall_budget),
          "a loop waits for something that never comes; if the kernel really computes this long, "
          "raise Options::stall_budget (IMBREX_STALL_BUDGET under imbrex run)");
      return ClusterState::kStopped;
    }
    if (finds_endless_loops(before)) return ClusterState::kStopped;
    if (clock_ >= end || slot_->should_return()) return ClusterState::kRunning;
  }
  slot_->publish(clock_);
  return stopped_ ? ClusterState::kStopped : ClusterState::kFinished;
}

ClusterState Cluster::advance(int64_t slice) {
  const bool checked = launch_->options.checks.any();
  if (observers_.record_timeline())
    return checked ? advance_with<Recorded<Checked>>(slice) : advance_with<Recorded<Unchecked>>(slice);
  return checked ? advance_with<Checked>(slice) : advance_with<Unchecked>(slice);
}

// ---- no warp can run

bool Cluster::resolve_stall() {
  bool resolved = false;
  for (Warp* warp : warps_) resolved |= warp->release_joins(true);
  if (resolved) return true;
  stalls_ = progress_at_stall_ == last_progress_ ? stalls_ + 1 : 0;
  progress_at_stall_ = last_progress_;
  if (stalls_ >= kHopelessStalls) return false;
  for (Warp* warp : warps_) resolved |= warp->time_out_one();
  return resolved;
}

void Cluster::report_deadlock() {
  stop();
  Warp& first = *warps_.front();
  Who who{&first.cta(), first.index(), -1, nullptr, ""};
  for (const Split& split : first.splits())
    if (split.blocked) {
      who.insn = &program().code[split.waits_at];
      who.lane = count_lanes(split.mask) == 1 ? first_lane(split.mask) : -1;
      break;
    }
  Finding* finding = log_.open(FindingKind::kDeadlock, who);
  if (finding == nullptr) return;
  finding->message = fmt::format("no thread of the {} can run and no asynchronous operation is pending",
                                 ctas_.size() == 1 ? "CTA" : "cluster");
  if (!async_.empty())
    finding->message =
        fmt::format("no thread of the {} can run, and {} asynchronous operations cannot complete",
                    ctas_.size() == 1 ? "CTA" : "cluster", async_.pending());
  for (const std::unique_ptr<Cta>& cta : ctas_) {
    std::vector<std::string> lines;
    for (const std::unique_ptr<Warp>& warp : cta->warps()) {
      warp->describe_waits(lines);
      if (warp->finished()) lines.push_back(fmt::format("warp {} has exited", warp->index()));
    }
    if (ctas_.size() > 1) finding->facts.push_back(fmt::format("CTA rank {}:", cta->rank()));
    for (size_t i = 0; i < lines.size(); ++i) {
      if (i == kMaxPictureLines) {
        finding->facts.push_back(fmt::format("... and {} more", lines.size() - i));
        break;
      }
      finding->facts.push_back(std::move(lines[i]));
    }
  }
  // Operations of a kind that one source line started are one fact.
  struct InFlight {
    std::string what, line, place;
    int count;
  };
  std::vector<InFlight> in_flight;
  async_.for_each([&](const AsyncOp& op) {
    const std::string what = fmt::format("{}: {}", op.who.unit, op.describe());
    const CodePlace at = op.who.insn != nullptr ? program().place(op.who.insn->index) : CodePlace{};
    const std::string line = fmt::format("{}:{}", at.file, at.file.empty() ? at.ptx_line : at.line);
    if (!in_flight.empty() && in_flight.back().what == what && in_flight.back().line == line)
      ++in_flight.back().count;
    else
      in_flight.push_back(
          {what, line, op.who.insn != nullptr ? program().place_text(op.who.insn->index) : "?", 1});
  });
  for (const InFlight& op : in_flight)
    if (finding->facts.size() < 2 * kMaxPictureLines)
      finding->facts.push_back(op.count == 1
                                   ? fmt::format("{} is in flight, started at {}", op.what, op.place)
                                   : fmt::format("{} is in flight {} times, the first started at {}", op.what,
                                                 op.count, op.place));
}

bool Cluster::loops_for_ever() {
  if (warps_.empty() || !async_.empty()) return false;
  // Warps that have not been to global memory since the look before go round whatever other clusters do.
  const int64_t global_bytes = statistics_.global_bytes_read + statistics_.global_bytes_written;
  const bool is_alone = std::exchange(global_bytes_seen_, global_bytes) == global_bytes;
  const bool polls = std::exchange(has_polled_, false);
  const bool some_parked = std::ranges::any_of(warps_, has_parked_lanes);
  // Where time is predicted, parked lanes stay so for longer: a chip would hardly part them.
  const bool is_soon_known = some_parked ? polls && !observers_.record_timeline() : is_alone || polls;
  if (!is_soon_known && clock_ - last_progress_ <= kSuspicious) return false;
  // When parked lanes go on must not depend on how far other clusters have got on the host.
  constexpr uint64_t kAlone = uint64_t{1} << 63, kParting = uint64_t{1} << 62;
  const uint64_t stamp = is_alone      ? kAlone | (last_progress_ + static_cast<uint64_t>(global_bytes))
                         : some_parked ? kParting | last_progress_
                                       : slot_->grid_progress();
  const auto number = [&](const Warp& warp) {
    return static_cast<size_t>(warp.cta().rank()) * static_cast<size_t>(launch_->warps()) +
           static_cast<size_t>(warp.index());
  };
  bool some_time_out = false;
  for (Warp* warp : warps_) loops_.look(number(*warp), *warp, stamp);
  for (Warp* warp : warps_) {
    const EndlessLoops::State state = loops_.state(number(*warp), *warp, stamp);
    if (state == EndlessLoops::State::kUnknown) return false;
    some_time_out = some_time_out || state == EndlessLoops::State::kTimesOut;
  }
  if (some_time_out && polls && clock_ - last_progress_ <= kSuspicious) return false;
  // A wait that returns for once may lead elsewhere.
  if (some_time_out && loops_.note_time_outs(stamp) < kHopelessStalls) {
    for (Warp* warp : warps_) warp->time_out_one();
    return false;
  }
  if (some_parked) {  // those who go round may wait for them
    for (Warp* warp : warps_) warp->release_joins(true);
    loops_.forget();
    return false;
  }
  return is_alone || (slot_->all_loop(stamp) && !host_may_write(stamp));
}

bool Cluster::host_may_write(uint64_t stamp) {
  const auto now = std::chrono::steady_clock::now();
  if (std::exchange(host_awaited_at_, stamp) != stamp) host_awaited_since_ = now;
  return now - host_awaited_since_ < kHostMayWrite &&
         std::ranges::any_of(warps_, [](const Warp* warp) { return looks_at_host_memory(*warp); });
}

void Cluster::report_endless(const Warp& warp, std::string message, std::string hint) {
  stop();
  Who who{&warp.cta(), warp.index(), -1, nullptr, ""};
  if (!warp.splits().empty()) who.insn = &program().code[warp.splits().front().pc];
  Finding* finding = log_.open(FindingKind::kEndlessRun, who);
  if (finding == nullptr) return;
  finding->message = std::move(message);
  finding->hint = std::move(hint);
  describe_places(*this, finding->facts);
  if (const size_t lines = finding->facts.size(); lines > kMaxPictureLines) {
    finding->facts.resize(kMaxPictureLines);
    finding->facts.push_back(fmt::format("... and {} more", lines - kMaxPictureLines));
  }
}

}  // namespace imbrex::vgpu
