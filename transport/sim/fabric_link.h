// One direction of a cable: its queue, its transmitter, and the packets on the cable.
// fabric_links.cc moves packets through it. The queue has no bound: the caller checks sizes before
// it adds packets. Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "transport/base/units.h"
#include "transport/io/decorators/pcap_writer.h"
#include "transport/sim/event_loop.h"
#include "transport/sim/fabric_config.h"
#include "transport/sim/fabric_packet.h"
#include "transport/sim/serial_clock.h"
#include "transport/sim/switch_buffer.h"
#include "transport/sim/topology.h"

namespace pacecar {

// The packets of one class. Processes that share a NIC take turns, packet by packet.
class ClassQueue {
 public:
  // `processes`: that share the queue; of a switch it is 1.
  explicit ClassQueue(uint32_t processes) {
    if (processes > 1) behind_ = std::make_unique<Behind>(processes);
  }

  bool empty() const { return list_.empty(); }
  Bytes bytes() const { return bytes_; }
  Bytes bytes(uint8_t process) const {
    if (!behind_) return bytes_;
    const bool next = !list_.empty() && list_.front().source_process == process;
    return behind_->lists[process].bytes + (next ? list_.front().wire_bytes : 0);
  }
  size_t count() const { return list_.count() + (behind_ ? behind_->count : 0); }
  const FabricPacket& front() const { return list_.front(); }
  // Only in switches.
  const FabricPacket& last() const { return list_.back(); }

  void push(FabricPacket& packet) {
    bytes_ += packet.wire_bytes;
    if (behind_ && !list_.empty()) return behind_->push(packet);
    list_.push(packet);
  }
  FabricPacket& pop() {
    FabricPacket& packet = list_.pop();
    bytes_ -= packet.wire_bytes;
    if (behind_ && behind_->count > 0) list_.push(behind_->pop(packet.source_process));
    return packet;
  }
  // Puts `packet` in the place of the last one and leaves that one in `packet`. Only in switches.
  void exchange_last(FabricPacket& packet) {
    FabricPacket& last = list_.back();
    bytes_ += packet.wire_bytes - Bytes{last.wire_bytes};
    std::swap(last, packet);
    last.next = nullptr;
  }

 private:
  // For several processes: the packets that wait behind the one whose turn it is.
  struct Behind {
    struct List {
      PacketList packets;
      Bytes bytes = 0;
    };

    explicit Behind(uint32_t processes) : lists(processes) {}
    void push(FabricPacket& packet) {
      List& list = lists[packet.source_process];
      list.packets.push(packet);
      list.bytes += packet.wire_bytes;
      ++count;
    }
    // Takes a packet of the first process after this one that has some; one has.
    FabricPacket& pop(uint8_t after) {
      size_t process = after;
      do {
        process = process + 1 < lists.size() ? process + 1 : 0;
      } while (lists[process].packets.empty());
      FabricPacket& packet = lists[process].packets.pop();
      lists[process].bytes -= packet.wire_bytes;
      --count;
      return packet;
    }

    std::vector<List> lists;  // by process
    size_t count = 0;
  };

  PacketList list_;  // in a NIC of several processes: only the packet whose turn it is
  Bytes bytes_ = 0;
  std::unique_ptr<Behind> behind_;
};

// Control packets go first, or `control_weight` control packets before each waiting data packet.
class EgressQueue {
 public:
  EgressQueue(uint32_t control_weight, uint32_t processes)
      : data_(processes), control_(processes), control_weight_(control_weight) {}

  bool empty() const { return data_.empty() && control_.empty(); }
  size_t count() const { return data_.count() + control_.count(); }
  const ClassQueue& data() const { return data_; }
  const ClassQueue& control() const { return control_; }

  void push(FabricPacket& packet) { (packet.is_data() ? data_ : control_).push(packet); }
  // The next packet to send, nullptr if there is none; data waits while it is paused.
  FabricPacket* pop(bool data_paused) {
    const bool data = !data_paused && !data_.empty();
    const bool data_is_due = data && control_weight_ > 0 && control_run_ >= control_weight_;
    if (!control_.empty() && !data_is_due) {
      control_run_ = data ? control_run_ + 1 : 0;
      return &control_.pop();
    }
    if (!data) return nullptr;
    control_run_ = 0;
    return &data_.pop();
  }
  void exchange_last_data(FabricPacket& packet) { data_.exchange_last(packet); }

 private:
  ClassQueue data_;
  ClassQueue control_;
  uint32_t control_weight_;
  uint32_t control_run_ = 0;  // control packets sent since data had to wait for them
};

// Members that every packet touches come first: the transmitter, the cable, the queue, the
// counters, each in about a cache line.
struct alignas(64) FabricLink {
  // `processes`: that send on it; from a switch it is 1.
  FabricLink(Rate rate, Duration delay_, NodeId from_, NodeId to_, uint32_t control_weight,
             uint32_t processes)
      : clock(rate), delay(delay_), from(from_), to(to_), queue(control_weight, processes) {}

  // Data that waits or is being sent at `now`.
  Bytes data_bytes(Instant now) const {
    const bool sending = in_service != nullptr && clock.busy(now);
    return queue.data().bytes() + (sending ? in_service_data : 0);
  }
  // The same for the data of one process.
  Bytes data_bytes(Instant now, uint8_t process) const {
    const bool sending =
        in_service != nullptr && in_service->source_process == process && clock.busy(now);
    return queue.data().bytes(process) + (sending ? in_service_data : 0);
  }
  bool waiting() const { return !queue.empty() || pause_due != PacketKind::kData; }

  SerialClock clock;
  Duration delay;
  FabricPacket* in_service = nullptr;    // also the last of `flight`; null once it has left
  PacketList flight;                     // in order of arrival
  EventLoop::TimerId arrival_timer = 0;  // of the first in `flight`
  EventLoop::TimerId free_timer = 0;     // of the transmitter; armed only if something waits
  NodeId from;
  NodeId to;
  uint32_t in_service_data = 0;  // bytes of the data packet in service; 0: another kind
  bool up = true;
  bool paused = false;       // data, by the far end
  bool room_wanted = false;  // the host in front of it waits until it has sent a packet
  PacketKind pause_due = PacketKind::kData;  // kPause or kResume: to be sent before all else
  std::unique_ptr<PcapWriter> capture;       // of packets that leave the cable; null: none
  double loss = 0;
  std::unique_ptr<Policer> policer;  // of packets that leave the cable; null: none
  EgressQueue queue;
  LinkStats stats;       // without figures that are known from elsewhere
  Instant paused_since;  // when paused
  IngressShare ingress;  // of the switch at the far end
};

}  // namespace pacecar
