#include "transport/api/joining.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <vector>

#include "transport/api/bond/bonded_receive.h"
#include "transport/api/bond/bonded_send.h"
#include "transport/api/connections.h"
#include "transport/api/lane_list.h"
#include "transport/engine/bootstrap/bootstrap.h"
#include "transport/engine/clock.h"

namespace pacecar {
namespace {

// One connection of each lane's messenger.
using Connections = std::vector<ConnectionId>;

const OwnNic& nic_of_lane(const OwnDevice& device, size_t lane) {
  return device.nics[lane % device.nics.size()];
}

void close_receives(const OwnDevice& device, const Connections& connections) {
  for (size_t lane = 0; lane < connections.size(); ++lane) {
    Engine& engine = *nic_of_lane(device, lane).engine;
    engine.exclusively([&](Messenger& messenger, Nic&, Instant now) {
      messenger.close_receive(connections[lane], now);
    });
    engine.submitted();  // its last word must leave
  }
}

std::vector<BondLane> make_lanes(const OwnDevice& device, const Connections& connections,
                                 const std::string& peer) {
  std::vector<BondLane> lanes;
  for (size_t lane = 0; lane < connections.size(); ++lane) {
    lanes.push_back({.at = {nic_of_lane(device, lane), connections[lane], peer},
                     .member = lane % device.nics.size()});
  }
  return lanes;
}

// Connections that were closed hold their places until their peers have heard of it: an application
// that opens as many again must not fail over that. Peers that do not close are not waited for.
constexpr Duration kPlaceWait = Duration::from_s(2);

struct Opened {
  Connections connections;
  std::vector<Blob> words;  // of each lane, for the peer
};
struct NotOpened {
  Error error;
  bool place_comes = false;  // there was none, but connections are about to be released
};

class EngineListener final : public Listener {
 public:
  EngineListener(OwnDevice device, std::unique_ptr<BootstrapListener> bootstrap)
      : device_(std::move(device)), bootstrap_(std::move(bootstrap)) {
    handle_.bytes = bootstrap_->handle().bytes;
  }

  ~EngineListener() override {
    for (const Joining& joining : joining_) close_receives(device_, joining.connections);
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
      close_receives(device_, done.connections);  // the caller gave up: not our user's affair
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
    Connections connections;
  };

  struct Waiting {
    std::unique_ptr<BootstrapSession> session;
    Instant until;
  };

  // False: not yet, there is no place.
  bool answer(Waiting& waiting, Instant time) {
    std::unique_ptr<BootstrapSession>& session = waiting.session;
    if (session->poll(time) != BootstrapSession::State::kWaiting) return true;  // it has given up
    auto opened = open(session->offer());
    if (!opened && opened.error().place_comes && time < waiting.until) return false;
    if (!opened) {
      session->refuse(opened.error().error.message);
      refused_.push_back(std::move(session));
      return true;
    }
    session->reply(pack_lanes(opened->words));
    joining_.push_back({std::move(session), std::move(opened->connections)});
    return true;
  }

  tl::expected<Opened, NotOpened> open(std::span<const uint8_t> offer) {
    const auto offers = unpack_lanes(offer);
    if (!offers) return tl::unexpected(NotOpened{offers.error()});
    if (offers->size() > 1) {
      if (auto started = device_.keeper->start(); !started) {
        return tl::unexpected(NotOpened{started.error()});
      }
    }
    Opened all;
    for (size_t lane = 0; lane < offers->size(); ++lane) {
      bool place_comes = false;
      auto opened = nic_of_lane(device_, lane)
                        .engine->exclusively([&](Messenger& messenger, Nic&, Instant now) {
                          auto one = messenger.open_receive((*offers)[lane], now);
                          place_comes = !one && one.error().code == ErrorCode::kUnavailable &&
                                        messenger.releasing_receives();
                          return one;
                        });
      if (!opened) {
        close_receives(device_, all.connections);
        return tl::unexpected(NotOpened{opened.error(), place_comes});
      }
      all.connections.push_back(opened->connection);
      all.words.push_back(std::move(opened->answer));
    }
    return all;
  }

  std::unique_ptr<ReceiveConnection> connection_of(const Joining& joining) {
    std::vector<BondLane> lanes = make_lanes(device_, joining.connections, joining.session->peer());
    for (const BondLane& lane : lanes) {
      Engine& engine = *lane.at.nic.engine;
      engine.exclusively(
          [&](Messenger&, Nic&, Instant) { engine.receives().attach(lane.at.connection); });
    }
    if (lanes.size() == 1) return make_receive_connection(std::move(lanes.front().at));
    return make_bonded_receive(std::move(lanes), device_.keeper);
  }

  const OwnDevice device_;
  std::unique_ptr<BootstrapListener> bootstrap_;
  Handle handle_;
  std::deque<Waiting> waiting_;                             // not answered
  std::vector<Joining> joining_;                            // answered and not yet confirmed
  std::vector<std::unique_ptr<BootstrapSession>> refused_;  // the reason is on its way
};

class EngineConnecting final : public Connecting {
 public:
  EngineConnecting(OwnDevice device, BootstrapHandle handle, std::vector<NicIdentity> peers,
                   Duration connect_timeout, uint32_t weight)
      : device_(std::move(device)),
        handle_(handle),
        peers_(std::move(peers)),
        connect_timeout_(connect_timeout),
        weight_(weight),
        give_up_(clock_now() + kPlaceWait) {}

