// SPDX-License-Identifier: Apache-2.0
#include "vgpu/timeline/timeline_recorder.h"

#include <algorithm>
#include <utility>

#include "vgpu/timeline/chip_rates.h"
#include "vgpu/timeline/update_passes.h"

namespace imbrex::vgpu {

namespace {

constexpr int kSubPartitions = 4;
constexpr int kLineShift = 7;  // 128 bytes
constexpr int64_t kLineBytes = 128;
constexpr uint32_t kWordBytes = 4;
/// Lines of code after which a run is cut, so that warps beside each other fetch the same ones together.
constexpr size_t kCodeLines = 64;
/// Rounds that a sample must show (of four the last may be cut), and times as many works as usual that are recorded to see them.
constexpr int kRecordedRounds = 4;
constexpr size_t kPatience = 3;

void add(PipeClocks& to, const PipeClocks& more) {
  for (size_t i = 0; i < kPipes; ++i) to[i] += more[i];
}

/// The loads that fill registers which an instruction reads, and which its warp has not waited for yet.
template <class WarpState>
std::vector<int32_t> loads_for(WarpState& warp, const InstructionInfo& info, const Program& program,
                               const Recording& recording) {
  std::vector<int32_t> loads;
  for (uint32_t r : info.reads) {
    const int32_t load = warp.loads[r];
    if (load < 0) continue;
    loads.push_back(load);
    // The load's other registers need no wait of their own.
    for (uint32_t other : program.info[recording.works[static_cast<size_t>(load)].insn].writes)
      if (warp.loads[other] == load) warp.loads[other] = -1;
  }
  return loads;
}

}  // namespace

TimelineRecorder::TimelineRecorder(const LaunchContext& launch, int64_t number, std::vector<int64_t> ctas,
                                   bool with_texts)
    : program_(&launch.program),
      machine_(assembled_costs_of(launch.program)),
      is_long_(machine_ != nullptr && static_cast<double>(machine_->code_lines * kLineBytes) >
                                          chip_rates(launch.target.sm).code_bytes),
      memory_(&launch.memory),
      signals_(launch.signals),
      rank_(launch.rank),
      model_(cost_model(launch.target.sm, 0, launch.options.timeline.gpu.get())),
      with_texts_(with_texts),
      computes_(launch.options.tensor_math != TensorMath::kNone || !launch.program.habits.multiplies),
      most_works_(static_cast<size_t>(launch.recorded_works)),
      ends_when_cut_(std::find(launch.whole.begin(), launch.whole.end(), number) == launch.whole.end()),
      flags_(launch.flags) {
  recording_.cluster = number;
  recording_.warps_per_cta = launch.warps();
  recording_.ctas = std::move(ctas);
  const size_t warps = recording_.ctas.size() * static_cast<size_t>(recording_.warps_per_cta);
  recording_.warps.resize(warps);
  states_.resize(warps);
  for (WarpState& state : states_) {
    state.ready.assign(program_->register_count, 0.0);
    state.loads.assign(program_->register_count, -1);
    if (is_long_) state.is_fetched.assign(machine_->code_lines, false);
  }
}

size_t TimelineRecorder::index_of(const Who& who) const {
  return static_cast<size_t>(who.cta->rank() * recording_.warps_per_cta + std::max(who.warp, 0));
}

// ---- instructions

/// What follows begins when all before it has been issued, as behind a branch.
void TimelineRecorder::end_block(WarpState& state) {
  state.clock = std::max({state.clock, state.port, state.last});
}

void TimelineRecorder::flush(size_t warp, uint32_t insn) {
  WarpState& state = states_[warp];
  end_block(state);
  const double alone = state.clock - state.run_begin;
  if (alone > 0 || state.issue > 0) {
    RecordedStep step;
    step.insn = state.run_insn;
    step.id = state.operand_groups;
    step.alone = static_cast<float>(alone);
    step.issue = static_cast<float>(state.issue);
    step.slots = static_cast<float>(state.slots);
    step.shared = static_cast<float>(state.shared);
    step.matrix = static_cast<float>(state.matrix);
    step.pipes = state.pipes;
    step.phase = -1;
    if (!state.code.empty()) {
      step.phase = static_cast<int32_t>(recording_.code.size());
      recording_.code.push_back(static_cast<uint16_t>(state.code.size()));
      recording_.code.insert(recording_.code.end(), state.code.begin(), state.code.end());
      for (uint16_t line : state.code) state.is_fetched[line] = false;
      state.code.clear();
    }
    push(warp, step);
  }
  state.run_begin = state.clock;
  state.issue = state.slots = state.shared = state.matrix = 0;
  state.pipes = {};
  state.operand_groups = 0;
  state.run_insn = insn;
}

void TimelineRecorder::issue(size_t warp, const Instruction& insn, const InstructionInfo& info) {
  WarpState& state = states_[warp];
  const auto cost = static_cast<CostClass>(info.cost);
  const MachineCosts::Cost* const made = machine_ != nullptr ? &machine_->costs[insn.index] : nullptr;
  const bool is_merged =
      made != nullptr && made->issue == 0 && (cost == CostClass::kAlu || cost == CostClass::kWide);
  if (is_long_) {
    if (state.code.size() >= kCodeLines) flush(warp, insn.index);
    for (uint32_t i = made->code; i < made->code + made->code_count; ++i)
      if (const uint16_t line = machine_->code[i]; !state.is_fetched[line]) {
        state.is_fetched[line] = true;
        state.code.push_back(line);
      }
  }
  if (cost == CostClass::kFree || is_merged) {
    if (made != nullptr) {
      state.port = std::max(state.port, state.clock) + made->stall;
      state.issue += made->issue;
      state.slots += made->issue;
      add(state.pipes, made->pipes);
    }
    // The machine code uses the source itself, or has done it with another instruction.
    double ready = 0;
    int32_t load = -1;
    for (uint32_t r : info.reads) {
      ready = std::max(ready, state.ready[r]);
      load = std::max(load, state.loads[r]);
    }
    for (uint32_t r : info.writes) {
      state.ready[r] = ready;
      state.loads[r] = load;
    }
    return;
  }
  if (state.issue == 0) state.run_insn = insn.index;
  wait_for(warp, insn.index, Kind::kWaitWork, loads_for(state, info, *program_, recording_));
  const auto update = static_cast<SharedUpdate>(info.update);
  const Numerator numerator = std::exchange(state.numerator, Numerator::kNormal);
  const InstructionCost price = numerator != Numerator::kNormal ? division_cost(numerator)
                                : update != SharedUpdate::kNone ? update_cost(model_, update)
                                                                : instruction_cost(model_, cost);
  if (price.alone > 0) end_block(state);
  double begin = state.clock;
  for (uint32_t r : info.reads) begin = std::max(begin, state.ready[r]);
  double latency = price.latency;
  if (info.matrix_work > 0) {
    const double clocks = info.matrix_work / (model_.mma_sync_flops / kSubPartitions);
    begin = std::max(begin, state.matrix_free);
    if (std::exchange(state.has_operands, false)) ++state.operand_groups;
    state.matrix_free = begin + clocks;
    state.matrix += clocks;
  }
  state.has_operands |= state.wavefronts > 0;
  state.shared += state.wavefronts;
  latency += state.wavefronts;
  // An exact division and its like are what was measured; the rest of a warp's instructions are as far apart as the assembler put them.
  const bool is_made = made != nullptr && price.alone == 0;
  state.port = std::max(state.port, state.clock) + (is_made ? made->stall : price.issue);
  state.last = std::max(state.last, begin + std::max(price.issue, price.alone));
  // Doubles have a unit of their own that nothing else is told of.
  state.issue += !is_made                     ? price.issue
                 : cost == CostClass::kDouble ? std::max<double>(price.issue, made->issue)
                                              : made->issue;
  state.slots += is_made ? made->issue : price.issue;
  if (is_made)
    add(state.pipes, made->pipes);
  else
    state.pipes[static_cast<size_t>(Pipe::kSpecial)] += static_cast<float>(price.special);
  if (cost == CostClass::kShuffle) state.shared += is_made ? made->shared : 1;
  if (price.alone > 0 || info.ends_block) end_block(state);
  for (uint32_t r : info.writes) {
    state.ready[r] = state.load >= 0 ? 0 : begin + latency;
    state.loads[r] = state.load;
  }
  state.load = -1;
  state.wavefronts = 0;
}

void TimelineRecorder::divides(size_t warp, const uint32_t* numerators, Mask lanes) {
  if (!computes_) return;
  Numerator& slowest = states_[warp].numerator;
  slowest = Numerator::kNormal;
  for_each_lane(lanes, [&](int lane) {
    const uint32_t magnitude = numerators[lane] & 0x7FFFFFFFu;
    if (magnitude < 0x00800000u)
      slowest = std::max(slowest, magnitude == 0 ? Numerator::kZero : Numerator::kDenormal);
  });
}

void TimelineRecorder::executed(size_t warp, const Instruction& insn, Step step) {
  if (step == Step::kBlock || step == Step::kTurn || recording_.is_cut) return;
  const InstructionInfo& info = program_->info[insn.index];
  const auto cost = static_cast<CostClass>(info.cost);
  WarpState& state = states_[warp];
  if (cost == CostClass::kMbarrier && info.tests) {
    // The same test, nothing recorded since: it has failed, and the instructions around it were spinning.
    const size_t steps = recording_.warps[warp].size();
    end_block(state);
    if (state.spin_insn == insn.index && state.spin_steps == steps) {
      state.clock = state.port = state.last = state.spin_clock;
      state.issue = state.spin_issue;
      state.slots = state.spin_slots;
      state.pipes = state.spin_pipes;
    }
    state.spin_insn = insn.index;
    state.spin_steps = steps;
    state.spin_clock = state.clock;
    state.spin_issue = state.issue;
    state.spin_slots = state.slots;
    state.spin_pipes = state.pipes;
  }
  issue(warp, insn, info);
  if (cost == CostClass::kFence && info.drains) drain(warp, insn.index);
  if (cost >= CostClass::kCopyCommit) wait_for_group_of(warp, insn, cost);
}

void TimelineRecorder::drain(size_t warp, uint32_t insn) {
  flush(warp, insn);
  push(warp, {.kind = Kind::kDrain, .insn = insn});
  states_[warp].has_stored = false;
}

void TimelineRecorder::accessed(size_t warp, const Instruction& insn, Space space,
                                const std::byte* const* host, Mask lanes, uint32_t bytes, BankAccess access) {
  if (lanes == 0) return;
  const bool writes = access == BankAccess::kStore;
  if (space != Space::kSharedCta && writes) recording_.stored_bytes += int64_t{bytes} * count_lanes(lanes);
  if (is_cut()) return;
  WarpState& state = states_[warp];
  if (space == Space::kSharedCta) {
    state.wavefronts = banks_.measure(host, lanes, bytes, access).wavefronts;
    return;
  }
  const InstructionInfo& info = program_->info[insn.index];
  if (static_cast<CostClass>(info.cost) != CostClass::kGlobalAccess) return;
  const bool is_flag = info.is_strong && flags_ != nullptr;
  if (is_flag && !writes && polls_again(warp, insn.index, host[first_lane(lanes)]))
    return wait_for_flags(warp, insn.index, host, lanes);
  state.has_stored |= writes;
  WorkDemand demand;
  demand.kind = writes ? WorkDemand::Kind::kThreadStore : WorkDemand::Kind::kThreadLoad;
  demand.bytes = int64_t{bytes} * count_lanes(lanes);
  if (writes) {
    const StoredSectors sectors = stored_sectors(host, lanes, bytes);
    demand.sectors = static_cast<int16_t>(sectors.sectors);
    demand.partial_lines = static_cast<int16_t>(sectors.partial_lines);
  }
  const std::byte* const at = host[first_lane(lanes)];
  if (signals_ == nullptr || !info.looks) {
    submit_access(warp, insn, demand, host, lanes, bytes, !writes);
    if (signals_ != nullptr && info.tells) recording_.works.back().signal = signals_->tell(at);
    if (!is_flag) return;
    const auto work = static_cast<int32_t>(recording_.works.size() - 1);
    if (!writes) {
      state.poll = {insn.index, at, recording_.warps[warp].size(), work};
      return wait_for_flags(warp, insn.index, host, lanes);
    }
    const FlagWriters::Writer writer{static_cast<int32_t>(recording_.cluster), work};
    for_each_lane(lanes, [&](int lane) { flags_->wrote(host[lane], writer); });
    return;
  }
  if (looks_again(warp, insn, at)) return;
  flush(warp, insn.index);
  const size_t wait = recording_.warps[warp].size();
  push(warp, {.kind = Kind::kWaitSignal, .insn = insn.index, .id = signals_->last(at)});
  submit_access(warp, insn, demand, host, lanes, bytes, true);
  state.look = {insn.index, at, wait, recording_.warps[warp].size(), state.load, state.clock};
}

int16_t TimelineRecorder::peer_of(uint64_t address) const {
  if (rank_ < 0 || address < kHeapBase) return -1;
  const int gpu = memory_->gpu_of(address);
  return static_cast<int16_t>(gpu == rank_ ? -1 : gpu);
}
int16_t TimelineRecorder::peer_of(const std::byte* host) const {
  return peer_of(kGlobalBase + static_cast<uint64_t>(host - memory_->host(kGlobalBase)));
}

void TimelineRecorder::updated(size_t warp, const Instruction& insn, Space space,
                               const std::byte* const* host, Mask lanes, uint32_t bytes, bool returns,
                               bool is_native) {
  if (lanes == 0 || is_cut()) return;
  if (space == Space::kSharedCta) {
    const bool is_counted =
        static_cast<SharedUpdate>(program_->info[insn.index].update) == SharedUpdate::kCounted;
    states_[warp].wavefronts = is_counted ? 1 : shared_update_clocks(host, lanes, returns, is_native);
    return;
  }
  WorkDemand demand;
  demand.kind = WorkDemand::Kind::kThreadUpdate;
  demand.bytes = int64_t{bytes} * count_lanes(lanes);
  demand.clocks = global_update_passes(host, lanes);
  submit_access(warp, insn, demand, host, lanes, bytes, returns);
  if (signals_ != nullptr && program_->info[insn.index].tells)
    recording_.works.back().signal = signals_->tell(host[first_lane(lanes)]);
}

void TimelineRecorder::submit_access(size_t warp, const Instruction& insn, const WorkDemand& demand,
                                     const std::byte* const* host, Mask lanes, uint32_t bytes, bool loads) {
  WarpState& state = states_[warp];
  if (program_->info[insn.index].drains) drain(warp, insn.index);
  // Its address may be loaded, too.
  wait_for(warp, insn.index, Kind::kWaitWork,
           loads_for(state, program_->info[insn.index], *program_, recording_));
  flush(warp, insn.index);
  RecordedWork work;
  work.demand = demand;
  work.insn = insn.index;
  const auto per_cta = static_cast<size_t>(recording_.warps_per_cta);
  work.rank = static_cast<int16_t>(warp / per_cta);
  work.warp = static_cast<int16_t>(warp % per_cta);
  work.peer = peer_of(host[first_lane(lanes)]);
  add_lines(work, host, lanes, bytes);
  const auto id = static_cast<int32_t>(recording_.works.size());
  if (demand.kind == WorkDemand::Kind::kThreadStore) rounds_.stored(recording_.works.size());
  const bool is_part = demand.partial_lines > 0 && bytes <= kWordBytes;
  if (is_part && is_gathered(state, work)) {
    state.room -= demand.bytes;
  } else {
    state.open_store = is_part ? id : -1;
    state.room = int64_t{work.line_count} * kLineBytes - demand.bytes;
  }
  recording_.works.push_back(work);
  push(warp, {.kind = Kind::kSubmit, .insn = insn.index, .id = id});
  if (loads) state.load = id;
  if (is_part && state.room == 0) gather_stores(recording_, warp, std::exchange(state.open_store, -1));
}

void TimelineRecorder::add_lines(RecordedWork& work, const std::byte* const* host, Mask lanes,
                                 uint32_t bytes) {
  std::vector<uint64_t>& lines = recording_.lines;
  const size_t begin = lines.size();
  for_each_lane(lanes, [&](int lane) {
    const auto at = reinterpret_cast<uintptr_t>(host[lane]);
    constexpr int kShift = TouchedLine::kSectorShift;
    for (uint64_t sector = at >> kShift; sector <= (at + bytes - 1) >> kShift; ++sector)
      TouchedLine::add(lines, begin, sector << kShift);
  });
  work.lines = static_cast<int32_t>(begin);
  work.line_count = static_cast<int32_t>(lines.size() - begin);
}

// ---- groups of asynchronous work

void TimelineRecorder::wait_for(size_t warp, uint32_t insn, Kind kind, const std::vector<int32_t>& works) {
  if (works.empty()) return;
  flush(warp, insn);
  for (int32_t work : works) push(warp, {.kind = kind, .insn = insn, .id = work});
}

void TimelineRecorder::wait_for_groups(size_t warp, const Instruction& insn, Kind kind, Groups& groups) {
  const auto pending = static_cast<uint64_t>(insn.immediate);
  while (groups.closed.size() > pending) {
    wait_for(warp, insn.index, kind, groups.closed.front());
    groups.closed.pop_front();
  }
}

void TimelineRecorder::wait_for_group_of(size_t warp, const Instruction& insn, CostClass cost) {
  WarpState& state = states_[warp];
  switch (cost) {
    case CostClass::kCopyCommit:
      return state.copies.commit();
    case CostClass::kCopyWait:
      state.copies_for_barrier.clear();
      if (insn.immediate < 0) {  // wait_all
        state.copies.commit();
        Instruction all = insn;
        all.immediate = 0;
        return wait_for_groups(warp, all, Kind::kWaitWork, state.copies);
      }
      return wait_for_groups(warp, insn, Kind::kWaitWork, state.copies);
    case CostClass::kBulkCommit:
      state.bulk_reads.commit();
      return state.bulk_writes.commit();
    case CostClass::kBulkWaitRead:
      return wait_for_groups(warp, insn, Kind::kWaitRead, state.bulk_reads);
    case CostClass::kBulkWait:
      return wait_for_groups(warp, insn, Kind::kWaitWork, state.bulk_writes);
    case CostClass::kWgmmaCommit:
      state.product = -1;
      return state.products.commit();
    case CostClass::kWgmmaWait:
      return wait_for_groups(warp, insn, Kind::kWaitWork, state.products);
    case CostClass::kTensorLoadWait:
      wait_for(warp, insn.index, Kind::kWaitWork, state.tensor_loads);
      return state.tensor_loads.clear();
    case CostClass::kTensorStoreWait:
      wait_for(warp, insn.index, Kind::kWaitWork, state.tensor_stores);
      return state.tensor_stores.clear();
    default:
      return;
  }
}

// ---- objects

int32_t TimelineRecorder::object_of(const Who& who, SyncKey key) {
  const auto [at, is_new] = objects_.try_emplace(key, static_cast<int32_t>(recording_.objects.size()));
  if (is_new) {
    RecordedObject object;
    const auto kind = static_cast<SyncKind>(key >> 56);
    object.kind = kind == SyncKind::kMbarrier       ? RecordedObject::Kind::kMbarrier
                  : kind == SyncKind::kNamedBarrier ? RecordedObject::Kind::kNamed
                                                    : RecordedObject::Kind::kCluster;
    object.rank = kind == SyncKind::kClusterBarrier ? who.cta->rank() : static_cast<int>(key >> 48 & 0xFF);
    object.which = static_cast<uint32_t>(key);
    recording_.objects.push_back(object);
  }
  return at->second;
}

bool TimelineRecorder::is_cut() {
  const size_t works = recording_.works.size();
  recording_.is_cut |= most_works_ > 0 && works >= most_works_ &&
                       (rounds_.count >= kRecordedRounds || works >= kPatience * most_works_);
  return recording_.is_cut;
}

/// A round begins its stores after other work, as long as that of other rounds.
void TimelineRecorder::Rounds::stored(size_t work) {
  const size_t others = work - std::exchange(end, work + 1);
  if (others > 2 * longest) count = 0;  // what looked like rounds were parts of one
  longest = std::max(longest, others);
  count += others > 0 && others >= longest / 2;
}

void TimelineRecorder::initialised(const Who& who, SyncKey key) {
  if (recording_.is_cut) return;
  objects_.erase(key);
  recording_.objects[static_cast<size_t>(object_of(who, key))].init = who.insn->index;
}

void TimelineRecorder::arrived(const Who& who, SyncKey key, int64_t phase) {
  if (recording_.is_cut) return;
  const int32_t object = object_of(who, key);
  if (acting_ >= 0) {
    recording_.arrivals.push_back({acting_, object, static_cast<int32_t>(phase)});
    return;
  }
  const size_t warp = index_of(who);
  const std::vector<RecordedStep>& steps = recording_.warps[warp];
  // The lanes of one instruction arrive together.
  const bool is_same = !steps.empty() && steps.back().kind == Kind::kArrive && steps.back().id == object &&
                       steps.back().phase == phase && steps.back().insn == who.insn->index;
  if (is_same) return;
  // The arrival at a cluster's barrier releases what the warp has stored.
  if (program_->info[who.insn->index].drains && states_[warp].has_stored) drain(warp, who.insn->index);
  flush(warp, who.insn->index);
  push(warp,
       {.kind = Kind::kArrive, .insn = who.insn->index, .id = object, .phase = static_cast<int32_t>(phase)});
}

void TimelineRecorder::waited(const Who& who, SyncKey key, int64_t phase) {
  if (phase < 0 || recording_.is_cut) return;
  const size_t warp = index_of(who);
  const uint32_t insn = who.insn != nullptr ? who.insn->index : states_[warp].run_insn;
  flush(warp, insn);
  push(warp,
       {.kind = Kind::kWait, .insn = insn, .id = object_of(who, key), .phase = static_cast<int32_t>(phase)});
}

void TimelineRecorder::allocated(const Who& who, int rank, int columns) {
  if (recording_.is_cut) return;
  const size_t warp = index_of(who);
  flush(warp, who.insn->index);
  push(warp, {.kind = columns > 0 ? Kind::kAllocate : Kind::kFree,
              .insn = who.insn->index,
              .id = std::abs(columns),
              .phase = rank});
}

void TimelineRecorder::relinquished(const Who& who, int rank) {
  if (recording_.is_cut) return;
  const size_t warp = index_of(who);
  flush(warp, who.insn->index);
  push(warp, {.kind = Kind::kRelinquish, .insn = who.insn->index, .phase = rank});
}

// ---- work

/// Does this product follow the one before without anything between them that takes time? Then they are one work, which
/// spares the replay most of what it does. The picture has each for itself.
bool TimelineRecorder::follows_at_once(size_t warp, int32_t queue, const WorkDemand& product) {
  const double at_once = std::max(12.0, product.clocks / 4);  // of the warp, much less than a product takes
  WarpState& state = states_[warp];
  if (product.kind != WorkDemand::Kind::kMatrix || with_texts_ || acting_ >= 0 || state.product < 0)
    return false;
  const RecordedWork& before = recording_.works[static_cast<size_t>(state.product)];
  const RecordedStep& last = recording_.warps[warp].back();
  end_block(state);
  return last.kind == Kind::kSubmit && last.id == state.product && before.queue == queue &&
         before.demand.pair == product.pair && state.clock - state.run_begin <= at_once;
}

int32_t TimelineRecorder::submitted(const Who& who, int32_t queue, const WorkDemand& demand,
                                    const std::vector<uint64_t>& lines, std::string text) {
  if (demand.kind == WorkDemand::Kind::kTmaStore) recording_.stored_bytes += demand.bytes;
  if (is_cut()) return -1;
  if (follows_at_once(index_of(who), queue, demand)) {
    const int32_t product = states_[index_of(who)].product;
    recording_.works[static_cast<size_t>(product)].demand.clocks += demand.clocks;
    return product;
  }
  const auto id = static_cast<int32_t>(recording_.works.size());
  RecordedWork work;
  work.demand = demand;
  work.insn = who.insn->index;
  work.rank = static_cast<int16_t>(who.cta->rank());
  work.warp = static_cast<int16_t>(who.warp);
  work.queue = queue;
  work.parent = acting_;
  work.peer = peer_of(demand.address == 0 && !lines.empty() ? lines.front() << kLineShift : demand.address);
  if (with_texts_) {
    work.text = static_cast<int32_t>(recording_.texts.size());
    recording_.texts.push_back(std::move(text));
  }
  const size_t warp = index_of(who);
  WarpState& state = states_[warp];
  if (!lines.empty()) {
    work.lines = static_cast<int32_t>(recording_.lines.size());
    work.line_count = static_cast<int32_t>(lines.size());
    recording_.lines.insert(recording_.lines.end(), lines.begin(), lines.end());
  }
  if (work.demand.after_copies) {
    // Each of the lanes submits one; all come after the same copies.
    std::vector<int32_t>& copies = state.copies_for_barrier;
    if (!copies.empty()) {
      state.after = static_cast<int32_t>(recording_.lists.size());
      state.after_count = static_cast<int32_t>(copies.size());
      recording_.lists.insert(recording_.lists.end(), copies.begin(), copies.end());
      copies.clear();
    }
    work.after = state.after;
    work.after_count = state.after_count;
  }
  if (demand.kind == WorkDemand::Kind::kTmaStore) rounds_.stored(recording_.works.size());
  recording_.works.push_back(work);
  if (acting_ >= 0) return id;
  flush(warp, work.insn);
  push(warp, {.kind = Kind::kSubmit, .insn = work.insn, .id = id});
  switch (work.demand.kind) {
    case WorkDemand::Kind::kThreadLoad:
      state.copies.open.push_back(id);
      state.copies_for_barrier.push_back(id);
      break;
    case WorkDemand::Kind::kMatrix:
      state.product = id;
      break;
    case WorkDemand::Kind::kTmaStore:
      state.bulk_reads.open.push_back(id);
      state.bulk_writes.open.push_back(id);
      break;
    case WorkDemand::Kind::kTensorLoad:
      state.tensor_loads.push_back(id);
      break;
    case WorkDemand::Kind::kTensorStore:
      state.tensor_stores.push_back(id);
      break;
    default:
      break;
  }
  return id;
}

void TimelineRecorder::joined(size_t warp, const Who& submitter, int32_t product) {
  if (product < 0 || recording_.is_cut) return;
  std::vector<int32_t>& open = states_[warp].products.open;
  if (!open.empty() && open.back() == product) return;  // more of the same work
  open.push_back(product);
  states_[warp].product = product;
  if (index_of(submitter) == warp) return;
  flush(warp, submitter.insn->index);
  push(warp, {.kind = Kind::kSubmit, .insn = submitter.insn->index, .id = product});
}

Recording TimelineRecorder::take() {
  if (!recording_.is_cut)
    for (size_t warp = 0; warp < states_.size(); ++warp) flush(warp, 0);
  recording_.is_ended = is_enough();
  return std::move(recording_);
}

}  // namespace imbrex::vgpu
