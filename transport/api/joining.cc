#include "transport/api/joining.h"

#include <algorithm>
#include <deque>
#include <vector>

#include "transport/api/bond/bonded_end.h"
#include "transport/api/connections.h"
#include "transport/api/lane_list.h"
#include "transport/api/neighbors.h"
#include "transport/api/tcp_line.h"
#include "transport/base/attended_time.h"
#include "transport/base/return_if_error.h"
#include "transport/engine/bootstrap/bootstrap.h"
#include "transport/engine/clock.h"
#include "transport/engine/own_process.h"

namespace pacecar {
namespace {

using Connections = std::vector<ConnectionId>;  // One connection of each lane's messenger.
Engine& engine_of_lane(const OwnDevice& device, size_t lane) {
  return *nic_of_lane(device, lane).engine;
}

// `answered`: the peer may have our answers.
void close_receives(const OwnDevice& device, const Connections& connections, bool answered = true) {
  for (size_t lane = 0; lane < connections.size(); ++lane) {
    Engine& engine = engine_of_lane(device, lane);
    answered ? close_receive(engine, connections[lane]) : withdraw(engine, connections[lane]);
  }
}

std::vector<BondLane> make_lanes(const OwnDevice& device, Direction direction,
                                 const Connections& connections, const std::string& peer) {
  std::vector<BondLane> lanes;
  for (size_t lane = 0; lane < connections.size(); ++lane) {
    lanes.push_back(
        {.at = {nic_of_lane(device, lane), direction, connections[lane], peer, device.number},
         .member = nic_of_lane(device, lane).member});
  }
  return lanes;
}

void begin_lanes(std::span<const BondLane> lanes, const std::shared_ptr<PeerLine>& line,
                 Notices& notices) {
  for (const BondLane& lane : lanes) {
    lane.at.call(&Lanes::add_line, line);
    notices.log_route(lane.at.nic, lane.at.call(&Lanes::peer_address), clock_now());
  }
}

// An application waits this long for the places of closed connections: their peers close later.
constexpr Duration kPlaceWait = Duration::from_s(2);
// A listener whose kernel answers nothing for this long is not reached by packets that go astray.
constexpr Duration kAstrayWait = Duration::from_ms(1500);
constexpr size_t kMaxWaiting = 64;  // callers beyond these stay in the handshake

struct Opened {
  OwnDevice device;  // of a listener's connection
  Connections connections;
  std::vector<Blob> words;  // of each lane, for the peer
};
// nullopt: no place is free, but connections are about to be released, and the caller may wait.
using Opening = Result<std::optional<Opened>>;

class EngineListener final : public Listener {
 public:
  EngineListener(OwnDevices own, std::unique_ptr<BootstrapListener> bootstrap)
      : own_(std::move(own)), bootstrap_(std::move(bootstrap)) {
    handle_.bytes = bootstrap_->handle().bytes;
  }

  ~EngineListener() override {
    for (const Joining& joining : joining_) close_receives(joining.device, joining.connections);
  }

  const Handle& handle() const override { return handle_; }

  Result<std::unique_ptr<ReceiveConnection>> accept() override {
    process_.check();  // a child would take its parent's callers
    const Instant now = time_.at(clock_now());
    if (auto made = advance(now)) return made;  // first, as a lost peer may have called again
    while (waiting_.size() < kMaxWaiting) {
      auto session = bootstrap_->poll(now);
      if (session == nullptr) break;
      waiting_.push_back({std::move(session), now + kPlaceWait});
    }
    if (const auto warning = bootstrap_->take_warning()) {
      own_.requested().nics.front().log(LogLevel::kWarn, *warning);
    }
    if (bootstrap_->lonely(now)) {
      own_.notices->log_lonely(own_.requested(), to_string(bootstrap_->address()), now);
    }
    while (!waiting_.empty() && answer(waiting_.front(), now)) waiting_.pop_front();
    if (auto missing = bootstrap_->take_missing(now)) return tl::unexpected(std::move(*missing));
    return nullptr;
  }

 private:
  struct Joining {
    std::unique_ptr<BootstrapSession> session;
    OwnDevice device;
    Connections connections;
  };

  struct Waiting {
    std::unique_ptr<BootstrapSession> session;
    Instant until;
  };

