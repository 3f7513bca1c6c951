#include "transport/sim/sim_port.h"

#include <algorithm>

#include "transport/base/check.h"
#include "transport/sim/sim_network.h"

namespace pacecar {

SimPort::SimPort(SimNetwork& network, size_t index)
    : network_(network), index_(index), inbox_(network.config().packets) {
  const SimConfig& config = network.config();
  caps_.datagram_bytes = config.datagram_bytes;
  caps_.burst_bytes = config.datagram_bytes;
  caps_.receive_bytes = config.inbox_bytes;
  caps_.paths = config.paths;
  caps_.line_rate = config.up.rate;
  caps_.sees_ecn = config.down.ecn_threshold_bytes > 0;
}

const Address& SimPort::local_address() const { return network_.address(index_); }

size_t SimPort::send(std::span<const TxPacket> packets, Instant now) {
  PACECAR_CHECK(now == network_.now());
  writable_at_ = Instant::never();
  size_t taken = 0;
  if (!network_.stalled(index_)) {
    for (const TxPacket& packet : packets) {
      if (packet.size() > caps_.datagram_bytes) {
        ++counters_.send_errors;
      } else if (network_.inject(index_, packet)) {
        ++counters_.sent_packets;
        counters_.sent_bytes += packet.size();
      } else {
        writable_at_ = network_.room_at(index_, packet.size());
        break;
      }
      ++taken;
    }
  }
  if (taken < packets.size()) ++counters_.send_blocked;
  return taken;
}

size_t SimPort::receive(std::span<RxPacket> packets, Instant now) {
  PACECAR_CHECK(now == network_.now());
  release_lent();
  if (network_.stalled(index_)) return 0;
  const size_t count = std::min(packets.size(), inbox_.size());
  for (; lent_ < count; ++lent_) {
    RxPacket& packet = packets[lent_];
    packet = network_.hand_over(inbox_[lent_]);
    inbox_bytes_ -= packet.bytes.size();
    ++counters_.received_packets;
    counters_.received_bytes += packet.bytes.size();
  }
  return count;
}

bool SimPort::put_into_inbox(PacketSlot slot) {
  const Bytes size = network_.pool().packet(slot).size;
  if (inbox_bytes_ + size > caps_.receive_bytes || !inbox_.push(slot)) return false;
  inbox_bytes_ += size;
  return true;
}

void SimPort::release_lent() {
  for (; lent_ > 0; --lent_) {
    network_.pool().give_back(inbox_.front());
    inbox_.pop_front();
  }
}

}  // namespace pacecar
