// TransmitBatch: puts the packets of one burst into DPDK's buffers. Thread rule: as PacketIo.
// If the device copies before its burst call returns (DpdkPort::copies_on_send), the payload is not
// copied here: the same buffers point to the payloads of every burst. The device "frees" them,
// which only decrements a reference count that is restored. Otherwise packets are copied, because a
// device may still read a retransmitted packet after its payload has been acknowledged and the
// application has reused the memory.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "transport/io/dpdk/port.h"
#include "transport/io/frame.h"

namespace pacecar {

class TransmitBatch {
 public:
  static constexpr size_t kBurst = 64;
  // Buffers in the port's pool for a batch and one more frame.
  static constexpr uint32_t kBuffers = 4 * kBurst;

  // All packets go out from `local`; `tagged`: in a VLAN.
  TransmitBatch(DpdkPort& port, const Address& local, bool tagged);

  // Begins a burst of `packets`; returns how many it has room for, at most kBurst.
  size_t begin(size_t packets);
  // Sets the headers of the packets that are added next, which all have the size of `packet`.
  void write_headers(const HeaderTemplate& headers, uint16_t source_port, const TxPacket& packet,
                     uint8_t traffic_class);
  void add(const TxPacket& packet);
  size_t submit();  // Sends the added packets and returns how many the device took.

  void send_frame(std::span<const uint8_t> frame);  // Sends one frame of another kind, at once.

 private:
  size_t take_prepared(size_t packets);
  size_t ask_for_checksums();
  void append_piece(rte_mbuf& head, rte_mbuf*& last, rte_mbuf* piece,
                    std::span<const uint8_t> bytes);

  DpdkPort& port_;
  uint64_t checksum_flags_ = 0;  // DPDK's flags; 0: the device does not make checksums.
  uint64_t header_lengths_ = 0;
  std::array<uint8_t, kMaxFrameHeaderBytes> headers_{};
  size_t headers_size_ = 0;
  size_t count_ = 0;
  size_t taken_ = 0;  // heads that are ready to be filled
  bool prepared_ = false;
  std::array<rte_mbuf*, kBurst> heads_{};
  // Only if the device copies: buffers that point to payload and trailer.
  std::array<rte_mbuf*, kBurst> payloads_{};
  std::array<rte_mbuf*, kBurst> trailers_{};
};

}  // namespace pacecar
