// Wait objects, and fi_trywait.
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <functional>
#include <system_error>

#include "net_plugin/libfabric/objects.h"

namespace pacecar::fabric {
namespace {

template <typename Unread>
int may_wait_for(Domain& domain, const Signal& signal, Unread unread) {
  {
    const std::lock_guard lock(domain.mutex);
    const bool raised = signal.clear();
    domain.progress();
    if (unread(raised)) return -FI_EAGAIN;
  }
  domain.about_to_block();
  return 0;
}

// 0: the application may block on the object's descriptor.
int may_wait(fid* object) {
  switch (object->fclass) {
    case FI_CLASS_CQ: {
      auto& queue = *reinterpret_cast<CompletionQueue*>(object);
      return may_wait_for(queue.domain, queue.signal,
                          [&](bool /*raised*/) { return !queue.unread.empty(); });
    }
    case FI_CLASS_CNTR: {
      auto& counter = *reinterpret_cast<Counter*>(object);
      // Since the last call it has moved: the application may have read it before that.
      return may_wait_for(counter.domain, counter.signal, std::identity());
    }
    case FI_CLASS_EQ: {
      auto& queue = *reinterpret_cast<EventQueue*>(object);
      const std::lock_guard lock(queue.mutex);
      if (!queue.events.empty()) return -FI_EAGAIN;
      queue.signal.clear();
      return 0;
    }
    default: return -FI_EINVAL;
  }
}

}  // namespace

Signal::Signal(fi_wait_obj wanted)
    : kind_(wanted),
      descriptor_(wanted == FI_WAIT_FD ? eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC) : -1) {
  if (wanted != FI_WAIT_FD || has_descriptor()) return;
  throw std::system_error(errno, std::generic_category(),
                          "cannot make the descriptor of a queue: raise 'ulimit -n'");
}

void Signal::raise() const {
  const uint64_t one = 1;
  if (has_descriptor()) (void)!write(descriptor_.get(), &one, sizeof one);
}

bool Signal::clear() const {
  uint64_t count = 0;
  return has_descriptor() && read(descriptor_.get(), &count, sizeof count) > 0;
}

int Signal::control(int command, void* argument) const {
  if (command == FI_GETWAITOBJ) {
    *static_cast<fi_wait_obj*>(argument) = kind_;
    return 0;
  }
  if (command != FI_GETWAIT || !has_descriptor()) return -FI_ENOSYS;
  *static_cast<int*>(argument) = descriptor_.get();
  return 0;
}

int try_wait(fid_fabric* /*fabric*/, fid** waited, int count) {
  for (int i = 0; i < count; ++i) {
    if (const int result = may_wait(waited[i]); result != 0) return result;
  }
  return 0;
}

}  // namespace pacecar::fabric
