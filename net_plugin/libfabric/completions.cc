// Completion queues and counters.
#include <array>
#include <cstddef>
#include <cstring>

#include "net_plugin/libfabric/objects.h"

namespace pacecar::fabric {
namespace {

constexpr size_t kDefaultSize = 4096;

CompletionQueue& of(fid_cq* queue) { return *static_cast<CompletionQueue*>(queue); }

// Bytes of an entry by fi_cq_format. Each format is a prefix of the tagged one.
constexpr std::array<size_t, FI_CQ_FORMAT_TAGGED + 1> kEntryBytes = {
    0, sizeof(fi_cq_entry), sizeof(fi_cq_msg_entry), sizeof(fi_cq_data_entry),
    sizeof(fi_cq_tagged_entry)};

// With the lock held.
ssize_t take(CompletionQueue& queue, void* buffer, size_t count, fi_addr_t* sources) {
  size_t taken = 0;
  auto* place = static_cast<uint8_t*>(buffer);
  while (taken < count && !queue.unread.empty() && queue.unread.front().err == 0) {
    const Completion completion = queue.take();
    const fi_cq_err_entry& entry = completion;
    std::memcpy(place, &entry, kEntryBytes[queue.format]);
    place += kEntryBytes[queue.format];
    if (sources != nullptr) sources[taken] = completion.source;
    ++taken;
  }
  if (taken > 0) return static_cast<ssize_t>(taken);
  if (queue.unread.empty()) return -FI_EAGAIN;
  return queue.unread.front().err != 0 ? -FI_EAVAIL : 0;  // 0: none was asked for
}

ssize_t read_from(fid_cq* queue, void* buffer, size_t count, fi_addr_t* sources) {
  CompletionQueue& from = of(queue);
  from.domain.note_call();
  const std::lock_guard lock(from.domain.mutex);
  // The application handles completions after a read that returned some. So the next one makes no
  // progress if the queue is empty: that takes as long as a message. The one after that does.
  const bool last_read_nonempty = std::exchange(from.last_read_nonempty, false);
  if (count == 0 || (from.unread.empty() && !last_read_nonempty)) from.domain.progress();
  const ssize_t taken = take(from, buffer, count, sources);
  from.last_read_nonempty = taken > 0;
  return taken;
}

ssize_t read_entries(fid_cq* queue, void* buffer, size_t count) {
  return read_from(queue, buffer, count, nullptr);
}

ssize_t wait_and_read_from(fid_cq* queue, void* buffer, size_t count, fi_addr_t* sources,
                           const void* /*condition*/, int timeout) {
  CompletionQueue& from = of(queue);
  ssize_t result = -FI_EAGAIN;
  (void)from.domain.wait(
      [&] {
        if (std::exchange(from.woken, false)) return true;
        result = take(from, buffer, count, sources);
        return result != -FI_EAGAIN;
      },
      timeout);
  return result;
}

ssize_t wait_and_read(fid_cq* queue, void* buffer, size_t count, const void* condition,
                      int timeout) {
  return wait_and_read_from(queue, buffer, count, nullptr, condition, timeout);
}

ssize_t read_error(fid_cq* queue, fi_cq_err_entry* buffer, uint64_t /*flags*/) {
  CompletionQueue& from = of(queue);
  const std::lock_guard lock(from.domain.mutex);
  if (from.unread.empty() || from.unread.front().err == 0) return -FI_EAGAIN;
  from.error = from.take();
  // Programs leave the entry uninitialized, so its err_data is not a valid buffer and is replaced.
  // The entry of a program made with libfabric 1.17 ends there.
  std::memcpy(buffer, &from.error, offsetof(fi_cq_err_entry, err_data_size) + sizeof(size_t));
  buffer->prov_errno = buffer->err;
  buffer->err_data = from.error.why.data();
  buffer->err_data_size = from.error.why.size() + 1;
  return 1;
}

int wake(fid_cq* queue) {
  CompletionQueue& woken = of(queue);
  const std::lock_guard lock(woken.domain.mutex);
  woken.woken = true;
  woken.signal.raise();
  return 0;
}

const char* describe_error(fid_cq* /*queue*/, int error, const void* data, char* buffer,
                           size_t length) {
  const char* const text = data != nullptr ? static_cast<const char*>(data) : fi_strerror(error);
  return copied_text(text, buffer, length);
}

fi_ops kQueueObject = object_calls(close_unused<CompletionQueue>, control_signal<CompletionQueue>);
fi_ops_cq kQueue = {.size = sizeof(fi_ops_cq),
                    .read = safe<read_entries>,
                    .readfrom = safe<read_from>,
                    .readerr = safe<read_error>,
                    .sread = safe<wait_and_read>,
                    .sreadfrom = safe<wait_and_read_from>,
                    .signal = safe<wake>,
                    .strerror = describe_error};

Counter& of(fid_cntr* counter) { return *static_cast<Counter*>(counter); }

using Count = std::atomic<uint64_t> Counter::*;

int advance(fid_cntr* counter) {
  Domain& domain = of(counter).domain;
  domain.note_call();
  const std::lock_guard lock(domain.mutex);
  domain.progress();
  return 0;
}

template <Count kCount>
uint64_t read(fid_cntr* counter) {
  (void)safe<advance>(counter);
  return of(counter).*kCount;
}

template <Count kCount, bool kAdds>
int change(fid_cntr* counter, uint64_t by) {
  const std::lock_guard lock(of(counter).domain.mutex);
  of(counter).*kCount = kAdds ? of(counter).*kCount + by : by;
  of(counter).signal.raise();
  return 0;
}

int wait_for_value(fid_cntr* counter, uint64_t threshold, int timeout) {
  Counter& waited = of(counter);
  const uint64_t errors = waited.errors;
  const bool arrived = waited.domain.wait(
      [&] { return waited.value >= threshold || waited.errors != errors; }, timeout);
  if (!arrived) return -FI_ETIMEDOUT;
  return waited.value >= threshold ? 0 : -FI_EAVAIL;
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

fi_ops kCounterObject = object_calls(safe<close_counter>, control_signal<Counter>);
fi_ops_cntr kCounter = {.size = sizeof(fi_ops_cntr),
                        .read = read<&Counter::value>,
                        .readerr = read<&Counter::errors>,
                        .add = safe<change<&Counter::value, true>>,
                        .set = safe<change<&Counter::value, false>>,
                        .wait = safe<wait_for_value>,
                        .adderr = safe<change<&Counter::errors, true>>,
                        .seterr = safe<change<&Counter::errors, false>>};

}  // namespace

CompletionQueue::CompletionQueue(Domain& its_domain, const fi_cq_attr& attr)
    : fid_cq{},
      InDomain(its_domain),
      format(attr.format == FI_CQ_FORMAT_UNSPEC ? FI_CQ_FORMAT_CONTEXT : attr.format),
      size(attr.size == 0 ? kDefaultSize : attr.size),
      signal(attr.wait_obj == FI_WAIT_UNSPEC ? FI_WAIT_FD : attr.wait_obj) {
  if (signal.has_descriptor()) domain.enable_auto_progress();
}

void CompletionQueue::add(Completion completion) {
  unread.push_back(std::move(completion));
  signal.raise();
}

Completion CompletionQueue::take() {
  Completion taken = std::move(unread.front());
  unread.pop_front();
  return taken;
}

int open_completion_queue(fid_domain* domain, fi_cq_attr* attr, fid_cq** queue, void* context) {
  const bool known = Signal::known(attr->wait_obj) && attr->format <= FI_CQ_FORMAT_TAGGED;
  if (!known) return -FI_ENOSYS;
  auto* const made = new CompletionQueue(*static_cast<Domain*>(domain), *attr);
  return hand_out(made, FI_CLASS_CQ, &kQueueObject, &kQueue, context, queue);
}

void Counter::count(bool failed) {
  ++(failed ? errors : value);
  signal.raise();
}

int open_counter(fid_domain* domain, fi_cntr_attr* attr, fid_cntr** counter, void* context) {
  if (!Signal::known(attr->wait_obj)) return -FI_ENOSYS;
  auto& its_domain = *static_cast<Domain*>(domain);
  auto* const made = new Counter(its_domain, attr->wait_obj);
  if (made->signal.has_descriptor()) its_domain.enable_auto_progress();
  return hand_out(made, FI_CLASS_CNTR, &kCounterObject, &kCounter, context, counter);
}

}  // namespace pacecar::fabric
