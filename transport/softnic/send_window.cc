#include "transport/softnic/send_window.h"

#include <bit>

#include "transport/base/check.h"

namespace pacecar {

// Twice the window: beside its live entry a packet may leave a stale one behind in either queue.
SendWindow::SendWindow(uint32_t size, uint64_t first_psn)
    : packets_(size),
      sendings_(size * 2),
      lost_(size * 2),
      unacknowledged_(first_psn),
      next_(first_psn) {
  PACECAR_CHECK(std::has_single_bit(size));
}

Bytes SendWindow::queue_bytes(uint32_t size) {
  return size * (sizeof(Slot) + 2 * sizeof(Sending) + 2 * sizeof(uint64_t));
}

bool SendWindow::live(const Sending& sending) const {
  const Slot& slot = packets_[index(sending.psn)];
  return in_window(sending.psn) && slot.state == State::kInFlight && slot.sent == sending.sent;
}

inline void SendWindow::log(Sending sending) {
  if (!sendings_.push(sending)) [[unlikely]] {
    log_in_full_queue(sending);
  }
}

// At most half of the entries are live, so room is made rarely and a lot of it.
void SendWindow::log_in_full_queue(Sending sending) {
  for (size_t left = sendings_.size(); left > 0; --left) {
    const Sending other = sendings_.front();
    sendings_.pop_front();
    if (live(other)) sendings_.push(other);
  }
  // A sending that does not fit even so stays without an entry: a later probe repairs its loss.
  sendings_.push(sending);
}

uint64_t SendWindow::send(const Packet& packet, uint16_t path, Instant now) {
  PACECAR_DCHECK(!full());
  packets_[index(next_)] = Slot{packet, now, State::kInFlight, path};
  in_flight_ += packet.bytes;
  log({next_, now});
  return next_++;
}

bool SendWindow::next_lost(uint64_t* psn, Packet* packet) {
  while (!lost_.empty()) {
    *psn = lost_.front();
    const Slot& slot = packets_[index(*psn)];
    if (*psn >= unacknowledged_ && slot.state == State::kLost) {
      *packet = slot.packet;
      return true;
    }
    lost_.pop_front();
  }
  return false;
}

void SendWindow::resend(uint64_t psn, uint16_t path, Instant now) {
  Slot& slot = packets_[index(psn)];
  PACECAR_DCHECK(slot.state != State::kAcknowledged);
  if (slot.state == State::kLost) {
    slot.state = State::kInFlight;
    in_flight_ += slot.packet.bytes;
    if (!lost_.empty() && lost_.front() == psn) lost_.pop_front();
  }
  slot.sent = now;
  slot.path = path;
  log({psn, now});
}

bool SendWindow::acknowledge(uint64_t psn, Packet* packet) {
  if (!in_window(psn)) return false;
  Slot& slot = packets_[index(psn)];
  if (slot.state == State::kAcknowledged) return false;
  if (slot.state == State::kInFlight) in_flight_ -= slot.packet.bytes;
  slot.state = State::kAcknowledged;
  *packet = slot.packet;
  return true;
}

void SendWindow::advance() {
  while (unacknowledged_ < next_ &&
         packets_[index(unacknowledged_)].state == State::kAcknowledged) {
    ++unacknowledged_;
  }
}

void SendWindow::lose(uint64_t psn) {
  Slot& slot = packets_[index(psn)];
  slot.state = State::kLost;
  in_flight_ -= slot.packet.bytes;
  lost_.push(psn);
}

bool SendWindow::refuse(uint64_t psn, Packet* packet) {
  if (!in_window(psn)) return false;
  const Slot& slot = packets_[index(psn)];
  if (slot.state != State::kInFlight || lost_.full()) return false;
  *packet = slot.packet;
  lose(psn);
  return true;
}

std::optional<uint16_t> SendWindow::path_of(uint64_t psn, uint32_t timestamp) const {
  if (psn >= next_ || next_ - psn > packets_.size()) return std::nullopt;  // forgotten
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
  if (oldest_sending() >= limit || lost_.full()) return std::nullopt;
  const uint64_t psn = sendings_.front().psn;
  sendings_.pop_front();
  lose(psn);
  const Slot& slot = packets_[index(psn)];
  return Loss{slot.packet.bytes, slot.path};
}

Instant SendWindow::oldest_sending() {
  while (!sendings_.empty() && !live(sendings_.front())) sendings_.pop_front();
  return sendings_.empty() ? Instant::never() : sendings_.front().sent;
}

}  // namespace pacecar
