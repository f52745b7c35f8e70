// SPDX-License-Identifier: Apache-2.0
// Functions with a stream exist once more for programs whose default stream is one per thread (_ptsz, _ptds). The second
// name leaves word that null means that stream, and jumps to the first.
#pragma once

#include <utility>

namespace imbrex::cuda {

/// The word, of each thread and in each library that has second names.
inline constinit thread_local bool t_by_second_name = false;
/// Takes the word back.
inline bool take_second_name() { return std::exchange(t_by_second_name, false); }

}  // namespace imbrex::cuda

// No function of these has floating-point parameters: their registers are not kept.
#if defined(__x86_64__)
#define IMBREX_LEAVE_WORD_AND_JUMP_TO(symbol)                        \
  "push %rdi\npush %rsi\npush %rdx\npush %rcx\npush %r8\npush %r9\n" \
  "sub $8, %rsp\ncall imbrex_leave_word\nadd $8, %rsp\n"             \
  "pop %r9\npop %r8\npop %rcx\npop %rdx\npop %rsi\npop %rdi\n"       \
  "jmp " #symbol "@PLT"
#else  // hint #34 is bti c: where a processor checks targets of branches, calls by pointers may come here
#define IMBREX_LEAVE_WORD_AND_JUMP_TO(symbol)                                                                \
  "hint #34\nstp x0, x1, [sp, #-80]!\nstp x2, x3, [sp, #16]\nstp x4, x5, [sp, #32]\nstp x6, x7, [sp, #48]\n" \
  "stp x8, x30, [sp, #64]\nbl imbrex_leave_word\nldp x8, x30, [sp, #64]\n"                                   \
  "ldp x6, x7, [sp, #48]\nldp x4, x5, [sp, #32]\nldp x2, x3, [sp, #16]\nldp x0, x1, [sp], #80\n"             \
  "b " #symbol
#endif

/// Once in each library that has second names.
#define IMBREX_DEFINE_LEAVE_WORD                                                    \
  extern "C" __attribute__((visibility("hidden"), used)) void imbrex_leave_word() { \
    imbrex::cuda::t_by_second_name = true;                                          \
  }

/// Defines the function symbol##suffix.
#define IMBREX_SECOND_NAME(symbol, suffix)                                     \
  asm(".pushsection .text\n.globl " #symbol #suffix "\n.type " #symbol #suffix \
      ", %function\n" #symbol #suffix ":\n" IMBREX_LEAVE_WORD_AND_JUMP_TO(symbol) "\n.popsection\n");
