// SPDX-License-Identifier: Apache-2.0
// Run-time control flow and thread groups. Each form opens a scope; its C++ block is the body:
//
//   for (Int32 k : range(0, k_size, 64)) { ... }                    traced once, emitted as a loop
//   for (Loop loop : forever()) { ... loop.break_if(done); ... }
//   if (auto arm = when(x < n)) { ... }
//   if (auto arm = otherwise_when(x < m)) { ... }
//   if (auto arm = otherwise()) { ... }
//   if (auto group = single_warp()) { ... }
//
// A scope must be left by its closing brace. C++ break, return, goto or an exception out of one, and
// `continue` or `else` at a guard, are reported with their line (CompileError): what they would skip is part
// of the kernel.
#pragma once

#include "imbrex/lang/scalar.h"

namespace imbrex {

namespace detail {

struct LoopState;

/// The object behind a range-for over range() or forever(): opens the loop's scope at the first test,
/// closes it at the increment, and reports in its destructor a body that was left in between.
class LoopScope {
 public:
  explicit LoopScope(LoopState* state) : state_(state) {}
  LoopScope(const LoopScope&) = delete;
  LoopScope& operator=(const LoopScope&) = delete;
  ~LoopScope();

  void restart();           // a range-for begins: the same object may serve several
  bool enter();             // the test: true once
  void close();             // the increment
  Expr index() const;       // the loop variable's value
  uint64_t serial() const;  // which loop this is

 private:
  LoopState* state_;
};

}  // namespace detail

struct RangeOptions {
  /// Copies of the body per iteration; 0 unrolls completely (the bounds must be C++ numbers).
  int64_t unroll = 1;
};

/// See range().
class Range : public detail::LoopScope {
 public:
  using LoopScope::LoopScope;
  struct Iterator {
    Range* range;
    Expr operator*() const { return range->index(); }
    void operator++() { range->close(); }
    bool operator!=(std::nullptr_t) const { return range->enter(); }
  };
  Iterator begin() {
    restart();
    return {this};
  }
  std::nullptr_t end() { return nullptr; }
};

/// begin, begin + step, ... while below end (above, where the step is a negative C++ number). The loop
/// variable has the common type of the three, which are integers. In `for (Int32 i : range(n))`, i is a
/// variable that the body may change without effect on the loop; in `for (auto i : range(n))`, a value. The
/// loop is executed by the enclosing thread group, whose threads must agree on the bounds where the body
/// synchronises them.
Range range(const ScalarArg& begin, const ScalarArg& end, const ScalarArg& step, RangeOptions options = {},
            SourceLocation where = SourceLocation::current());
Range range(const ScalarArg& begin, const ScalarArg& end, RangeOptions options = {},
            SourceLocation where = SourceLocation::current());
Range range(const ScalarArg& end, RangeOptions options = {},
            SourceLocation where = SourceLocation::current());

/// A forever() loop, as its body sees it: the object by which to leave it.
class Loop {
 public:
  explicit Loop(uint64_t serial) : serial_(serial) {}
  /// Leaves the loop where the condition holds, from inside any when() blocks and inner loops; not out of a
  /// thread group, whose other threads would go on (CompileError).
  void break_if(const ScalarArg& condition, SourceLocation where = SourceLocation::current()) const;
  /// Leaves the loop. The last statement of its block.
  void break_loop(SourceLocation where = SourceLocation::current()) const;

 private:
  uint64_t serial_;
};

/// See forever().
class Forever : public detail::LoopScope {
 public:
  using LoopScope::LoopScope;
  struct Iterator {
    Forever* loop;
    Loop operator*() const { return Loop(loop->serial()); }
    void operator++() { loop->close(); }
    bool operator!=(std::nullptr_t) const { return loop->enter(); }
  };
  Iterator begin() {
    restart();
    return {this};
  }
  std::nullptr_t end() { return nullptr; }
};

/// Repeats until a break: `for (Loop loop : forever()) { ... loop.break_if(done); ... }`.
Forever forever(SourceLocation where = SourceLocation::current());

/// Leaves the innermost traced loop, range or forever, where the condition holds.
void break_if(const ScalarArg& condition, SourceLocation where = SourceLocation::current());

/// Every thread of the CTA leaves the kernel, from inside any when() blocks and loops; not out of a thread group, whose
/// other threads would go on (CompileError). What the threads allocated in tensor memory they have freed before. The last
/// statement of its block. [PTX: ret]
void return_(SourceLocation where = SourceLocation::current());
/// The same where the condition, which is the same in all threads of the CTA, holds.
void return_if(const ScalarArg& condition, SourceLocation where = SourceLocation::current());

/// An open scope; its destructor closes it. Always true, for use as the condition of a C++ if.
class [[nodiscard]] Guard {
 public:
  explicit Guard(uint64_t serial);
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  ~Guard();
  explicit operator bool() const& { return true; }
  /// Does not compile: `if (when(c)) { ... }` would close the scope before the block begins.
  template <class T>
  requires std::same_as<T, bool>
  explicit operator T() const&& {
    static_assert(detail::kNever<T>,
                  "the scope would end before its block begins: give it a name, `if (auto arm = "
                  "when(condition)) { ... }`");
    return false;
  }