  bool lost(BootstrapSession& session, Instant now) {
    const bool failed = session.poll(now) == BootstrapSession::State::kFailed;
    if (failed) bootstrap_->lose(session, now);
    return failed;
  }

  // A connection that its peer has confirmed, or null. Removes peers that were lost.
  std::unique_ptr<ReceiveConnection> advance(Instant now) {
    std::erase_if(waiting_, [&](const Waiting& each) { return lost(*each.session, now); });
    std::erase_if(refused_, [&](const auto& session) { return lost(*session, now); });
    std::erase_if(joining_, [&](const Joining& each) {
      const bool failed = lost(*each.session, now);
      if (failed) close_receives(each.device, each.connections);
      return failed;
    });
    const auto made = std::ranges::find_if(joining_, [&](const Joining& each) {
      return each.session->poll(now) == BootstrapSession::State::kConfirmed;
    });
    if (made == joining_.end()) return nullptr;
    const Joining done = std::move(*made);
    joining_.erase(made);
    return connection_of(done);
  }

  // False: no place is free yet.
  bool answer(Waiting& waiting, Instant time) {
    std::unique_ptr<BootstrapSession>& session = waiting.session;
    auto opening = open(session->offer(), time < waiting.until);
    if (!opening) {
      session->refuse(opening.error());
      refused_.push_back(std::move(session));
      return true;
    }
    std::optional<Opened>& opened = *opening;
    if (!opened) return false;
    session->reply(pack_lanes(opened->words));
    joining_.push_back(
        {std::move(session), std::move(opened->device), std::move(opened->connections)});
    return true;
  }

  // The device that the offers are for, with only the NICs that the offers name; nullopt: none.
  std::optional<OwnDevice> device_of(std::span<const AddressedOffer> offers) const {
    std::optional<OwnDevice> part;
    for (const OwnDevice& device : own_.devices) {
      std::vector<size_t> members;
      for (const AddressedOffer& offer : offers) {
        const auto named = std::ranges::find(device.nics, offer.nic, [](const OwnNic& nic) {
          return nic.engine->identity().back();
        });
        if (named == device.nics.end()) break;
        if (std::ranges::count(members, named->member) == 0) members.push_back(named->member);
      }
      if (!device.suits || members.empty()) continue;
      OwnDevice named = with_nics(device, members);
      bool all = true;
      for (size_t lane = 0; lane < offers.size(); ++lane) {
        all &= engine_of_lane(named, lane).identity().back() == offers[lane].nic;
      }
      if (!all) continue;
      if (members.size() == device.nics.size()) return named;
      if (!part) part = std::move(named);
    }
    return part;
  }

  Opening open(std::span<const uint8_t> offer, bool may_wait) {
    if (const auto peer = unpack_no_lanes(offer)) {
      const std::string reason = no_common_network(*peer, describe_process(own_));
      own_.requested().nics.front().log(LogLevel::kWarn, "a connection is refused: " + reason);
      return fail(ErrorCode::kPeer, reason);
    }
    ASSIGN_OR_RETURN(const auto lanes, unpack_lanes(offer));
    std::vector<AddressedOffer> offers;
    for (const Blob& lane : lanes) {
      if (const auto one = addressed_offer(lane)) offers.push_back(*one);
    }
    auto device = offers.size() == lanes.size() ? device_of(offers) : std::nullopt;
    if (!device) {
      return fail(
          ErrorCode::kPeer,
          "the peer requests NICs that were not advertised to it: run the same version of Pacecar "
          "on both sides");
    }
    return open(std::move(*device), offers, may_wait);
  }

  Opening open(OwnDevice device, std::span<const AddressedOffer> offers, bool may_wait) {
    if (offers.size() > 1) RETURN_IF_ERROR(own_.keeper->start());
    Opened all{.device = std::move(device), .connections = {}, .words = {}};
    for (size_t lane = 0; lane < offers.size(); ++lane) {
      bool place_comes = false;
      auto opened = engine_of_lane(all.device, lane)
                        .exclusively([&](Messenger& messenger, Nic&, Instant now) {
                          auto one = messenger.open_receive(offers[lane].words, now);
                          place_comes = !one && one.error().code == ErrorCode::kUnavailable &&
                                        messenger.releasing_receives();
                          return one;
                        });
      if (!opened) {
        close_receives(all.device, all.connections, /*answered=*/false);
        if (place_comes && may_wait) return std::nullopt;
        return tl::unexpected(opened.error());
      }
      all.connections.push_back(opened->connection);
      all.words.push_back(std::move(opened->answer));
    }
    return all;
  }

