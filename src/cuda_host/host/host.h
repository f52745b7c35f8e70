// SPDX-License-Identifier: Apache-2.0
// The one host layer of a process, under libcuda.so.1 and so under every CUDA runtime: the virtual GPU, the devices that
// programs see of it, and all their objects. It is made by the first call and never destroyed, because runtimes still
// call while the process ends.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cuda_host/host/backlog.h"
#include "cuda_host/host/call_lock.h"
#include "cuda_host/host/graph.h"
#include "cuda_host/host/handles.h"
#include "cuda_host/host/host_watch.h"
#include "cuda_host/host/memory.h"
#include "cuda_host/host/module.h"
#include "cuda_host/host/progress.h"
#include "cuda_host/host/run_log.h"
#include "cuda_host/host/settings.h"
#include "cuda_host/host/stream.h"
#include "cuda_host/host/virtual_memory.h"
#include "imbrex/vgpu/virtual_gpu.h"

namespace imbrex::cuda {

/// A context: primary, or made by the program.
struct Context {
  explicit Context(int of_device) : device(of_device) {}
  int device = 0;
  unsigned flags = 0;
  uint64_t id = 0;
  int users = 1;                    // of a made context, counted by cuCtxAttach and cuCtxDetach
  CUresult failure = CUDA_SUCCESS;  // of a kernel; every later call answers it, as CUDA does, until a reset
  Stream default_stream{this, 0};
  std::map<std::thread::id, Stream*> thread_streams;  // cudaStreamPerThread, of each thread that used it
  std::map<int, size_t> limits;                       // by CUlimit, those that were set
  static constexpr int kStackLimit = 0;
  static constexpr size_t kDefaultStack = 1024;
  /// Of each thread of a kernel.
  int64_t stack_bytes() const {
    const auto at = limits.find(kStackLimit);
    return static_cast<int64_t>(at == limits.end() ? kDefaultStack : at->second);
  }
  std::map<int, bool> peers;

  /// What runtimes keep with a context by key, and how they want to hear of its end.
  struct Stored {
    void* value;
    void (*destroyed)(CUcontext, void* key, void* value);
  };
  std::map<void*, Stored> storage;
};

/// One of the devices that a program sees. All are the same virtual GPU: they share its memory, which makes every one
/// of them the other's peer.
struct Device {
  std::unique_ptr<Context> primary;
  int primary_retained = 0;
  unsigned primary_flags = 0;
  CUmemoryPool current_pool = nullptr;
};

class Host {
 public:
  /// Throws imbrex::Error where the environment asks for what there is not.
  static Host& get();
  /// The one that get() made, or null.
  static Host* made();
  /// Held during each call.
  static CallLock& mutex();

  Settings settings;
  vgpu::VirtualGpu gpu;
  std::vector<Device> devices;
  DeviceMemory memory;
  VirtualMemory virtual_memory;
  RunLog log;
  Backlog backlog;

  Handles<Context> contexts{"context"};  // those made by cuCtxCreate
  Handles<ModuleObject> modules{"module"};
  Handles<FunctionObject> functions{"function"};
  Handles<Library> libraries{"library"};
  Handles<LibraryKernel> kernels{"kernel"};
  Handles<Stream> streams{"stream"};
  Handles<Event> events{"event"};
  Handles<Graph> graphs{"graph"};
  Handles<GraphExec> graph_execs{"executable graph"};
  Handles<Pool> pools{"memory pool"};
  Handles<UserObject> user_objects{"user object"};

  /// CUDA_ERROR_INVALID_DEVICE for an ordinal that there is not.
  Device& device(CUdevice ordinal);
  /// Makes the primary context of a device, or counts one more user of it.
  Context& retain_primary(CUdevice ordinal);
  Context& context(CUcontext handle);
  /// The calling thread's context; CUDA_ERROR_INVALID_CONTEXT where it has none.
  Context& current();
  /// The same; a kernel's fault, where there has been one, as all calls answer it that would use the context.
  Context& usable();
  Context* current_or_null();
  std::vector<Context*>& context_stack();
  /// Takes a context out of every thread's reach.
  void forget(Context& context);

  /// The stream of a handle: null is what NullStream says, the two default handles are the legacy stream and the thread's own.
  Stream& stream(CUstream handle);
  /// The function of a CUfunction, or of a CUkernel that stands for one.
  FunctionObject& function(CUfunction handle);

  uint64_t next_id() { return ++last_id_; }

 private:
  explicit Host(Settings with);
  uint64_t last_id_ = 0;
};

/// What null stands for while a call of this thread is under way: the legacy default stream, or, in calls by a second name
/// (abi/second_name.h) and those that they make, the thread's own.
class NullStream {
 public:
  /// Takes the word that a second name has left.
  NullStream();
  ~NullStream();
  NullStream(const NullStream&) = delete;
  NullStream& operator=(const NullStream&) = delete;
  static bool is_of_thread();

 private:
  bool outer_;
};

/// From now on findings are told anew: between tests of one process.
extern "C" __attribute__((visibility("default"))) void imbrexBeginTest();
/// A call that a stand-in for a closed library has answered, to be told at the end.
extern "C" __attribute__((visibility("default"))) void imbrexNoteStandIn(const char* function);

inline CUcontext handle_of(Context& context) { return reinterpret_cast<CUcontext>(&context); }

}  // namespace imbrex::cuda
