// HostTurn: a lock for the memory of a NIC whose provider shares it among the processes of a host.
// The provider's own lock there spins: if a process is killed while it holds it, as one that moves
// data mostly does, all others spin for ever. So a process takes this turn first, a robust mutex in
// memory of the NIC's process, which reports when its owner has died.
//
// Thread rule: one thread at a time takes and gives back.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

#include "transport/base/file_descriptor.h"
#include "transport/base/result.h"

namespace pacecar {

class HostTurn {
 public:
  // The place of another process's turn: its memory file.
  struct Place {
    uint32_t process = 0;
    uint32_t fd = 0;
  };

  // Errors: kSystem.
  static Result<HostTurn> make();
  // Errors: kPeer (it has ended, or is hidden from us).
  static Result<HostTurn> join(Place place);
  HostTurn(HostTurn&& other) noexcept;
  HostTurn& operator=(HostTurn&& other) noexcept;
  ~HostTurn();

  // Only of a turn made by make().
  Place place() const;

  // 0: taken, until give_back(). -EAGAIN: another process has it, try again later. Permanent:
  // -EOWNERDEAD, a process has died with it, and the memory must not be used any more; -ESHUTDOWN,
  // after close().
  int take();
  void give_back();
  // The memory is about to be closed: processes that take the turn afterwards get -ESHUTDOWN.
  void close();

 private:
  struct Shared {
    pthread_mutex_t mutex;
    std::atomic<bool> closed;
    std::atomic<bool> dead;  // a process has died with the turn
  };

  HostTurn(FileDescriptor memory, Shared* shared);
  static void* map(int fd);

  FileDescriptor memory_;  // only where it was made
  Shared* shared_;
};

}  // namespace pacecar
