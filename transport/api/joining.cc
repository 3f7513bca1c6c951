#include "transport/api/joining.h"

#include <algorithm>
#include <deque>
#include <optional>
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

// Connections that were closed hold their places until their peers have heard of it: an application
// that opens as many again must not fail over that. Peers that do not close are not waited for.
constexpr Duration kPlaceWait = Duration::from_s(2);

template <typename T>
bool unavailable(const Result<T>& opened) {
  return !opened && opened.error().code == ErrorCode::kUnavailable;
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
    while (auto session = bootstrap_->poll(now)) {
      waiting_.push_back({std::move(session), now + kPlaceWait});
    }
    while (!waiting_.empty() && answer(waiting_.front(), now)) waiting_.pop_front();
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

  struct Waiting {
    std::unique_ptr<BootstrapSession> session;
    Instant until;
  };

  // False: not yet, there is no place.
  bool answer(Waiting& waiting, Instant time) {
    std::unique_ptr<BootstrapSession>& session = waiting.session;
    if (session->poll(time) != BootstrapSession::State::kWaiting) return true;  // it has given up
    bool place_comes = false;
    auto answered = nic_.engine->exclusively([&](Messenger& messenger, Nic&, Instant now) {
      auto opened = messenger.open_receive(session->offer(), now);
      place_comes = unavailable(opened) && messenger.releasing_receives();
      return opened;
    });
    if (place_comes && time < waiting.until) return false;
    if (!answered) {
      session->refuse(answered.error().message);
      refused_.push_back(std::move(session));
      return true;
    }
    session->reply(answered->answer);
    joining_.push_back({std::move(session), answered->connection});
    return true;
  }

  std::unique_ptr<ReceiveConnection> connection_of(const Joining& joining) {
    nic_.engine->exclusively(
        [&](Messenger&, Nic&, Instant) { nic_.engine->receives().attach(joining.connection); });
    return make_receive_connection({nic_, joining.connection, joining.session->peer()});
  }

  const OwnNic nic_;
  std::unique_ptr<BootstrapListener> bootstrap_;
  Handle handle_;
  std::deque<Waiting> waiting_;                             // not answered
  std::vector<Joining> joining_;                            // answered and not yet confirmed
  std::vector<std::unique_ptr<BootstrapSession>> refused_;  // the reason is on its way
};

class EngineConnecting final : public Connecting {
 public:
  EngineConnecting(OwnNic nic, BootstrapHandle handle, const NicIdentity& peer,
                   Duration connect_timeout, uint32_t weight)
      : nic_(std::move(nic)),
        handle_(handle),
        peer_(peer),
        connect_timeout_(connect_timeout),
        weight_(weight),
        give_up_(clock_now() + kPlaceWait) {}

  ~EngineConnecting() override { close(); }

  // Until the first call of the peer; true when it has been made.
  Result<bool> begin() {
    if (bootstrap_ != nullptr) return true;
    bool place_comes = false;
    auto offered = nic_.engine->exclusively([&](Messenger& messenger, Nic&, Instant now) {
      auto opened = messenger.open_send(peer_, now, weight_);
      place_comes = unavailable(opened) && messenger.releasing_sends();
      return opened;
    });
    if (place_comes && clock_now() < give_up_) return false;
    if (!offered) return tl::unexpected(offered.error());
    connection_ = offered->connection;
    auto bootstrap =
        BootstrapConnector::open(handle_, offered->offer, connect_timeout_, clock_now());
    if (!bootstrap) {
      close();
      return tl::unexpected(bootstrap.error());
    }
    bootstrap_ = std::move(*bootstrap);
    return true;
  }

  Result<std::unique_ptr<SendConnection>> poll() override {
    const auto begun = begin();
    if (!begun) return tl::unexpected(begun.error());
    if (!*begun) return nullptr;
    auto reply = bootstrap_->poll(clock_now());
    if (!reply) return tl::unexpected(reply.error());
    if (!reply->has_value()) return nullptr;
    auto finished = nic_.engine->exclusively([&](Messenger& messenger, Nic&, Instant now) {
      nic_.engine->sends().attach(*connection_);
      return messenger.finish_send(*connection_, **reply, now);
    });
    if (!finished) return tl::unexpected(finished.error());
    const ConnectionId made = *connection_;
    connection_.reset();
    return make_send_connection({nic_, made, bootstrap_->peer()});
  }

 private:
  void close() {
    if (!connection_) return;
    nic_.engine->exclusively([this](Messenger& messenger, Nic&, Instant now) {
      messenger.close_send(*connection_, now);
    });
    connection_.reset();
  }

  const OwnNic nic_;
  const BootstrapHandle handle_;
  const NicIdentity peer_;
  const Duration connect_timeout_;
  const uint32_t weight_;
  const Instant give_up_;
  std::optional<ConnectionId> connection_;  // ours to close
  std::unique_ptr<BootstrapConnector> bootstrap_;
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
  auto connecting = std::make_unique<EngineConnecting>(nic, bootstrap_handle, contents->identity,
                                                       params.connect_timeout, weight);
  if (const auto begun = connecting->begin(); !begun) return tl::unexpected(begun.error());
  return connecting;
}

}  // namespace pacecar
