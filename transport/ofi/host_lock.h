// HostLock: a lock for the memory of a NIC whose provider shares it among the processes of a host.
// The provider's own lock there spins: when a process is killed while it holds that lock, which is
// likely for a process that moves data, all others spin for ever. So a process acquires this lock
// first. It is a robust mutex in memory of the NIC's process, which reports that its owner has
// died.
// Thread rule: one thread at a time.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "transport/base/file_descriptor.h"
#include "transport/base/result.h"

namespace pacecar {

class HostLock {
 public:
  // Where another process finds the lock: the file of its memory.
  struct Place {
    uint32_t process = 0;
    uint32_t fd = 0;
  };

  // Errors: kSystem.
  static Result<HostLock> make();
  // Errors: kPeer (the process has ended, or is hidden from us).
  static Result<HostLock> join(Place place);

  // Only of a lock made by make().
  Place place() const;

  // 0: acquired, until release(). -EAGAIN: another process has it, try again later. Permanent:
  // -EOWNERDEAD, a process has died while it had the lock, and the memory must not be used any
  // more; -ESHUTDOWN, after close().
  int acquire();
  void release();
  // The memory is about to be closed: acquire() returns -ESHUTDOWN from now on.
  void close();

 private:
  struct Shared {
    pthread_mutex_t mutex;
    std::atomic<bool> closed;
    std::atomic<bool> dead;  // a process has died while it had the lock
  };
  // Others may still have the mutex mapped, so it is not destroyed.
  struct Unmap {
    void operator()(Shared* shared) const;
  };

  HostLock(FileDescriptor memory, Shared* shared) : memory_(std::move(memory)), shared_(shared) {}
  static void* map(int fd);

  FileDescriptor memory_;  // only where it was made
  std::unique_ptr<Shared, Unmap> shared_;
};

}  // namespace pacecar
