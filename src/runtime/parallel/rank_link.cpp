// SPDX-License-Identifier: Apache-2.0
#include "runtime/parallel/rank_link.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "runtime/device/backend.h"
#include "runtime/parallel/collectives.h"

namespace imbrex::runtime {

namespace {

/// Every byte of a signal that ends all waits: a positive int32, larger than any number of calls.
constexpr uint8_t kEndsWaits = 0x7F;

/// A stream while this lives: the device's own may be the one that waits.
class StreamBeside {
 public:
  explicit StreamBeside(DeviceBackend& backend) : backend_(backend), stream_(backend.create_stream()) {}
  ~StreamBeside() { backend_.destroy_stream(stream_); }
  StreamBeside(const StreamBeside&) = delete;
  StreamBeside& operator=(const StreamBeside&) = delete;
  CUstream_st* get() const { return stream_; }

 private:
  DeviceBackend& backend_;
  CUstream_st* stream_;
};

}  // namespace

void RankLink::add_signals(uint64_t mine, int64_t bytes) {
  const std::lock_guard lock(signals_mutex_);
  signals_.emplace_back(mine, bytes);
}

std::vector<std::string> RankLink::signals_as_text() const {
  constexpr int64_t kShown = 64;
  DeviceBackend& backend = device.backend();
  const std::lock_guard lock(signals_mutex_);
  const StreamBeside stream(backend);
  std::vector<std::string> texts;
  for (const auto& [address, bytes] : signals_) {
    std::vector<int32_t> values(static_cast<size_t>(std::min(bytes / 4, kShown)));
    backend.start_copy_from_device(values.data(), address, std::ssize(values) * 4, stream.get());
    backend.synchronize(stream.get());
    texts.push_back(fmt::format("its signals: {}", fmt::join(values, " ")));
  }
  return texts;
}

void RankLink::end_waits(const std::string& why) {
  if (device.is_virtual()) return;
  DeviceBackend& backend = device.backend();
  const std::lock_guard lock(signals_mutex_);
  if (why_waits_ended_.empty()) why_waits_ended_ = why;
  if (collectives != nullptr) collectives->abort();
  const StreamBeside stream(backend);
  for (const auto& [address, bytes] : signals_) backend.start_fill(address, kEndsWaits, bytes, stream.get());
  backend.synchronize(stream.get());
}

std::string RankLink::why_waits_ended() const {
  const std::lock_guard lock(signals_mutex_);
  return why_waits_ended_;
}

}  // namespace imbrex::runtime
