// Poll sets: which of several completion queues and counters have changed.
#include "net_plugin/libfabric/objects.h"

namespace pacecar::fabric {
namespace {

struct PollSet : fid_poll, InDomain {
  explicit PollSet(Domain& its_domain) : fid_poll{}, InDomain(its_domain) {}

  struct Watched {
    struct fid* object = nullptr;
    uint64_t reported = 0;  // of a counter: its value at the last poll
  };
  std::vector<Watched> watched;
};

PollSet& of(fid_poll* set) { return *static_cast<PollSet*>(set); }

bool has_news(PollSet::Watched& watched) {
  if (watched.object->fclass == FI_CLASS_CQ) {
    return !reinterpret_cast<CompletionQueue*>(watched.object)->unread.empty();
  }
  const auto& counter = *reinterpret_cast<Counter*>(watched.object);
  return std::exchange(watched.reported, counter.value + counter.errors) != watched.reported;
}

int poll(fid_poll* set, void** contexts, int count) {
  return guarded([&] {
    PollSet& from = of(set);
    from.domain.note_call();
    const std::lock_guard lock(from.domain.mutex);
    from.domain.progress();
    int found = 0;
    for (PollSet::Watched& watched : from.watched) {
      if (found == count) break;
      if (has_news(watched)) contexts[found++] = watched.object->context;
    }
    return found;
  });
}

int add(fid_poll* set, fid* object, uint64_t /*flags*/) {
  return guarded([&]() -> int {
    if (object->fclass != FI_CLASS_CQ && object->fclass != FI_CLASS_CNTR) return -FI_EINVAL;
    const std::lock_guard lock(of(set).domain.mutex);
    of(set).watched.push_back({.object = object});
    return 0;
  });
}

int remove(fid_poll* set, fid* object, uint64_t /*flags*/) {
  const std::lock_guard lock(of(set).domain.mutex);
  const auto removed = std::erase_if(
      of(set).watched, [&](const PollSet::Watched& watched) { return watched.object == object; });
  return removed > 0 ? 0 : -FI_EINVAL;
}

fi_ops kSetObject = object_calls(close_unused<PollSet>);
fi_ops_poll kSet = {.size = sizeof(fi_ops_poll), .poll = poll, .poll_add = add, .poll_del = remove};

}  // namespace

int open_poll_set(fid_domain* domain, fi_poll_attr* /*attr*/, fid_poll** set) {
  return guarded([&] {
    auto* const made = new PollSet(*static_cast<Domain*>(domain));
    return hand_out(made, FI_CLASS_POLL, &kSetObject, &kSet, nullptr, set);
  });
}

}  // namespace pacecar::fabric