  ~EngineConnecting() override { close(connections_); }

  // Until the first call of the peer; true when it has been made.
  Result<bool> begin() {
    if (bootstrap_ != nullptr) return true;
    auto opened = open();
    if (!opened && opened.error().place_comes && clock_now() < give_up_) return false;
    if (!opened) return tl::unexpected(opened.error().error);
    connections_ = std::move(opened->connections);
    auto bootstrap =
        BootstrapConnector::open(handle_, pack_lanes(opened->words), connect_timeout_, clock_now());
    if (!bootstrap) return tl::unexpected(bootstrap.error());
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
    const auto answers = unpack_lanes(**reply);
    if (!answers) return tl::unexpected(answers.error());
    if (answers->size() != connections_.size()) {
      return fail(ErrorCode::kPeer,
                  "the peer answers other lanes than it was offered: run the "
                  "same version of Pacecar on both sides");
    }
    std::vector<BondLane> lanes = make_lanes(device_, connections_, bootstrap_->peer());
    for (size_t i = 0; i < lanes.size(); ++i) {
      Engine& engine = *lanes[i].at.nic.engine;
      auto finished = engine.exclusively([&](Messenger& messenger, Nic&, Instant now) {
        return messenger.finish_send(connections_[i], (*answers)[i], now);
      });
      if (!finished) return tl::unexpected(finished.error());
    }
    for (const BondLane& lane : lanes) {
      Engine& engine = *lane.at.nic.engine;
      engine.exclusively(
          [&](Messenger&, Nic&, Instant) { engine.sends().attach(lane.at.connection); });
    }
    connections_.clear();
    if (lanes.size() == 1) return make_send_connection(std::move(lanes.front().at));
    return make_bonded_send(std::move(lanes), device_.keeper);
  }

 private:
  tl::expected<Opened, NotOpened> open() {
    if (device_.nics.size() + peers_.size() > 2) {
      if (auto started = device_.keeper->start(); !started) {
        return tl::unexpected(NotOpened{started.error()});
      }
    }
    Opened all;
    const size_t lanes = lanes_between(device_.nics.size(), peers_.size());
    const auto role = lanes > 1 ? Messenger::Role::kLane : Messenger::Role::kWhole;
    for (size_t lane = 0; lane < lanes; ++lane) {
      bool place_comes = false;
      auto opened = nic_of_lane(device_, lane)
                        .engine->exclusively([&](Messenger& messenger, Nic&, Instant now) {
                          auto one =
                              messenger.open_send(peers_[lane % peers_.size()], now, weight_, role);
                          place_comes = !one && one.error().code == ErrorCode::kUnavailable &&
                                        messenger.releasing_sends();
                          return one;
                        });
      if (!opened) {
        close(all.connections);
        return tl::unexpected(NotOpened{opened.error(), place_comes});
      }
      all.connections.push_back(opened->connection);
      all.words.push_back(std::move(opened->offer));
    }
    return all;
  }

  void close(const Connections& connections) {
    for (size_t lane = 0; lane < connections.size(); ++lane) {
      nic_of_lane(device_, lane).engine->exclusively([&](Messenger& messenger, Nic&, Instant now) {
        messenger.close_send(connections[lane], now);
      });
    }
  }

  const OwnDevice device_;
  const BootstrapHandle handle_;
  const std::vector<NicIdentity> peers_;
  const Duration connect_timeout_;
  const uint32_t weight_;
  const Instant give_up_;
  Connections connections_;  // ours to close
  std::unique_ptr<BootstrapConnector> bootstrap_;
};

}  // namespace

Result<std::unique_ptr<Listener>> make_listener(const OwnDevice& device, const Params& params) {
  Address address = device.nics.front().engine->address();
  address.port = 0;  // any
  std::vector<NicIdentity> identities;
  for (const OwnNic& nic : device.nics) identities.push_back(nic.engine->identity());
  auto bootstrap = BootstrapListener::open(address, name_nics(identities), params.connect_timeout);
  if (!bootstrap) return tl::unexpected(bootstrap.error());
  return std::make_unique<EngineListener>(device, std::move(*bootstrap));
}

Result<std::unique_ptr<Connecting>> make_connecting(const OwnDevice& device, const Params& params,
                                                    const Handle& handle, uint32_t weight) {
  const BootstrapHandle bootstrap_handle{handle.bytes};
  const auto contents = bootstrap::parse_handle(bootstrap_handle);
  if (!contents) return tl::unexpected(contents.error());
  auto peers = named_nics(contents->identity);
  if (!peers) return tl::unexpected(peers.error());
  auto connecting = std::make_unique<EngineConnecting>(device, bootstrap_handle, std::move(*peers),
                                                       params.connect_timeout, weight);
  if (const auto begun = connecting->begin(); !begun) return tl::unexpected(begun.error());
  return connecting;
}

}  // namespace pacecar
