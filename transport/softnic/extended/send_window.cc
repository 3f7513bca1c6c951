#include "transport/softnic/extended/send_window.h"

#include <algorithm>
#include <bit>

#include "transport/base/check.h"

namespace pacecar {

SendWindow::SendWindow(uint32_t size, uint64_t first_psn)
    : packets_(size), unacknowledged_(first_psn), next_(first_psn) {
  PACECAR_CHECK(std::has_single_bit(size) && size < kNone);
}

inline void SendWindow::append(List& list, size_t place) {
  packets_[place].previous = list.last;
  packets_[place].next = kNone;
  const auto added = static_cast<Place>(place);
  (list.empty() ? list.first : packets_[list.last].next) = added;
  list.last = added;
}

inline void SendWindow::remove(List& list, const Slot& slot) {
  (slot.previous == kNone ? list.first : packets_[slot.previous].next) = slot.next;
  (slot.next == kNone ? list.last : packets_[slot.next].previous) = slot.previous;
}

uint64_t SendWindow::send_run(const Packet& first, uint32_t count, uint16_t path, Instant now) {
  PACECAR_DCHECK(count > 0 && count <= room());
  const uint64_t psn = next_;
  const auto begin = static_cast<Place>(index(psn));
  Place before = in_flight_list_.last;
  Place place = begin;
  for (uint32_t i = 0; i < count; ++i) {
    const auto after = static_cast<Place>(index(psn + i + 1));
    packets_[place] = {.sent = now,
                       .request = first.request,
                       .index = (first.index + i) & kIndexMask,
                       .state = static_cast<uint32_t>(State::kInFlight),
                       .bytes = static_cast<uint16_t>(first.bytes),
                       .path = path,
                       .next = after,
                       .previous = before};
    before = place;
    place = after;
  }
  packets_[before].next = kNone;
  (in_flight_list_.empty() ? in_flight_list_.first : packets_[in_flight_list_.last].next) = begin;
  in_flight_list_.last = before;
  in_flight_ += Bytes{first.bytes} * count;
  next_ += count;
  return psn;
}

bool SendWindow::next_lost(uint64_t* psn, Packet* packet) const {
  if (lost_.empty()) return false;
  *psn = unacknowledged_ + index(lost_.first - unacknowledged_);
  *packet = packets_[lost_.first].packet();
  return true;
}

void SendWindow::resend(uint64_t psn, uint16_t path, Instant now) {
  const size_t place = index(psn);
  Slot& slot = packets_[place];
  PACECAR_DCHECK(slot.is(State::kLost));
  remove(lost_, slot);
  slot.set(State::kInFlight);
  in_flight_ += slot.bytes;
  slot.sent = now;
  slot.path = path;
  append(in_flight_list_, place);
}

bool SendWindow::acknowledge(uint64_t psn, Packet* packet) {
  if (!in_window(psn)) return false;
  Slot& slot = packets_[index(psn)];
  if (slot.is(State::kAcknowledged)) return false;
  if (slot.is(State::kInFlight)) {
    in_flight_ -= slot.bytes;
    remove(in_flight_list_, slot);
  } else {
    remove(lost_, slot);
  }
  slot.set(State::kAcknowledged);
  *packet = slot.packet();
  return true;
}

SendWindow::Acknowledged SendWindow::acknowledge_oldest(uint64_t end) {
  end = std::min(end, next_);
  size_t place = index(unacknowledged_);
  const Place before = packets_[place].previous;
  Acknowledged taken{.request = packets_[place].request};
  size_t after = place;
  while (unacknowledged_ < end && after == place && packets_[place].is(State::kInFlight) &&
         packets_[place].request == taken.request) {
    Slot& slot = packets_[place];
    slot.set(State::kAcknowledged);
    taken.bytes += slot.bytes;
    ++taken.packets;
    after = slot.next;
    place = index(++unacknowledged_);
  }
  if (taken.packets == 0) return taken;
  (before == kNone ? in_flight_list_.first : packets_[before].next) = static_cast<Place>(after);
  (after == kNone ? in_flight_list_.last : packets_[after].previous) = before;
  in_flight_ -= taken.bytes;
  return taken;
}

void SendWindow::advance() {
  while (unacknowledged_ < next_ && packets_[index(unacknowledged_)].is(State::kAcknowledged)) {
    ++unacknowledged_;
  }
}

void SendWindow::lose(size_t place) {
  Slot& slot = packets_[place];
  remove(in_flight_list_, slot);
  slot.set(State::kLost);
  in_flight_ -= slot.bytes;
  append(lost_, place);
}

bool SendWindow::refuse(uint64_t psn, Packet* packet) {
  if (!in_window(psn)) return false;
  const Slot& slot = packets_[index(psn)];
  if (!slot.is(State::kInFlight)) return false;
  *packet = slot.packet();
  lose(index(psn));
  return true;
}

std::optional<uint16_t> SendWindow::path_of(uint64_t psn, uint32_t timestamp) const {
  if (psn >= next_ || next_ - psn > packets_.size()) return std::nullopt;  // no longer kept
  const Slot& slot = packets_[index(psn)];
  if (static_cast<uint32_t>(slot.sent.ns()) != timestamp) return std::nullopt;
  return slot.path;
}

std::optional<SendWindow::Loss> SendWindow::lose_sending(uint64_t psn, uint32_t timestamp) {
  Packet packet;
  const auto path = path_of(psn, timestamp);
  if (!path || !refuse(psn, &packet)) return std::nullopt;
  return Loss{packet.bytes, *path};
}

std::optional<SendWindow::Loss> SendWindow::lose_oldest_before(Instant limit) {
  if (oldest_sending() >= limit) return std::nullopt;
  const size_t place = in_flight_list_.first;
  lose(place);
  return Loss{packets_[place].bytes, packets_[place].path};
}

}  // namespace pacecar
