// A listener with one connecting and one accepted side, polled together over real loopback sockets.
// The test sets the time. One thread.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "tests/support/tcp.h"
#include "tests/support/waiting.h"
#include "transport/engine/bootstrap/bootstrap.h"

namespace pacecar::test {

using Payload = std::vector<uint8_t>;

inline Address ipv4_loopback(uint16_t port = 0) {
  return {.ip = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1}, .port = port};
}

// Bytes that differ by index and by seed.
inline Payload pattern(size_t size, uint8_t seed) {
  Payload payload(size);
  for (size_t i = 0; i < size; ++i) payload[i] = static_cast<uint8_t>(i * 7 + i / 256 + seed);
  return payload;
}

// A listener with its parameters.
struct BootstrapWorld {
  static constexpr Duration kTimeout = Duration::from_s(10);

  explicit BootstrapWorld(const Address& local = ipv4_loopback(), Duration timeout = kTimeout,
                          const bootstrap::ClusterKey& listeners = {})
      : listener(std::move(BootstrapListener::open(local, {}, timeout, listeners).value())),
        contents(bootstrap::parse_handle(listener->handle()).value()) {}

  std::unique_ptr<BootstrapConnector> connect(const Payload& offer, const Address& local = {},
                                              const bootstrap::ClusterKey& key = {}) {
    return std::move(
        BootstrapConnector::open(listener->handle(), local, offer, kTimeout, key, now).value());
  }
  // A handle of the same listener with another port.
  std::unique_ptr<BootstrapConnector> connect_through(uint16_t port, const Payload& offer) {
    auto changed = contents;
    changed.address.port = port;
    return std::move(
        BootstrapConnector::open(bootstrap::encode_handle(changed), {}, offer, kTimeout, {}, now)
            .value());
  }
  uint16_t port() const { return contents.address.port; }

  // Polls both sides until the listener returns a session, which must happen.
  std::unique_ptr<BootstrapSession> accept(BootstrapConnector& connector) {
    std::unique_ptr<BootstrapSession> session;
    EXPECT_TRUE(eventually([&] {
      EXPECT_EQ(connector.poll(now), std::nullopt);
      session = listener->poll(now);
      return session != nullptr;
    }));
    return session;
  }
  // Polls the listener, which must return no session, until `done`.
  template <typename Done>
  bool poll_until(Done done) {
    return eventually([&] {
      EXPECT_EQ(listener->poll(now), nullptr);
      return done();
    });
  }
  bool drops(uint64_t strangers) {
    return poll_until([&] { return listener->strangers() == strangers; });
  }

  Instant now = Instant::from_ns(1'000'000'000);
  std::unique_ptr<BootstrapListener> listener;
  bootstrap::HandleContents contents;
};

// Waits for the listener's reply; the error when the connector fails.
inline Result<Payload> await_reply(BootstrapConnector& connector, Instant now) {
  Result<Payload> outcome = fail(ErrorCode::kInternal, "the connector does not come to an end");
  eventually([&] {
    auto polled = connector.poll(now);
    if (!polled) outcome = tl::unexpected(polled.error());
    if (polled && *polled) outcome = std::move(**polled);
    return !polled || polled->has_value();
  });
  return outcome;
}

inline bool confirm(BootstrapConnector& connector, Instant now) {
  return eventually([&] { return connector.confirm(now).value(); });
}

inline Result<Payload> finish(BootstrapConnector& connector, Instant now) {
  Result<Payload> reply = await_reply(connector, now);
  EXPECT_TRUE(!reply || confirm(connector, now));
  return reply;
}

inline BootstrapSession::State finish(BootstrapSession& session, Instant now) {
  eventually([&] { return session.poll(now) != BootstrapSession::State::kWaiting; });
  return session.poll(now);
}

}  // namespace pacecar::test
