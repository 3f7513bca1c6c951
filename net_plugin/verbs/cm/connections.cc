// Connections: listen, connect, accept, reject, disconnect.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "net_plugin/verbs/cm/ids.h"
#include "transport/engine/clock.h"
#include "transport/io/sockaddr.h"
#include "transport/wire/address.h"

namespace pacecar::ibverbs::cm {
namespace {

constexpr size_t kMostWaiting = 1024;  // as Linux
constexpr uint8_t kMostRetries = 7;

// The scope of a call on a connection: holds the NIC's mutex, and sends the messages at the end.
class ConnectionCall {
 public:
  explicit ConnectionCall(Id& id) : nic_(id.device->nic()), call_(nic_) {}
  ~ConnectionCall() { nic_.send_posted(); }
  ConnectionCall(const ConnectionCall&) = delete;
  ConnectionCall& operator=(const ConnectionCall&) = delete;

 private:
  ProcessNic& nic_;
  Call call_;
};

// False: the data is longer than the message allows.
bool put_private(const void* data, size_t length, size_t from, Message* message) {
  if (data == nullptr || length == 0) return true;
  if (from + length > private_bytes(message->kind)) return false;
  std::memcpy(message->private_data.data() + from, data, length);
  return true;
}

void put_header(const Id& id, Message* message) {
  const Address own = from_sockaddr(&id.route.addr.src_addr).value_or(Address());
  const Address to = from_sockaddr(&id.route.addr.dst_addr).value_or(Address());
  IpHeader header{.ipv4 = is_ipv4(own), .port = own.port};
  const size_t zeros = header.ipv4 ? kIpv4Prefix.size() : 0;
  std::copy(own.ip.begin() + zeros, own.ip.end(), header.source.begin() + zeros);
  std::copy(to.ip.begin() + zeros, to.ip.end(), header.destination.begin() + zeros);
  encode(header, std::span(message->private_data).first<IpHeader::kBytes>());
}

void set_parameters(Id& id, const rdma_conn_param& param, bool asks) {
  const auto fit = [](uint8_t wanted, uint8_t most) { return std::min({wanted, most, kMaxReads}); };
  const uint8_t most = asks ? kMaxReads : uint8_t{255};
  id.responder_resources = fit(param.responder_resources, std::min(most, id.responder_resources));
  id.initiator_depth = fit(param.initiator_depth, std::min(most, id.initiator_depth));
  id.not_ready_retries = std::min(param.rnr_retry_count, kMostRetries);
  if (asks) id.retries = std::min(param.retry_count, kMostRetries);
}

Message own_part(const Id& id, Kind kind, const rdma_conn_param* param) {
  return {.kind = kind,
          .guid = be64toh(ibv_get_device_guid(id.verbs->device)),
          .queue_pair = id.qp != nullptr   ? id.qp->qp_num
                        : param != nullptr ? param->qp_num
                                           : 0,
          .psn = id.first_psn,
          .responder_resources = id.responder_resources,
          .initiator_depth = id.initiator_depth,
          .retries = id.retries,
          .not_ready_retries = id.not_ready_retries,
          .mtu = static_cast<uint8_t>(id.mtu),
          .ack_timeout = 18,
          .flow_control = true,
          .shared_receives =
              id.qp != nullptr ? id.qp->srq != nullptr : param != nullptr && param->srq != 0};
}

// The request is no longer waiting for an answer. With the NIC's mutex.
void leave_listener(Id& id) {
  const std::lock_guard lock(process().mutex);
  if (id.waiting != nullptr) --*id.waiting;
  id.waiting = nullptr;
}

void raise_answer(Id& id, rdma_cm_event_type type, int status, const Message& message) {
  rdma_cm_event event{.id = &id, .event = type, .status = status};
  event.param.conn = {.responder_resources = message.initiator_depth,
                      .initiator_depth = message.responder_resources,
                      .rnr_retry_count = message.not_ready_retries,
                      .qp_num = message.queue_pair};
  raise(id, event, std::span(message.private_data).first(private_bytes(message.kind)));
}

void raise_found(Id& id, const Message& found) {
  rdma_cm_event event{
      .id = &id,
      .event = found.status == 0 ? RDMA_CM_EVENT_ESTABLISHED : RDMA_CM_EVENT_UNREACHABLE,
      .status = found.status};
  ibv_ah_attr& path = event.param.ud.ah_attr;
  path.is_global = 1;
  path.port_num = 1;
  path.grh.dgid = id.route.addr.addr.ibaddr.dgid;
  path.grh.hop_limit = 64;
  event.param.ud.qp_num = found.queue_pair;
  event.param.ud.qkey = found.queue_key;
  raise(id, event, std::span(found.private_data).first(private_bytes(found.kind)));
}

void on_reply(End& end, const Message& reply) {
  Id& id = *end.id;
  if (reply.kind == Kind::kFound) return raise_found(id, reply);
  id.peer_queue_pair = reply.queue_pair;
  id.peer_psn = reply.psn;
  id.responder_resources = std::min(id.responder_resources, reply.initiator_depth);
  id.initiator_depth = std::min(id.initiator_depth, reply.responder_resources);
  id.not_ready_retries = reply.not_ready_retries;
  if (id.qp == nullptr) return raise_answer(id, RDMA_CM_EVENT_CONNECT_RESPONSE, 0, reply);
  Agent& agent = *id.device->agent;
  if (!bring_up(id)) {
    agent.send(end, end.connection.answer({.kind = Kind::kReject, .reason = kRejectedByConsumer},
                                          clock_now()));
    return raise_answer(id, RDMA_CM_EVENT_CONNECT_ERROR, -EINVAL, reply);
  }
  agent.send(end, end.connection.ready(clock_now()));
  raise_answer(id, RDMA_CM_EVENT_ESTABLISHED, 0, reply);
}

int ask(Id& id, const rdma_conn_param* param) {
  Message message = own_part(id, id.is_datagram() ? Kind::kFind : Kind::kRequest, param);
  message.transaction = id.device->agent->new_transaction();
  message.service = service_of(static_cast<uint16_t>(id.ps), port_of(id, false));
  const rdma_ib_addr& ends = id.route.addr.addr.ibaddr;
  std::ranges::copy(ends.sgid.raw, message.local_gid.begin());
  std::ranges::copy(ends.dgid.raw, message.remote_gid.begin());
  put_header(id, &message);
  if (param != nullptr &&
      !put_private(param->private_data, param->private_data_len, IpHeader::kBytes, &message)) {
    return EINVAL;
  }
  Agent& agent = *id.device->agent;
  id.end = std::make_unique<End>(id, agent.new_id(), id.device->nic().connect_limit());
  id.end->peer.gid = message.remote_gid;
  id.end->searching = true;
  agent.add(*id.end);
  agent.send(*id.end, id.end->connection.ask(message, clock_now()));
  return 0;
}

int answer(Id& id, const rdma_conn_param* param) {
  Connection& connection = id.end->connection;
  if (connection.state() != Connection::State::kRequested) return EINVAL;
  Message message = own_part(id, id.is_datagram() ? Kind::kFound : Kind::kReply, param);
  if (param != nullptr && !put_private(param->private_data, param->private_data_len, 0, &message)) {
    return EINVAL;
  }
  if (id.qp != nullptr && !id.is_datagram() && !bring_up(id)) return EINVAL;
  leave_listener(id);
  if (id.is_datagram()) message.queue_key = RDMA_UDP_QKEY;
  id.device->agent->send(*id.end, connection.answer(message, clock_now()));
  return 0;
}

int refuse(Id& id, const void* data, size_t length) {
  Connection& connection = id.end->connection;
  const auto state = connection.state();
  if (state != Connection::State::kRequested && state != Connection::State::kReplied) return EINVAL;
  Message message{.kind = id.is_datagram() ? Kind::kFound : Kind::kReject,
                  .status = kServiceRejected,
                  .reason = kRejectedByConsumer};
  if (!put_private(data, length, 0, &message)) return EINVAL;
  leave_listener(id);
  id.device->agent->send(*id.end, connection.answer(message, clock_now()));
  return 0;
}

// Rejects or disconnects, unless the peer has done so.
void drop_end(Id& id) {
  if (id.end == nullptr) return;
  const ConnectionCall call(id);
  if (id.end->connection.state() == Connection::State::kRequested) (void)refuse(id, nullptr, 0);
  leave_listener(id);
  id.end->id = nullptr;
  id.device->agent->abandon(std::move(id.end));
}

void destroy(Id& id) {
  {
    const std::lock_guard lock(process().mutex);
    std::erase(process().listeners, &id);
  }
  drop_end(id);
  if (id.event != nullptr) {
    rdma_ack_cm_event(id.event);
    id.event = nullptr;
  }
  for (Id* const unseen : drop_events(id)) destroy(*unseen);
  if (id.synchronous) rdma_destroy_event_channel(id.channel);
  delete &id;
}

}  // namespace

void End::on_notice(Notice notice, const Message& message) {
  if (id == nullptr) return;
  switch (notice) {
    case Notice::kNothing: break;
    case Notice::kReply: on_reply(*this, message); break;
    case Notice::kEstablished: raise_answer(*id, RDMA_CM_EVENT_ESTABLISHED, 0, message); break;
    case Notice::kRejected:
      if (message.kind == Kind::kFound) return raise_found(*id, message);
      raise_answer(*id, RDMA_CM_EVENT_REJECTED, message.reason, message);
      break;
    case Notice::kUnreachable: raise(*id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT); break;
    case Notice::kSilent:  // a program that only polls for receives sees no event, but their flush
      fail_queue_pair(*id);
      [[fallthrough]];
    case Notice::kDisconnected: raise(*id, RDMA_CM_EVENT_DISCONNECTED); break;
  }
}

extern "C" {

PACECAR_VERBS int rdma_listen(rdma_cm_id* id, int backlog) {
  OWN_ID(own, id);
  if (own.listening || cm::port_of(own, true) == 0) return failed(EINVAL);
  if (own.device != nullptr && !own.any_address) {
    const auto source = from_sockaddr(&own.route.addr.src_addr);
    const Address receives_at = own.device->address();
    if (!source || !same_ip(*source, receives_at)) {
      log_sink()(LogLevel::kWarn,
                 fmt::format("rdma_listen: {} receives at {} only: listen there",
                             ibv_get_device_name(own.verbs->device), ip_to_string(receives_at)));
      return failed(EADDRNOTAVAIL);
    }
  }
  if (!own.reservation && !reserve_port(own)) return -1;
  // Devices that cannot be opened, such as other users' interfaces, are skipped.
  if (own.any_address && all_devices().empty()) return failed(ENODEV);
  const std::lock_guard lock(process().mutex);
  own.listening = true;
  own.waiting = std::make_shared<size_t>(0);
  own.backlog =
      backlog > 0 ? std::min<size_t>(static_cast<size_t>(backlog), kMostWaiting) : kMostWaiting;
  process().listeners.push_back(&own);
  return 0;
}

PACECAR_VERBS int rdma_connect(rdma_cm_id* id, rdma_conn_param* param) {
  OWN_ID(own, id);
  if (own.device == nullptr || own.end != nullptr || own.route.num_paths == 0) {
    return failed(EINVAL);
  }
  if (own.qp == nullptr && param == nullptr) return failed(EINVAL);
  int error = 0;
  {
    const ConnectionCall call(own);
    if (param != nullptr) set_parameters(own, *param, true);
    error = ask(own, param);
  }
  return error == 0 ? complete(own) : failed(error);
}

PACECAR_VERBS int rdma_accept(rdma_cm_id* id, rdma_conn_param* param) {
  OWN_ID(own, id);
  if (own.end == nullptr || (own.qp == nullptr && param == nullptr)) return failed(EINVAL);
  int error = 0;
  {
    const ConnectionCall call(own);
    if (param != nullptr) set_parameters(own, *param, false);
    error = answer(own, param);
  }
  if (error != 0) return failed(error);
  return own.is_datagram() ? 0 : complete(own);
}

PACECAR_VERBS int rdma_reject(rdma_cm_id* id, const void* data, uint8_t length) {
  OWN_ID(own, id);
  if (own.end == nullptr) return failed(EINVAL);
  const ConnectionCall call(own);
  const int error = refuse(own, data, length);
  return error == 0 ? 0 : failed(error);
}

// Without support for enhanced connections this is a plain reject.
PACECAR_VERBS int rdma_reject_ece(rdma_cm_id* id, const void* data, uint8_t length) {
  return rdma_reject(id, data, length);
}

PACECAR_VERBS int rdma_establish(rdma_cm_id* id) {
  OWN_ID(own, id);
  if (own.end == nullptr) return failed(EINVAL);
  const ConnectionCall call(own);
  if (own.end->connection.state() != Connection::State::kReplied) return failed(EINVAL);
  own.device->agent->send(*own.end, own.end->connection.ready(pacecar::clock_now()));
  return 0;
}

PACECAR_VERBS int rdma_disconnect(rdma_cm_id* id) {
  OWN_ID(own, id);
  if (own.end == nullptr || own.is_datagram()) return failed(EINVAL);
  {
    const ConnectionCall call(own);
    fail_queue_pair(own);
    own.device->agent->disconnect(*own.end);
    const auto state = own.end->connection.state();
    const std::lock_guard events(process().mutex);
    // For a connection that had ended, and whose event was read, none would follow.
    const bool ended =
        state == Connection::State::kClosed && !(own.synchronous && own.events().unread.empty());
    if (state != Connection::State::kDisconnecting && !ended) return failed(EINVAL);
  }
  return complete(own);
}

PACECAR_VERBS int rdma_destroy_id(rdma_cm_id* id) {
  if (!id_of(id).maker.forked()) destroy(id_of(id));
  return 0;
}

PACECAR_VERBS int rdma_get_request(rdma_cm_id* listener, rdma_cm_id** id) {
  OWN_ID(own, listener);
  if (!own.synchronous) return failed(EINVAL);
  if (complete(own) != 0) return -1;
  if (own.event->event != RDMA_CM_EVENT_CONNECT_REQUEST) return failed(EINVAL);
  rdma_cm_id* const request = own.event->id;
  // It leaves the listener's channel, which may be destroyed before it.
  bool made = rdma_migrate_id(request, nullptr) == 0;
  if (made && own.made_for) {
    ibv_qp_init_attr attr = *own.made_for;
    made = rdma_create_qp(request, own.pd, &attr) == 0;
  }
  if (!made) {
    const int error = errno;
    rdma_destroy_id(request);
    return failed(error);
  }
  pass_event(own, id_of(request));
  *id = request;
  return 0;
}

// Enhanced connection establishment: options of vendors, of which we have none.
PACECAR_VERBS int rdma_set_local_ece(rdma_cm_id* /*id*/, ibv_ece* ece) {
  return ece->vendor_id == 0 ? 0 : failed(EOPNOTSUPP);
}
PACECAR_VERBS int rdma_get_remote_ece(rdma_cm_id* /*id*/, ibv_ece* ece) {
  *ece = ibv_ece{};
  return 0;
}

PACECAR_VERBS int rdma_join_multicast(rdma_cm_id* /*id*/, sockaddr* /*address*/,
                                      void* /*context*/) {
  return failed(ENOSYS);
}
PACECAR_VERBS int rdma_join_multicast_ex(rdma_cm_id* /*id*/, rdma_cm_join_mc_attr_ex* /*attr*/,
                                         void* /*context*/) {
  return failed(ENOSYS);
}
PACECAR_VERBS int rdma_leave_multicast(rdma_cm_id* /*id*/, sockaddr* /*address*/) {
  return failed(ENOSYS);
}

}  // extern "C"
}  // namespace pacecar::ibverbs::cm
