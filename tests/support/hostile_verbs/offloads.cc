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
  std::memcpy(attributes, &all, std::min(size, sizeof all));
  return 0;
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
  context.create_cq_ex = create_cq_ex;
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

}  // namespace pacecar::hostile
