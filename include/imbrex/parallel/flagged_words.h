// SPDX-License-Identifier: Apache-2.0
// Small collectives by words that carry their own signal: a rank stores what it has to say into boxes that every rank keeps for
// it, each 32 bits of data together with the number of the call as one word of 64 bits, which arrives whole. Who reads the box
// until all its words have the call's number has the data, one way over the links after it was sent. There is no signal behind
// the data, which would have to wait until the data has arrived, and no meeting at the end: what is sent was read from this rank's own
// memory, which may be overwritten after the kernel. The price is twice the bytes, so it is for small tensors.
//
// A box has two sides, for calls of even and odd numbers. Call c + 2 may use the side of call c again: this rank has got all
// of call c + 1, which every rank began only when its kernel of call c had ended.
#pragma once

#include <vector>

#include "imbrex/lang.h"
#include "imbrex/parallel/signal.h"

namespace imbrex::parallel {

/// The boxes of a kernel with a grid of one dimension, in which CTAs of the same number on all ranks write to one another, a
/// block of words of 32 bits each to each.
class FlaggedWords {
 public:
  /// Signals that boxes of so many words, of at most so many CTAs, take; Communicator::signals() makes them, and ends all waits
  /// by them.
  static int64_t signals(int64_t most_ctas, int most_words, int ranks) {
    return 2 * ranks * most_ctas * most_words * 2;
  }
  /// Whether elements of this type, so many in a row, are whole words.
  static bool can_carry(DataType dtype, int64_t n) {
    return dtype.bits() >= 8 && dtype.bits() <= 32 && n * dtype.bits() % 32 == 0;
  }

  /// `block` words, at most `most_words`, go into each box. `call_ptr`: as MeetingsOfCtas.
  FlaggedWords(Ptr<> box_ptr, Ptr<int32> call_ptr, int most_ctas, int most_words, int block, int ranks,
               int64_t rank_stride_bytes, const Int32& rank)
      : block_(block),
        ranks_(ranks),
        rank_(rank),
        boxes_(symmetric_view(box_ptr, uint64, rank_stride_bytes, ranks, {2, ranks, most_ctas, most_words})),
        calls_(global_view(call_ptr, {most_ctas})[block_idx.x]),
        call_(calls_.item() + 1) {}

  /// The words, uint32 [block], to this CTA of rank `to`, which may be this one.
  void send(const ScalarArg& to, const RegisterBase& words) const {
    const RegisterTensor flagged = words.to(uint64) | (UInt64(call_) << 32);
    atomic::exch(boxes_[to][call_ & 1][rank_][block_idx.x], flagged, {0}, {.scope = Scope::kSystem});
  }
  /// What this CTA of each rank has sent in this call, uint32 [block], when all of it is here.
  std::vector<RegisterTensor> receive() const {
    const auto mine = boxes_[rank_][call_ & 1];
    // An atomic update that changes nothing reads what is in memory now.
    const auto look = [&](int from) {
      return atomic::bit_or(mine[from][block_idx.x], zeros(uint64, {block_}), {0}, {.scope = Scope::kSystem});
    };
    std::vector<RegisterTensor> words;
    words.reserve(static_cast<size_t>(ranks_));
    for (int from = 0; from < ranks_; ++from) words.emplace_back(look(from));
    for (Loop loop : forever()) {
      std::vector<Bool> is_missing;
      Bool misses_any = false;
      for (const RegisterTensor& here : words) {
        is_missing.emplace_back(min((here >> 32).to(int32)) < call_);
        misses_any = misses_any | is_missing.back();
      }
      loop.break_if(!misses_any);
      // Again only where not all has come, and at all of those together.
      for (int from = 0; from < ranks_; ++from)
        if (auto missing = when(is_missing[static_cast<size_t>(from)]))
          words[static_cast<size_t>(from)] = look(from);
    }
    std::vector<RegisterTensor> received;
    received.reserve(words.size());
    for (const RegisterTensor& flagged : words) received.emplace_back(flagged.to(uint32));
    return received;
  }
  /// The next launch is another call.
  void end() const {
    sync();
    atomic::add(calls_, 1);
  }

 private:
  int block_, ranks_;
  Int32 rank_;
  GlobalTensor boxes_, calls_;
  Int32 call_;
};

}  // namespace imbrex::parallel
