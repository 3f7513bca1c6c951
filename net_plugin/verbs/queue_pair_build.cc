// ibv_wr_*: work requests that are built field by field, and posted together.
#include "net_plugin/verbs/queue_pair.h"

namespace pacecar::ibverbs {
namespace {

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

void begin_remote(ibv_qp_ex* qp, ibv_wr_opcode opcode, uint32_t key, uint64_t address) {
  ibv_send_wr& wr = begin(qp, opcode).wr;
  wr.wr.rdma.rkey = key;
  wr.wr.rdma.remote_addr = address;
}

void begin_atomic(ibv_qp_ex* qp, ibv_wr_opcode opcode, uint32_t key, uint64_t address,
                  uint64_t compare_add, uint64_t swap) {
  ibv_send_wr& wr = begin(qp, opcode).wr;
  wr.wr.atomic.rkey = key;
  wr.wr.atomic.remote_addr = address;
  wr.wr.atomic.compare_add = compare_add;
  wr.wr.atomic.swap = swap;
}

void add_inline(ibv_qp_ex* qp, const void* data, size_t length) {
  Built& built = newest(qp);
  const auto* const bytes = static_cast<const uint8_t*>(data);
  built.wr.send_flags |= IBV_SEND_INLINE;
  built.inline_bytes.insert(built.inline_bytes.end(), bytes, bytes + length);
}

int complete(ibv_qp_ex* qp) {
  QueuePair& pair = queue_pair_of(qp);
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
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(pair.base(), &built[0].wr, &bad);
}

}  // namespace

void set_build_calls(QueuePair& qp) {
  qp.wr_start = [](ibv_qp_ex* pair) { queue_pair_of(pair).built_count = 0; };
  qp.wr_abort = [](ibv_qp_ex* pair) { queue_pair_of(pair).built_count = 0; };
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
    begin_remote(pair, IBV_WR_RDMA_WRITE, key, address);
  };
  qp.wr_rdma_write_imm = [](ibv_qp_ex* pair, uint32_t key, uint64_t address, __be32 immediate) {
    begin_remote(pair, IBV_WR_RDMA_WRITE_WITH_IMM, key, address);
    newest(pair).wr.imm_data = immediate;
  };
  qp.wr_rdma_read = [](ibv_qp_ex* pair, uint32_t key, uint64_t address) {
    begin_remote(pair, IBV_WR_RDMA_READ, key, address);
  };
  qp.wr_atomic_cmp_swp = [](ibv_qp_ex* pair, uint32_t key, uint64_t address, uint64_t compare,
                            uint64_t swap) {
    begin_atomic(pair, IBV_WR_ATOMIC_CMP_AND_SWP, key, address, compare, swap);
  };
  qp.wr_atomic_fetch_add = [](ibv_qp_ex* pair, uint32_t key, uint64_t address, uint64_t add) {
    begin_atomic(pair, IBV_WR_ATOMIC_FETCH_AND_ADD, key, address, add, 0);
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

}  // namespace pacecar::ibverbs
