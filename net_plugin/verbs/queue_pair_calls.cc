// The calls on queue pairs: checks arguments, and takes the NIC's lock; and ibv_wr_*: work requests
// that are built field by field, and posted together.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "net_plugin/verbs/queue_pair.h"

namespace pacecar::ibverbs {
namespace {

// `wholly`: all of that many or none.
int post(QueuePair& pair, ibv_send_wr* wr, ibv_send_wr** bad, size_t wholly) {
  const Call call(pair.nic());
  if (wholly > pair.room()) return ENOMEM;
  int failed = 0;
  for (const ibv_send_wr* one = wholly > 1 ? wr : nullptr; one != nullptr; one = one->next) {
    if ((failed = pair.check_send(*one)) != 0) return failed;
  }
  for (; wr != nullptr && failed == 0; wr = failed == 0 ? wr->next : wr) {
    failed = pair.post_send(*wr);
  }
  if (failed != 0) *bad = wr;
  pair.nic().send_posted();
  return failed;
}

int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  return post(queue_pair_of(qp), wr, bad, 0);
}

int post_receive(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  QueuePair& pair = queue_pair_of(qp);
  const std::lock_guard lock(pair.nic().mutex());
  for (; wr != nullptr; wr = wr->next) {
    if (const int failed = pair.post_receive(*wr); failed != 0) {
      *bad = wr;
      return failed;
    }
  }
  return 0;
}

constexpr uint64_t kSendOps = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                              IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                              IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                              IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_SEND_WITH_INV |
                              IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;

// 0, or an errno if no such queue pair can be created.
int check(const ibv_qp_init_attr_ex& attr) {
  constexpr uint32_t kKnown =
      IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS | IBV_QP_INIT_ATTR_CREATE_FLAGS;
  const auto has = [&](uint32_t bit) { return (attr.comp_mask & bit) != 0; };
  const bool known_type =
      attr.qp_type == IBV_QPT_RC || attr.qp_type == IBV_QPT_UC || attr.qp_type == IBV_QPT_UD;
  if ((attr.comp_mask & ~kKnown) != 0 || !has(IBV_QP_INIT_ATTR_PD) || !known_type ||
      (has(IBV_QP_INIT_ATTR_CREATE_FLAGS) && attr.create_flags != 0) ||
      (has(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) && (attr.send_ops_flags & ~kSendOps) != 0)) {
    return EOPNOTSUPP;
  }
  const ibv_qp_cap& cap = attr.cap;
  const auto most = static_cast<uint32_t>(kMaxWorkRequests);
  const auto pieces = static_cast<uint32_t>(kMaxSge);
  const std::tuple<const char*, uint32_t, uint32_t> limits[] = {
      {"max_send_wr", cap.max_send_wr, most},
      {"max_recv_wr", cap.max_recv_wr, most},
      {"max_send_sge", cap.max_send_sge, pieces},
      {"max_recv_sge", cap.max_recv_sge, pieces},
      {"max_inline_data", cap.max_inline_data, kMaxInline}};
  for (const auto& [name, wanted, limit] : limits) {
    if (wanted <= limit) continue;
    return refused(fmt::format("ibv_create_qp: {} is {}: ask for {} at most", name, wanted, limit));
  }
  return attr.pd != nullptr && attr.send_cq != nullptr && attr.recv_cq != nullptr ? 0 : EINVAL;
}

ibv_qp* create(ibv_context* context, ibv_qp_init_attr_ex* wanted) {
  return made([&]() -> ibv_qp* {
    ibv_qp_init_attr_ex& attr = *wanted;
    if (const int wrong = check(attr); wrong != 0) return no_object(wrong);
    ProcessNic& nic = nic_of(context);
    ibv_qp_cap& cap = attr.cap;
    cap.max_send_wr = std::max(1U, cap.max_send_wr);
    if (attr.srq != nullptr) cap.max_recv_wr = 0;
    cap.max_send_sge = std::max(1U, cap.max_send_sge);
    cap.max_recv_sge = std::max(1U, cap.max_recv_sge);
    const uint32_t receives = std::max(1U, cap.max_recv_wr);
    auto pair = std::make_unique<QueuePair>(attr, cap.max_send_wr, receives);
    QueuePairConfig config{
        .work_requests = cap.max_send_wr,
        .receives = receives,
        .service = attr.qp_type == IBV_QPT_UD ? Service::kDatagram : Service::kStandard};
    if (pair->shared != nullptr) config.receive_queue = pair->shared->id;
    config.domain = static_cast<Pd*>(attr.pd)->domain;
    const Call call(nic);
    const auto id = nic.nic().create_queue_pair(config);
    if (!id) {
      refused("ibv_create_qp: " + id.error().message);
      return no_object(error_number(id.error()));
    }
    pair->id = *id;
    pair->qp_base.context = context;
    pair->qp_base.pd = attr.pd;
    pair->qp_base.handle = pair->qp_base.qp_num = *id;
    pair->extended = (attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
    if (pair->extended) set_build_calls(*pair);
    nic.add_sink(*id, pair.get());
    ++static_cast<Pd*>(attr.pd)->users;
    ++queue_of(attr.send_cq).users;
    ++queue_of(attr.recv_cq).users;
    if (pair->shared != nullptr) ++pair->shared->users;
    return pair.release()->base();
  });
}

Built& newest(ibv_qp_ex* qp) {
  QueuePair& pair = queue_pair_of(qp);
  return pair.built[pair.built_count - 1];
}

// Reuses the memory of earlier ones.
Built& begin(ibv_qp_ex* qp, ibv_wr_opcode opcode) {
  QueuePair& pair = queue_pair_of(qp);
  if (pair.built_count == pair.built.size()) pair.built.emplace_back();
  Built& next = pair.built[pair.built_count++];
  next.wr = ibv_send_wr{};
  next.wr.wr_id = qp->wr_id;
  next.wr.opcode = opcode;
  next.wr.send_flags = qp->wr_flags;
  next.pieces.clear();
  next.inline_bytes.clear();
  return next;
}

void add_inline(ibv_qp_ex* qp, const void* data, size_t length) {
  Built& built = newest(qp);
  const auto* const bytes = static_cast<const uint8_t*>(data);
  built.wr.send_flags |= IBV_SEND_INLINE;
  built.inline_bytes.insert(built.inline_bytes.end(), bytes, bytes + length);
}

int complete(ibv_qp_ex* qp) {
  QueuePair& pair = queue_pair_of(qp);
  const std::lock_guard lock(pair.building, std::adopt_lock);
  const auto built = std::span(pair.built).first(pair.built_count);
  for (size_t i = 0; i < built.size(); ++i) {
    Built& one = built[i];
    if ((one.wr.send_flags & IBV_SEND_INLINE) != 0) {
      one.pieces = {{.addr = reinterpret_cast<uint64_t>(one.inline_bytes.data()),
                     .length = static_cast<uint32_t>(one.inline_bytes.size()),
                     .lkey = 0}};
    }
    one.wr.sg_list = one.pieces.data();
    one.wr.num_sge = static_cast<int>(one.pieces.size());
    one.wr.next = i + 1 < built.size() ? &built[i + 1].wr : nullptr;
  }
  pair.built_count = 0;
  if (built.empty()) return 0;
  if (inherited(pair.base())) return result_in_child<int>("ibv_wr_complete");
  ibv_send_wr* bad = nullptr;
  return post(pair, &built[0].wr, &bad, built.size());
}

}  // namespace

void set_queue_pair_calls(verbs_context& verbs) {
  verbs.context.ops.post_send = Checked<post_send>::run;
  verbs.context.ops.post_recv = Checked<post_receive>::run;
  verbs.create_qp_ex = Checked<create>::run;
}

void set_build_calls(QueuePair& qp) {
  qp.wr_start = [](ibv_qp_ex* pair) { queue_pair_of(pair).building.lock(); };
  qp.wr_abort = [](ibv_qp_ex* pair) {
    queue_pair_of(pair).built_count = 0;
    queue_pair_of(pair).building.unlock();
  };
  qp.wr_complete = complete;
  qp.wr_send = [](ibv_qp_ex* pair) { begin(pair, IBV_WR_SEND); };
  qp.wr_send_imm = [](ibv_qp_ex* pair, __be32 immediate) {
    begin(pair, IBV_WR_SEND_WITH_IMM).wr.imm_data = immediate;
  };
  qp.wr_send_inv = [](ibv_qp_ex* pair, uint32_t key) {
    begin(pair, IBV_WR_SEND_WITH_INV).wr.invalidate_rkey = key;
  };
  qp.wr_local_inv = [](ibv_qp_ex* pair, uint32_t key) {
    begin(pair, IBV_WR_LOCAL_INV).wr.invalidate_rkey = key;
  };
  qp.wr_bind_mw = [](ibv_qp_ex* pair, ibv_mw* window, uint32_t key, const ibv_mw_bind_info* info) {
    ibv_send_wr& wr = begin(pair, IBV_WR_BIND_MW).wr;
    wr.bind_mw = {.mw = window, .rkey = key, .bind_info = *info};
  };
  qp.wr_rdma_write = [](ibv_qp_ex* pair, uint32_t key, uint64_t address) {
    begin(pair, IBV_WR_RDMA_WRITE).wr.wr.rdma = {.remote_addr = address, .rkey = key};
  };
  qp.wr_rdma_write_imm = [](ibv_qp_ex* pair, uint32_t key, uint64_t address, __be32 immediate) {
    ibv_send_wr& wr = begin(pair, IBV_WR_RDMA_WRITE_WITH_IMM).wr;
    wr.imm_data = immediate;
    wr.wr.rdma = {.remote_addr = address, .rkey = key};
  };
  qp.wr_rdma_read = [](ibv_qp_ex* pair, uint32_t key, uint64_t address) {
    begin(pair, IBV_WR_RDMA_READ).wr.wr.rdma = {.remote_addr = address, .rkey = key};
  };
  qp.wr_atomic_cmp_swp = [](ibv_qp_ex* pair, uint32_t key, uint64_t address, uint64_t compare,
                            uint64_t swap) {
    begin(pair, IBV_WR_ATOMIC_CMP_AND_SWP).wr.wr.atomic = {address, compare, swap, key};
  };
  qp.wr_atomic_fetch_add = [](ibv_qp_ex* pair, uint32_t key, uint64_t address, uint64_t add) {
    begin(pair, IBV_WR_ATOMIC_FETCH_AND_ADD).wr.wr.atomic = {address, add, 0, key};
  };
  qp.wr_set_ud_addr = [](ibv_qp_ex* pair, ibv_ah* handle, uint32_t number, uint32_t key) {
    newest(pair).wr.wr.ud = {.ah = handle, .remote_qpn = number, .remote_qkey = key};
  };
  qp.wr_set_sge = [](ibv_qp_ex* pair, uint32_t key, uint64_t address, uint32_t length) {
    newest(pair).pieces.push_back({.addr = address, .length = length, .lkey = key});
  };
  qp.wr_set_sge_list = [](ibv_qp_ex* pair, size_t count, const ibv_sge* pieces) {
    newest(pair).pieces.assign(pieces, pieces + count);
  };
  qp.wr_set_inline_data = [](ibv_qp_ex* pair, void* data, size_t length) {
    add_inline(pair, data, length);
  };
  qp.wr_set_inline_data_list = [](ibv_qp_ex* pair, size_t count, const ibv_data_buf* pieces) {
    for (size_t i = 0; i < count; ++i) add_inline(pair, pieces[i].addr, pieces[i].length);
  };
}

extern "C" {

PACECAR_VERBS ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  FORWARD_UNLESS_OURS(ibv_create_qp, pd, attr);
  ibv_qp_init_attr_ex extended = extended_of(*attr, pd);
  ibv_qp* const qp = create(pd->context, &extended);
  if (qp != nullptr) attr->cap = extended.cap;
  return qp;
}

PACECAR_VERBS ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) {
  FORWARD_UNLESS_OURS(ibv_qp_to_qp_ex, qp);
  return queue_pair_of(qp).extended ? &queue_pair_of(qp) : nullptr;
}