  std::unique_ptr<ReceiveConnection> connection_of(const Joining& joining) {
    const std::string peer = joining.session->peer();
    own_.notices->log_use(own_.requested(), joining.device, peer);
    const auto line = line_over(joining.session->take_socket());
    std::vector<BondLane> lanes =
        make_lanes(joining.device, Direction::kReceive, joining.connections, peer);
    begin_lanes(lanes, line, *own_.notices);
    if (lanes.size() == 1) return make_receive_connection(std::move(lanes.front().at));
    return make_bonded_receive(std::move(lanes), own_.keeper);
  }

  const OwnProcess process_;
  const OwnDevices own_;
  AttendedTime time_{clock_now()};
  std::unique_ptr<BootstrapListener> bootstrap_;
  Handle handle_;
  std::deque<Waiting> waiting_;                             // not answered
  std::vector<Joining> joining_;                            // answered, not yet confirmed
  std::vector<std::unique_ptr<BootstrapSession>> refused_;  // the reason is being sent
};

class EngineConnecting final : public Connecting {
 public:
  // Empty `peers`: the two sides share no network, and the listener gets a text. `astray`: why the
  // listener may not be reached; empty: unknown.
  EngineConnecting(const OwnDevices& own, OwnDevice device, BootstrapHandle handle,
                   bootstrap::ClusterKey key, std::vector<NicIdentity> peers,
                   Duration connect_timeout, const ConnectOptions& options, std::string astray)
      : own_(own),
        device_(std::move(device)),
        handle_(handle),
        key_(std::move(key)),
        peers_(std::move(peers)),
        left_(connect_timeout),
        options_(options),
        astray_(std::move(astray)),
        give_up_(clock_now() + kPlaceWait) {}

  ~EngineConnecting() override { close(connections_); }

  // Opens the connections and the bootstrap. True: the bootstrap connects; false: call again.
  Result<bool> begin() {
    if (bootstrap_ != nullptr) return true;
    if (peers_.empty()) return call(pack_no_lanes(describe_process(own_)));
    const Instant now = attended();  // before open(), which so is tried once after give_up_
    ASSIGN_OR_RETURN(auto opened, open(now < give_up_));
    if (!opened) return false;
    connections_ = std::move(opened->connections);
    return call(pack_lanes(opened->words));
  }

  Result<std::unique_ptr<SendConnection>> poll() override {
    process_.check();
    auto made = advance();
    if (!made && begin_anew(made.error().code)) return nullptr;
    return made;
  }

 private:
  Result<std::unique_ptr<SendConnection>> advance() {
    ASSIGN_OR_RETURN(const auto begun, begin());
    if (!begun) return nullptr;
    if (!finished_) {
      const Instant now = attended();
      ASSIGN_OR_RETURN(const auto reply, bootstrap_->poll(now));
      const bool late = left_ - bootstrap_->left(now) >= kAstrayWait;
      if (late && !astray_.empty() && bootstrap_->unanswered()) {
        return fail(ErrorCode::kPeer, astray_);
      }
      if (const auto warning = bootstrap_->take_warning(now)) {
        own_.notices->log_unreached(device_, bootstrap_->peer(), *warning, now);
        own_.notices->log_route(device_.nics.front(), bootstrap_->peer(), now);
      }
      if (!reply.has_value()) return nullptr;
      RETURN_IF_ERROR(finish(*reply));
      finished_ = true;
    }
    ASSIGN_OR_RETURN(const auto confirmed, bootstrap_->confirm(attended()));
    if (!confirmed) return nullptr;
    return connection();
  }

