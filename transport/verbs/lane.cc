#include "transport/verbs/lane.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "transport/base/random_word.h"
#include "transport/base/seq.h"
#include "transport/verbs/errors.h"

namespace pacecar {
namespace {

// The value of retry_cnt. Not the maximum of RC, 7, which rdma_rxe takes as "forever".
constexpr uint8_t kRetries = 6;
constexpr uint8_t kForEver = 7;        // of rnr_retry
constexpr uint8_t kReadDepth = 16;     // most outstanding reads of one end of a lane
constexpr uint8_t kReceiverDelay = 1;  // of min_rnr_timer: 10 us
constexpr uint8_t kHops = 64;
constexpr int64_t kTimeoutUnitNs = 4096;
constexpr uint8_t kMaxAckTimeout = 31;

ibv_mtu mtu_code(uint32_t bytes) {
  return static_cast<ibv_mtu>(std::countr_zero(bytes) - std::countr_zero(128U));
}

// Always on Ethernet; on InfiniBand if the port requires it, and between subnets (other prefixes).
bool needs_global_route(const VerbsDevice& device, const RcEndpoint& remote) {
  constexpr size_t kPrefix = 8;
  const bool required = (device.port_attributes.flags & IBV_QPF_GRH_REQUIRED) != 0;
  if (device.link_layer == LinkLayer::kEthernet || required) return true;
  return !std::equal(remote.gid.begin(), remote.gid.begin() + kPrefix, device.gid.gid.begin());
}

// On Ethernet the priority of VLAN tags, for switches that use it.
uint8_t service_level(const VerbsDevice& device, const LaneConfig& config) {
  const bool ethernet = device.link_layer == LinkLayer::kEthernet;
  return ethernet ? config.traffic_class >> 5 : config.service_level;
}

ibv_ah_attr path_to(const VerbsDevice& device, const LaneConfig& config, const Lane& lane,
                    const RcEndpoint& remote) {
  ibv_ah_attr path{};
  path.sl = service_level(device, config);
  path.port_num = static_cast<uint8_t>(device.port);
  path.dlid = remote.lid;
  if (!needs_global_route(device, remote)) return path;
  path.is_global = 1;
  std::ranges::copy(remote.gid, path.grh.dgid.raw);
  path.grh.flow_label = lane.flow_label;
  path.grh.sgid_index = static_cast<uint8_t>(device.gid.index);
  path.grh.hop_limit = kHops;
  path.grh.traffic_class = config.traffic_class;
  return path;
}

// How many outstanding reads of the peer a lane accepts.
uint8_t read_depth(const VerbsDevice& device) {
  return static_cast<uint8_t>(std::clamp<int>(device.attributes.max_qp_rd_atom, 0, kReadDepth));
}

}  // namespace

RcEndpoint endpoint_of(const VerbsDevice& device) {
  return {.gid = device.gid.gid,
          .lid = device.port_attributes.lid,
          .link_layer = device.link_layer,
          .mtu = device.mtu,
          .read_depth = read_depth(device)};
}

// A flow label's low 14 bits select the UDP source port (InfiniBand Specification, annex A17).
uint32_t path_label(uint32_t random, uint32_t lane) {
  constexpr uint32_t kPortMask = (1U << 14) - 1;
  return std::max(1U, (random + lane) & kPortMask);
}

Result<Lane> make_lane(const VerbsDevice& device, const LaneConfig& config, uint32_t flow_label) {
  Lane lane(config.work_requests);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = config.completions;
  init.srq = config.shared_receives;
  init.qp_type = IBV_QPT_RC;
  const auto most = static_cast<uint32_t>(device.attributes.max_qp_wr);
  init.cap.max_send_wr = std::min(config.work_requests + 1, most);  // one for LaneEnd::marked
  init.cap.max_send_sge = 1;
  init.cap.max_recv_wr = config.receives;
  init.cap.max_recv_sge = config.receives > 0 ? 1 : 0;
  init.cap.max_inline_data = kInlineBytes;
  lane.queue_pair.reset(ibv_create_qp(config.domain, &init));
  if (lane.queue_pair == nullptr) {
    init.cap.max_inline_data = 0;  // not every device supports it
    lane.queue_pair.reset(ibv_create_qp(config.domain, &init));
  }
  if (lane.queue_pair == nullptr) return verbs_failed("ibv_create_qp", errno, device.name);
  lane.inline_bytes = std::min(init.cap.max_inline_data, kInlineBytes);
  lane.local = {.queue_pair = lane.queue_pair->qp_num, .first_psn = random_word() & kPsnMask};
  lane.flow_label = flow_label;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = static_cast<uint8_t>(device.port);
  attributes.pkey_index = config.pkey_index;
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  const int error =
      ibv_modify_qp(lane.queue_pair.get(), &attributes,
                    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (error != 0) return verbs_failed("ibv_modify_qp to INIT", error, device.name);
  return lane;
}

Result<void> connect_lane(const VerbsDevice& device, const LaneConfig& config, const Lane& lane,
                          const RcEndpoint& remote, const RcLane& remote_lane) {
  const auto reads = static_cast<uint8_t>(std::clamp<int>(device.attributes.max_qp_init_rd_atom, 0,
                                                          std::min(kReadDepth, remote.read_depth)));
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = mtu_code(std::min(device.mtu, remote.mtu));
  attributes.dest_qp_num = remote_lane.queue_pair;
  attributes.rq_psn = remote_lane.first_psn;
  attributes.max_dest_rd_atomic = read_depth(device);
  attributes.min_rnr_timer = kReceiverDelay;
  attributes.ah_attr = path_to(device, config, lane, remote);
  int error = ibv_modify_qp(lane.queue_pair.get(), &attributes,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (error != 0) return verbs_failed("ibv_modify_qp to RTR", error, device.name, Call::kConnect);
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = lane.local.first_psn;
  attributes.timeout = config.ack_timeout;
  attributes.retry_cnt = kRetries;
  attributes.rnr_retry = kForEver;
  attributes.max_rd_atomic = reads;
  error = ibv_modify_qp(lane.queue_pair.get(), &attributes,
                        IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                            IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
  if (error != 0) return verbs_failed("ibv_modify_qp to RTS", error, device.name, Call::kConnect);
  return {};
}

void stop_lane(const Lane& lane) {
  if (lane.queue_pair == nullptr) return;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  // A failure means that the device is gone, which also ends sending and receiving.
  ibv_modify_qp(lane.queue_pair.get(), &attributes, IBV_QP_STATE);
}

int post_send(const Lane& lane, ibv_send_wr request, ibv_sge piece) {
  request.sg_list = &piece;
  request.num_sge = piece.length > 0 ? 1 : 0;
  ibv_send_wr* refused = nullptr;
  return ibv_post_send(lane.queue_pair.get(), &request, &refused);
}

int post_receive(const Lane& lane, uint64_t id, ibv_sge piece) {
  ibv_recv_wr request{
      .wr_id = id, .next = nullptr, .sg_list = &piece, .num_sge = piece.length > 0 ? 1 : 0};
  ibv_recv_wr* refused = nullptr;
  return ibv_post_recv(lane.queue_pair.get(), &request, &refused);
}

ibv_sge piece_of(const void* memory, size_t length, uint32_t key) {
  return {.addr = reinterpret_cast<uint64_t>(memory),
          .length = static_cast<uint32_t>(length),
          .lkey = key};
}

uint8_t choose_ack_timeout(Duration silence) {
  const int64_t units = silence.ns() / (kRetries + 1) / kTimeoutUnitNs;
  const int width = std::bit_width(static_cast<uint64_t>(std::max<int64_t>(units, 1)));
  return static_cast<uint8_t>(std::clamp<int>(width - 1, 1, kMaxAckTimeout));
}

Result<LaneAccount::Resolved> LaneAccount::resolve(uint64_t peer_received, WorkQueue& work) {
  uint64_t most = confirmed_;
  for (size_t i = 0; i < unresolved_.size(); ++i) most += notifies(unresolved_[i]) ? 1 : 0;
  if (peer_received < confirmed_ || peer_received > most) {
    return fail(
        ErrorCode::kPeer,
        fmt::format("the peer reports that {} writes have arrived on a lane, and it is {} to {}",
                    peer_received, confirmed_, most));
  }
  uint64_t covered = peer_received - confirmed_;  // of unresolved_, and all before them
  Resolved resolved;
  for (; !unresolved_.empty(); unresolved_.pop_front()) {
    const LaneLedger::Entry& entry = unresolved_.front();
    // The response to a read may have been lost.
    if (covered > 0 && entry.opcode != Opcode::kRead) {
      work.finish(entry.number, CompletionStatus::kOk);
      ++resolved.arrived;
      resolved.arrived_bytes += entry.bytes;
    } else {
      work.put_back(entry.number);
      ++resolved.put_back;
    }
    if (covered > 0 && notifies(entry)) --covered;
  }
  received_ = 0;
  confirmed_ = 0;
  return resolved;
}

void LaneAccount::abandon(WorkQueue& work) {
  for (; !unresolved_.empty(); unresolved_.pop_front()) work.abandon(unresolved_.front().number);
}

}  // namespace pacecar
