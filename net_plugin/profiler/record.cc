#include "net_plugin/profiler/record.h"

#include <algorithm>
#include <utility>

namespace pacecar::profiler {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

}  // namespace

Totals Record::totals() const {
  const std::lock_guard lock(mutex_);
  return totals_;
}

// A bucket of one second's messages, stored as the time at which it is full again.
bool Record::may_detail(uint64_t messages, uint64_t now_ns) {
  const uint64_t from = std::max(allowed_until_, now_ns);
  const uint64_t until = from + messages * (kSecond / kMessageRate);
  if (until > now_ns + kSecond && from > now_ns) return false;
  allowed_until_ = until;
  return true;
}

uint64_t Record::start(const Description& given, uint64_t parent, uint64_t now_ns) {
  if (!records(given, parent)) return 0;
  const std::lock_guard lock(mutex_);
  Description what = given;
  const bool step = what.kind == EventKind::kProxyStep;
  if (what.kind == EventKind::kProxyOp) what.detailed = may_detail(what.number, now_ns);
  Ring& ring = step ? steps_ : operations_;
  const uint64_t place = ring.begun++;
  Slot& slot = ring.slots[place % ring.slots.size()];
  slot = Slot();
  slot.what = what;
  slot.id = (place + 1) << kPlaceShift | (what.detailed ? 0 : kBrief) | (step ? kStep : 0);
  slot.parent = parent;
  slot.start_ns = now_ns;
  if (what.kind == EventKind::kCollective) ++totals_[kCollectives];
  if (what.kind == EventKind::kPointToPoint) ++totals_[kPointToPoints];
  return slot.id;
}

Record::Slot* Record::find(uint64_t id) {
  if (id >> kPlaceShift == 0) return nullptr;
  Ring& ring = (id & kStep) != 0 ? steps_ : operations_;
  Slot& slot = ring.slots[((id >> kPlaceShift) - 1) % ring.slots.size()];
  return slot.id == id ? &slot : nullptr;
}

void Record::enter(Slot& slot, Wait wait, uint64_t now_ns) {
  const auto before = static_cast<size_t>(std::exchange(slot.waiting, wait));
  const uint64_t since = std::exchange(slot.waiting_since_ns, now_ns);
  if (before > 0 && now_ns > since) slot.waits[before] += now_ns - since;
}

void Record::wait(uint64_t id, Wait wait, uint64_t bytes, uint64_t now_ns) {
  const std::lock_guard lock(mutex_);
  Slot* const slot = find(id);
  if (slot == nullptr || slot->what.kind != EventKind::kProxyStep) return;
  const Wait before = slot->waiting;
  if (before == wait) return;
  enter(*slot, wait, now_ns);
  if (bytes > 0) slot->bytes = bytes;
  const bool begins = wait == Wait::kNetwork && before != Wait::kNothing;
  const bool ends = before == Wait::kNetwork;
  if ((begins || ends) && slot->moment_ns == 0) slot->moment_ns = now_ns;
}

void Record::stop(uint64_t id, uint64_t now_ns) {
  const std::lock_guard lock(mutex_);
  Slot* const slot = find(id);
  if (slot == nullptr) return;
  switch (slot->what.kind) {
    case EventKind::kCollective:
    case EventKind::kPointToPoint:  // the host is done with it; its parts go on
      slot->moment_ns = now_ns;
      if (slot->stop_ns == 0) slot->stop_ns = now_ns;
      return;
    case EventKind::kProxyStep: return stop_step(*slot, now_ns);
    case EventKind::kProxyOp: return stop_operation(*slot, now_ns);
    case EventKind::kNone: return;
  }
}

void Record::add_part(const Event& part, Event& whole) {
  whole.bytes += part.bytes;
  for (size_t i = 1; i < kWaits; ++i) whole.waits[i] += part.waits[i];
}

void Record::stop_step(Slot& step, uint64_t now_ns) {
  if (step.stop_ns != 0) return;
  enter(step, Wait::kNothing, now_ns);
  step.stop_ns = now_ns;
  Slot* const operation = find(step.parent);
  if (operation == nullptr) return;
  add_part(step, *operation);
  if (operation->first_ns == 0 && step.moment_ns > operation->start_ns) {
    operation->first_ns = step.moment_ns - operation->start_ns;
  }
}

void Record::stop_operation(Slot& operation, uint64_t now_ns) {
  if (operation.stop_ns != 0) return;
  operation.stop_ns = now_ns;
  totals_[operation.what.sending ? kBytesSent : kBytesReceived] += operation.bytes;
  if (operation.what.detailed) totals_[kBusyNs] += now_ns - std::min(now_ns, operation.start_ns);
  for (size_t i = 1; i < kWaits; ++i) totals_[kBusyNs + i] += operation.waits[i];
  Slot* const whole = find(operation.parent);
  if (whole == nullptr) return;
  whole->stop_ns = std::max(whole->stop_ns, now_ns);
  add_part(operation, *whole);
}

std::vector<Event> Record::read(const Ring& ring) const {
  const std::lock_guard lock(mutex_);
  const size_t size = ring.slots.size();
  std::vector<Event> events;
  events.reserve(size);
  for (uint64_t place = ring.begun - std::min<uint64_t>(ring.begun, size); place < ring.begun;
       ++place) {
    events.push_back(ring.slots[place % size]);
  }
  return events;
}

}  // namespace pacecar::profiler
