// SPDX-License-Identifier: Apache-2.0
// Which store a load by which a warp waits has seen, on whichever GPU of a node: so that a replay lets it wait for that store.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace imbrex::vgpu {

class SignalBoard {
 public:
  /// A store to, or an update of, this host address; its number.
  int32_t tell(const std::byte* at) {
    const std::lock_guard lock(mutex_);
    return last_[at] = told_++;
  }
  /// The last of them; -1: there was none since the launch began.
  int32_t last(const std::byte* at) const {
    const std::lock_guard lock(mutex_);
    const auto found = last_.find(at);
    return found == last_.end() ? -1 : found->second;
  }
  int32_t told() const { return told_; }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<const std::byte*, int32_t> last_;
  int32_t told_ = 0;
};

}  // namespace imbrex::vgpu
