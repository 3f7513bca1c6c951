#include "transport/ofi/host_turn.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/base/check.h"

namespace pacecar {
namespace {

// Each takes some 300 ns: together about a millisecond, as a turn in which much is moved.
constexpr int kTries = 3'000;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

void* map(int fd) {
  return mmap(nullptr, sizeof(pthread_mutex_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

}  // namespace

HostTurn::HostTurn(FileDescriptor memory, pthread_mutex_t* mutex)
    : memory_(std::move(memory)), mutex_(mutex) {}

HostTurn::HostTurn(HostTurn&& other) noexcept
    : memory_(std::move(other.memory_)), mutex_(std::exchange(other.mutex_, nullptr)) {}

HostTurn& HostTurn::operator=(HostTurn&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(mutex_, other.mutex_);
  return *this;
}

// Others may still have it: it is not destroyed, only forgotten.
HostTurn::~HostTurn() {
  if (mutex_ != nullptr) munmap(mutex_, sizeof *mutex_);
}

Result<HostTurn> HostTurn::make() {
  FileDescriptor memory(memfd_create("pacecar-turn", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  void* mapped = MAP_FAILED;
  if (memory && ftruncate(memory.get(), sizeof(pthread_mutex_t)) == 0 &&
      fcntl(memory.get(), F_ADD_SEALS, kSeals) == 0) {
    mapped = map(memory.get());
  }
  if (mapped == MAP_FAILED) {
    return fail(ErrorCode::kSystem,
                fmt::format("cannot make memory to share with other processes ({}): raise the "
                            "limits of open files and memory (ulimit -n, -v)",
                            std::strerror(errno)));
  }
  auto* const mutex = static_cast<pthread_mutex_t*>(mapped);
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  PACECAR_CHECK(pthread_mutex_init(mutex, &attributes) == 0);
  pthread_mutexattr_destroy(&attributes);
  return HostTurn(std::move(memory), mutex);
}

Result<HostTurn> HostTurn::join(Place place) {
  const std::string path = fmt::format("/proc/{}/fd/{}", place.process, place.fd);
  const FileDescriptor memory(open(path.c_str(), O_RDWR | O_CLOEXEC));
  // Its size cannot change, so that it can be touched safely.
  const bool sealed = memory && (fcntl(memory.get(), F_GET_SEALS) & kSeals) == kSeals &&
                      lseek(memory.get(), 0, SEEK_END) == sizeof(pthread_mutex_t);
  void* const mapped = sealed ? map(memory.get()) : MAP_FAILED;
  if (mapped == MAP_FAILED) {
    return fail(ErrorCode::kPeer,
                fmt::format("cannot share memory with process {}: run both as the same user, in "
                            "the same PID namespace, and look whether it still lives",
                            place.process));
  }
  return HostTurn(FileDescriptor(), static_cast<pthread_mutex_t*>(mapped));
}

HostTurn::Place HostTurn::place() const {
  return {.process = static_cast<uint32_t>(getpid()), .fd = static_cast<uint32_t>(memory_.get())};
}

int HostTurn::take() {
  for (int i = 0; i < kTries; ++i) {
    const int error = pthread_mutex_trylock(mutex_);
    if (error == 0) return 0;
    if (error == EOWNERDEAD) pthread_mutex_unlock(mutex_);  // never mended: all others learn of it
    if (error != EBUSY) return -EOWNERDEAD;
    sched_yield();
  }
  return -EAGAIN;
}

void HostTurn::give_back() { pthread_mutex_unlock(mutex_); }

}  // namespace pacecar
