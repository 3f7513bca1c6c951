#include "net_plugin/libfabric/objects.h"

namespace pacecar::fabric {
namespace {

Counter& of(fid_cntr* counter) { return *static_cast<Counter*>(counter); }

void make_progress(Counter& counter) {
  counter.domain.note_call();
  const std::lock_guard lock(counter.domain.mutex);
  counter.domain.progress();
}

uint64_t read_value(fid_cntr* counter) {
  make_progress(of(counter));
  return of(counter).value;
}

uint64_t read_errors(fid_cntr* counter) {
  make_progress(of(counter));
  return of(counter).errors;
}

int add_value(fid_cntr* counter, uint64_t value) {
  of(counter).value += value;
  of(counter).signal.raise();
  return 0;
}

int set_value(fid_cntr* counter, uint64_t value) {
  of(counter).value = value;
  of(counter).signal.raise();
  return 0;
}

int add_errors(fid_cntr* counter, uint64_t value) {
  of(counter).errors += value;
  of(counter).signal.raise();
  return 0;
}

int set_errors(fid_cntr* counter, uint64_t value) {
  of(counter).errors = value;
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
                        .read = read_value,
                        .readerr = read_errors,
                        .add = add_value,
                        .set = set_value,
                        .wait = wait_for_value,
                        .adderr = add_errors,
                        .seterr = set_errors};

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
    made->fid = {.fclass = FI_CLASS_CNTR, .context = context, .ops = &kCounterObject};
    made->ops = &kCounter;
    ++its_domain.users;
    if (made->signal.has_descriptor()) its_domain.enable_auto_progress();
    *counter = made;
    return 0;
  });
}

}  // namespace pacecar::fabric
