// SPDX-License-Identifier: Apache-2.0
// What newcomers write: every line says the message that it fails with.
#include "imbrex/lang.h"
using namespace imbrex;

void kernel(Int32 m, Ptr<float16> p, Ptr<float32> q) {
  auto g = global_view(p, {m, 64}), other = global_view(p, {m, 64});
  auto s = shared_tensor(float16, {64, 64});
  auto r = load_global(g, {0, 0}, {64, 64});
  RegisterTensor v = r;

  auto element = r[0];        // error: `x.item({i, j})` is one of them
  auto call = r(0, 0);        // error: the elements of a register tensor are spread over threads
  auto row = v[block_idx.x];  // error: the elements of a register tensor are spread over threads
  auto pointed = p[0];        // error: a pointer has no elements
  auto at = *q;               // error: `auto g = global_view(p, {n})` gives it a shape
  auto behind = q + 1;        // error: a pointer has no elements

  store_global(g, g, {0, 0});  // error: load the tile first, `load_global(g, {row, column}, {rows, columns})`
  store_global(g, s, {0, 0});  // error: load it first, `load_shared(s)`
  store_global(g, 0.5f, {0, 0});   // error: `full(float32, {1}, x)` one element
  store_global(s, r, {0, 0});      // error: a shared tensor where one of global memory is wanted
  store_global(p, r, {0, 0});      // error: a pointer where a tensor of global memory is wanted
  store_global(r, g, {0, 0});      // error: stores take the destination first, `store_global(
  store_global(g, r);              // error: where to? give the tile's place
  store_shared(g, r);              // error: a tensor of global memory where a shared one is wanted
  store_shared(r, s);              // error: stores take the destination first, `store_shared(s, tile)`
  load_global(g, {0, 0});          // error: which tile? give its place and its shape
  load_global(q, {0, 0}, {8, 8});  // error: give it a shape first
  dot(m, r);                       // error: a number where a register tensor is wanted

  g[0] = r;          // error: elements of a tensor are not assigned: store a tile by
  g[0] = other[0];   // error: a number by `store_global(g, full(g.dtype(), {1}, x), {row, column})`
  g[0][1] = 1.0f;    // error: elements of a tensor are not assigned
  g[0][1] += 1;      // error: atomic::add() adds where several threads may
  s = r;             // error: store a tile of the tensor's shape by `store_shared(s, tile)`
  RegisterTensor a;  // error: a register tensor begins with a value
  RegisterTensor b(float32, {8});  // error: `RegisterTensor x = zeros(float32, {m, n})`
  RegisterTensor c(s);             // error: a shared tensor is no register tensor
  RegisterTensor d(g);             // error: a tensor of global memory is no register tensor
  RegisterTensor e(0.5f);          // error: a number has no shape

  shared_tensor(float16, {m, 8});  // error: are known when the kernel is traced
  if (when(m > 3)) sync();         // error: the scope would end before its block begins
}