  Instant attended() { return time_.at(clock_now()); }
  Result<void> finish(std::span<const uint8_t> reply) {
    ASSIGN_OR_RETURN(const auto answers, unpack_lanes(reply));
    if (answers.size() != connections_.size()) {
      return fail(
          ErrorCode::kPeer,
          "the peer answered other lanes than were offered: run the same version of Pacecar on "
          "both sides");
    }
    for (size_t lane = 0; lane < connections_.size(); ++lane) {
      RETURN_IF_ERROR(
          engine_of_lane(device_, lane).exclusively([&](Messenger& messenger, Nic&, Instant now) {
            return messenger.finish_send(connections_[lane], answers[lane], now);
          }));
    }
    return {};
  }

  std::unique_ptr<SendConnection> connection() {
    own_.notices->log_use(own_.requested(), device_, bootstrap_->peer());
    std::vector<BondLane> lanes =
        make_lanes(device_, Direction::kSend, connections_, bootstrap_->peer());
    const auto line = line_over(bootstrap_->take_socket());
    begin_lanes(lanes, line, *own_.notices);
    connections_.clear();
    if (lanes.size() == 1) return make_send_connection(std::move(lanes.front().at), options_);
    return make_bonded_send(std::move(lanes), own_.keeper);
  }

  // A shared flow may have ended before the peer received the offer, or the peer was too busy to
  // read it: offers once more, over new flows.
  bool begin_anew(ErrorCode failure) {
    bool doubtful = failure == ErrorCode::kStale;
    for (size_t lane = 0; lane < connections_.size(); ++lane) {
      doubtful |=
          engine_of_lane(device_, lane).exclusively([&](Messenger& messenger, Nic&, Instant now) {
            return messenger.suspect_flow(connections_[lane], failure, now);
          });
    }
    if (!doubtful || anew_ || bootstrap_ == nullptr) return false;
    left_ = bootstrap_->left(attended());
    if (left_ <= Duration()) return false;
    anew_ = true;
    close(connections_);
    connections_.clear();
    bootstrap_.reset();
    finished_ = false;
    return true;
  }

  Result<bool> call(std::span<const uint8_t> offer) {
    const Address& local = device_.nics.front().engine->address();
    ASSIGN_OR_RETURN(bootstrap_,
                     BootstrapConnector::open(handle_, local, offer, left_, key_, attended()));
    return true;
  }

  Opening open(bool may_wait) {
    if (device_.nics.size() + peers_.size() > 2) RETURN_IF_ERROR(own_.keeper->start());
    Opened all;
    const size_t lanes = lanes_between(device_.nics.size(), peers_.size());
    const auto role = lanes > 1       ? Messenger::Role::kLane
                      : options_.puts ? Messenger::Role::kPuts
                                      : Messenger::Role::kWhole;
    for (size_t lane = 0; lane < lanes; ++lane) {
      const NicIdentity& peer = peers_[lane % peers_.size()];
      bool place_comes = false;
      auto opened =
          engine_of_lane(device_, lane).exclusively([&](Messenger& messenger, Nic&, Instant now) {
            auto one = messenger.open_send(peer, now, options_.weight, role);
            place_comes =
                !one && one.error().code == ErrorCode::kUnavailable && messenger.releasing_sends();
            return one;
          });
      if (!opened) {
        close(all.connections);
        if (place_comes && may_wait) return std::nullopt;
        return tl::unexpected(opened.error());
      }
      all.connections.push_back(opened->connection);
      all.words.push_back(address_offer(peer.back(), opened->offer));
    }
    return all;
  }

  void close(const Connections& connections) {
    for (size_t lane = 0; lane < connections.size(); ++lane) {
      close_send(engine_of_lane(device_, lane), connections[lane]);
    }
  }

