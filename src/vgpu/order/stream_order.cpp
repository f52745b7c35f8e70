// SPDX-License-Identifier: Apache-2.0
// Vector clocks of streams and host, and of every stretch of memory the accesses that later ones may still race with.
#include "imbrex/vgpu/stream_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace imbrex::vgpu {

struct StreamOrder::Call {
  HostCall call;
  std::string by;  // "stream 2", "the host"
};

/// What one operation is found to race with: an entry for each earlier call.
struct StreamOrder::Races {
  struct Race {
    std::shared_ptr<const Call> earlier;
    Touch earlier_touch, touch;
    uint64_t address = 0;  // the first
    uint64_t bytes = 0;
  };
  std::vector<Race> races;

  void add(const Access& earlier, Touch touch, uint64_t address, uint64_t bytes) {
    for (Race& race : races)
      if (race.earlier == earlier.call && race.earlier_touch == earlier.touch && race.touch == touch) {
        race.address = std::min(race.address, address);
        race.bytes += bytes;
        return;
      }
    races.push_back({earlier.call, earlier.touch, touch, address, bytes});
  }
};

namespace {

Footprint of(std::vector<ByteRange> Footprint::*list, uint64_t address, int64_t bytes) {
  Footprint footprint;
  if (bytes > 0) (footprint.*list).push_back({address, address + static_cast<uint64_t>(bytes)});
  return footprint;
}

}  // namespace

Footprint Footprint::of_read(uint64_t address, int64_t bytes) { return of(&Footprint::read, address, bytes); }
Footprint Footprint::of_write(uint64_t address, int64_t bytes) {
  return of(&Footprint::written, address, bytes);
}
Footprint Footprint::of_copy(uint64_t to, uint64_t from, int64_t bytes) {
  Footprint footprint = of_write(to, bytes);
  footprint.read = of_read(from, bytes).read;
  return footprint;
}

// ---- streams, events, the host

StreamOrder::StreamOrder() { create_stream("the default stream"); }
StreamOrder::~StreamOrder() = default;

void StreamOrder::join(Clocks& clocks, const Clocks& others) {
  if (clocks.size() < others.size()) clocks.resize(others.size());
  for (size_t i = 0; i < others.size(); ++i) clocks[i] = std::max(clocks[i], others[i]);
}

bool StreamOrder::covers(const Clocks& clocks, const Access& access) {
  return access.agent < clocks.size() && access.clock <= clocks[access.agent];
}

StreamOrder::Stream StreamOrder::create_stream(std::string name, bool is_blocking) {
  auto stream = static_cast<Stream>(streams_.size());
  Clocks clocks;
  if (unused_streams_.empty()) {
    streams_.emplace_back();
  } else {
    stream = unused_streams_.back();
    unused_streams_.pop_back();
    clocks.resize(agent_of(stream) + 1);
    clocks[agent_of(stream)] = streams_[stream].clocks[agent_of(stream)];  // whose operations are all over
  }
  clocks.resize(std::max<size_t>(clocks.size(), agent_of(stream) + 1));
  if (name.empty()) name = fmt::format("stream {}", stream);
  streams_[stream] = {std::move(name), std::move(clocks), is_blocking, true};
  return stream;
}

void StreamOrder::destroy_stream(Stream stream) { streams_[stream].is_alive = false; }

StreamOrder::Event StreamOrder::create_event() { return next_event_++; }
void StreamOrder::destroy_event(Event event) { events_.erase(event); }

StreamOrder::Clocks& StreamOrder::current(Stream stream) {
  StreamState& state = streams_[stream];
  join(state.clocks, host_);
  if (stream == kLegacyStream) {
    for (const StreamState& other : streams_)
      if (other.is_blocking) join(state.clocks, other.clocks);
  } else if (state.is_blocking) {
    join(state.clocks, streams_[kLegacyStream].clocks);
  }
  return state.clocks;
}

void StreamOrder::record(Event event, Stream stream) { events_[event] = current(stream); }

void StreamOrder::wait(Stream stream, Event event) {
  if (const auto at = events_.find(event); at != events_.end()) join(current(stream), at->second);
}

void StreamOrder::host_waited_for(const Clocks& clocks) {
  join(host_, clocks);
  for (Stream s = 0; s < streams_.size(); ++s)
    if (agent_of(s) >= host_.size() ? streams_[s].clocks[agent_of(s)] > 0
                                    : host_[agent_of(s)] < streams_[s].clocks[agent_of(s)])
      return;
  // Whatever is issued from now on comes after all that there was.
  memory_.clear();
  for (Stream s = 0; s < streams_.size(); ++s)
    if (!streams_[s].is_alive && std::ranges::find(unused_streams_, s) == unused_streams_.end())
      unused_streams_.push_back(s);
}

void StreamOrder::synchronize(Stream stream) { host_waited_for(current(stream)); }

void StreamOrder::synchronize_event(Event event) {
  if (const auto at = events_.find(event); at != events_.end()) host_waited_for(at->second);
}

void StreamOrder::synchronize() {
  Clocks all;
  for (const StreamState& stream : streams_) join(all, stream.clocks);
  host_waited_for(all);
}

// ---- operations

