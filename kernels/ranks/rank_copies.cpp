// SPDX-License-Identifier: Apache-2.0
#include "ranks/rank_copies.h"

namespace imbrex::parallel {

RankCopies::RankCopies(const Communicator& ranks)
    : begin_({}, ranks.device()), stand_in_({}, ranks.device()) {
  if (!ranks.device().is_virtual()) copies_.emplace(ranks.device());
}

LaunchReport RankCopies::begin(Until until, const kernels::RankSignalsArguments& signals,
                               const Stream& stream) {
  if (until == Until::kLaunched) return begin_.on(stream)(signals);
  begin_.prepare(signals);
  return {};
}

void RankCopies::fork(Until until, const Stream& stream) {
  if (copies_ && until == Until::kLaunched) copies_->fork(stream);
}

LaunchReport RankCopies::copy(Until until, const kernels::RankSignalsArguments& signals, DataType dtype,
                              int64_t n, ElementsFrom from, ElementsFrom place, int to, int64_t part,
                              const Stream& stream, SourceLocation where) {
  if (!copies_) {
    const auto with_arguments = [&](const auto& body) {
      return body(signals, dtype, n, from.address, from.first, place.address, place.first, to, part);
    };
    if (until == Until::kLaunched)
      return with_arguments([&](const auto&... all) { return stand_in_.on(stream, where)(all...); });
    with_arguments([&](const auto&... all) { stand_in_.prepare(all...); });
  }
  if (until == Until::kCompiled) return {};
  const uint64_t there = static_cast<uint64_t>(to) * static_cast<uint64_t>(signals.rank_stride_bytes);
  const auto address = [&](const ElementsFrom& at) {
    return at.address + static_cast<uint64_t>(at.first * dtype.bytes());
  };
  copies_->copy(address(place) + there, address(from), n * dtype.bytes(), where);
  const auto signal = static_cast<uint64_t>(signals.rank * (signals.parts + 1) + 1 + part);
  constexpr uint64_t kBytes = 4, kNumber = 2;
  copies_->copy(signals.signals + there + signal * kBytes, signals.progress + kNumber * kBytes, kBytes,
                where);
  return {};
}

void RankCopies::join(Until until, const Stream& stream) {
  if (copies_ && until == Until::kLaunched) copies_->join(stream);
}

bool are_copies_hidden(const Device& device, double bytes, double operations, int64_t tiles) {
  // Of an H100: what a copy over its links carries, and what its tensor cores do at their power limit; and how long it takes from a
  // kernel's end to a copy's begin, and from its end to that of the signal.
  constexpr double kBytesPerSecond = 350e9, kOperationsPerSecond = 700e12, kLatency = 15e-6;
  return tiles * 10 >= device.multiprocessors() * int64_t{9} &&
         bytes / kBytesPerSecond + kLatency <= operations / kOperationsPerSecond;
}

}  // namespace imbrex::parallel
