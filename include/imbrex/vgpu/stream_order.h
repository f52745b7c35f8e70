// SPDX-License-Identifier: Apache-2.0
// What comes before what in a host program: happens-before across launches, copies, fills, frees and the host, by
// the rules of CUDA's streams and events. The virtual GPU carries out each call before it returns; this class knows
// what a GPU would be free to do, and tells where two calls touch the same bytes with nothing that orders them.
//
//   vgpu::StreamOrder& order = gpu.order();
//   const auto a = order.create_stream("stream a"), b = order.create_stream("stream b");
//   gpu.launch(produce, {.grid = {n}, .arguments = arguments, .stream = a});
//   const auto ready = order.create_event();
//   order.record(ready, a);
//   order.wait(b, ready);                             // without this line the next launch reports a race
//   gpu.launch(consume, {.grid = {n}, .arguments = arguments, .stream = b});
//
// The rules:
//   - Operations of one stream are ordered as they were issued.
//   - An operation comes after all that the host waited for before it issued it. Issuing orders nothing else.
//   - wait(stream, event): what follows on the stream comes after what was on the event's stream at its last record().
//   - synchronize(): the host comes after the stream, the event or everything.
//   - The legacy default stream (kLegacyStream): its operations come after all that blocking streams were given
//     before, and before all that blocking streams are given afterwards. Non-blocking streams take no notice of it.
//   - Two operations may touch the same bytes unordered if both only read, or both by atomics and other strong
//     accesses (volatile, relaxed, acquire, release).
// All threads of the host count as one, in the order in which their calls came; what the host does with its own
// memory is seen only where it is told.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "imbrex/core/source_location.h"
#include "imbrex/vgpu/report.h"

namespace imbrex::vgpu {

/// The bytes from `begin` up to `end`.
struct ByteRange {
  uint64_t begin = 0, end = 0;
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

/// The bytes that an operation touches; each list ascending, without overlap. Addresses of the device and of the host
/// are of one space, in which they do not meet.
struct Footprint {
  std::vector<ByteRange> read, written;
  std::vector<ByteRange> read_strongly, written_strongly;  ///< by atomics and other strong accesses

  static Footprint of_read(uint64_t address, int64_t bytes);
  static Footprint of_write(uint64_t address, int64_t bytes);
  static Footprint of_copy(uint64_t to, uint64_t from, int64_t bytes);
};

/// A call of the host program, as messages name it.
struct HostCall {
  std::string what;      ///< "launch of 'scale'", "copy to the host"
  SourceLocation where;  ///< of the call; may be unknown
};

/// Keeps of every byte who touched it last. Not to be used by several threads at once.
class StreamOrder {
 public:
  using Stream = uint32_t;
  using Event = uint32_t;
  /// CUDA's default stream. It is there from the start.
  static constexpr Stream kLegacyStream = 0;

  StreamOrder();
  ~StreamOrder();
  StreamOrder(const StreamOrder&) = delete;
  StreamOrder& operator=(const StreamOrder&) = delete;

  /// A stream that messages call `name` ("": "stream 3"). A blocking one is ordered with the legacy default stream.
  Stream create_stream(std::string name = "", bool is_blocking = false);
  /// What is on the stream stays to be waited for by events and by synchronize().
  void destroy_stream(Stream stream);
  Event create_event();
  void destroy_event(Event event);

  /// The event stands behind what is on the stream now.
  void record(Event event, Stream stream);
  /// What follows on the stream comes after the event's last record(); nothing where there was none, as in CUDA.
  void wait(Stream stream, Event event);
  /// The host waits: for a stream, for an event's last record(), for everything. A query that answers "done" is one.
  void synchronize(Stream stream);
  void synchronize_event(Event event);
  void synchronize();

  /// An operation on a stream. The findings, of kind kRace, tell for each earlier call that is not ordered with it
  /// what both did to which bytes.
  std::vector<Finding> perform(Stream stream, const HostCall& call, const Footprint& footprint);
  /// The same by the host itself: memory that both can address, or a free that does not wait.
  std::vector<Finding> perform_on_host(const HostCall& call, const Footprint& footprint);
  /// The bytes are no longer anybody's: what touched them so far is forgotten.
  void forget(ByteRange bytes);

  /// How many stretches of memory are remembered: 0 once the host has waited for everything.
  size_t remembered() const { return memory_.size(); }

 private:
  /// By agent: the host, then the streams. What is known of each, as the number of its operations.
  using Clocks = std::vector<uint32_t>;
  using Agent = uint32_t;
  enum class Touch : uint8_t { kRead, kWrite, kStrongRead, kStrongWrite };
  struct Call;
  struct Access {
    Agent agent = 0;
    uint32_t clock = 0;
    Touch touch = Touch::kRead;
    std::shared_ptr<const Call> call;
    friend bool operator==(const Access&, const Access&) = default;
  };
  struct Segment {
    uint64_t end = 0;
    std::vector<Access> accesses;
  };
  struct StreamState {
    std::string name;
    Clocks clocks;
    bool is_blocking = false, is_alive = false;
  };
  struct Races;
  using Memory = std::map<uint64_t, Segment>;  // by the first byte

  static constexpr Agent kHost = 0;
  static constexpr Agent agent_of(Stream stream) { return stream + 1; }
  static void join(Clocks& clocks, const Clocks& others);
  static bool covers(const Clocks& clocks, const Access& access);

  /// Brings a stream up to what precedes whatever is issued on it now.
  Clocks& current(Stream stream);
  void host_waited_for(const Clocks& clocks);
  std::vector<Finding> perform_as(Agent agent, Clocks& clocks, std::string by, const HostCall& call,
                                  const Footprint& footprint);
  void touch(ByteRange bytes, const Access& access, const Clocks& clocks, Races& races);
  void update(uint64_t begin, Segment& segment, const Access& access, const Clocks& clocks, Races& races);
  /// The segment that begins at `address`, or the first behind it; one that reaches across is split.
  Memory::iterator split(uint64_t address);

  Clocks host_;
  std::vector<StreamState> streams_;
  std::vector<Stream> unused_streams_;  // destroyed, and waited for by the host
  std::map<Event, Clocks> events_;
  Event next_event_ = 1;
  Memory memory_;
};

}  // namespace imbrex::vgpu