 private:
  uint64_t serial_;
  int exceptions_;
};

/// Runs the block where the condition holds.
Guard when(const ScalarArg& condition, SourceLocation where = SourceLocation::current());
/// Directly after the block of when() or otherwise_when(): runs where none of their conditions held.
Guard otherwise(SourceLocation where = SourceLocation::current());
/// Like otherwise(), but only where this condition holds too.
Guard otherwise_when(const ScalarArg& condition, SourceLocation where = SourceLocation::current());

/// Only threads begin, ..., begin + threads - 1 of the enclosing group (outermost: the CTA) run the block.
/// CompileError where the group has fewer.
Guard thread_group(int64_t begin, int64_t threads, SourceLocation where = SourceLocation::current());
/// Warp `warp` of the enclosing group, counted from its first.
Guard single_warp(int64_t warp = 0, SourceLocation where = SourceLocation::current());
/// Thread `thread` of the enclosing group, counted from its first.
Guard single_thread(int64_t thread = 0, SourceLocation where = SourceLocation::current());
/// `warps` warps from `first_warp` of the enclosing group.
Guard warp_group(int64_t first_warp, int64_t warps, SourceLocation where = SourceLocation::current());

/// Barrier over the enclosing thread group: the CTA, several whole warps, or one. All its threads execute it.
/// Orders their accesses to memory. [PTX: bar.sync, bar.warp.sync]
void sync(SourceLocation where = SourceLocation::current());  // beside unistd.h: `using imbrex::sync;`
/// sync() under a name that does not clash with POSIX's: with `using namespace imbrex` at global scope,
/// sync() is ambiguous as soon as some header includes <unistd.h>, unless `using imbrex::sync;` stands in the kernel's
/// body or in a namespace around the kernel.
inline void sync_threads(SourceLocation where = SourceLocation::current()) { sync(where); }

/// Promises that the condition holds whenever control passes here, for the compiler to use. Where it does not
/// hold, behaviour is undefined; the virtual GPU reports it, unless all its checkers are off.
void assume(const ScalarArg& condition, SourceLocation where = SourceLocation::current());
/// Traps with the message where the condition fails at run time. [PTX: trap]
void check(const ScalarArg& condition, const char* message = "check failed",
           SourceLocation where = SourceLocation::current());

namespace detail {

struct Requirement {
  Requirement(bool holds, SourceLocation where = SourceLocation::current()) : holds(holds), where(where) {}
  bool holds;
  SourceLocation where;
};

/// A number or a text for the `{}` of require()'s message.
class MessageArg {
 public:
  template <std::integral T>
  MessageArg(T value) : kind(kInteger), integer(static_cast<int64_t>(value)) {}
  template <std::floating_point T>
  MessageArg(T value) : kind(kFloat), real(value) {}
  MessageArg(DataType value) : kind(kText), text(value.name()) {}
  MessageArg(const char* value) : kind(kText), text(value) {}
  MessageArg(std::string_view value) : kind(kText), text(value) {}

  enum { kInteger, kFloat, kText } kind;
  int64_t integer = 0;
  double real = 0;
  std::string_view text;
};

[[noreturn]] void requirement_failed(SourceLocation where, const char* format, const MessageArg* args,
                                     int count);

}  // namespace detail

/// Compile-time check of a kernel's own parameters: where the condition fails, throws CompileError with the
/// message, whose `{}` are replaced by the arguments in order, at the line of the call.
template <class... Args>
void require(detail::Requirement condition, const char* format, const Args&... args) {
  if (condition.holds) return;
  const detail::MessageArg list[] = {detail::MessageArg(args)..., detail::MessageArg(0)};
  detail::requirement_failed(condition.where, format, list, sizeof...(Args));
}

}  // namespace imbrex
