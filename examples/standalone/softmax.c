/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel library from C: softmax of rows, on a CUDA GPU if there is one, else on the virtual GPU. */
#include <imbrex/c.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void check(imbrex_status status) {
  if (status == IMBREX_OK) return;
  fprintf(stderr, "%s\n", imbrex_last_error());
  exit(1);
}

int main(void) {
  enum { kRows = 3, kColumns = 100 };
  float x[kRows][kColumns], y[kRows][kColumns];
  for (int i = 0; i < kRows; ++i)
    for (int j = 0; j < kColumns; ++j) x[i][j] = sinf((float)(i * kColumns + j));

  imbrex_device* device = NULL;
  if (imbrex_device_open_cuda(0, &device) != IMBREX_OK) check(imbrex_device_open_virtual(NULL, &device));
  uint64_t d_x = 0, d_y = 0;
  check(imbrex_allocate(device, sizeof x, &d_x));
  check(imbrex_allocate(device, sizeof y, &d_y));
  check(imbrex_copy_to_device(device, d_x, x, sizeof x, NULL));

  const int64_t shape[] = {kRows, kColumns};
  imbrex_tensor in = {.address = d_x, .dtype = IMBREX_FLOAT32, .rank = 2, .shape = shape};
  imbrex_tensor out = {.address = d_y, .dtype = IMBREX_FLOAT32, .rank = 2, .shape = shape};
  check(imbrex_softmax(device, &in, &out, NULL, NULL));
  check(imbrex_copy_from_device(device, y, d_y, sizeof y, NULL));

  for (int i = 0; i < kRows; ++i) {
    double sum = 0;
    for (int j = 0; j < kColumns; ++j) sum += y[i][j];
    if (fabs(sum - 1) > 1e-5) return fprintf(stderr, "row %d sums to %g\n", i, sum), 1;
  }
  printf("%d rows on %s\n", kRows, imbrex_device_name(device));
  check(imbrex_free(device, d_x));
  check(imbrex_free(device, d_y));
  imbrex_device_close(device);
  return 0;
}
