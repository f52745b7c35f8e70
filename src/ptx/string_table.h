// SPDX-License-Identifier: Apache-2.0
// A small read-mostly hash table from text to values, for the reader's inner loop.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace imbrex::ptx {

/// Open addressing, power-of-two capacity. Keys are not copied: they must outlive the table.
template <class T>
class StringTable {
 public:
  StringTable() : slots_(16) {}

  /// The value of `key`; null when there is none. Valid until the next insertion.
  T* find(std::string_view key) {
    Slot& s = slots_[slot_of(key)];
    return s.key.data() != nullptr ? &s.value : nullptr;
  }
  const T* find(std::string_view key) const { return const_cast<StringTable*>(this)->find(key); }

  /// The value of `key`, made when there is none. Valid until the next insertion.
  T& operator[](std::string_view key) {
    if ((used_ + 1) * 2 > slots_.size()) grow();
    Slot& s = slots_[slot_of(key)];
    if (s.key.data() == nullptr) {
      s.key = key;
      ++used_;
    }
    return s.value;
  }

  /// Calls f(key, value) for each entry, in no particular order.
  template <class F>
  void for_each(F&& f) const {
    for (const Slot& s : slots_)
      if (s.key.data() != nullptr) f(s.key, s.value);
  }

  void clear() {
    slots_.assign(16, Slot{});
    used_ = 0;
  }

 private:
  struct Slot {
    std::string_view key;
    T value{};
  };

  size_t slot_of(std::string_view key) const {
    uint64_t h = 1469598103934665603u;
    for (char c : key) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211u;
    size_t mask = slots_.size() - 1;
    size_t i = (h ^ h >> 32) & mask;
    while (slots_[i].key.data() != nullptr && slots_[i].key != key) i = (i + 1) & mask;
    return i;
  }

  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (Slot& s : old)
      if (s.key.data() != nullptr) slots_[slot_of(s.key)] = std::move(s);
  }

  std::vector<Slot> slots_;
  size_t used_ = 0;
};

}  // namespace imbrex::ptx