PACECAR_VERBS int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  FORWARD_UNLESS_OURS(ibv_modify_qp, qp, attr, mask);
  QueuePair& pair = queue_pair_of(qp);
  const Call call(pair.nic());
  const int result = pair.modify(*attr, mask);
  pair.nic().send_posted();  // flushed work requests may set a timer
  return result;
}

PACECAR_VERBS int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init) {
  FORWARD_UNLESS_OURS(ibv_query_qp, qp, attr, mask, init);
  QueuePair& pair = queue_pair_of(qp);
  const Call call(pair.nic());
  *attr = pair.attr;
  attr->qp_state = attr->cur_qp_state = qp->state;
  attr->path_mig_state = IBV_MIG_MIGRATED;
  attr->cap = pair.init.cap;
  *init = pair.init;
  return 0;
}

PACECAR_VERBS int ibv_query_qp_data_in_order(ibv_qp* qp, ibv_wr_opcode opcode, uint32_t flags) {
  FORWARD_UNLESS_OURS(ibv_query_qp_data_in_order, qp, opcode, flags);
  return flags == 0 && qp->qp_type == IBV_QPT_RC ? 1 : 0;
}

PACECAR_VERBS int ibv_destroy_qp(ibv_qp* qp) {
  FORWARD_UNLESS_OURS(ibv_destroy_qp, qp);
  QueuePair* const pair = &queue_pair_of(qp);
  {
    const Call call(pair->nic());
    pair->nic().turn();  // sends the acknowledgements that the peer waits for
    pair->reset();
    pair->nic().remove_sink(pair->id);
    pair->nic().nic().destroy_queue_pair(pair->id);
    --static_cast<Pd*>(qp->pd)->users;
    --queue_of(qp->send_cq).users;
    --queue_of(qp->recv_cq).users;
    if (pair->shared != nullptr) --pair->shared->users;
  }
  end_events(*qp, qp->events_completed, pair->async_events);
  delete pair;
  return 0;
}

}  // extern "C"
}  // namespace pacecar::ibverbs
