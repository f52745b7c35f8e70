// SPDX-License-Identifier: Apache-2.0
// The columns of a cache that few rows of Q see: which blocks there are to read, how they are divided among CTAs, and what
// becomes of their scores.
#pragma once

#include <limits>

#include "imbrex/kernels/attention/score_steps.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

/// Of one sequence of `length` rows, the last q_size of which are those of Q.
template <class Steps>
class DecodeColumns {
 public:
  DecodeColumns(const Steps& steps, const Int32& length, const Int32& q_size, const Int32& batch,
                int block_kv)
      : steps_(steps),
        length_(length),
        q_size_(q_size),
        batch_(batch),
        block_kv_(block_kv),
        end_(length + 0) {
    steps.narrow({length - q_size, length - 1, batch}, begin_, end_);
    begin_ = max(begin_, 0) / block_kv;
    end_ = max(cdiv(min(end_, length), block_kv), begin_);
  }

  /// The first block of a part; that of part `parts` is behind the last one.
  Expr first_of(const ScalarArg& part, const Int32& parts) const {
    return begin_ + (end_ - begin_) * part / parts;
  }

  /// Changes the scores of a block, whose first column is `offset`, and sets those that are not seen to -infinity. `factor` is
  /// what they are multiplied by where a step changes them.
  void apply(RegisterTensor& scores, const Int32& offset, const ScalarArg& factor,
             const ScoreTile& at) const {
    if (steps_.changes()) {
      scores = scores * factor;
      steps_.change(scores, at);
    }
    auto is_edge =
        steps_.is_edge({length_ - q_size_, length_ - 1, offset, offset + (block_kv_ - 1), batch_}, length_);
    if (auto edge = when(is_edge)) steps_.mask(scores, at, length_);
  }

 private:
  const Steps& steps_;
  const Int32 &length_, &q_size_, &batch_;
  int block_kv_;
  Int32 begin_ = 0, end_;
};

}  // namespace imbrex::kernels
