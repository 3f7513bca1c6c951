#include "net_plugin/profiler/record.h"

#include <algorithm>
#include <bit>

namespace pacecar::profiler {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr int kWaitShift = 56;
constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kWriting = 1;  // no event's id: the least is 2
constexpr uint64_t kTimeMask = (uint64_t{1} << kWaitShift) - 1;

// Acquire and release: a reader of a newer event's word also sees that the slot's id has changed.
uint64_t get(const std::atomic<uint64_t>& word) { return word.load(std::memory_order_acquire); }
void set(std::atomic<uint64_t>& word, uint64_t value) {
  word.store(value, std::memory_order_release);
}
// Not atomic as a whole: one thread at a time adds, so no locked instruction is needed.
void add(std::atomic<uint64_t>& word, uint64_t value) { set(word, get(word) + value); }

}  // namespace

void Record::clear(Ring& ring) {
  for (Slot& slot : ring.slots) set(slot.id, 0);
  set(ring.begun, 0);
}

void Record::reset(const Identity& identity) {
  clear(operations_);
  clear(steps_);
  set(communicator_, identity.communicator);
  rank_.store(identity.rank, kRelaxed);
  ranks_.store(identity.ranks, kRelaxed);
  nodes_.store(identity.nodes, kRelaxed);
  for (Word& word : totals_) set(word, 0);
  set(allowed_until_, 0);
}

void Record::identify(uint64_t communicator, int32_t rank) {
  if (get(communicator_) == 0) set(communicator_, communicator);
  if (rank_.load(kRelaxed) < 0) rank_.store(rank, kRelaxed);
}

Identity Record::identity() const {
  return {get(communicator_), rank_.load(kRelaxed), ranks_.load(kRelaxed), nodes_.load(kRelaxed)};
}

void Record::store(const Description& what, Slot& slot) {
  const auto words = std::bit_cast<DescriptionWords>(what);
  for (size_t i = 0; i < words.size(); ++i) set(slot.what[i], words[i]);
}

Description Record::load(const Slot& slot) {
  DescriptionWords words;
  for (size_t i = 0; i < words.size(); ++i) words[i] = get(slot.what[i]);
  return std::bit_cast<Description>(words);
}

// A bucket of one second's messages, stored as the time at which it is full again.
bool Record::may_detail(uint64_t messages, uint64_t now_ns) {
  const uint64_t from = std::max(get(allowed_until_), now_ns);
  const uint64_t until = from + messages * (kSecond / kMessageRate);
  if (until > now_ns + kSecond && from > now_ns) return false;
  set(allowed_until_, until);
  return true;
}

// The lowest bit of an id selects the ring.
uint64_t Record::start(const Description& given, uint64_t parent, uint64_t now_ns) {
  Description what = given;
  const bool step = what.kind == EventKind::kProxyStep;
  if (step) {
    const Slot* const whole = find(parent);
    if (whole != nullptr && !load(*whole).detailed) return 0;
  } else if (what.kind == EventKind::kProxyOp) {
    what.detailed = may_detail(what.number, now_ns);
  }
  Ring& ring = step ? steps_ : operations_;
  const uint64_t place = ring.begun.fetch_add(1, kRelaxed);
  const uint64_t id = (place + 1) << 1 | static_cast<uint64_t>(step);
  Slot& slot = ring.slots[place % ring.slots.size()];
  // Another thread is still writing it: it was stopped while others went once around the ring.
  if (slot.id.exchange(kWriting, std::memory_order_acq_rel) == kWriting) return 0;
  store(what, slot);
  set(slot.parent, parent);
  set(slot.start, now_ns);
  for (Word* const word : {&slot.stop, &slot.moment, &slot.first, &slot.bytes, &slot.waiting}) {
    set(*word, 0);
  }
  for (Word& word : slot.waits) set(word, 0);
  set(slot.id, id);
  if (what.kind == EventKind::kCollective) add(totals_[kCollectives], 1);
  if (what.kind == EventKind::kPointToPoint) add(totals_[kPointToPoints], 1);
  return id;
}

Record::Slot* Record::find(uint64_t id) {
  if (id < 2) return nullptr;
  Ring& ring = (id & 1) != 0 ? steps_ : operations_;
  Slot& slot = ring.slots[((id >> 1) - 1) % ring.slots.size()];
  return get(slot.id) == id ? &slot : nullptr;
}

