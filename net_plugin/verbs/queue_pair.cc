#include "net_plugin/verbs/queue_pair.h"

#include <endian.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <tuple>

#include "net_plugin/verbs/core/states.h"
#include "net_plugin/verbs/windows.h"
#include "transport/engine/clock.h"
#include "transport/wire/address.h"

namespace pacecar::ibverbs {
namespace {

// In place of a service level RoCE v2 adapters report UDP header and IP version, which UCX needs.
constexpr uint8_t kOverIpv4 = 0x8 | 0x2;
constexpr uint8_t kOverIpv6 = 0x8 | 0x1;
constexpr uint32_t kPsnBits24 = 0xFF'FFFF;
// A peer on a busy host answers late.
constexpr Duration kLeastSilence = Duration::from_s(2);
constexpr Duration kLeastNotReady = Duration::from_ms(20);
constexpr uint8_t kForEver = 7;  // of rnr_retry

// ibv_qp_init_attr_ex begins with all fields of ibv_qp_init_attr.
constexpr size_t kCommonAttributes = offsetof(ibv_qp_init_attr_ex, comp_mask);
static_assert(kCommonAttributes == offsetof(ibv_qp_init_attr, sq_sig_all) + sizeof(int));

Bytes bytes_of(ibv_mtu mtu) { return Bytes{128} << mtu; }

// 4.096 us x 2^code (9.7.6.1.3) for each try; code 0: forever.
Duration silence_limit(uint8_t timeout, uint8_t retries) {
  if (timeout == 0) return Duration::max();
  const Duration once = Duration::from_ns(int64_t{4096} << timeout);
  return std::max(kLeastSilence, once * (int64_t{retries} + 1));
}

using StatusRow = std::pair<CompletionStatus, ibv_wc_status>;
constexpr StatusRow kStatuses[] = {
    {CompletionStatus::kOk, IBV_WC_SUCCESS},
    {CompletionStatus::kRemoteAccessError, IBV_WC_REM_ACCESS_ERR},
    {CompletionStatus::kMemoryGone, IBV_WC_LOC_PROT_ERR},
    {CompletionStatus::kReceiveGone, IBV_WC_LOC_PROT_ERR},
    {CompletionStatus::kRetryExceeded, IBV_WC_RETRY_EXC_ERR},
    {CompletionStatus::kReceiverNotReady, IBV_WC_RNR_RETRY_EXC_ERR},
    {CompletionStatus::kRemoteRefused, IBV_WC_REM_INV_REQ_ERR},
    {CompletionStatus::kRemoteFailed, IBV_WC_REM_OP_ERR},
    {CompletionStatus::kReceiveTooShort, IBV_WC_LOC_LEN_ERR},
    {CompletionStatus::kLocalError, IBV_WC_LOC_QP_OP_ERR},
};

ibv_wc_status status_of(CompletionStatus status) {
  return std::ranges::find(kStatuses, status, &StatusRow::first)->second;
}

// Empty: nothing.
std::string_view what_is_wrong(const ibv_qp_attr& given, int mask) {
  const ibv_ah_attr& path = given.ah_attr;
  const ibv_mtu& mtu = given.path_mtu;  // only set with its bit
  const std::tuple<int, bool, std::string_view> rules[] = {
      {IBV_QP_PORT, given.port_num == 1, "the only port_num is 1"},
      {IBV_QP_PKEY_INDEX, given.pkey_index == 0, "the only pkey_index is 0"},
      {IBV_QP_PATH_MTU, mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096, "path_mtu is none of ibv_mtu"},
      {IBV_QP_AV, path.is_global != 0 && path.grh.sgid_index < kGids,
       "the address has no GRH with sgid_index 0 to 3, which RoCE needs (-g 0 of many programs)"},
      {IBV_QP_MAX_QP_RD_ATOMIC, given.max_rd_atomic <= kMaxReads, "max_rd_atomic is too large"},
      {IBV_QP_MAX_DEST_RD_ATOMIC, given.max_dest_rd_atomic <= kMaxReads,
       "max_dest_rd_atomic is too large"},
      {IBV_QP_TIMEOUT, given.timeout < 32, "timeout is larger than 31"},
      {IBV_QP_RETRY_CNT, given.retry_cnt < 8, "retry_cnt is larger than 7"},
      {IBV_QP_RNR_RETRY, given.rnr_retry < 8, "rnr_retry is larger than 7"},
      {IBV_QP_MIN_RNR_TIMER, given.min_rnr_timer < 32, "min_rnr_timer is larger than 31"}};
  for (const auto& [bit, right, why] : rules) {
    if ((mask & bit) != 0 && !right) return why;
  }
  return {};
}

}  // namespace

ibv_qp_init_attr_ex extended_of(const ibv_qp_init_attr& attr, ibv_pd* pd) {
  ibv_qp_init_attr_ex extended{};
  std::memcpy(&extended, &attr, kCommonAttributes);
  extended.comp_mask = IBV_QP_INIT_ATTR_PD;
  extended.pd = pd;
  return extended;
}

QueuePair::QueuePair(const ibv_qp_init_attr_ex& made_for, uint32_t sends, uint32_t own_receives)
    : ibv_qp_ex{}, sent_(sends), own_receives_(own_receives) {
  qp_base.qp_context = made_for.qp_context;
  qp_base.send_cq = made_for.send_cq;
  qp_base.recv_cq = made_for.recv_cq;
  qp_base.srq = made_for.srq;
  qp_base.qp_type = made_for.qp_type;
  qp_base.state = IBV_QPS_RESET;
  std::memcpy(&init, &made_for, kCommonAttributes);
  shared = static_cast<SharedReceives*>(made_for.srq);
  begin_events(qp_base);
}

void QueuePair::set_attributes(const ibv_qp_attr& given, int mask) {
  const auto set = [&](int bit, auto member) {
    if ((mask & bit) != 0) attr.*member = given.*member;
  };
  set(IBV_QP_ACCESS_FLAGS, &ibv_qp_attr::qp_access_flags);
  set(IBV_QP_PKEY_INDEX, &ibv_qp_attr::pkey_index);
  set(IBV_QP_PORT, &ibv_qp_attr::port_num);
  set(IBV_QP_QKEY, &ibv_qp_attr::qkey);
  set(IBV_QP_AV, &ibv_qp_attr::ah_attr);
  set(IBV_QP_PATH_MTU, &ibv_qp_attr::path_mtu);
  set(IBV_QP_TIMEOUT, &ibv_qp_attr::timeout);
  set(IBV_QP_RETRY_CNT, &ibv_qp_attr::retry_cnt);
  set(IBV_QP_RNR_RETRY, &ibv_qp_attr::rnr_retry);
  set(IBV_QP_RQ_PSN, &ibv_qp_attr::rq_psn);
  set(IBV_QP_SQ_PSN, &ibv_qp_attr::sq_psn);
  set(IBV_QP_MAX_QP_RD_ATOMIC, &ibv_qp_attr::max_rd_atomic);
  set(IBV_QP_MAX_DEST_RD_ATOMIC, &ibv_qp_attr::max_dest_rd_atomic);
  set(IBV_QP_MIN_RNR_TIMER, &ibv_qp_attr::min_rnr_timer);
  set(IBV_QP_DEST_QPN, &ibv_qp_attr::dest_qp_num);
}

int QueuePair::modify(const ibv_qp_attr& given, int mask) {
  const ibv_qp_state from = (mask & IBV_QP_CUR_STATE) != 0 ? given.cur_qp_state : qp_base.state;
  const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? given.qp_state : from;
  if (from != qp_base.state || !allowed(qp_base.qp_type, from, to, mask)) {
    return refused(fmt::format("ibv_modify_qp: the attributes {:#x} are wrong from state {} to {}",
                               mask, int{qp_base.state}, int{to}));
  }
  if (const auto wrong = what_is_wrong(given, mask); !wrong.empty()) {
    return refused(fmt::format("ibv_modify_qp: {}", wrong));
  }
  const ibv_qp_attr before = attr;
  set_attributes(given, mask);
  switch (to) {
    case IBV_QPS_RESET: reset(); break;
    case IBV_QPS_RTR:
      if (const int failed = connect(); failed != 0) {
        attr = before;
        return failed;
      }
      break;
    case IBV_QPS_RTS:
      nic().nic().set_rights(id, rights());
      if (from != IBV_QPS_RTS) start_sending();
      break;
    case IBV_QPS_ERR: fail(IBV_WC_WR_FLUSH_ERR); break;
    default: break;
  }
  qp_base.state = to;
  return 0;
}

int QueuePair::connect() {
  StandardNic& device = nic().nic();
  if (is_datagram()) {
    device.open_datagrams(id, attr.qkey);
    return 0;
  }
  if (bytes_of(attr.path_mtu) > nic().caps().mtu) {
    return refused(fmt::format("ibv_modify_qp: path_mtu is {} bytes, and the port's active MTU {}",
                               bytes_of(attr.path_mtu), nic().caps().mtu));
  }
  StandardPeer peer{.queue_pair = attr.dest_qp_num & kPsnBits24,
                    .first_psn = attr.rq_psn & kPsnBits24,
                    .mtu = bytes_of(attr.path_mtu),
                    .read_depth = attr.max_dest_rd_atomic,
                    .rights = rights(),
                    .reliable = qp_base.qp_type == IBV_QPT_RC};
  std::ranges::copy(attr.ah_attr.grh.dgid.raw, peer.gid.begin());
  const auto flow = nic().flows().join(peer.gid, clock_now());
  if (!flow) {
    refused("ibv_modify_qp: " + flow.error().message);
    return error_number(flow.error());
  }
  peer.flow = *flow;
  const auto connected = device.connect_standard(id, peer);
  flow_ = *flow;
  if (connected) return 0;
  leave_flow();
  return error_number(connected.error());
}

void QueuePair::start_sending() {
  if (is_datagram()) return;
  nic().nic().start_sending(
      id, {.first_psn = attr.sq_psn & kPsnBits24,
           .read_depth = attr.max_rd_atomic,
           .silence_limit = silence_limit(attr.timeout, attr.retry_cnt),
           .not_ready_limit = attr.rnr_retry == kForEver ? Duration::max() : kLeastNotReady,
           .not_ready_retries = attr.rnr_retry});
}

StandardRights QueuePair::rights() const {
  return {.access = access_of(attr.qp_access_flags),
          .rnr_delay = attr.min_rnr_timer,
          .queue_key = attr.qkey};
}

void QueuePair::leave_flow() {
  if (flow_) nic().flows().leave(*flow_, clock_now());
  flow_.reset();
}

void QueuePair::drop_oldest() {
  sent_.front().memory.give_back(nic());
  sent_.pop_front();
  ++first_sent_;
}

void QueuePair::reset() {
  unbind_windows_of(*this);
  const StandardRest rest = nic().nic().take_back(id);
  if (rest.receive) receives().finish(nic(), rest.receive->id, 0);
  nic().nic().reset_queue_pair(id);
  leave_flow();
  while (!sent_.empty()) drop_oldest();
  first_sent_ = 0;
  own_receives_.drop_all(nic());
  queue_of(qp_base.send_cq).forget(qp_base.qp_num);
  queue_of(qp_base.recv_cq).forget(qp_base.qp_num);
}

void QueuePair::fail(ibv_wc_status first, ibv_wc_status received) {
  if (std::exchange(qp_base.state, IBV_QPS_ERR) == IBV_QPS_ERR) return;
  const StandardRest rest = nic().nic().take_back(id);
  finish(rest.done);
  nic().nic().break_queue_pair(id);
  for (; !sent_.empty(); drop_oldest()) {
    complete(sent_.front(), first);
    first = IBV_WC_WR_FLUSH_ERR;
  }
  if (rest.receive) {
    complete_receive(receives().finish(nic(), rest.receive->id, 0).first, received);
  }
  flush_receives();
  if (shared != nullptr) raise(IBV_EVENT_QP_LAST_WQE_REACHED);
}

void QueuePair::raise(ibv_event_type type) {
  raise_event(qp_base.context, {.element = {.qp = base()}, .event_type = type}, async_events);
}

void QueuePair::flush_receives() {
  for (const uint64_t dropped : own_receives_.drop_all(nic())) {
    complete_receive(dropped, IBV_WC_WR_FLUSH_ERR);
  }
}

void QueuePair::on_completion(const Completion& completion) {
  const bool sent = completion.kind == CompletionKind::kSent;
  const bool received = !sent && completion.kind != CompletionKind::kBroken;
  // All requests have been flushed, except shared receive requests whose message has arrived.
  if (qp_base.state == IBV_QPS_ERR && !(received && shared != nullptr)) return;
  if (received) return on_received(completion);
  sent ? on_sent(completion) : on_broken(completion);
}

void QueuePair::on_broken(const Completion& completion) {
  switch (completion.status) {
    case CompletionStatus::kReceiveTooShort:
    case CompletionStatus::kReceiveGone:
      return fail(IBV_WC_WR_FLUSH_ERR, status_of(completion.status));
    case CompletionStatus::kLocalError:  // caused by the peer, not by one of our work requests
      fail(IBV_WC_WR_FLUSH_ERR);
      return raise(IBV_EVENT_QP_ACCESS_ERR);
    default: return fail(status_of(completion.status));
  }
}

// Work requests complete in order: all before this one are done as well.
void QueuePair::on_sent(const Completion& completion) {
  const bool done = completion.status == CompletionStatus::kOk;
  finish(completion.work_request + (done ? 1 : 0));
  if (done || sent_.empty()) return;
  complete(sent_.front(), status_of(completion.status));
  drop_oldest();
  fail(IBV_WC_WR_FLUSH_ERR);
}

void QueuePair::finish(uint64_t end) {
  for (; !sent_.empty() && first_sent_ < end; drop_oldest()) {
    const Sent& sent = sent_.front();
    if (!sent.memory.scatter(nic(), sent.bytes)) return fail(IBV_WC_LOC_PROT_ERR);
    if (sent.signaled) complete(sent, IBV_WC_SUCCESS);
  }
}

void QueuePair::complete(const Sent& sent, ibv_wc_status status) {
  queue_of(qp_base.send_cq)
      .add({.wr_id = sent.wr_id,
            .status = status,
            .opcode = sent.opcode,
            .byte_len = sent.bytes,
            .qp_num = qp_base.qp_num},
           false);
}

void QueuePair::complete_receive(uint64_t request, ibv_wc_status status) {
  queue_of(qp_base.recv_cq)
      .add({.wr_id = request, .status = status, .opcode = IBV_WC_RECV, .qp_num = qp_base.qp_num},
           true);
}

void QueuePair::on_received(const Completion& completion) {
  ibv_wc wc{};
  const bool write = completion.kind == CompletionKind::kReceived;
  // A write uses up the request without using its memory.
  const Bytes in_request = write ? 0 : completion.bytes;
  const auto [request, placed] = receives().finish(nic(), completion.work_request, in_request);
  if (!placed) {
    complete_receive(request, IBV_WC_LOC_PROT_ERR);
    return fail(IBV_WC_WR_FLUSH_ERR);
  }
  wc.wr_id = request;
  wc.status = IBV_WC_SUCCESS;
  wc.byte_len = static_cast<uint32_t>(completion.bytes);
  wc.qp_num = qp_base.qp_num;
  wc.src_qp = is_datagram() ? completion.source_qp : attr.dest_qp_num;
  wc.opcode = write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
  if (completion.invalidated) {
    wc.wc_flags |= IBV_WC_WITH_INV;
    wc.invalidated_rkey = completion.immediate;
    on_invalidated(nic(), completion.immediate);
  }
  if (write || completion.has_immediate) {
    wc.wc_flags |= IBV_WC_WITH_IMM;
    wc.imm_data = htobe32(completion.immediate);
  }
  if (is_datagram()) {
    wc.wc_flags |= IBV_WC_GRH;
    wc.sl = is_ipv4(nic().address()) ? kOverIpv4 : kOverIpv6;
  }
  if (shared != nullptr) shared->on_taken();
  queue_of(qp_base.recv_cq).add(wc, completion.solicited);
}

void SharedReceives::on_taken() {
  if (limit == 0 || receives.posted() >= limit) return;
  limit = 0;
  raise_event(context, {.element = {.srq = this}, .event_type = IBV_EVENT_SRQ_LIMIT_REACHED},
              async_events);
}

}  // namespace pacecar::ibverbs
