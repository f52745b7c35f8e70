// SPDX-License-Identifier: Apache-2.0
// Who wrote what CTAs tell each other by: of every word of global memory that was stored strongly, the store.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>

namespace imbrex::vgpu {

/// Of a launch. Recorders of its clusters share it; they come to it in the order of their turns.
class FlagWriters {
 public:
  struct Writer {
    int32_t cluster = 0;
    int32_t work = 0;  // of that cluster's recording
    bool operator==(const Writer&) const = default;
  };
  void wrote(const std::byte* word, Writer writer) {
    const std::lock_guard lock(mutex_);
    last_[word] = writer;
  }
  /// The last store of the word; nothing where it holds what it held before the launch.
  std::optional<Writer> writer(const std::byte* word) const {
    const std::lock_guard lock(mutex_);
    const auto at = last_.find(word);
    return at == last_.end() ? std::nullopt : std::optional(at->second);
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<const std::byte*, Writer> last_;
};

}  // namespace imbrex::vgpu
