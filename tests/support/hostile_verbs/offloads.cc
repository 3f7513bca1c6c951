#include "tests/support/hostile_verbs/offloads.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "tests/support/hostile_verbs/device.h"
#include "tests/support/hostile_verbs/world.h"

namespace pacecar::hostile {
namespace {

constexpr int64_t kKbpsPerByteNs = 8'000'000;  // bits per byte, kbps per bit and ns

RequestBuilder& builder(ibv_qp_ex* queue_pair) { return own(queue_pair).builder; }

void require(bool kept, const char* rule) {
  if (kept) return;
  std::fprintf(stderr, "a rule of libibverbs is broken: %s\n", rule);
  std::abort();
}

// --- the device ---

int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* attributes, size_t size) {
  if (input != nullptr && input->comp_mask != 0) return EINVAL;
  Device& device = Device::of(context);
  const std::lock_guard lock(device.lock());
  if (const int error = device.call()) return error;
  const Behavior& behavior = device.behavior();
  ibv_device_attr_ex all{};
  device.describe(all.orig_attr);
  all.hca_core_clock = behavior.clock_khz;
  all.completion_timestamp_mask =
      behavior.clock_khz == 0 ? 0 : ~uint64_t{0} >> (64 - behavior.clock_bits);
  all.packet_pacing_caps = {
      .qp_rate_limit_min = behavior.rate_limit_min,
      .qp_rate_limit_max = behavior.rate_limit_max,
      .supported_qpts =
          behavior.rate_limit_max == 0 ? 0 : 1U << (behavior.rate_limits_rc ? IBV_QPT_RC : 8)};
  std::memcpy(attributes, &all, std::min(size, sizeof all));
  return 0;
}

int modify_qp_rate_limit(ibv_qp* queue_pair, ibv_qp_rate_limit_attr* wanted) {
  Device& device = Device::of(queue_pair->context);
  const std::lock_guard lock(device.lock());
  if (const int error = device.call()) return error;
  return device.limit(own(queue_pair), wanted->rate_limit);
}

// --- posting ---

void wr_start(ibv_qp_ex* queue_pair) { builder(queue_pair).start(); }
void wr_abort(ibv_qp_ex* queue_pair) { builder(queue_pair).clear(); }

// Posts all requests or none.
int wr_complete(ibv_qp_ex* queue_pair) {
  Device& device = Device::of(queue_pair->qp_base.context);
  const std::lock_guard lock(device.lock());
  RequestBuilder& requests = builder(queue_pair);
  ibv_send_wr* const first = requests.finish();
  if (const int error = device.call()) {
    requests.clear();
    return device.death()->takes_posts ? 0 : error;
  }
  int error = requests.broken() ? EINVAL : 0;
  if (error == 0 && own(queue_pair).room() < requests.size()) error = ENOMEM;
  ibv_send_wr* refused = nullptr;
  if (error == 0) error = own(queue_pair).post_send(first, &refused);
  if (error == 0) device.built_requests += requests.size();
  requests.clear();
  return error;
}

void wr_rdma_write(ibv_qp_ex* queue_pair, uint32_t key, uint64_t address) {
  builder(queue_pair).add(*queue_pair, IBV_WR_RDMA_WRITE, IBV_QP_EX_WITH_RDMA_WRITE);
  builder(queue_pair).request().wr.rdma = {.remote_addr = address, .rkey = key};
}

void wr_rdma_write_imm(ibv_qp_ex* queue_pair, uint32_t key, uint64_t address, __be32 immediate) {
  builder(queue_pair)
      .add(*queue_pair, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM);
  builder(queue_pair).request().wr.rdma = {.remote_addr = address, .rkey = key};
  builder(queue_pair).request().imm_data = immediate;
}

void wr_rdma_read(ibv_qp_ex* queue_pair, uint32_t key, uint64_t address) {
  builder(queue_pair).add(*queue_pair, IBV_WR_RDMA_READ, IBV_QP_EX_WITH_RDMA_READ);
  builder(queue_pair).request().wr.rdma = {.remote_addr = address, .rkey = key};
}

void wr_send(ibv_qp_ex* queue_pair) {
  builder(queue_pair).add(*queue_pair, IBV_WR_SEND, IBV_QP_EX_WITH_SEND);
}

void wr_set_sge(ibv_qp_ex* queue_pair, uint32_t key, uint64_t address, uint32_t length) {
  builder(queue_pair).set_piece({.addr = address, .length = length, .lkey = key});
}

void wr_set_sge_list(ibv_qp_ex* queue_pair, size_t count, const ibv_sge* pieces) {
  require(count <= 1, "more pieces than max_send_sge");
  if (count == 0) return builder(queue_pair).set_no_data();
  builder(queue_pair).set_piece(*pieces);
}

void wr_set_inline_data(ibv_qp_ex* queue_pair, void* bytes, size_t length) {
  builder(queue_pair).set_inline(bytes, length);
}

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* wanted) {
  constexpr uint64_t kKnown = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                              IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ;
  constexpr uint32_t kMask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  Device& device = Device::of(context);
  const std::lock_guard lock(device.lock());
  if (const int error = device.call()) return refuse<ibv_qp>(error);
  if (!device.behavior().calls) return refuse<ibv_qp>(EOPNOTSUPP);
  const bool known = wanted->comp_mask == kMask && (wanted->send_ops_flags & ~kKnown) == 0;
  if (!known) return refuse<ibv_qp>(EOPNOTSUPP);
  // ibv_qp_init_attr_ex begins with the members of ibv_qp_init_attr.
  auto& common = *reinterpret_cast<ibv_qp_init_attr*>(wanted);
  ibv_qp* const made = device.create_queue_pair(wanted->pd, common);
  if (made != nullptr) own(made).builder.offer(own(made).extended, wanted->send_ops_flags);
  return made;
}

