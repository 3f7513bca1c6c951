// A hostile peer of a messenger. With the keys that it was given it writes any bytes into the
// victim's tables, cells, words and buffers at any time. It completes any write with immediate at
// the victim, sends any offer and answer, and breaks queue pairs. The fuzzer's input chooses.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "tests/fuzz/fuzz_input.h"
#include "tests/support/connect_messengers.h"
#include "tests/support/memory_nic.h"
#include "transport/message/control_words.h"
#include "transport/message/eager.h"
#include "transport/message/messenger.h"

namespace pacecar::fuzz {

using test::MemoryNic;

// A connection of the hostile peer, with the victim's numbers and addresses.
struct HostileEnd {
  MemoryNic* victim = nullptr;
  bool sends = false;                      // to the victim
  std::optional<ConnectionId> connection;  // none: the victim has closed it
  QueuePairId data = 0;
  RemoteAddress table;
  RemoteAddress word;
};

class HostilePeer {
 public:
  static constexpr uint32_t kEager = 600;  // in the peer's offers

  HostilePeer(MemoryNic& nic, const NicIdentity& identity)
      : nic_(nic),
        identity_(identity),
        memory_(128 << 10),
        region_(nic.register_memory(memory_.data(), memory_.size(), Access::kRemoteWrite).value()) {
  }

  std::vector<HostileEnd>& ends() { return ends_; }

  // The victim opens a connection to the peer; nullptr: it failed.
  HostileEnd* receive(Messenger& victim, MemoryNic& nic, Instant now, Input& input,
                      Messenger::Role role = Messenger::Role::kWhole) {
    if (ends_.size() == kMaxEnds) return nullptr;
    const auto offered = victim.open_send(identity_, now, 0, role);
    if (!offered) return nullptr;
    const Offer offer = decode_offer(offered->offer).value();
    const uint8_t choice = input.u8();
    if (!offer.joined) joined_end_ = flow_end();
    Answer answer{.end = joined_end_,
                  .eager = (choice & 1) != 0 ? input.u32() : offer.eager,
                  .table = remote_address(input)};
    auto bytes = encode(answer);
    if ((choice & 6) == 6) bytes[input.below(bytes.size())] ^= input.u8();
    if (!victim.finish_send(offered->connection, bytes, now)) {
      victim.suspect_flow(offered->connection, ErrorCode::kStale, now);
      victim.close_send(offered->connection, now);
      return nullptr;
    }
    return &ends_.emplace_back(HostileEnd{.victim = &nic,
                                          .sends = false,
                                          .connection = offered->connection,
                                          .data = number_of(offer.end.data),
                                          .table = offer.table,
                                          .word = offer.end.words});
  }
  // The peer opens a connection to the victim; nullptr: it failed.
  HostileEnd* send(Messenger& victim, MemoryNic& nic, Instant now, std::string_view obeys,
                   Input& input) {
    if (ends_.size() == kMaxEnds) return nullptr;
    const uint8_t choice = input.u8();
    Offer offer{.sender = identity_,
                .flow = 100U + (choice >> 6),
                .joined = (choice & 1) != 0,
                .weight = 1 + input.u8() % 8U,
                .eager = (choice & 2) != 0 ? input.u16() : kEager,
                .number = (choice & 4) != 0 ? input.u16() % Immediate::kMaxConnections
                                            : static_cast<uint32_t>(ends_.size()),
                .count = (choice & 8) != 0 ? input.u8() : ends_.size() + 1,
                .end = (choice & 48) == 48 ? flow_end() : own_sending_end(choice >> 6),
                .table = remote_address(input)};
    offer.obeys = allocator_name((choice & 16) != 0 ? "" : obeys);
    const auto answered = victim.open_receive(encode(offer), now);
    if (!answered) return nullptr;
    const Answer answer = decode_answer(answered->answer).value();
    return &ends_.emplace_back(HostileEnd{.victim = &nic,
                                          .sends = true,
                                          .connection = answered->connection,
                                          .data = number_of(answer.end.data),
                                          .table = answer.table,
                                          .word = answer.end.words});
  }
  // One hostile act of the input's choice.
  void act(Input& input) {
    switch (input.u8() % 10) {
      case 0:
      case 1: return write_slot(input);
      case 2: return complete_immediate(input);
      case 3: return write_train(input);
      case 4: return write_word(input);
      case 5: return write_note(input);
      case 6: return write_bytes(input);
      case 7: return write_into_buffer(input);
      case 8: return break_queue_pair(input);
      default: return toggle_registration();
    }
  }

