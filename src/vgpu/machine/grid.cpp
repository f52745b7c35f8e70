// SPDX-License-Identifier: Apache-2.0
#include "vgpu/machine/grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <thread>

#include "imbrex/vgpu/watch.h"
#include "vgpu/machine/cluster.h"
#include "vgpu/machine/warp_places.h"

namespace imbrex::vgpu {

namespace {

/// How long a cluster may run before others are looked at: short while some wait for their turn.
constexpr int64_t kSlice = int64_t{1} << 22;
constexpr int64_t kSliceInTurns = int64_t{1} << 16;
/// Slots are run to the end of their cluster, one after the other, unless that takes longer than this.
constexpr int kFairnessShift = 22;
/// GPUs that run together begin up to so many instructions apart, as a power of 2.
constexpr uint64_t kMostDelayBits = 16;
/// CTAs of a GPU that runs alone do so under one seed in so many: about half of them late, by up to so many instructions.
constexpr uint64_t kSeedsPerStaggered = 3, kMostLate = uint64_t{1} << 16;

void add(Statistics& sum, const Statistics& s) {
  sum.ctas += s.ctas;
  sum.instructions += s.instructions;
  sum.lane_instructions += s.lane_instructions;
  sum.global_bytes_read += s.global_bytes_read;
  sum.global_bytes_written += s.global_bytes_written;
  sum.shared_bytes_read += s.shared_bytes_read;
  sum.shared_bytes_written += s.shared_bytes_written;
  sum.local_bytes_read += s.local_bytes_read;
  sum.local_bytes_written += s.local_bytes_written;
  sum.cp_async_bytes += s.cp_async_bytes;
  sum.tma_bytes_loaded += s.tma_bytes_loaded;
  sum.tma_bytes_repeated += s.tma_bytes_repeated;
  sum.tma_bytes_stored += s.tma_bytes_stored;
  sum.tensor_memory_bytes += s.tensor_memory_bytes;
  sum.operand_bytes += s.operand_bytes;
  sum.tensor_flops += s.tensor_flops;
  sum.async_operations += s.async_operations;
  sum.barrier_waits += s.barrier_waits;
}

}  // namespace

GridSlot::~GridSlot() = default;

bool GridSlot::has_turn(uint64_t clock) {
  const uint64_t epoch = Grid::epoch(clock);
  if (epoch < turn_until_) return true;
  uint64_t until = Grid::kNever;
  for (const std::unique_ptr<GridSlot>& other : grid_->slots_) {
    if (other.get() == this) continue;
    const uint64_t theirs = Grid::epoch(other->clock_.load(std::memory_order_acquire));
    until = std::min(until, theirs + (other->index_ > index_ ? 1 : 0));
  }
  turn_until_ = until;
  return epoch < until;
}

bool GridSlot::should_return() const {
  return grid_->waiting_threads_.load(std::memory_order_relaxed) > 0 || grid_->is_interrupted();
}

uint64_t GridSlot::grid_progress() const {
  uint64_t sum = 0;  // each only grows
  for (const std::unique_ptr<GridSlot>& slot : grid_->slots_)
    sum += slot->progress_.load(std::memory_order_acquire);
  return sum;
}

bool GridSlot::all_loop(uint64_t stamp) {
  loops_at_.store(stamp, std::memory_order_release);
  const bool all =
      std::all_of(grid_->slots_.begin(), grid_->slots_.end(), [&](const std::unique_ptr<GridSlot>& slot) {
        return slot->loops_at_.load(std::memory_order_acquire) == stamp ||
               slot->clock_.load(std::memory_order_acquire) == Grid::kNever;
      });
  return all && grid_progress() == stamp;  // one may have made progress and ended since the stamp was taken
}

Grid::Grid(std::span<const ResidentLaunch> launches) {
  if (!launches.empty()) watch_ = launches.front().context->options.watch;
  for (const ResidentLaunch& one : launches) {
    const LaunchContext& launch = *one.context;
    std::vector<int64_t> order = launch.chosen;
    if (order.empty()) {
      order.resize(static_cast<size_t>(launch.clusters().count()));
      std::iota(order.begin(), order.end(), int64_t{0});
    }
    const int slots = static_cast<int>(std::min<int64_t>(one.slots, std::ssize(order)));
    Random random(launch.options.seed, ~uint64_t{0});
    if (!random.is_plain())
      for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    // GPUs do not begin together: one may be far ahead before another begins.
    uint64_t begin = 0;
    if (launch.rank >= 0 && !random.is_plain()) {
      Random late(launch.options.seed, ~uint64_t{1} - static_cast<uint64_t>(launch.rank));
      begin = late.below(uint64_t{1} << late.below(kMostDelayBits + 1));
    }
    // Nor do CTAs: what one of them does first may come after much that another does.
    Random stagger(launch.options.seed, ~uint64_t{0} >> 1);
    const bool is_staggered = launch.rank < 0 && !random.is_plain() && slots > 1 &&
                              !launch.options.timeline.record && stagger.once_in(kSeedsPerStaggered);
    for (int i = 0; i < slots; ++i) {
      auto slot = std::make_unique<GridSlot>();
      slot->grid_ = this;
      slot->index_ = static_cast<int>(slots_.size());
      slot->launch_ = launches_.size();
      slot->publish(begin + (is_staggered && stagger.once_in(2) ? stagger.below(kMostLate) : 0));
      for (size_t c = static_cast<size_t>(i); c < order.size(); c += static_cast<size_t>(slots))
        slot->queue_.push_back(order[c]);
      slots_.push_back(std::move(slot));
    }
    launches_.push_back({&launch});
  }
  for (const std::unique_ptr<GridSlot>& slot : slots_) put_back(*slot);
}

Grid::~Grid() = default;

void Grid::start_cluster(GridSlot& slot) {
  const int64_t number = slot.take_next();
  slot.cluster_ = std::make_unique<Cluster>(*launches_[slot.launch_].context, slot, number,
                                            slot.clock_.load(std::memory_order_relaxed));
}

/// In a loop that nobody can end, what a CTA waits for may be another's to do, which loops, too.
bool Grid::needs_others(Cluster& stopped) const {
  const std::vector<Finding>& findings = stopped.log().findings();
  return !findings.empty() && (launches_.size() > 1 || findings.back().kind == FindingKind::kEndlessRun);
}

void Grid::pause_others(std::unique_lock<std::mutex>& lock) {
  ++pausing_threads_;
  ++waiting_threads_;
  ++idle_threads_;
  changed_.wait(lock, [&] {
    return std::none_of(slots_.begin(), slots_.end(), [](const std::unique_ptr<GridSlot>& slot) {
      return slot->state_ == GridSlot::State::kRunning;
    });
  });
  --idle_threads_;
  --waiting_threads_;
  --pausing_threads_;
}

void Grid::finish_cluster(GridSlot& slot, bool stopped) {
  Cluster& cluster = *slot.cluster_;
  Running& running = launches_[slot.launch_];
  const uint64_t end = epoch(cluster.clock());
  std::vector<Finding>& findings = cluster.log().findings();
  const int rank = running.context->rank;
  for (Finding& finding : findings) {
    finding.actor.rank = rank;
    if (finding.other_actor.rank < 0 && finding.other_actor.cta[0] >= 0) finding.other_actor.rank = rank;
  }
  const bool stops_first = stopped && (end < stop_epoch_ || (end == stop_epoch_ && slot.index_ < stop_slot_));
  // What a later one has found is not told.
  if (stops_first && needs_others(cluster)) {
    describe_unstarted(slot.launch_, findings.back().facts);
    describe_others(slot, findings.back().facts);
  }
  for (size_t i = 0; i < findings.size(); ++i)
    running.findings.push_back(
        {cluster.number(), end, slot.index_, cluster.log().places(i), std::move(findings[i])});
  if (!cluster.printed().empty())
    running.printed.emplace_back(cluster.number(), std::move(cluster.printed()));
  add(running.statistics, cluster.statistics());
  if (stops_first) {
    stop_epoch_ = end;
    stop_slot_ = slot.index_;
  }
  const size_t instructions = running.context->program.code.size();
  if (const BankCounter* banks = cluster.observe().banks()) {
    if (running.banks == nullptr) running.banks = std::make_unique<BankCounter>(instructions);
    running.banks->add(*banks);
  }
  if (const SectorCounter* sectors = cluster.observe().sectors()) {
    if (running.sectors == nullptr) running.sectors = std::make_unique<SectorCounter>(instructions);
    running.sectors->add(*sectors);
  }
  if (auto recording = cluster.observe().take_recording())
    running.recordings.push_back(std::move(*recording));
  cluster.observe().finished();
  slot.cluster_.reset();
}

std::vector<Recording> Grid::take_recordings(size_t launch) {
  std::vector<Recording>& recordings = launches_[launch].recordings;
  std::sort(recordings.begin(), recordings.end(),
            [](const Recording& a, const Recording& b) { return a.cluster < b.cluster; });
  return std::move(recordings);
}

void Grid::retire(GridSlot& slot) {
  if (slot.cluster_ != nullptr) finish_cluster(slot, false);
  slot.state_ = GridSlot::State::kDone;
  slot.publish(kNever);  // lets others have their turn
}

void Grid::retire_beyond_stop() {
  for (const std::unique_ptr<GridSlot>& slot : slots_) {
    if (slot->state_ == GridSlot::State::kRunning || slot->state_ == GridSlot::State::kDone) continue;
    const uint64_t at = epoch(slot->clock_.load(std::memory_order_relaxed));
    if (at < stop_epoch_ || (at == stop_epoch_ && slot->index_ <= stop_slot_)) continue;
    queue_.remove(slot.get(), slot->keys_);
    retire(*slot);
  }
}

void Grid::put_back(GridSlot& slot) {
  using State = GridSlot::State;
  if (slot.cluster_ == nullptr && slot.next_ >= slot.queue_.size()) return retire(slot);
  const uint64_t clock = slot.clock_.load(std::memory_order_relaxed);
  // What has been begun is finished first.
  const int fair_index = slot.state_ == State::kIdle ? slot.index_ + (1 << 24) : slot.index_;
  slot.keys_ = {{clock >> kFairnessShift, fair_index}, {epoch(clock), slot.index_}};
  if (slot.state_ == State::kNeedsTurn)
    queue_.add_waiting(&slot, slot.keys_);
  else
    queue_.add_runnable(&slot, slot.keys_);
}

GridSlot* Grid::choose() {
  if (stop_epoch_ != kNever) retire_beyond_stop();
  return queue_.first(
      [](GridSlot* slot) { return slot->has_turn(slot->clock_.load(std::memory_order_relaxed)); });
}

bool Grid::all_done() const {
  return std::all_of(slots_.begin(), slots_.end(),
                     [](const std::unique_ptr<GridSlot>& s) { return s->state_ == GridSlot::State::kDone; });
}

bool Grid::is_interrupted() const {
  return watch_ != nullptr && watch_->stop.load(std::memory_order_relaxed);
}

void Grid::describe_all(std::vector<std::string>& lines, const GridSlot* but) {
  for (const std::unique_ptr<GridSlot>& slot : slots_) {
    if (slot->cluster_ == nullptr || slot->state_ == GridSlot::State::kRunning || slot.get() == but) continue;
    const size_t first = lines.size();
    describe_places(*slot->cluster_, lines);
    if (const int rank = launches_[slot->launch_].context->rank; rank >= 0)
      for (size_t i = first; i < lines.size(); ++i) lines[i] = fmt::format("rank {} {}", rank, lines[i]);
  }
}

void Grid::describe_others(const GridSlot& slot, std::vector<std::string>& lines) {
  constexpr size_t kMostLines = 64;
  std::vector<std::string> places;
  describe_all(places, &slot);
  for (size_t i = 0; i < launches_.size(); ++i) {
    const bool runs = std::any_of(slots_.begin(), slots_.end(), [&](const auto& other) {
      return other->launch_ == i && other->state_ != GridSlot::State::kDone;
    });
    if (!runs) places.push_back(fmt::format("rank {} has ended its kernel", launches_[i].context->rank));
  }
  if (places.size() > kMostLines) {
    const size_t more = places.size() - kMostLines;
    places.resize(kMostLines);
    places.push_back(fmt::format("... and {} more", more));
  }
  lines.insert(lines.end(), places.begin(), places.end());
}

void Grid::describe_unstarted(size_t launch, std::vector<std::string>& lines) const {
  size_t clusters = 0;
  for (const std::unique_ptr<GridSlot>& slot : slots_)
    if (slot->launch_ == launch) clusters += slot->queue_.size() - slot->next_;
  if (clusters == 0) return;
  const LaunchContext& context = *launches_[launch].context;
  lines.insert(lines.begin(),
               fmt::format("{} of {} CTAs have not started, for the GPU has no room while these run: what is "
                           "waited for may be theirs to do",
                           static_cast<int64_t>(clusters) * context.cluster.count(), context.grid.count()));
}

void Grid::look_around() {
  const Watch* watch = watch_.get();
  if (watch == nullptr || watch->tell == nullptr) return;
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin_;
  next_look_ = std::max(next_look_, watch->first_after);
  if (passed.count() < next_look_) return;
  next_look_ = passed.count() + watch->every;
  Progress progress;
  progress.kernel = launches_.front().context->program.name;
  progress.seconds = passed.count();
  for (const Running& running : launches_) {
    progress.instructions += running.statistics.instructions;
    progress.ctas += running.context->grid.count();
    progress.ctas_done += running.statistics.ctas;
  }
  for (const std::unique_ptr<GridSlot>& slot : slots_)
    if (slot->cluster_ != nullptr && slot->state_ != GridSlot::State::kRunning)
      progress.instructions += slot->cluster_->statistics().instructions;
  describe_all(progress.places);
  watch->tell(progress);
}

void Grid::worker() {
  std::unique_lock lock(mutex_);
  while (failure_ == nullptr && !is_interrupted()) {
    GridSlot* slot = pausing_threads_ > 0 ? nullptr : choose();
    if (slot == nullptr) {
      if (all_done()) break;
      // The running clusters have to yield soon only if others wait for their progress.
      const int waits_for_turn = queue_.some_wait() ? 1 : 0;
      waiting_threads_ += waits_for_turn;
      ++idle_threads_;
      changed_.wait(lock);
      --idle_threads_;
      waiting_threads_ -= waits_for_turn;
      continue;
    }
    const bool in_turns = queue_.some_wait();
    queue_.remove(slot, slot->keys_);
    slot->state_ = GridSlot::State::kRunning;
    lock.unlock();
    ClusterState state = ClusterState::kStopped;
    std::exception_ptr failure;
    try {
      if (slot->cluster_ == nullptr) start_cluster(*slot);
      state = slot->cluster_->advance(in_turns ? kSliceInTurns : kSlice);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure != nullptr) failure_ = failure;
    slot->state_ = state == ClusterState::kNeedsTurn ? GridSlot::State::kNeedsTurn : GridSlot::State::kReady;
    if (failure == nullptr && state == ClusterState::kStopped && needs_others(*slot->cluster_))
      pause_others(lock);
    if (failure == nullptr && (state == ClusterState::kFinished || state == ClusterState::kStopped)) {
      finish_cluster(*slot, state == ClusterState::kStopped);
      slot->state_ = GridSlot::State::kIdle;
    }
    put_back(*slot);
    look_around();
    if (idle_threads_ > 0) changed_.notify_all();
  }
  changed_.notify_all();
}

Finding Grid::interruption(const Running& running) {
  constexpr size_t kMaxLines = 256;
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin_;
  Finding finding;
  finding.kind = FindingKind::kInterrupted;
  finding.message =
      fmt::format("the launch was ended by its host after {:.1f} s, with {} of {} CTAs finished",
                  passed.count(), running.statistics.ctas, running.context->grid.count());
  describe_all(finding.facts);
  if (finding.facts.size() > kMaxLines) {
    const size_t more = finding.facts.size() - kMaxLines;
    finding.facts.resize(kMaxLines);
    finding.facts.push_back(fmt::format("... and {} more", more));
  }
  return finding;
}

std::vector<Report> Grid::collect() {
  const bool interrupted = is_interrupted() && !all_done();
  std::vector<std::optional<Finding>> interruptions(launches_.size());
  if (interrupted) {
    for (size_t i = 0; i < launches_.size(); ++i) interruptions[i] = interruption(launches_[i]);
    for (const std::unique_ptr<GridSlot>& slot : slots_)
      if (slot->cluster_ != nullptr) finish_cluster(*slot, false);
  }
  std::vector<Report> reports;
  for (size_t i = 0; i < launches_.size(); ++i) {
    reports.push_back(collect(launches_[i], interrupted));
    if (interruptions[i]) reports.back().findings.push_back(std::move(*interruptions[i]));
  }
  return reports;
}

Report Grid::collect(Running& running, bool interrupted) {
  Report report;
  report.completed = stop_epoch_ == kNever && !interrupted;
  report.statistics = running.statistics;
  const LaunchContext& launch = *running.context;
  if (running.banks != nullptr) report.banks = running.banks->report(launch.program);
  if (running.sectors != nullptr) report.sectors = running.sectors->report(launch.program);
  std::sort(running.printed.begin(), running.printed.end());
  for (const auto& [number, text] : running.printed) report.printf_output += text;
  std::stable_sort(running.findings.begin(), running.findings.end(),
                   [](const NumberedFinding& a, const NumberedFinding& b) { return a.cluster < b.cluster; });
  std::map<std::tuple<FindingKind, Severity, uint32_t, uint32_t>, size_t> seen;
  for (NumberedFinding& f : running.findings) {
    if (f.epoch > stop_epoch_ || (f.epoch == stop_epoch_ && f.slot > stop_slot_)) continue;
    std::vector<Finding>& list = f.finding.severity == Severity::kNote ? report.notes : report.findings;
    const auto [at, is_new] =
        seen.try_emplace({f.finding.kind, f.finding.severity, f.places.first, f.places.second}, list.size());
    if (!is_new)
      list[at->second].count += f.finding.count;
    else
      list.push_back(std::move(f.finding));
  }
  report.ctas_left_out = launch.ctas_left_out;
  if (report.ctas_left_out > 0)
    for (Finding& finding : report.findings)
      if (finding.kind == FindingKind::kDeadlock || finding.kind == FindingKind::kEndlessRun)
        finding.facts.push_back(
            fmt::format("{} of {} CTAs were left out: what is waited for may be one of theirs",
                        report.ctas_left_out, launch.grid.count()));
  const size_t limit = static_cast<size_t>(std::max(1, launch.options.max_findings));
  for (std::vector<Finding>* list : {&report.findings, &report.notes})
    if (list->size() > limit) list->resize(limit);
  return report;
}

std::vector<Report> Grid::run(int host_threads) {
  const int extra = std::min(host_threads, static_cast<int>(slots_.size())) - 1;
  std::vector<std::thread> threads;
  for (int i = 0; i < extra; ++i) threads.emplace_back([this] { worker(); });
  worker();
  for (std::thread& thread : threads) thread.join();
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  return collect();
}

}  // namespace imbrex::vgpu