// --- completions ---

int take_next(ibv_cq_ex* queue) {
  Device& device = Device::of(queue->context);
  const std::lock_guard lock(device.lock());
  CompletionQueue& own_queue = own(queue);
  const auto& death = device.death();
  if (death && death->polls == Death::Polls::kError) return EIO;
  if (death && death->polls != Death::Polls::kFlushed) return ENOENT;
  auto* const common = reinterpret_cast<ibv_cq*>(queue);
  if (device.poll(common, 1, &own_queue.current) == 0) return ENOENT;
  device.call();
  queue->wr_id = own_queue.current.wr_id;
  queue->status = own_queue.current.status;
  return 0;
}

int start_poll(ibv_cq_ex* queue, ibv_poll_cq_attr* attributes) {
  if (attributes->comp_mask != 0) return EINVAL;
  require(!own(queue).polling, "ibv_start_poll within a batch");
  if (!Device::of(queue->context).behavior().threaded) turn();
  const int error = take_next(queue);
  own(queue).polling = error == 0;
  return error;
}

int next_poll(ibv_cq_ex* queue) {
  require(own(queue).polling, "ibv_next_poll without ibv_start_poll");
  return take_next(queue);
}

void end_poll(ibv_cq_ex* queue) {
  require(own(queue).polling, "ibv_end_poll without ibv_start_poll");
  own(queue).polling = false;
}

const ibv_wc& succeeded(ibv_cq_ex* queue) {
  require(own(queue).current.status == IBV_WC_SUCCESS, "a field that is not valid in an error");
  return own(queue).current;
}

// A field that was not requested has no function.
void offer_fields(ibv_cq_ex& queue, uint64_t fields) {
  queue.start_poll = start_poll;
  queue.next_poll = next_poll;
  queue.end_poll = end_poll;
  queue.read_opcode = [](ibv_cq_ex* each) { return succeeded(each).opcode; };
  queue.read_wc_flags = [](ibv_cq_ex* each) { return succeeded(each).wc_flags; };
  queue.read_vendor_err = [](ibv_cq_ex* each) { return own(each).current.vendor_err; };
  if ((fields & IBV_WC_EX_WITH_BYTE_LEN) != 0) {
    queue.read_byte_len = [](ibv_cq_ex* each) { return succeeded(each).byte_len; };
  }
  if ((fields & IBV_WC_EX_WITH_IMM) != 0) {
    queue.read_imm_data = [](ibv_cq_ex* each) { return succeeded(each).imm_data; };
  }
  if ((fields & IBV_WC_EX_WITH_QP_NUM) != 0) {
    queue.read_qp_num = [](ibv_cq_ex* each) { return own(each).current.qp_num; };
  }
  if ((fields & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) != 0) {
    queue.read_completion_ts = [](ibv_cq_ex* each) {
      succeeded(each);
      return own(each).stamp;
    };
  }
}

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* wanted) {
  constexpr uint64_t kKnown = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM |
                              IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
  Device& device = Device::of(context);
  const std::lock_guard lock(device.lock());
  const bool stamps = (wanted->wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) != 0;
  const bool known = wanted->comp_mask == 0 && (wanted->wc_flags & ~kKnown) == 0;
  if (const int error = device.call()) return refuse<ibv_cq_ex>(error);
  if (!known || (stamps && device.behavior().clock_khz == 0) || device.behavior().no_stamps) {
    return refuse<ibv_cq_ex>(EOPNOTSUPP);
  }
  ibv_cq* const made = device.create_completion_queue(static_cast<int>(wanted->cqe),
                                                      wanted->channel, wanted->cq_context);
  if (made == nullptr) return nullptr;
  auto* const queue = reinterpret_cast<ibv_cq_ex*>(made);
  offer_fields(*queue, wanted->wc_flags);
  return queue;
}

}  // namespace

