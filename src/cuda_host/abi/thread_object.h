// SPDX-License-Identifier: Apache-2.0
// What each thread has for itself until it has ended. A thread_local of a class is destroyed before the program's static
// objects are, whose destructors free device memory and so call CUDA.
#pragma once

#include <pthread.h>

namespace imbrex::cuda {

/// The calling thread's object of that type, of which there is one in each library. That of the main thread is never destroyed.
template <class T>
T& thread_object() {
  constinit static thread_local T* object = nullptr;
  if (object != nullptr) return *object;
  static const pthread_key_t key = [] {
    pthread_key_t made;
    pthread_key_create(&made, [](void* place) {
      T*& ended = *static_cast<T**>(place);
      delete ended;
      ended = nullptr;
    });
    return made;
  }();
  object = new T;
  pthread_setspecific(key, &object);
  return *object;
}

}  // namespace imbrex::cuda
