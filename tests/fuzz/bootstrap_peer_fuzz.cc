// A bootstrap's listener, or its connector, with a peer that has the handle and perhaps the
// cluster's key, and sends frames of any type, sealed or not, in any order and at any time. Without
// the same key the listener opens no session, and the connector accepts no reply.
#include <optional>

#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/tcp.h"
#include "transport/base/check.h"
#include "transport/engine/bootstrap/bootstrap.h"

namespace pacecar::bootstrap_peer_fuzz {
namespace {

using namespace bootstrap;
using fuzz::Input;
using test::TcpEnd;

constexpr Duration kTimeout = Duration::from_s(1);
const Address kLoopback{.ip = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 127, 0, 0, 1}};

// The peer: its keys, and the nonce that it learns from the frames it receives.
class Peer {
 public:
  Peer(const Secret& secret, const ClusterKey& key, bool connects)
      : handshake_{.key = handshake_key(secret, key)}, connects_(connects) {}

  void join(TcpEnd end) { end_ = std::move(end); }
  bool joined() const { return static_cast<bool>(end_); }
  void leave() { end_.reset(); }

  void send_any(Input& input) {
    const uint8_t choice = input.u8();
    const auto type = static_cast<FrameType>((choice >> 2) % 8);
    const auto bytes = input.bytes(input.u8());
    switch (choice & 3) {
      case 0: return end_.send(bytes);
      case 1: return send_plain(type, bytes);
      case 2: return send_sealed(type, bytes);
      default: return send_next(bytes);
    }
  }
  void receive() {
    const auto bytes = end_.receive();
    if (bytes) received_.insert(received_.end(), bytes->begin(), bytes->end());
    const size_t nonce_at = kHeaderBytes + (connects_ ? sizeof(Mac) : 0);
    if (received_.size() < nonce_at + sizeof(Nonce)) return;
    Nonce& nonce = connects_ ? handshake_.listener_nonce : handshake_.connector_nonce;
    std::copy_n(received_.begin() + static_cast<long>(nonce_at), nonce.size(), nonce.begin());
  }

 private:
  void send(const Frame& frame) { end_.send(std::span(frame.bytes).first(frame.size)); }
  void send_plain(FrameType type, std::span<const uint8_t> body) {
    const Frame notice = encode_frame(FrameType::kVersionNotice, {});
    std::vector<uint8_t> frame(notice.bytes.begin(), notice.bytes.begin() + kHeaderBytes);
    frame[5] = static_cast<uint8_t>(type);
    frame[6] = static_cast<uint8_t>(body.size() >> 8);
    frame[7] = static_cast<uint8_t>(body.size());
    frame.insert(frame.end(), body.begin(), body.end());
    end_.send(frame);
  }
  void send_sealed(FrameType type, std::span<const uint8_t> content) {
    const auto fixed = [&](size_t size) {
      std::vector<uint8_t> exact(content.begin(), content.end());
      exact.resize(size);
      return exact;
    };
    switch (type) {
      case FrameType::kChallenge:
        handshake_.listener_nonce.fill(5);
        return send(handshake_.seal(type, handshake_.listener_nonce));
      case FrameType::kOffer: return send(handshake_.seal(type, content));
      case FrameType::kReply: return send(handshake_.seal(type, fixed(1 + content.size())));
      case FrameType::kConfirm: return send(handshake_.seal(type, {}));
      default:
        handshake_.connector_nonce.fill(3);
        return send(encode_frame(FrameType::kHello, handshake_.connector_nonce));
    }
  }
  // Sends the next frame of an honest peer.
  void send_next(std::span<const uint8_t> content) {
    constexpr std::array kConnector{FrameType::kHello, FrameType::kOffer, FrameType::kConfirm};
    constexpr std::array kListener{FrameType::kChallenge, FrameType::kReply};
    receive();
    const size_t step = step_++;
    if (connects_ && step < kConnector.size()) send_sealed(kConnector[step], content);
    if (!connects_ && step < kListener.size()) send_sealed(kListener[step], content);
  }

  Handshake handshake_;
  const bool connects_;
  TcpEnd end_;
  std::vector<uint8_t> received_;
  size_t step_ = 0;
};

const ClusterKey& key_of(bool has) {
  static const ClusterKey kNone;
  static const ClusterKey kKey{std::vector<uint8_t>(32, 9)};
  return has ? kKey : kNone;
}

void attack_listener(Input& input, bool has_key, bool peer_has_key) {
  Instant now = Instant::from_ns(1'000'000'000);
  auto listener = BootstrapListener::open(kLoopback, {}, kTimeout, key_of(has_key)).value();
  const HandleContents handle = parse_handle(listener->handle()).value();
  Peer peer(handle.secret, key_of(peer_has_key), true);
  peer.join(TcpEnd(handle.address.port));
  std::unique_ptr<BootstrapSession> session;
  while (!input.empty()) {
    const uint8_t operation = input.u8();
    if (operation % 4 == 0) now = now + Duration::from_ms(input.u8() * 4);
    if (operation % 4 != 0) peer.send_any(input);
    if (session == nullptr) session = listener->poll(now);
    if (session == nullptr) continue;
    PACECAR_CHECK(has_key == peer_has_key);
    PACECAR_CHECK(session->offer().size() <= kMaxBootstrapPayload);
    if (operation >= 128) break;
    session->poll(now);
  }
  if (session != nullptr) {
    session->reply(session->offer());
    peer.send_any(input);
    session->poll(now);
  }
  peer.leave();
}

void attack_connector(Input& input, bool has_key, bool peer_has_key) {
  static test::TcpServer server;
  Instant now = Instant::from_ns(1'000'000'000);
  HandleContents handle{.address = kLoopback};
  handle.address.port = server.port();
  handle.secret.fill(4);
  const std::array<uint8_t, 20> offer{1, 2, 3};
  auto connector =
      BootstrapConnector::open(encode_handle(handle), {}, offer, kTimeout, key_of(has_key), now)
          .value();
  Peer peer(handle.secret, key_of(peer_has_key), false);
  bool replied = false;
  while (!input.empty()) {
    const uint8_t operation = input.u8();
    if (operation % 8 == 0) now = now + Duration::from_ms(input.u8() * 4);
    if (!replied) {
      const auto reply = connector->poll(now);
      if (!reply) break;
      replied = reply->has_value();
      PACECAR_CHECK(!replied || has_key == peer_has_key);
    } else if (const auto confirmed = connector->confirm(now); !confirmed || *confirmed) {
      break;
    }
    if (!peer.joined()) peer.join(server.accept());
    if (peer.joined() && operation % 8 != 0) peer.send_any(input);
  }
  if (peer.joined()) peer.leave();
}

}  // namespace

FUZZ_TARGET(bootstrap_peer) {
  fuzz::Input input(data, size);
  const uint8_t choice = input.u8();
  const bool has_key = (choice & 2) != 0;
  const bool peer_has_key = (choice & 4) != 0;
  if ((choice & 1) == 0) {
    attack_listener(input, has_key, peer_has_key);
  } else {
    attack_connector(input, has_key, peer_has_key);
  }
  return 0;
}

}  // namespace pacecar::bootstrap_peer_fuzz