void offer_offloads(verbs_context& context) {
  context.query_device_ex = query_device_ex;
  context.create_qp_ex = create_qp_ex;
  context.create_cq_ex = create_cq_ex;
  context.modify_qp_rate_limit = modify_qp_rate_limit;
}

uint64_t time_stamp(const Behavior& behavior, int64_t now_ns, Prng& prng) {
  if (behavior.clock_khz == 0 || behavior.clock_fault == ClockFault::kZero) return 0;
  constexpr uint64_t kNsPerTickAtOneKhz = 1'000'000;
  constexpr uint64_t kJump = uint64_t{1} << 40;
  uint64_t khz = behavior.clock_khz;
  if (behavior.clock_fault == ClockFault::kSlow) khz /= 2;
  if (behavior.clock_fault == ClockFault::kFast) khz *= 2;
  auto ticks =
      static_cast<uint64_t>(static_cast<unsigned __int128>(now_ns) * khz / kNsPerTickAtOneKhz);
  if (behavior.clock_fault == ClockFault::kJumps && prng.below(8) == 0) ticks += prng.below(kJump);
  return ticks & ~uint64_t{0} >> (64 - behavior.clock_bits);
}

// --- RequestBuilder ---

void RequestBuilder::offer(ibv_qp_ex& queue_pair, uint64_t operations) {
  operations_ = operations;
  queue_pair.wr_start = wr_start;
  queue_pair.wr_complete = wr_complete;
  queue_pair.wr_abort = wr_abort;
  queue_pair.wr_rdma_write = wr_rdma_write;
  queue_pair.wr_rdma_write_imm = wr_rdma_write_imm;
  queue_pair.wr_rdma_read = wr_rdma_read;
  queue_pair.wr_send = wr_send;
  queue_pair.wr_set_sge = wr_set_sge;
  queue_pair.wr_set_sge_list = wr_set_sge_list;
  queue_pair.wr_set_inline_data = wr_set_inline_data;
}

void RequestBuilder::start() {
  require(!open_, "ibv_wr_start within ibv_wr_start");
  clear();
  open_ = true;
  broken_ = false;
}

void RequestBuilder::add(const ibv_qp_ex& queue_pair, ibv_wr_opcode opcode, uint64_t operation) {
  constexpr unsigned kFlags =
      IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;
  require(open_, "a request outside of ibv_wr_start and ibv_wr_complete");
  broken_ = broken_ || (operations_ & operation) == 0 || (queue_pair.wr_flags & ~kFlags) != 0 ||
            !last_takes_data();
  ibv_send_wr& request = built_.emplace_back().request;
  request.wr_id = queue_pair.wr_id;
  request.opcode = opcode;
  request.send_flags = queue_pair.wr_flags & ~static_cast<unsigned>(IBV_SEND_INLINE);
}

bool RequestBuilder::last_takes_data() { return built_.empty() || built_.back().setters == 1; }

void RequestBuilder::set_piece(const ibv_sge& piece) {
  Built& last = built_.back();
  ++last.setters;
  last.piece = piece;
  last.request.sg_list = &last.piece;
  last.request.num_sge = 1;
}

void RequestBuilder::set_no_data() { ++built_.back().setters; }

void RequestBuilder::set_inline(const void* bytes, size_t length) {
  const auto* const begin = static_cast<const uint8_t*>(bytes);
  Built& last = built_.back();
  last.copied.assign(begin, begin + length);  // by the processor, now
  set_piece({.addr = reinterpret_cast<uint64_t>(last.copied.data()),
             .length = static_cast<uint32_t>(length),
             .lkey = 0});
  last.request.send_flags |= IBV_SEND_INLINE;
}

ibv_send_wr* RequestBuilder::finish() {
  require(open_, "ibv_wr_complete without ibv_wr_start");
  broken_ = broken_ || !last_takes_data();
  for (size_t i = 0; i + 1 < built_.size(); ++i) built_[i].request.next = &built_[i + 1].request;
  return broken_ || built_.empty() ? nullptr : &built_.front().request;
}

// --- SendLimit ---

void SendLimit::on_sent(uint64_t bytes, uint32_t burst, int64_t now_ns) {
  if (kbps_ == 0) return;
  const auto time_for = [&](uint64_t count) {
    return static_cast<int64_t>(count) * kKbpsPerByteNs / static_cast<int64_t>(kbps_);
  };
  free_ns_ = std::max(free_ns_, now_ns - time_for(burst)) + time_for(bytes);
}

}  // namespace pacecar::hostile

extern "C" ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* queue_pair) {
  auto& own = *reinterpret_cast<pacecar::hostile::QueuePair*>(queue_pair);
  return own.builder.offered() ? &own.extended : nullptr;
}
