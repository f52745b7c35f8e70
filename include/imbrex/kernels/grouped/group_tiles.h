// SPDX-License-Identifier: Apache-2.0
// Which tile of which group is next: computed on the device, from sizes of groups that only device memory knows.
#pragma once

#include "imbrex/lang.h"

namespace imbrex::kernels {

/// The rows of each group, in shared memory. Groups follow each other (`first_row`, groups + 1 elements that do not
/// decrease), or each has room for `room` rows of which the first count[g] are used (masked).
class GroupRows {
 public:
  /// The whole CTA executes it; usable after the next sync. At most `most` groups, a number that is compiled for.
  /// `all`: not null where there is one group with so many rows, and nothing is read.
  GroupRows(const Ptr<int32>& pointer, const Int32& groups, int most, bool masked, const Int32& room,
            const Int32* all = nullptr)
      : groups(groups),
        all_(all),
        most_(most),
        s_begin_(shared_tensor(int32, {most})),
        s_end_(shared_tensor(int32, {most})) {
    if (all != nullptr) return;
    if (masked) {
      auto begin = register_tensor(int32, {most}, [&](auto g) { return g * room; });
      store_shared(s_begin_, begin);
      store_shared(s_end_, begin + min(load_global(global_view(pointer, {groups}), {0}, {most}), room));
    } else {
      auto g_first = global_view(pointer, {groups + 1});
      store_shared(s_begin_, load_global(g_first, {0}, {most}));
      store_shared(s_end_, load_global(g_first, {1}, {most}));
    }
  }

  const Int32& groups;
  Expr begin(const ScalarArg& group) const { return s_begin_.item({min(group, most_ - 1)}); }
  Expr end(const ScalarArg& group) const { return s_end_.item({min(group, most_ - 1)}); }
  /// What the caller has promised of the rows of a group; the virtual GPU says where it is not so.
  void promise(const Int32& group, const Int32& begin, const Int32& end) const {
    const auto holds = group >= groups || (begin >= 0 && begin <= end);
    assume(holds);  // the numbers in `rows` do not decrease, counts are not negative
  }
  /// The rows of the one group, where there is one.
  const Int32* all() const { return all_; }

 private:
  const Int32* all_;
  int most_;
  SharedTensor s_begin_, s_end_;
};

/// Walks over the tiles of all groups, group by group; each thread group that needs tiles has its own:
///
///   GroupTiles tiles(rows, 256, 16, 8);
///   for (Int32 tile = ...; ; tile += clusters): tiles.find(tile), until tiles.at_end()
///
/// Numbers of tiles must not decrease. In a group, tiles lie in bands of `band` columns of tiles, each band row by row.
class GroupTiles {
 public:
  /// Tiles of `block_m` rows, `columns` of them beside each other.
  GroupTiles(const GroupRows& rows, int block_m, const Int32& columns, int band)
      : rows_(rows), block_m_(block_m), columns_(columns), band_(band) {
    look();
  }

  Int32 group = 0;
  Int32 begin = 0, end = 0;        ///< the group's rows
  Int32 m_block = 0, n_block = 0;  ///< the tile's place in the group
  Expr at_end() const { return group >= rows_.groups; }

  /// Goes on to tile number `tile`, or to the end.
  void find(const Int32& tile) {
    for (Loop search : forever()) {
      search.break_if(group >= rows_.groups || tile - before_ < count_);
      before_ += count_;
      group += 1;
      look();
    }
    Int32 in_group = tile - before_;
    Int32 band_tiles = max(down_, 1) * band_;
    Int32 index = in_group / band_tiles;
    in_group -= index * band_tiles;
    Int32 first_column = index * band_;
    Int32 width = min(columns_ - first_column, band_);
    m_block = in_group / max(width, 1);
    n_block = first_column + in_group - m_block * width;
  }

 private:
  void look() {
    if (rows_.all() != nullptr) {
      begin = 0;
      end = *rows_.all();
    } else {
      begin = rows_.begin(group);
      end = rows_.end(group);
      rows_.promise(group, begin, end);
    }
    down_ = cdiv(max(end - begin, 0), block_m_);
    count_ = down_ * columns_;
  }
  const GroupRows& rows_;
  int block_m_;
  const Int32& columns_;
  int band_;
  Int32 before_ = 0, down_ = 0, count_ = 0;
};

}  // namespace imbrex::kernels
