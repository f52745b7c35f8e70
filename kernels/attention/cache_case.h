// SPDX-License-Identifier: Apache-2.0
// Sequences in a cache, of registered kernels' problems: how long they are, and on which pages they lie.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include "attention/packed_case.h"
#include "imbrex/runtime/registry.h"

namespace imbrex::kernels {

struct CacheCase {
  int64_t page, of_sequence, pages,
      rows_of_page;  ///< page: 0 where sequences lie in one piece, which then is their page
  std::vector<int64_t> length_of, page_of;
  DeviceTensor lengths, table;

  /// Room for `capacity` rows of each of `batches` sequences. Of ragged ones the first is full, every fourth empty.
  CacheCase(Case& c, int64_t batches, int64_t capacity, int64_t page, bool is_ragged)
      : page(page),
        of_sequence(page > 0 ? (capacity + page - 1) / page : 1),
        pages(batches * of_sequence),
        rows_of_page(page > 0 ? page : capacity),
        length_of(static_cast<size_t>(batches), capacity) {
    for (int64_t b = 1; b < batches && is_ragged; ++b)
      length_of[b] = b % 4 == 3 ? 0 : (b * 7919 + 13) % (capacity + 1);
    for (int64_t i = 0; i < pages; ++i) page_of.push_back(page > 0 ? (i * step() + 5) % pages : i);
    if (is_ragged || page > 0) lengths = as_input(c, length_of);
    if (page > 0) table = as_input(c, page_of, {batches, of_sequence});
  }

  double all_rows() const {
    double rows = 0;
    for (int64_t length : length_of) rows += static_cast<double>(length);
    return rows;
  }
  /// Where row j of a sequence lies, among the rows of head `head` of `heads` of the whole cache.
  int64_t row_at(int64_t sequence, int64_t j, int64_t heads = 1, int64_t head = 0) const {
    const int64_t at = page_of[sequence * of_sequence + j / rows_of_page];
    return (at * heads + head) * rows_of_page + j % rows_of_page;
  }

 private:
  int64_t step() const {  // a number that shares no divisor with `pages`: pages lie scattered
    int64_t step = pages / 2 + 1;
    while (std::gcd(step, pages) != 1) ++step;
    return step;
  }
};

}  // namespace imbrex::kernels