void Record::enter(Slot& slot, Wait wait, uint64_t now_ns) {
  const uint64_t before = get(slot.waiting);
  const uint64_t since = before & kTimeMask;
  const size_t index = before >> kWaitShift;
  if (index > 0 && now_ns > since) add(slot.waits[index], now_ns - since);
  set(slot.waiting, static_cast<uint64_t>(wait) << kWaitShift | (now_ns & kTimeMask));
}

void Record::wait(uint64_t id, Wait wait, uint64_t bytes, uint64_t now_ns) {
  Slot* const slot = find(id);
  if (slot == nullptr || load(*slot).kind != EventKind::kProxyStep) return;
  const auto before = static_cast<Wait>(get(slot->waiting) >> kWaitShift);
  if (before == wait) return;
  enter(*slot, wait, now_ns);
  if (bytes > 0) set(slot->bytes, bytes);
  const bool begins = wait == Wait::kNetwork && before != Wait::kNothing;
  const bool ends = before == Wait::kNetwork;
  if ((begins || ends) && get(slot->moment) == 0) set(slot->moment, now_ns);
}

void Record::add_bytes(uint64_t id, uint64_t bytes) {
  Slot* const slot = find(id);
  if (slot != nullptr) set(slot->bytes, std::max(get(slot->bytes), bytes));
}

void Record::stop(uint64_t id, uint64_t now_ns) {
  Slot* const slot = find(id);
  if (slot == nullptr) return;
  switch (load(*slot).kind) {
    case EventKind::kCollective:
    case EventKind::kPointToPoint:  // the host is done with it; its parts go on
      set(slot->moment, now_ns);
      if (get(slot->stop) == 0) set(slot->stop, now_ns);
      return;
    case EventKind::kProxyStep:
      return stop_step(*slot, now_ns);
    case EventKind::kProxyOp:
      return stop_operation(*slot, now_ns);
    case EventKind::kNone:
      return;
  }
}

void Record::stop_step(Slot& step, uint64_t now_ns) {
  if (get(step.stop) != 0) return;
  enter(step, Wait::kNothing, now_ns);
  set(step.stop, now_ns);
  Slot* const operation = find(get(step.parent));
  if (operation == nullptr) return;
  add(operation->bytes, get(step.bytes));
  for (size_t i = 1; i < kWaits; ++i) add(operation->waits[i], get(step.waits[i]));
  const uint64_t moment = get(step.moment);
  const uint64_t began = get(operation->start);
  if (get(operation->first) == 0 && moment > began) set(operation->first, moment - began);
}

void Record::stop_operation(Slot& operation, uint64_t now_ns) {
  if (get(operation.stop) != 0) return;
  set(operation.stop, now_ns);
  const uint64_t bytes = get(operation.bytes);
  add(totals_[load(operation).sending ? kBytesSent : kBytesReceived], bytes);
  add(totals_[kBusyNs], now_ns - std::min(now_ns, get(operation.start)));
  for (size_t i = 1; i < kWaits; ++i) add(totals_[kBusyNs + i], get(operation.waits[i]));
  Slot* const whole = find(get(operation.parent));
  if (whole == nullptr) return;
  set(whole->stop, std::max(get(whole->stop), now_ns));
  add(whole->bytes, bytes);
  for (size_t i = 1; i < kWaits; ++i) add(whole->waits[i], get(operation.waits[i]));
}

Totals Record::totals() const {
  Totals totals;
  std::ranges::transform(totals_, totals.begin(), get);
  return totals;
}

std::vector<Event> Record::read(const Ring& ring) {
  std::vector<Event> events;
  const uint64_t begun = get(ring.begun);
  const size_t size = ring.slots.size();
  for (uint64_t place = begun > size ? begun - size : 0; place < begun; ++place) {
    const Slot& slot = ring.slots[place % size];
    const uint64_t id = get(slot.id);
    Event event{.what = load(slot),
                .id = id,
                .parent = get(slot.parent),
                .start_ns = get(slot.start),
                .stop_ns = get(slot.stop),
                .moment_ns = get(slot.moment),
                .first_ns = get(slot.first),
                .bytes = get(slot.bytes)};
    for (size_t i = 1; i < kWaits; ++i) event.waits[i] = get(slot.waits[i]);
    if (id >> 1 == place + 1 && get(slot.id) == id) events.push_back(event);
  }
  return events;
}

}  // namespace pacecar::profiler
