// HostTurn: whose turn it is to go into the memory of a NIC whose provider shares it among the
// processes of a host. The provider's own lock there spins: when a process is killed while it holds
// it, as one that moves data mostly does, all others spin for ever. So whoever goes in takes this
// turn first, which knows when its owner has died: a robust mutex in memory of the NIC's process.
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
  // Where a process finds the turn of another: its memory file there.
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

  // Of one that was made here.
  Place place() const;

  // 0: until give_back(). -EAGAIN: another has it, again later. For ever: -EOWNERDEAD, a process
  // has died inside, nobody may go there any more; -ESHUTDOWN, after close().
  int take();
  void give_back();
  // What it leads to is about to be closed: in the same process it may be gone at once.
  void close();

 private:
  struct Shared {
    pthread_mutex_t mutex;
    std::atomic<bool> closed;
    std::atomic<bool> dead;  // a process has died inside
  };

  HostTurn(FileDescriptor memory, Shared* shared);
  static void* map(int fd);

  FileDescriptor memory_;  // only where it was made
  Shared* shared_;
};

}  // namespace pacecar
