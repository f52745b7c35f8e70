// SPDX-License-Identifier: Apache-2.0
#include "runtime/parallel/rank_link.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "imbrex/core/error.h"
#include "runtime/parallel/collectives.h"

namespace imbrex::runtime {

namespace {

/// Every byte of a signal that ends all waits: a positive int32, larger than any number of calls.
constexpr uint8_t kEndsWaits = 0x7F;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

/// A stream while this lives: the device's own may be the one that waits.
class StreamBeside {
 public:
  explicit StreamBeside(DeviceBackend& backend) : backend_(backend), stream_(backend.create_stream()) {}
  /// Not by DeviceBackend::synchronize() of a GPU, which asks the ranks for a bound.
  void finish() const {
    constexpr double kMostSeconds = 10;
    if (backend_.is_virtual()) return backend_.synchronize(stream_);
    for (const auto begin = Clock::now(); !backend_.has_ended(stream_);)
      if (seconds_since(begin) > kMostSeconds)
        throw DeviceError(Diagnostic{{}, "the GPU does not answer", {}, "look at what else it runs"});
  }
  ~StreamBeside() { backend_.destroy_stream(stream_); }
  StreamBeside(const StreamBeside&) = delete;
  StreamBeside& operator=(const StreamBeside&) = delete;
  CUstream_st* get() const { return stream_; }

 private:
  DeviceBackend& backend_;
  CUstream_st* stream_;
};

RankLink::RankLink(int my_rank, int ranks, Device my_device, double seconds)
    : rank(my_rank), size(ranks), device(std::move(my_device)), patience(seconds) {}
RankLink::~RankLink() = default;

void RankLink::add_signals(uint64_t mine, int64_t bytes) {
  const std::lock_guard lock(signals_mutex_);
  signals_.emplace_back(mine, bytes);
  if (beside_ == nullptr) beside_ = std::make_unique<StreamBeside>(device.backend());
}

std::vector<std::string> RankLink::signals_as_text() const {
  constexpr int64_t kShown = 64;
  DeviceBackend& backend = device.backend();
  const std::lock_guard lock(signals_mutex_);
  std::vector<std::string> texts;
  for (const auto& [address, bytes] : signals_) {
    std::vector<int32_t> values(static_cast<size_t>(std::min(bytes / 4, kShown)));
    backend.start_copy_from_device(values.data(), address, std::ssize(values) * 4, beside_->get());
    beside_->finish();
    texts.push_back(fmt::format("its signals: {}", fmt::join(values, " ")));
  }
  return texts;
}

void RankLink::end_waits(const std::string& why, const Device* by) {
  if (device.is_virtual()) return;
  {
    const std::lock_guard lock(signals_mutex_);
    if (why_waits_ended_.empty()) why_waits_ended_ = why;
    if (collectives != nullptr) collectives->abort();
  }
  set_signals_for_end(by);
}

void RankLink::set_signals_for_end(const Device* by) const {
  // Copied from the host: a large fill is a kernel, for which kernels that wait may leave no room.
  static const std::vector<uint8_t> ends(size_t{1} << 20, kEndsWaits);
  DeviceBackend& backend = (by != nullptr ? *by : device).backend();
  const std::lock_guard lock(signals_mutex_);
  if (signals_.empty()) return;
  std::optional<StreamBeside> of_other;
  const StreamBeside& stream = by != nullptr ? of_other.emplace(backend) : *beside_;
  for (const auto& [address, bytes] : signals_)
    for (int64_t at = 0; at < bytes; at += std::ssize(ends))
      backend.start_copy_to_device(address + static_cast<uint64_t>(at), ends.data(),
                                   std::min(bytes - at, std::ssize(ends)), stream.get());
  stream.finish();
}

std::string RankLink::why_waits_ended() const {
  const std::lock_guard lock(signals_mutex_);
  return why_waits_ended_;
}

std::vector<Brought> RankLink::meet(const std::string& call, Brought brought, SourceLocation where) {
  try {
    return meet_others(call, std::move(brought), where);
  } catch (const Error& error) {
    try {
      end_waits(error.diagnostics().front().message);
    } catch (const Error&) {
      // The GPU has failed, and waits for nothing.
    }
    throw;
  }
}

void RankLink::wait_until(const std::function<bool()>& has_ended, SourceLocation where) {
  constexpr double kSetsEvery = 0.05;
  std::string what;
  std::vector<std::string> facts;
  double next_set = 0;
  for (const auto begin = Clock::now(); !has_ended();) {
    const double waited = seconds_since(begin);
    if (what.empty() && waited > patience) {
      try {
        facts = others();
      } catch (const Error& error) {
        facts.push_back(error.diagnostics().front().message);
      }
      what = fmt::format("rank {}: a kernel has not ended within {:g} s, and its waits were ended", rank,
                         patience);
      const std::string why = fmt::format("{} ({})", what, fmt::join(facts, "; "));
      for (std::string& signals : signals_as_text()) facts.push_back(std::move(signals));
      end_waits(why);
    } else if (waited > 2 * patience) {
      throw DeviceError(Diagnostic{
          where, what + fmt::format(", and {:g} s later it has not ended either", patience), std::move(facts),
          "wait for other ranks by signal::wait() alone, of Communicator::signals()"});
    } else if (waited >= next_set && !why_waits_ended().empty()) {
      // Ranks that had not failed yet may have set them once more.
      set_signals_for_end();
      next_set = waited + kSetsEvery;
    }
    // Kernels that take microseconds are waited for at once, others without taking the core.
    if (waited > 0.002) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  if (what.empty()) return;
  throw DeviceError(Diagnostic{
      where, what, std::move(facts),
      "a signal of another rank has not come: has it launched the same kernels, with the same sizes?"});
}

}  // namespace imbrex::runtime
