// PathMtu: which packets the path to a peer passes (packetization layer path MTU discovery, RFC
// 8899). It finds this by questions, which are packets of some size that the peer answers, and not
// by ICMP, which may be lost or forged. Sizes count whole IP packets, except where a payload is
// named.
//   kAskingFull   two joined packets of the full size, and one alone
//        |  all three answered: kSettled, full
//        |  4 rounds in vain
//   kAskingAll    one packet of each size                      the full one: kSettled, one by one
//        |  4 rounds with answers
//   kAskingJoined two joined packets of the largest that passes
//        |  both answered, or after 4 rounds in vain: one by one
//   kSettled      after kRetry it asks as kAskingFull, once, if not all passes
//        |  kLosses full packets in a row are lost
//   kAskingFull
// It begins in kAskingFull, with the smallest packets, or pieces of full ones. After losses packets
// keep their size in kAskingFull: if that was mere congestion, nothing changes.
// Pure; time is an argument. Thread rule: one owner.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "transport/base/units.h"

namespace pacecar {

class PathMtu {
 public:
  struct Config {
    Bytes payload = 0;      // the largest of a packet between the two ends
    Bytes overhead = 0;     // of an IP packet beyond its payload
    bool searches = false;  // false: everything passes
  };
  struct Questions {
    std::span<const Bytes> alone;   // one packet of each size
    std::span<const Bytes> joined;  // two of each, which the kernel may join
  };
  // Least of IPv4, old tunnels, least of IPv6, VPNs, WireGuard, VXLAN, PPPoE, Ethernet, IB, jumbo.
  static constexpr std::array<Bytes, 11> kUsual{576,  1006, 1280, 1400, 1420, 1450,
                                                1492, 1500, 2044, 4092, 8000};
  static constexpr Bytes kMostPieces = 56;  // of a packet: as many must leave in one turn
  static constexpr size_t kMostQuestions = kUsual.size() + 1;

  explicit PathMtu(const Config& config);
  PathMtu(const PathMtu&) = delete;  // sizes_ points into the object
  PathMtu& operator=(const PathMtu&) = delete;

  // The largest payload that packets may have now.
  Bytes payload() const { return payload_; }
  // The payload of packets of writes that begin: at first of full packets, in pieces until the
  // path's sizes are known, as most paths pass full packets.
  Bytes begun_payload() const { return hopeful_ ? config_.payload : payload_; }
  // The payload of the smallest packets that are asked for.
  Bytes least_payload() const { return payload_of(sizes_.front()); }
  // The largest payload of a piece of a packet. Its header is a little longer.
  Bytes piece_payload() const { return payload_ - kLineBytes; }
  // Packets must not be joined: something on the path drops joined packets.
  bool one_by_one() const {
    return one_by_one_ || state_ == State::kAskingAll || state_ == State::kAskingJoined;
  }
  // It is not known yet what passes.
  bool searching() const { return state_ != State::kSettled; }
  // Where not all packets pass: the largest size that does. 0: all do.
  Bytes reduced() const { return passed_ < full() ? passed_ : 0; }

  // Packets with more than the least payload were acknowledged, or one of them was lost.
  void on_acknowledged() { losses_ = 0; }
  void on_lost(Instant now) {
    if (++losses_ == kLosses && state_ == State::kSettled) ask_again(now);
  }

  // When ask() must be called; never(): no question is planned.
  Instant deadline() const { return deadline_; }
  // The questions that are due. `timeout`: how long an answer may take.
  Questions ask(Instant now, Duration timeout);
  // The peer has received a question of that size, joined or alone.
  void on_answer(Bytes size, bool joined, Instant now);

 private:
  // Readers that poll memory rely on whole lines, as SoftNicConfig::mtu says.
  static constexpr Bytes kLineBytes = 128;
  enum class State : uint8_t { kAskingFull, kAskingAll, kAskingJoined, kSettled };

  static constexpr uint32_t kLosses = 3;
  static constexpr uint32_t kJoinedRounds = 4;
  static constexpr uint32_t kAnsweredRounds = 4;
  static constexpr Duration kLeastRound = Duration::from_ms(10);
  static constexpr Duration kMostRound = Duration::from_s(5);
  static constexpr Duration kRetry = Duration::from_s(30);  // the path may have been mended

  Bytes payload_of(Bytes size) const;
  Bytes full() const { return sizes_.back(); }
  void ask_again(Instant now);
  void advance();
  void settle(bool one_by_one, Instant now);

  const Config config_;
  std::array<Bytes, kMostQuestions> size_room_{};
  std::span<const Bytes> sizes_;  // ascending; the last is the full one
  State state_ = State::kSettled;
  Bytes payload_;
  Bytes passed_;
  Instant deadline_ = Instant::never();
  Duration round_time_;
  uint32_t rounds_ = 0;          // of this state; in kAskingAll only rounds with answers
  bool answered_ = false;        // in this round
  uint32_t joined_answers_ = 0;  // in this round
  bool full_passes_ = false;     // alone
  bool hopeful_ = true;          // at first
  bool one_by_one_ = false;
  uint32_t losses_ = 0;
};

}  // namespace pacecar
