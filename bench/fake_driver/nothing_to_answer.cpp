// SPDX-License-Identifier: Apache-2.0
// Every function that Imbrex loads from a driver, succeeding without an answer. Weak: those that fake_driver.cpp has take
// their places.
#define DRIVER_FN(name, symbol, parameters)       \
  extern "C" int nothing_of_##name() asm(symbol); \
  __attribute__((weak)) int nothing_of_##name() { return 0; }
#include "runtime/driver/driver.def"
