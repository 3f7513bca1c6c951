// Doorbell: wakes a sleeping thread, and costs next to nothing while it is awake. Thread rule:
// ring() from any thread; expect() and answer() by the sleeper.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "transport/base/file_descriptor.h"
#include "transport/base/result.h"

namespace pacecar {

class Doorbell {
 public:
  // Errors: kSystem.
  static Result<std::unique_ptr<Doorbell>> make() {
    FileDescriptor fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (fd.get() < 0) {
      return fail(ErrorCode::kSystem, std::string("cannot make an eventfd (") +
                                          std::strerror(errno) +
                                          "): raise the limit of open files (ulimit -n), or "
                                          "let the container's seccomp profile allow eventfd2");
    }
    return std::unique_ptr<Doorbell>(new Doorbell(std::move(fd)));
  }

  // Readable after it has been rung.
  int fd() const { return fd_.get(); }

  // After the data for the sleeper has been stored.
  void ring() {
    if (!expected_.exchange(false, std::memory_order_acq_rel)) return;
    const uint64_t one = 1;
    // Fails only if it has been rung already.
    [[maybe_unused]] const ssize_t written = write(fd_.get(), &one, sizeof one);
  }

  // From here on ring() wakes the sleeper, who must check for work once more and then sleep on
  // fd(). All changes are exchanges, so expect() sees the data stored before any earlier ring().
  void expect() { expected_.exchange(true, std::memory_order_acq_rel); }
  // Call it after the sleep.
  void answer() {
    expected_.exchange(false, std::memory_order_acq_rel);
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t cleared = read(fd_.get(), &count, sizeof count);
  }

 private:
  explicit Doorbell(FileDescriptor fd) : fd_(std::move(fd)) {}

  const FileDescriptor fd_;
  std::atomic<bool> expected_{false};
};

}  // namespace pacecar
