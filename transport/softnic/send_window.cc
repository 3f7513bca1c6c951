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

void SendWindow::log(uint64_t psn, Instant now) {
  // A sending that does not fit stays without an entry: a later probe repairs its loss.
  if (!sendings_.full()) sendings_.push(Sending{psn, now});
}

uint64_t SendWindow::send(const Packet& packet, Instant now) {
  PACECAR_DCHECK(!full());
  packets_[index(next_)] = Slot{packet, now, State::kInFlight};
  in_flight_ += packet.bytes;
  log(next_, now);
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

void SendWindow::resend(uint64_t psn, Instant now) {
  Slot& slot = packets_[index(psn)];
  PACECAR_DCHECK(slot.state != State::kAcknowledged);
  if (slot.state == State::kLost) {
    slot.state = State::kInFlight;
    in_flight_ += slot.packet.bytes;
    if (!lost_.empty() && lost_.front() == psn) lost_.pop_front();
  }
  slot.sent = now;
  log(psn, now);
}

bool SendWindow::acknowledge(uint64_t psn, Packet* packet) {
  if (psn < unacknowledged_ || psn >= next_) return false;
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
  if (psn < unacknowledged_ || psn >= next_) return false;
  const Slot& slot = packets_[index(psn)];
  if (slot.state != State::kInFlight || lost_.full()) return false;
  *packet = slot.packet;
  lose(psn);
  return true;
}

Bytes SendWindow::declare_lost_before(Instant limit) {
  Bytes bytes = 0;
  while (!sendings_.empty()) {
    const Sending sending = sendings_.front();
    const bool in_window = sending.psn >= unacknowledged_ && sending.psn < next_;
    const Slot& slot = packets_[index(sending.psn)];
    const bool live = in_window && slot.state == State::kInFlight && slot.sent == sending.sent;
    if (live && (sending.sent >= limit || lost_.full())) break;
    sendings_.pop_front();
    if (!live) continue;
    bytes += slot.packet.bytes;
    lose(sending.psn);
  }
  return bytes;
}

}  // namespace pacecar
