// SPDX-License-Identifier: Apache-2.0
// What newcomers write: every line says the message that it fails with.
#include <iostream>

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
  store_global(g, s + 1, {0, 0});  // error: so load it first, `load_shared(s) + 1`

  g[0] = r;          // error: elements of a tensor are not assigned: store a tile by
  g[0] = other[0];   // error: a number by `store_global(g, full(g.dtype(), {1}, x), {row, column})`
  g[0][1] = 1.0f;    // error: elements of a tensor are not assigned
  g[0][1] += 1;      // error: atomic::add() adds where several threads may
  s = r;             // error: store a tile of the tensor's shape by `store_shared(s, tile)`
  RegisterTensor a;  // error: a register tensor begins with a value
  RegisterTensor b(float32, {8});  // error: `RegisterTensor x = zeros(float32, {m, n})`
  RegisterTensor c = s;            // error: a shared tensor is no register tensor
  RegisterTensor d = g;            // error: a tensor of global memory is no register tensor
  RegisterTensor e = 0.5f;         // error: a number has no shape
  RegisterTensor i = m;            // error: a number has no shape
  Int32 unset;                     // error: a variable begins with a value: `Int32 x = 0`

  int number = static_cast<int>(m);  // error: a traced value is no C++ number
  double real = double(r);           // error: a register tensor is no number: reduce it
  float stored(g[0][0]);             // error: an element of memory is read when the kernel runs
  cast<float>(m);                    // error: types of a kernel are values, not C++ types: `cast<float32>(x)`
  sum(r, 1);                         // error: name the axis: `sum(x, {.axis = 1})`
  std::cout << m;                    // error: the running kernel prints it
  std::cout << r;                    // error: `print_tensor(x)`
  printf("%f\n", r);                 // error: `print_tensor(t)` prints a tile
  printf("%d %f\n", m, r);           // error: `print_tensor(t)` prints a tile

  zeros(float32, 64);                    // error: a shape stands in braces: `zeros(float32, {m, n})`
  zeros({64, 64}, float32);              // error: the type comes before the shape: `zeros(float32, {m, n})`
  shared_tensor({64, 64});               // error: of which type? give it before the shape: `shared_tensor(
  shared_tensor(float16, 64, 64);        // error: a shape stands in braces: `shared_tensor(
  global_view(p, m, 64);                 // error: a shape stands in braces: `global_view(p, {m, n})`
  global_view(p);                        // error: of which shape? a pointer has none
  load_global(g);                        // error: which tile? give its place and its shape
  load_global(g, 0, 0, {64, 64});        // error: offsets and shapes stand in braces
  load_global(g, {0, 0}, 64, 64);        // error: offsets and shapes stand in braces
  store_global(g, {0, 0}, r);            // error: the tile comes before its place
  store_global(g, r, 0, 0);              // error: offsets stand in braces
  load_shared(s, {8, 8});                // error: load_shared() loads a whole tensor or view
  load_shared(s, {8, 8}, {8, 8});        // error: load_shared() loads a whole tensor or view
  store_shared(s, r, {8, 8});            // error: store_shared() stores a whole tensor or view
  copy_async(g, s);                      // error: copied from where? give the tile's place
  tma::global_to_shared(g, s, {0, 0});   // error: which barrier says that the tile is there?
  grid({m, 1});                          // error: the extents of the grid are arguments of their own
  warps(m);                              // error: warps() takes C++ numbers, known when the kernel is traced
  if (auto role = single_warp(m + 1)) {  // error: single_warp() takes C++ numbers
  }
  shared_tensor(float16, {m, 8});  // error: are known when the kernel is traced
  if (when(m > 3)) sync();         // error: the scope would end before its block begins
}