  const OwnProcess process_;
  const OwnDevices own_;
  const OwnDevice device_;
  const BootstrapHandle handle_;
  const bootstrap::ClusterKey key_;
  const std::vector<NicIdentity> peers_;
  Duration left_;  // of PACECAR_CONNECT_TIMEOUT
  const ConnectOptions options_;
  const std::string astray_;
  AttendedTime time_{clock_now()};
  const Instant give_up_;
  bool anew_ = false;        // the second and last attempt
  bool finished_ = false;    // the peer's reply is accepted, and is being confirmed
  Connections connections_;  // to be closed by this object
  std::unique_ptr<BootstrapConnector> bootstrap_;
};

// The worst way of a lane between the device and the peer's NICs of these numbers.
Way way_to(const OwnDevice& own, std::span<const uint8_t> peers,
           std::span<const NamedAddress> addresses) {
  Way way = Way::kNeighbors;
  for (size_t lane = 0; lane < lanes_between(own.nics.size(), peers.size()); ++lane) {
    const auto peer = std::ranges::find(addresses, peers[lane % peers.size()], &NamedAddress::nic);
    const Subnet there = peer == addresses.end() ? Subnet() : peer->subnet;
    way = std::max(way, way_between(nic_of_lane(own, lane).subnet, there, leaves_by_own));
  }
  return way;
}

// `least`: the speed in Mb/s that our NICs must have.
std::optional<NeighborLanes> neighbors(const OwnDevices& own, const NamedProcess& peer,
                                       uint64_t least) {
  std::vector<std::vector<Subnet>> subnets;
  for (const OwnDevice& device : own.devices) {
    std::vector<Subnet>& of_device = subnets.emplace_back();
    for (const OwnNic& nic : device.nics) {
      const bool usable =
          device.suits && same_kind(nic, own.requested().nics.front()) && nic.speed_mbps >= least;
      of_device.push_back(usable ? nic.subnet : Subnet());
    }
  }
  return choose_neighbors(subnets, peer.addresses, peer.devices.front().numbers);
}

std::vector<DeviceNetworks> networks_of(std::span<const NamedDevice> devices) {
  std::vector<DeviceNetworks> networks;
  for (const NamedDevice& device : devices) networks.push_back(device.networks);
  return networks;
}

}  // namespace

Result<std::unique_ptr<Listener>> make_listener(const OwnDevices& own, const Params& params,
                                                const bootstrap::ClusterKey& key) {
  const Engine& engine = *own.requested().nics.front().engine;
  Address address = engine.address();
  address.port = 0;  // any
  const auto addresses = addresses_of(own);
  const auto name = name_process(engine.identity(), usable_devices(own).named, addresses);
  ASSIGN_OR_RETURN(
      auto bootstrap,
      BootstrapListener::open(address, name, params.connect_timeout, key,
                              {.ports = params.ports, .all_addresses = addresses.size() > 1}));
  return std::make_unique<EngineListener>(own, std::move(bootstrap));
}

Result<std::unique_ptr<Connecting>> make_connecting(const OwnDevices& own, const Params& params,
                                                    const bootstrap::ClusterKey& key,
                                                    const Handle& handle,
                                                    const ConnectOptions& options) {
  ASSIGN_OR_RETURN(auto contents, bootstrap::parse_handle({handle.bytes}));
  ASSIGN_OR_RETURN(const auto peer, named_process(contents.identity));
  const UsableDevices usable = usable_devices(own);
  const auto pair = choose_devices(networks_of(usable.named), networks_of(peer.devices));
  OwnDevice device = own.devices[pair ? usable.places[pair->own] : 0];
  std::vector<uint8_t> numbers;
  if (pair) numbers = peer.devices[pair->peer].numbers;
  const Way way = pair ? way_to(device, numbers, peer.addresses) : Way::kNeighbors;
  // A faster NIC keeps its route, and so do puts, which need the same NIC to all peers.
  const bool stays = way == Way::kNeighbors || (way == Way::kRouted && options.puts);
  const uint64_t least = way == Way::kRouted ? device.nics.front().speed_mbps : 0;
  const auto lanes = stays ? std::nullopt : neighbors(own, peer, least);
  if (lanes) {
    device = with_nics(own.devices[lanes->device], lanes->members);
    const uint16_t port = contents.address.port;
    contents.address = address_of(lanes->peers.front().subnet);
    contents.address.port = port;
    numbers.clear();
    for (const NamedAddress& nic : lanes->peers) numbers.push_back(nic.nic);
  }
  const bool astray = way == Way::kAstray && !lanes;
  std::vector<NicIdentity> nics;
  for (const uint8_t number : numbers) nics.push_back(identity_of_nic(peer.identity, number));
  auto connecting = std::make_unique<EngineConnecting>(
      own, std::move(device), bootstrap::encode_handle(contents), key, std::move(nics),
      params.connect_timeout, options, astray ? no_common_subnet(own, contents.address) : "");
  RETURN_IF_ERROR(connecting->begin());
  return connecting;
}

}  // namespace pacecar
