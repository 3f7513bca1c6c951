#include "transport/ofi/host_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "transport/base/check.h"

namespace pacecar {
namespace {

// A try takes some 300 ns on an idle host, and a time slice on a busy one. Meanwhile the caller's
// NIC makes no progress.
constexpr int kTries = 30;
// Of close(): together about a millisecond, which is as long as a turn that moves much data.
constexpr int kClosingTries = 100;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

}  // namespace

void* HostLock::map(int fd) {
  return mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

void HostLock::Unmap::operator()(Shared* shared) const { munmap(shared, sizeof *shared); }

Result<HostLock> HostLock::make() {
  FileDescriptor memory(memfd_create("pacecar-lock", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  void* mapped = MAP_FAILED;
  if (memory && ftruncate(memory.get(), sizeof(Shared)) == 0 &&
      fcntl(memory.get(), F_ADD_SEALS, kSeals) == 0) {
    mapped = map(memory.get());
  }
  if (mapped == MAP_FAILED) {
    return fail(ErrorCode::kSystem,
                fmt::format("cannot make memory to share with other processes ({}): raise the "
                            "limits of open files and memory (ulimit -n, -v)",
                            std::strerror(errno)));
  }
  auto* const shared = new (mapped) Shared{};
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  PACECAR_CHECK(pthread_mutex_init(&shared->mutex, &attributes) == 0);
  pthread_mutexattr_destroy(&attributes);
  return HostLock(std::move(memory), shared);
}

Result<HostLock> HostLock::join(Place place) {
  const std::string path = fmt::format("/proc/{}/fd/{}", place.process, place.fd);
  const FileDescriptor memory(open(path.c_str(), O_RDWR | O_CLOEXEC));
  // The size is sealed, so that access cannot fault.
  const bool sealed = memory && (fcntl(memory.get(), F_GET_SEALS) & kSeals) == kSeals &&
                      lseek(memory.get(), 0, SEEK_END) == sizeof(Shared);
  void* const mapped = sealed ? map(memory.get()) : MAP_FAILED;
  if (mapped == MAP_FAILED) {
    return fail(ErrorCode::kPeer,
                fmt::format("cannot share memory with process {}: run both as the same user, in "
                            "the same PID namespace, and check that it still runs",
                            place.process));
  }
  return HostLock(FileDescriptor(), static_cast<Shared*>(mapped));
}

HostLock::Place HostLock::place() const {
  return {.process = static_cast<uint32_t>(getpid()), .fd = static_cast<uint32_t>(memory_.get())};
}

int HostLock::acquire() {
  for (int i = 0; i < kTries; ++i) {
    if (shared_->dead) return -EOWNERDEAD;
    const int error = pthread_mutex_trylock(&shared_->mutex);
    if (error == 0 && shared_->closed) {
      release();
      return -ESHUTDOWN;
    }
    if (error == 0) return 0;
    // The mutex is never made consistent. Without the flag, glibc's next trylock would acquire it.
    if (error == EOWNERDEAD) {
      shared_->dead = true;
      release();
    }
    if (error != EBUSY) return -EOWNERDEAD;
    sched_yield();
  }
  return -EAGAIN;
}

void HostLock::release() { pthread_mutex_unlock(&shared_->mutex); }

// Acquires the mutex, so that no process is in the memory, but waits only for a bounded time.
void HostLock::close() {
  int error = -EAGAIN;
  for (int i = 0; i < kClosingTries && error == -EAGAIN; ++i) error = acquire();
  shared_->closed = true;
  if (error == 0) release();
}

}  // namespace pacecar
