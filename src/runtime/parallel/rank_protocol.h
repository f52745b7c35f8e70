// SPDX-License-Identifier: Apache-2.0
// What ranks that are processes say to rank 0's process, which keeps their meetings and hosts the virtual node: a request
// is the number of a call and its arguments, an answer how it ended and what it returned.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "imbrex/core/error.h"
#include "runtime/device/machine.h"
#include "runtime/host/packet.h"

namespace imbrex::runtime {

// ---- structures

/// A copy of the text that lives as long as the program, as SourceLocation wants.
const char* kept_for_good(std::string_view text);

inline void members(PacketWriter& to, SourceLocation& where) {
  to(std::string_view(where.file), where.line, std::string_view(where.function));
}
inline void members(PacketReader& from, SourceLocation& where) {
  where.file = kept_for_good(from.next<std::string_view>());
  from(where.line);
  where.function = kept_for_good(from.next<std::string_view>());
}
template <class Archive>
void members(Archive& archive, Diagnostic& d) {
  archive(d.where, d.message, d.facts, d.help);
}
template <class Archive>
void members(Archive& archive, vgpu::ByteRange& r) {
  archive(r.begin, r.end);
}
template <class Archive>
void members(Archive& archive, vgpu::Footprint& f) {
  archive(f.read, f.written, f.read_strongly, f.written_strongly);
}
template <class Archive>
void members(Archive& archive, vgpu::HostCall& c) {
  archive(c.what, c.where);
}
template <class Archive>
void members(Archive& archive, vgpu::CodePlace& p) {
  archive(p.file, p.line, p.ptx_line, p.ptx, p.function);
}
template <class Archive>
void members(Archive& archive, vgpu::Actor& a) {
  archive(a.rank, a.cta, a.warp, a.lane, a.unit);
}
template <class Archive>
void members(Archive& archive, vgpu::Finding& f) {
  archive(f.kind, f.severity, f.rule, f.message, f.place, f.actor, f.other_place, f.other_actor, f.address,
          f.facts, f.hint, f.count);
}
template <class Archive>
void members(Archive& archive, vgpu::Statistics& s) {
  archive(s.ctas, s.instructions, s.lane_instructions, s.global_bytes_read, s.global_bytes_written,
          s.shared_bytes_read, s.shared_bytes_written, s.local_bytes_read, s.local_bytes_written,
          s.cp_async_bytes, s.tma_bytes_loaded, s.tma_bytes_repeated, s.tma_bytes_stored,
          s.tensor_memory_bytes, s.operand_bytes, s.tensor_flops, s.async_operations, s.barrier_waits);
}
template <class Archive>
void members(Archive& archive, vgpu::BankUse& b) {
  archive(b.place, b.writes, b.bytes, b.accesses, b.wavefronts, b.ideal, b.degree);
}
template <class Archive>
void members(Archive& archive, vgpu::SectorUse& s) {
  archive(s.place, s.access, s.bytes, s.requests, s.sectors, s.ideal, s.bytes_asked);
}
/// Without a timeline: on several GPUs there is none.
template <class Archive>
void members(Archive& archive, vgpu::Report& r) {
  archive(r.findings, r.notes, r.statistics, r.printf_output, r.completed, r.ctas_left_out, r.banks,
          r.sectors);
}
template <class Archive>
void members(Archive& archive, vgpu::Dim3& d) {
  archive(d.x, d.y, d.z);
}
/// With a parameter buffer.
template <class Archive>
void members(Archive& archive, vgpu::Launch& l) {
  archive(l.grid, l.cluster, l.block, l.dynamic_shared_bytes, l.cooperative, l.explicit_cluster,
          l.parameter_buffer, l.stream, l.where);
}

/// What each of two connections of a rank says first.
struct Hello {
  std::string protocol, build, job;
  bool is_for_notices = false;
  int rank = 0, size = 0;
  int64_t process = 0;
  std::string where;  // on which GPUs: "virtual GPUs (sm_90a)"
  std::string gpu;    // of CUDA: where it is in the server
};
template <class Archive>
void members(Archive& archive, Hello& h) {
  archive(h.protocol, h.build, h.job, h.is_for_notices, h.rank, h.size, h.process, h.where, h.gpu);
}

/// Answered once all ranks have come.
struct Welcome {
  std::string refusal;  // why there is no group; "" where there is one
  int64_t rank_stride_bytes = 0;
};
template <class Archive>
void members(Archive& archive, Welcome& w) {
  archive(w.refusal, w.rank_stride_bytes);
}

// ---- calls

enum class CallNumber : uint8_t { kMeet, kEnd, kOthers, kRead, kFirstOfMachine };

/// Calls that are numbered as they stand here.
template <auto... kCalls>
struct CallTable {
  template <auto kCall>
  static constexpr CallNumber number() {
    uint8_t found = 0, at = 0;
    ((std::is_same_v<std::integral_constant<decltype(kCall), kCall>,
                     std::integral_constant<decltype(kCalls), kCalls>>
          ? void(found = at++)
          : void(at++)),
     ...);
    return static_cast<CallNumber>(static_cast<uint8_t>(CallNumber::kFirstOfMachine) + found);
  }
  /// `serve.template operator()<kCall>()` for the one of this number; false where there is none.
  template <class Serve>
  static bool with(CallNumber wanted, Serve&& serve) {
    return ((number<kCalls>() == wanted && (serve.template operator()<kCalls>(), true)) || ...);
  }
};

/// Machine's, but for what a rank's own process answers itself, and read(), whose bytes are the answer.
using MachineCalls =
    CallTable<&Machine::allocate, &Machine::free, &Machine::write, &Machine::copy, &Machine::fill,
              &Machine::discard, &Machine::create_stream, &Machine::destroy_stream, &Machine::create_event,
              &Machine::destroy_event, &Machine::record, &Machine::wait, &Machine::synchronize_stream,
              &Machine::synchronize_event, &Machine::synchronize, &Machine::forget, &Machine::judge,
              &Machine::judge_on_host, &Machine::load, &Machine::unload, &Machine::launch>;

/// Takes the arguments of a call from a request, makes it, and puts what it returns into the answer.
template <class Result, class... Arguments>
void answer_call(Machine& machine, Result (Machine::*call)(Arguments...), PacketReader& request,
                 PacketWriter& answer) {
  std::tuple<std::decay_t<Arguments>...> arguments;
  std::apply([&](auto&... each) { request(each...); }, arguments);
  const auto make = [&](const auto&... each) { return (machine.*call)(each...); };
  if constexpr (std::is_void_v<Result>)
    std::apply(make, arguments);
  else
    answer(std::apply(make, arguments));
}

// ---- how a call ended

/// The exception that is being handled, for another process; and there, thrown anew.
void put_exception(PacketWriter& answer);
[[noreturn]] void throw_exception(PacketReader& answer);

/// An answer: what `make` puts into it, or what it throws.
std::string answer_of(const std::function<void(PacketWriter&)>& make);
/// Behind what answer_of() begins with. Throws what was thrown there.
PacketReader opened(std::string_view answer);

}  // namespace imbrex::runtime
