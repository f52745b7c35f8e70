// SPDX-License-Identifier: Apache-2.0
// A program that hangs in its own code: its threads wait for each other, one of them spins on memory that nothing will change
// any more, or it asks over and over whether work is done that was done long ago. Named within seconds as a finding of
// the program, with the threads and where they are.
#pragma once

namespace imbrex::cuda {

/// Before a call takes the lock: the watch may want it, to say something.
void let_watch_speak();

/// A call of the program is under way while it lives, or, without a name, work that calls have left; calls make calls.
class NotedCall {
 public:
  explicit NotedCall(const char* function);
  ~NotedCall();
  NotedCall(const NotedCall&) = delete;
  NotedCall& operator=(const NotedCall&) = delete;
};

/// A call stands still while it lives, for code of the program runs: a host function of a stream, or what the call waits for. The
/// call's lock is let go, for that code may wait for a thread that makes calls.
class ProgramsTurn {
 public:
  ProgramsTurn();
  ~ProgramsTurn();
  ProgramsTurn(const ProgramsTurn&) = delete;
  ProgramsTurn& operator=(const ProgramsTurn&) = delete;

 private:
  int lock_depth_, calls_;
};

/// From now on, by a thread of its own, which ends once it has something to say.
void watch_over_host();

}  // namespace imbrex::cuda
