#include "transport/ofi/host_turn.h"

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

// A try takes some 300 ns on an idle host, and a time slice on a busy one, during which the
// caller's own NIC makes no progress.
constexpr int kTries = 30;
// For a NIC that closes: together about a millisecond, like a turn that moves much data.
constexpr int kClosingTries = 100;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

}  // namespace

void* HostTurn::map(int fd) {
  return mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

HostTurn::HostTurn(FileDescriptor memory, Shared* shared)
    : memory_(std::move(memory)), shared_(shared) {}

HostTurn::HostTurn(HostTurn&& other) noexcept
    : memory_(std::move(other.memory_)), shared_(std::exchange(other.shared_, nullptr)) {}

HostTurn& HostTurn::operator=(HostTurn&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(shared_, other.shared_);
  return *this;
}

// Others may still have the mutex mapped, so it is not destroyed.
HostTurn::~HostTurn() {
  if (shared_ != nullptr) munmap(shared_, sizeof *shared_);
}

Result<HostTurn> HostTurn::make() {
  FileDescriptor memory(memfd_create("pacecar-turn", MFD_CLOEXEC | MFD_ALLOW_SEALING));
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
  return HostTurn(std::move(memory), shared);
}

Result<HostTurn> HostTurn::join(Place place) {
  const std::string path = fmt::format("/proc/{}/fd/{}", place.process, place.fd);
  const FileDescriptor memory(open(path.c_str(), O_RDWR | O_CLOEXEC));
  // Its size is sealed, so that access cannot fault.
  const bool sealed = memory && (fcntl(memory.get(), F_GET_SEALS) & kSeals) == kSeals &&
                      lseek(memory.get(), 0, SEEK_END) == sizeof(Shared);
  void* const mapped = sealed ? map(memory.get()) : MAP_FAILED;
  if (mapped == MAP_FAILED) {
    return fail(ErrorCode::kPeer,
                fmt::format("cannot share memory with process {}: run both as the same user, in "
                            "the same PID namespace, and look whether it still lives",
                            place.process));
  }
  return HostTurn(FileDescriptor(), static_cast<Shared*>(mapped));
}

HostTurn::Place HostTurn::place() const {
  return {.process = static_cast<uint32_t>(getpid()), .fd = static_cast<uint32_t>(memory_.get())};
}

int HostTurn::take() {
  for (int i = 0; i < kTries; ++i) {
    if (shared_->dead) return -EOWNERDEAD;
    const int error = pthread_mutex_trylock(&shared_->mutex);
    if (error == 0 && shared_->closed) {
      give_back();
      return -ESHUTDOWN;
    }
    if (error == 0) return 0;
    // never made consistent; after another try glibc's trylock would keep the mutex
    if (error == EOWNERDEAD) {
      shared_->dead = true;
      give_back();
    }
    if (error != EBUSY) return -EOWNERDEAD;
    sched_yield();
  }
  return -EAGAIN;
}

void HostTurn::give_back() { pthread_mutex_unlock(&shared_->mutex); }

// Takes the mutex, so that nobody is inside, but does not wait forever for one that stays.
void HostTurn::close() {
  int error = -EAGAIN;
  for (int i = 0; i < kClosingTries && error == -EAGAIN; ++i) error = take();
  shared_->closed = true;
  if (error == 0) give_back();
}

}  // namespace pacecar
