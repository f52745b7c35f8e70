// SPDX-License-Identifier: Apache-2.0
// What is recorded of warps that look again and again whether others have stored something, and of stores that are gathered.
#include <algorithm>

#include "vgpu/timeline/timeline_recorder.h"

namespace imbrex::vgpu {

/// How often a warp looks in vain depends on the schedule: of a loop the last look is recorded, with the store that ended
/// it.
bool TimelineRecorder::looks_again(size_t warp, const Instruction& insn, const std::byte* at) {
  WarpState& state = states_[warp];
  const Look& look = state.look;
  std::vector<RecordedStep>& steps = recording_.warps[warp];
  const auto is_of_loop = [&](const RecordedStep& step) {
    return step.kind == Kind::kRun || (step.kind == Kind::kWaitWork && step.id == look.load);
  };
  if (look.insn != insn.index || look.at != at || steps.size() < look.steps ||
      !std::all_of(steps.begin() + static_cast<ptrdiff_t>(look.steps), steps.end(), is_of_loop))
    return false;
  steps.resize(look.steps);
  steps[look.wait].id = signals_->last(at);
  state.clock = state.port = state.last = state.run_begin = look.clock;
  state.issue = state.slots = state.shared = state.matrix = 0;
  state.pipes = {};
  state.run_insn = insn.index;
  state.load = look.load;
  return true;
}

/// A look at the same word again, and nothing since but what a loop around it does: how often it goes round depends on the
/// schedule. Takes back what the round recorded.
bool TimelineRecorder::polls_again(size_t warp, uint32_t insn, const std::byte* word) {
  WarpState& state = states_[warp];
  std::vector<RecordedStep>& steps = recording_.warps[warp];
  if (state.poll.insn != insn || state.poll.word != word) return false;
  const bool is_loop =
      std::all_of(steps.begin() + static_cast<ptrdiff_t>(state.poll.end), steps.end(), [&](const auto& step) {
        return step.kind == Kind::kRun || step.kind == Kind::kFlag || step.kind == Kind::kDrain ||
               (step.kind == Kind::kWaitWork && step.id == state.poll.work);
      });
  if (!is_loop) return false;
  flush(warp, insn);
  steps.resize(state.poll.end);
  push(warp, {.kind = Kind::kWaitWork, .insn = insn, .id = state.poll.work});
  state.load = state.poll.work;
  return true;
}

void TimelineRecorder::wait_for_flags(size_t warp, uint32_t insn, const std::byte* const* host, Mask lanes) {
  std::optional<FlagWriters::Writer> last;
  for_each_lane(lanes, [&](int lane) {
    const std::optional<FlagWriters::Writer> writer = flags_->writer(host[lane]);
    if (!writer || writer == last) return;
    push(warp, {.kind = Kind::kFlag, .insn = insn, .id = writer->work, .phase = writer->cluster});
    last = writer;
  });
}

/// Is it a further part of the lines of which the warp has just stored others?
bool TimelineRecorder::is_gathered(WarpState& state, const RecordedWork& store) const {
  if (state.open_store < 0 || store.demand.bytes > state.room) return false;
  const RecordedWork& open = recording_.works[static_cast<size_t>(state.open_store)];
  const auto lines = [&](const RecordedWork& work) { return recording_.lines.begin() + work.lines; };
  return open.line_count == store.line_count &&
         std::equal(lines(open), lines(open) + open.line_count, lines(store), [](uint64_t a, uint64_t b) {
           return (a & TouchedLine::kNumber) == (b & TouchedLine::kNumber);
         });
}

}  // namespace imbrex::vgpu
