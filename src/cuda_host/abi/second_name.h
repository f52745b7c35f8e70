// SPDX-License-Identifier: Apache-2.0
// Functions with a stream exist once more for programs whose default stream is one per thread (_ptsz, _ptds). Work
// runs when it is issued, whatever the stream, so that the second name is a jump to the first.
#pragma once

#if defined(__x86_64__)
#define IMBREX_JUMP_TO(symbol) "jmp " #symbol "@PLT"
#else
#define IMBREX_JUMP_TO(symbol) "b " #symbol
#endif

/// Defines the function symbol##suffix.
#define IMBREX_SECOND_NAME(symbol, suffix)                                     \
  asm(".pushsection .text\n.globl " #symbol #suffix "\n.type " #symbol #suffix \
      ", %function\n" #symbol #suffix ":\n" IMBREX_JUMP_TO(symbol) "\n.popsection\n");
