#include "net_plugin/libfabric/objects.h"

namespace pacecar::fabric {
namespace {

Counter& of(fid_cntr* counter) { return *static_cast<Counter*>(counter); }

void make_progress(Counter& counter) {
  counter.domain.note_call();
  const std::lock_guard lock(counter.domain.mutex);
  counter.domain.progress();
}

using Count = std::atomic<uint64_t> Counter::*;

template <Count kCount>
uint64_t read(fid_cntr* counter) {
  make_progress(of(counter));
  return of(counter).*kCount;
}

template <Count kCount>
int add(fid_cntr* counter, uint64_t more) {
  of(counter).*kCount += more;
  of(counter).signal.raise();
  return 0;
}

template <Count kCount>
int set(fid_cntr* counter, uint64_t value) {
  of(counter).*kCount = value;
  of(counter).signal.raise();
  return 0;
}

int wait_for_value(fid_cntr* counter, uint64_t threshold, int timeout) {
  return guarded([&]() -> int {
    Counter& waited = of(counter);
    const uint64_t errors = waited.errors;
    const bool arrived = waited.domain.wait(
        [&] { return waited.value >= threshold || waited.errors != errors; }, timeout);
    if (!arrived) return -FI_ETIMEDOUT;
    return waited.value >= threshold ? 0 : -FI_EAVAIL;
  });
}

int close_counter(fid* object) {
  auto* const counter = reinterpret_cast<Counter*>(object);
  {
    const std::lock_guard lock(counter->domain.mutex);
    for (const auto& [key, region] : counter->domain.regions) {
      if (region->counter == counter) return -FI_EBUSY;
    }
  }
  return close_unused<Counter>(object);
}

fi_ops kCounterObject = object_calls(close_counter, control_signal<Counter>);
fi_ops_cntr kCounter = {.size = sizeof(fi_ops_cntr),
                        .read = read<&Counter::value>,
                        .readerr = read<&Counter::errors>,
                        .add = add<&Counter::value>,
                        .set = set<&Counter::value>,
                        .wait = wait_for_value,
                        .adderr = add<&Counter::errors>,
                        .seterr = set<&Counter::errors>};

}  // namespace

void Counter::count(bool failed) {
  ++(failed ? errors : value);
  signal.raise();
}

int open_counter(fid_domain* domain, fi_cntr_attr* attr, fid_cntr** counter, void* context) {
  return guarded([&]() -> int {
    if (!Signal::known(attr->wait_obj)) return -FI_ENOSYS;
    auto& its_domain = *static_cast<Domain*>(domain);
    auto* const made = new Counter(its_domain, attr->wait_obj);
    if (made->signal.has_descriptor()) its_domain.enable_auto_progress();
    return hand_out(made, FI_CLASS_CNTR, &kCounterObject, &kCounter, context, counter);
  });
}

}  // namespace pacecar::fabric
