// SPDX-License-Identifier: Apache-2.0
#include "vgpu/machine/grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <thread>

#include "imbrex/vgpu/watch.h"
#include "vgpu/checks/bank_counter.h"
#include "vgpu/checks/sector_counter.h"
#include "vgpu/machine/cluster.h"
#include "vgpu/machine/warp_places.h"

namespace imbrex::vgpu {

namespace {

/// How long a cluster may run before others are looked at: short while some wait for their turn.
constexpr int64_t kSlice = int64_t{1} << 22;
constexpr int64_t kSliceInTurns = int64_t{1} << 16;
/// Slots are run to the end of their cluster, one after the other, unless that takes longer than this.
constexpr int kFairnessShift = 22;

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
    sum += slot->progress_.load(std::memory_order_relaxed);
  return sum;
}

bool GridSlot::all_loop(uint64_t stamp) {
  loops_at_.store(stamp, std::memory_order_relaxed);
  return std::all_of(grid_->slots_.begin(), grid_->slots_.end(), [&](const std::unique_ptr<GridSlot>& slot) {
    return slot->loops_at_.load(std::memory_order_relaxed) == stamp ||
           slot->clock_.load(std::memory_order_relaxed) == Grid::kNever;
  });
}

Grid::Grid(const LaunchContext& launch, int slots) : launch_(launch) {
  const int64_t clusters = launch.clusters().count();
  slots = static_cast<int>(std::min<int64_t>(slots, clusters));
  std::vector<int64_t> order(static_cast<size_t>(clusters));
  std::iota(order.begin(), order.end(), int64_t{0});
  Random random(launch.options.seed, ~uint64_t{0});
  if (!random.is_plain())
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  for (int i = 0; i < slots; ++i) {
    auto slot = std::make_unique<GridSlot>();
    slot->grid_ = this;
    slot->index_ = i;
    for (size_t c = static_cast<size_t>(i); c < order.size(); c += static_cast<size_t>(slots))
      slot->queue_.push_back(order[c]);
    slots_.push_back(std::move(slot));
    put_back(*slots_.back());
  }
}

Grid::~Grid() = default;

void Grid::start_cluster(GridSlot& slot) {
  const int64_t number = slot.take_next();
  slot.cluster_ =
      std::make_unique<Cluster>(launch_, slot, number, slot.clock_.load(std::memory_order_relaxed));
}

void Grid::finish_cluster(GridSlot& slot, bool stopped) {
  Cluster& cluster = *slot.cluster_;
  const uint64_t end = epoch(cluster.clock());
  for (size_t i = 0; i < cluster.log().findings().size(); ++i)
    findings_.push_back({cluster.number(), end, slot.index_, cluster.log().places(i),
                         std::move(cluster.log().findings()[i])});
  if (!cluster.printed().empty()) printed_.emplace_back(cluster.number(), std::move(cluster.printed()));
  const Statistics& s = cluster.statistics();
  statistics_.ctas += s.ctas;
  statistics_.instructions += s.instructions;
  statistics_.lane_instructions += s.lane_instructions;
  statistics_.global_bytes_read += s.global_bytes_read;
  statistics_.global_bytes_written += s.global_bytes_written;
  statistics_.shared_bytes_read += s.shared_bytes_read;
  statistics_.shared_bytes_written += s.shared_bytes_written;
  statistics_.local_bytes_read += s.local_bytes_read;
  statistics_.local_bytes_written += s.local_bytes_written;
  statistics_.cp_async_bytes += s.cp_async_bytes;
  statistics_.tma_bytes_loaded += s.tma_bytes_loaded;
  statistics_.tma_bytes_repeated += s.tma_bytes_repeated;
  statistics_.tma_bytes_stored += s.tma_bytes_stored;
  statistics_.tensor_memory_bytes += s.tensor_memory_bytes;
  statistics_.operand_bytes += s.operand_bytes;
  statistics_.tensor_flops += s.tensor_flops;
  statistics_.async_operations += s.async_operations;
  statistics_.barrier_waits += s.barrier_waits;
  if (stopped && (end < stop_epoch_ || (end == stop_epoch_ && slot.index_ < stop_slot_))) {
    stop_epoch_ = end;
    stop_slot_ = slot.index_;
  }
  if (const BankCounter* banks = cluster.observe().banks()) {
    if (banks_ == nullptr) banks_ = std::make_unique<BankCounter>(launch_.program.code.size());
    banks_->add(*banks);
  }
  if (const SectorCounter* sectors = cluster.observe().sectors()) {
    if (sectors_ == nullptr) sectors_ = std::make_unique<SectorCounter>(launch_.program.code.size());
    sectors_->add(*sectors);
  }
  if (auto recording = cluster.observe().take_recording()) recordings_.push_back(std::move(*recording));
  slot.cluster_.reset();
}

std::vector<Recording> Grid::take_recordings() {
  std::sort(recordings_.begin(), recordings_.end(),
            [](const Recording& a, const Recording& b) { return a.cluster < b.cluster; });
  return std::move(recordings_);
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
  const Watch* watch = launch_.options.watch.get();
  return watch != nullptr && watch->stop.load(std::memory_order_relaxed);
}

void Grid::describe_all(std::vector<std::string>& lines) {
  for (const std::unique_ptr<GridSlot>& slot : slots_)
    if (slot->cluster_ != nullptr && slot->state_ != GridSlot::State::kRunning)
      describe_places(*slot->cluster_, lines);
}

void Grid::look_around() {
  const Watch* watch = launch_.options.watch.get();
  if (watch == nullptr || watch->tell == nullptr) return;
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin_;
  next_look_ = std::max(next_look_, watch->first_after);
  if (passed.count() < next_look_) return;
  next_look_ = passed.count() + watch->every;
  Progress progress;
  progress.kernel = launch_.program.name;
  progress.seconds = passed.count();
  progress.instructions = statistics_.instructions;
  for (const std::unique_ptr<GridSlot>& slot : slots_)
    if (slot->cluster_ != nullptr && slot->state_ != GridSlot::State::kRunning)
      progress.instructions += slot->cluster_->statistics().instructions;
  progress.ctas = launch_.grid.count();
  progress.ctas_done = statistics_.ctas;
  describe_all(progress.places);
  watch->tell(progress);
}

void Grid::worker() {
  std::unique_lock lock(mutex_);
  while (failure_ == nullptr && !is_interrupted()) {
    GridSlot* slot = choose();
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

Finding Grid::interruption() {
  constexpr size_t kMaxLines = 256;
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin_;
  Finding finding;
  finding.kind = FindingKind::kInterrupted;
  finding.message =
      fmt::format("the launch was ended by its host after {:.1f} s, with {} of {} CTAs finished",
                  passed.count(), statistics_.ctas, launch_.grid.count());
  describe_all(finding.facts);
  if (finding.facts.size() > kMaxLines) {
    const size_t more = finding.facts.size() - kMaxLines;
    finding.facts.resize(kMaxLines);
    finding.facts.push_back(fmt::format("... and {} more", more));
  }
  return finding;
}

Report Grid::collect() {
  Report report;
  report.completed = stop_epoch_ == kNever;
  std::optional<Finding> interrupted;
  if (is_interrupted() && !all_done()) {
    interrupted = interruption();
    report.completed = false;
    for (const std::unique_ptr<GridSlot>& slot : slots_)
      if (slot->cluster_ != nullptr) finish_cluster(*slot, false);
  }
  report.statistics = statistics_;
  if (banks_ != nullptr) report.banks = banks_->report(launch_.program);
  if (sectors_ != nullptr) report.sectors = sectors_->report(launch_.program);
  std::sort(printed_.begin(), printed_.end());
  for (const auto& [number, text] : printed_) report.printf_output += text;
  std::stable_sort(findings_.begin(), findings_.end(),
                   [](const NumberedFinding& a, const NumberedFinding& b) { return a.cluster < b.cluster; });
  std::map<std::tuple<FindingKind, Severity, uint32_t, uint32_t>, size_t> seen;
  for (NumberedFinding& f : findings_) {
    if (f.epoch > stop_epoch_ || (f.epoch == stop_epoch_ && f.slot > stop_slot_)) continue;
    std::vector<Finding>& list = f.finding.severity == Severity::kNote ? report.notes : report.findings;
    const auto [at, is_new] =
        seen.try_emplace({f.finding.kind, f.finding.severity, f.places.first, f.places.second}, list.size());
    if (!is_new)
      list[at->second].count += f.finding.count;
    else
      list.push_back(std::move(f.finding));
  }
  const size_t limit = static_cast<size_t>(std::max(1, launch_.options.max_findings));
  for (std::vector<Finding>* list : {&report.findings, &report.notes})
    if (list->size() > limit) list->resize(limit);
  if (interrupted) report.findings.push_back(std::move(*interrupted));
  return report;
}

Report Grid::run(int host_threads) {
  const int extra = std::min(host_threads, static_cast<int>(slots_.size())) - 1;
  std::vector<std::thread> threads;
  for (int i = 0; i < extra; ++i) threads.emplace_back([this] { worker(); });
  worker();
  for (std::thread& thread : threads) thread.join();
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  return collect();
}

}  // namespace imbrex::vgpu