namespace {

/// "writes 1200 bytes at 0x1000200000", with "atomically" for strong accesses.
const char* verb(bool is_write, bool is_strong) {
  if (is_strong) return is_write ? "updates atomically" : "reads atomically";
  return is_write ? "writes" : "reads";
}

}  // namespace

std::vector<Finding> StreamOrder::perform(Stream stream, const HostCall& call, const Footprint& footprint) {
  return perform_as(agent_of(stream), current(stream), "on " + streams_[stream].name, call, footprint);
}

std::vector<Finding> StreamOrder::perform_on_host(const HostCall& call, const Footprint& footprint) {
  return perform_as(kHost, host_, "by the host", call, footprint);
}

std::vector<Finding> StreamOrder::perform_as(Agent agent, Clocks& clocks, std::string by,
                                             const HostCall& call, const Footprint& footprint) {
  if (clocks.size() <= agent) clocks.resize(agent + 1);
  Access access{agent, ++clocks[agent], {}, std::make_shared<const Call>(Call{call, std::move(by)})};
  Races races;
  const auto touch_all = [&](const std::vector<ByteRange>& list, Touch kind) {
    access.touch = kind;
    for (const ByteRange& bytes : list) touch(bytes, access, clocks, races);
  };
  touch_all(footprint.read, Touch::kRead);
  touch_all(footprint.read_strongly, Touch::kStrongRead);
  touch_all(footprint.written_strongly, Touch::kStrongWrite);
  touch_all(footprint.written, Touch::kWrite);

  const auto text = [](Touch touch) {
    return verb(touch == Touch::kWrite || touch == Touch::kStrongWrite, touch >= Touch::kStrongRead);
  };
  std::vector<Finding> findings;
  for (const Races::Race& race : races.races) {
    const Call &now = *access.call, &earlier = *race.earlier;
    Finding& finding = findings.emplace_back();
    finding.kind = FindingKind::kRace;
    finding.address = race.address;
    finding.message = fmt::format(
        "the {} {} {} {} bytes, the first at 0x{:x}, which the {} {} {}, with nothing that orders the two",
        now.call.what, now.by, text(race.touch), race.bytes, race.address, earlier.call.what, earlier.by,
        text(race.earlier_touch));
    const auto place = [](const HostCall& at) {
      CodePlace place;
      if (at.where.is_known()) place.file = at.where.file, place.line = static_cast<int>(at.where.line);
      place.function = at.what;
      return place;
    };
    finding.place = place(now.call);
    finding.other_place = place(earlier.call);
    finding.hint =
        "record an event behind the earlier call and let the later one's stream wait for it, or let the host "
        "wait "
        "for the earlier one's stream in between";
  }
  return findings;
}

// ---- memory

namespace {

/// As bits of StreamOrder::Touch (read, write, strong read, strong write): what it must not meet unordered.
constexpr uint8_t kConflicts[] = {0b1010, 0b1111, 0b0010, 0b0011};

}  // namespace

StreamOrder::Memory::iterator StreamOrder::split(uint64_t address) {
  auto at = memory_.lower_bound(address);
  if (at == memory_.begin()) return at;
  auto before = std::prev(at);
  if (before->second.end <= address) return at;
  Segment rest{before->second.end, before->second.accesses};
  before->second.end = address;
  return memory_.emplace_hint(at, address, std::move(rest));
}

void StreamOrder::forget(ByteRange bytes) {
  const auto first = split(bytes.begin);
  memory_.erase(first, split(bytes.end));
}

void StreamOrder::touch(ByteRange bytes, const Access& access, const Clocks& clocks, Races& races) {
  if (bytes.begin >= bytes.end) return;
  split(bytes.end);
  auto at = split(bytes.begin);
  for (uint64_t begin = bytes.begin; begin < bytes.end;) {
    if (at == memory_.end() || at->first > begin) {
      const uint64_t end = at == memory_.end() ? bytes.end : std::min(bytes.end, at->first);
      at = memory_.emplace_hint(at, begin, Segment{end, {access}});
    } else {
      update(begin, at->second, access, clocks, races);
    }
    begin = at->second.end;
    // Neighbours that have become alike are one again.
    if (at != memory_.begin()) {
      const auto before = std::prev(at);
      if (before->second.end == at->first && before->second.accesses == at->second.accesses) {
        before->second.end = at->second.end;
        memory_.erase(at);
        at = before;
      }
    }
    ++at;
  }
}

void StreamOrder::update(uint64_t begin, Segment& segment, const Access& access, const Clocks& clocks,
                         Races& races) {
  const uint8_t conflicts = kConflicts[static_cast<size_t>(access.touch)];
  std::erase_if(segment.accesses, [&](const Access& earlier) {
    const uint8_t theirs = kConflicts[static_cast<size_t>(earlier.touch)];
    const bool is_stronger = (theirs & ~conflicts) == 0;
    if (covers(clocks, earlier))
      return is_stronger;  // who is not ordered with it is not with `access` either
    if ((conflicts >> static_cast<int>(earlier.touch) & 1) == 0) return false;
    races.add(earlier, access.touch, begin, segment.end - begin);
    return is_stronger;  // said once is enough
  });
  segment.accesses.push_back(access);
}

}  // namespace imbrex::vgpu