 private:
  static constexpr size_t kMaxEnds = 8;

  FlowEnd flow_end() {
    FlowEnd end;
    for (QueuePairAddress* address : {&end.data, &end.control}) {
      const auto id = nic_.create_queue_pair({.work_requests = 64});
      *address = nic_.queue_pair_address(id.value_or(0));
    }
    end.words = remote_address_of(region_);
    return end;
  }
  RemoteAddress remote_address(Input& input) {
    RemoteAddress address = remote_address_of(region_);
    const uint8_t choice = input.u8();
    if (choice % 8 == 7) address.address += input.u64();
    if (choice % 16 == 9) address.key = input.u32();
    return address;
  }
  static QueuePairId number_of(const QueuePairAddress& address) {
    return wire::load_be32(address.bytes.data() + 4);
  }
  const HostileEnd* any_end(Input& input) {
    return ends_.empty() ? nullptr : &ends_[input.below(ends_.size())];
  }
  static void write(const HostileEnd& end, const RemoteAddress& table, size_t offset,
                    std::span<const uint8_t> bytes) {
    end.victim->write(table.key, table.address + offset, bytes);
  }
  template <typename T>
  void write(const HostileEnd& end, const RemoteAddress& table, size_t offset, const T& thing) {
    write(end, table, offset, std::span(reinterpret_cast<const uint8_t*>(&thing), sizeof thing));
  }
  // Mostly a small number, which may be valid; sometimes any.
  static uint64_t some_number(Input& input) {
    const uint8_t choice = input.u8();
    if (choice < 0xF0) return choice;
    return choice < 0xF8 ? input.u16() : input.u64();
  }

