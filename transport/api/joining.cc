#include "transport/api/joining.h"

#include <algorithm>
#include <vector>

#include "transport/api/connections.h"
#include "transport/engine/bootstrap/bootstrap.h"
#include "transport/engine/clock.h"

namespace pacecar {
namespace {

void close_receive(Engine& engine, ConnectionId connection) {
  engine.exclusively([connection](Messenger& messenger, Nic&, Instant now) {
    messenger.close_receive(connection, now);
  });
  engine.submitted();  // its last word must leave
}

class EngineListener final : public Listener {
 public:
  EngineListener(OwnNic nic, std::unique_ptr<BootstrapListener> bootstrap)
      : nic_(std::move(nic)), bootstrap_(std::move(bootstrap)) {
    handle_.bytes = bootstrap_->handle().bytes;
  }

  ~EngineListener() override {
    for (const Joining& joining : joining_) close_receive(*nic_.engine, joining.connection);
  }

  const Handle& handle() const override { return handle_; }

  Result<std::unique_ptr<ReceiveConnection>> accept() override {
    const Instant now = clock_now();
    while (auto session = bootstrap_->poll(now)) answer(std::move(session));
    for (auto joining = joining_.begin(); joining != joining_.end(); ++joining) {
      const BootstrapSession::State state = joining->session->poll(now);
      if (state == BootstrapSession::State::kWaiting) continue;
      const Joining done = std::move(*joining);
      joining_.erase(joining);
      if (state == BootstrapSession::State::kConfirmed) return connection_of(done);
      close_receive(*nic_.engine, done.connection);  // the caller gave up: not our user's affair
      break;
    }
    std::erase_if(refused_, [now](const auto& session) {
      return session->poll(now) != BootstrapSession::State::kWaiting;
    });
    return nullptr;
  }

 private:
  struct Joining {
    std::unique_ptr<BootstrapSession> session;
    ConnectionId connection = 0;
  };

  void answer(std::unique_ptr<BootstrapSession> session) {
    auto answered = nic_.engine->exclusively([&](Messenger& messenger, Nic&, Instant now) {
      return messenger.open_receive(session->offer(), now);
    });
    if (!answered) {
      session->refuse(answered.error().message);
      refused_.push_back(std::move(session));
      return;
    }
    session->reply(answered->answer);
    joining_.push_back({std::move(session), answered->connection});
  }

  std::unique_ptr<ReceiveConnection> connection_of(const Joining& joining) {
    nic_.engine->exclusively(
        [&](Messenger&, Nic&, Instant) { nic_.engine->receives().attach(joining.connection); });
    return make_receive_connection({nic_, joining.connection, joining.session->peer()});
  }

  const OwnNic nic_;
  std::unique_ptr<BootstrapListener> bootstrap_;
  Handle handle_;
  std::vector<Joining> joining_;                            // answered and not yet confirmed
  std::vector<std::unique_ptr<BootstrapSession>> refused_;  // the reason is on its way
};

class EngineConnecting final : public Connecting {
 public:
  EngineConnecting(OwnNic nic, ConnectionId connection,
                   std::unique_ptr<BootstrapConnector> bootstrap)
      : nic_(std::move(nic)), connection_(connection), bootstrap_(std::move(bootstrap)) {}

  ~EngineConnecting() override {
    if (!owned_) return;
    nic_.engine->exclusively([this](Messenger& messenger, Nic&, Instant now) {
      messenger.close_send(connection_, now);
    });
  }

  Result<std::unique_ptr<SendConnection>> poll() override {
    auto reply = bootstrap_->poll(clock_now());
    if (!reply) return tl::unexpected(reply.error());
    if (!reply->has_value()) return nullptr;
    auto finished = nic_.engine->exclusively([&](Messenger& messenger, Nic&, Instant now) {
      nic_.engine->sends().attach(connection_);
      return messenger.finish_send(connection_, **reply, now);
    });
    if (!finished) return tl::unexpected(finished.error());
    owned_ = false;
    return make_send_connection({nic_, connection_, bootstrap_->peer()});
  }

 private:
  const OwnNic nic_;
  const ConnectionId connection_;
  std::unique_ptr<BootstrapConnector> bootstrap_;
  bool owned_ = true;  // the connection is ours to close
};

}  // namespace

Result<std::unique_ptr<Listener>> make_listener(const OwnNic& nic, const Params& params) {
  Address address = nic.engine->address();
  address.port = 0;  // any
  auto bootstrap = BootstrapListener::open(address, nic.engine->identity(), params.connect_timeout);
  if (!bootstrap) return tl::unexpected(bootstrap.error());
  return std::make_unique<EngineListener>(nic, std::move(*bootstrap));
}

Result<std::unique_ptr<Connecting>> make_connecting(const OwnNic& nic, const Params& params,
                                                    const Handle& handle, uint32_t weight) {
  const BootstrapHandle bootstrap_handle{handle.bytes};
  const auto contents = bootstrap::parse_handle(bootstrap_handle);
  if (!contents) return tl::unexpected(contents.error());
  auto offered = nic.engine->exclusively([&](Messenger& messenger, Nic&, Instant now) {
    return messenger.open_send(contents->identity, now, weight);
  });
  if (!offered) return tl::unexpected(offered.error());
  auto bootstrap = BootstrapConnector::open(bootstrap_handle, offered->offer,
                                            params.connect_timeout, clock_now());
  if (!bootstrap) {
    nic.engine->exclusively([&](Messenger& messenger, Nic&, Instant now) {
      messenger.close_send(offered->connection, now);
    });
    return tl::unexpected(bootstrap.error());
  }
  return std::make_unique<EngineConnecting>(nic, offered->connection, std::move(*bootstrap));
}

}  // namespace pacecar