  void write_slot(Input& input) {
    const HostileEnd* end = any_end(input);
    if (end == nullptr) return;
    const uint8_t choice = input.u8();
    CtsSlot slot{.address = region_.remote_address + 64U * input.u8(),
                 .size = (choice & 1) != 0 ? some_number(input) : 4096,
                 .key = (choice & 2) != 0 ? input.u32() : region_.key,
                 .tag = input.u8() % 4,
                 .group_size = static_cast<uint16_t>((choice & 4) != 0 ? some_number(input) : 1),
                 .group_index = static_cast<uint16_t>((choice & 8) != 0 ? some_number(input) : 0),
                 .eager_freed = (choice & 16) != 0 ? some_number(input) : 0,
                 .grant = (choice & 32) != 0 ? input.u64() : 0,
                 .sequence = some_number(input)};
    slot.first_sequence = (choice & 64) != 0 ? some_number(input) : slot.sequence;
    const size_t place = (choice & 128) != 0 ? input.u8() : (slot.sequence - 1) % kCtsSlots;
    write(*end, end->table, place * sizeof slot, slot);
  }
  void complete_immediate(Input& input) {
    const HostileEnd* end = any_end(input);
    if (end == nullptr || !end->victim->has(end->data)) return;
    const uint8_t choice = input.u8();
    Immediate immediate{.connection = input.u8(), .slot = input.u8(), .writes = input.u8()};
    if ((choice & 3) == 1) immediate.writes = Immediate::kTooLong;
    if ((choice & 3) == 2) immediate.writes = Immediate::kEager;
    if ((choice & 3) == 3) immediate.writes = Immediate::kAbandoned;
    const Bytes bytes = (choice & 4) != 0 ? some_number(input) & 0xFFFFFFFF : input.u16();
    end->victim->complete({.bytes = bytes,
                           .queue_pair = end->data,
                           .immediate = (choice & 8) != 0 ? input.u32() : immediate.pack(),
                           .kind = CompletionKind::kReceived});
  }
  // Writes a train of eager messages, and completes the write.
  void write_train(Input& input) {
    const HostileEnd* end = any_end(input);
    if (end == nullptr || !end->victim->has(end->data)) return;
    const uint32_t connection = input.u8();
    const uint32_t cell = input.u8() % (EagerCells::kCells + 2);
    const EagerCells cells(kEager);
    const size_t begin = sizeof(ReceiveTable) + cells.offset(cell);
    size_t at = 0;
    for (int left = 1 + input.u8() % 3; left > 0; --left) {
      const EagerHeader header{.next_slot = some_number(input),
                               .number = static_cast<uint32_t>(some_number(input)),
                               .size = static_cast<uint32_t>(some_number(input)),
                               .tag = input.u8() % 4};
      write(*end, end->table, begin + at, header);
      at = EagerCells::next(at + sizeof header + std::min(header.size, 4096U));
    }
    const Bytes bytes = input.u8() % 4 == 0 ? some_number(input) & 0xFFFFFFFF : at;
    const Immediate immediate{.connection = connection, .slot = cell, .writes = Immediate::kEager};
    end->victim->complete({.bytes = bytes,
                           .queue_pair = end->data,
                           .immediate = immediate.pack(),
                           .kind = CompletionKind::kReceived});
  }
  // Writes a grant or demand, a wanted word or a close word.
  void write_word(Input& input) {
    const HostileEnd* end = any_end(input);
    if (end == nullptr) return;
    const uint8_t choice = input.u8();
    const uint64_t word = (choice & 4) != 0 ? input.u64() : some_number(input);
    switch (choice & 3) {
      case 0: return write(*end, end->word, 0, word);
      case 1: return write(*end, end->table, offsetof(ReceiveTable, peer_wanted), word);
      default:
        return write(
            *end, end->table,
            end->sends ? offsetof(ReceiveTable, peer_close) : offsetof(SendTable, peer_close),
            (choice & 8) != 0 ? word : CloseWord::pack(word));
    }
  }
  void write_note(Input& input) {
    const HostileEnd* end = any_end(input);
    if (end == nullptr) return;
    LaneNote note{.epoch = input.u8() % 8U,
                  .kind = static_cast<uint8_t>(input.u8() % 7),
                  .lanes = input.u8(),
                  .next = some_number(input),
                  .number = some_number(input)};
    for (uint64_t& word : note.done) word = input.u8() % 2 == 0 ? 0 : input.u64();
    write(*end, end->table, offsetof(SendTable, peer_note), seal(note));
  }
  void write_bytes(Input& input) {
    const HostileEnd* end = any_end(input);
    if (end == nullptr) return;
    const size_t offset = input.u16();
    const size_t size = 1 + input.u8();
    write(*end, end->table, offset, input.bytes(size));
  }
  // Writes into a buffer that the victim has advertised in a CTS slot.
  void write_into_buffer(Input& input) {
    const HostileEnd* end = any_end(input);
    if (end == nullptr) return;
    const CtsSlot* slots = reinterpret_cast<const CtsSlot*>(memory_.data());
    const CtsSlot slot = slots[input.u8()];
    const uint64_t offset = some_number(input);
    end->victim->write(slot.key, slot.address + offset, input.bytes(input.u8()));
  }
  void break_queue_pair(Input& input) {
    const HostileEnd* end = any_end(input);
    if (end == nullptr) return;
    end->victim->break_queue_pair(end->data);
  }
  void toggle_registration() {
    writes_fail_ = !writes_fail_;
    if (writes_fail_) {
      nic_.deregister_memory(region_);
    } else {
      region_ = nic_.register_memory(memory_.data(), memory_.size(), Access::kRemoteWrite).value();
    }
  }

  FlowEnd own_sending_end(size_t flow) {
    if (!sending_ends_[flow]) sending_ends_[flow] = flow_end();
    return *sending_ends_[flow];
  }

  MemoryNic& nic_;
  const NicIdentity identity_;
  std::vector<uint8_t> memory_;
  MemoryRegion region_;
  bool writes_fail_ = false;
  FlowEnd joined_end_;
  std::array<std::optional<FlowEnd>, 4> sending_ends_;
  std::vector<HostileEnd> ends_;
};

}  // namespace pacecar::fuzz
