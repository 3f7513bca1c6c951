#include "transport/verbs/completions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/verbs/errors.h"
#include "transport/verbs/lane_ledger.h"

namespace pacecar {
namespace {

constexpr uint32_t kReceivesPerPost = 64;

// Why completions can have no time stamps; empty: they can.
std::string flaw_of_stamps(const ibv_device_attr_ex& device) {
  if (device.completion_timestamp_mask == 0) return "the device has none";
  if (device.hca_core_clock == 0) return "the device does not report its clock's frequency";
  return {};
}

}  // namespace

Result<bool> parse_without_stamps(std::string_view text) {
  if (text.empty() || text == "time_stamps") return !text.empty();
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("PACECAR_EXPERT_VERBS_WITHOUT='{}' names no offload: there is time_stamps",
                  text));
}

Result<CompletionQueue> CompletionQueue::create(const VerbsDevice& device, ibv_pd* domain,
                                                uint32_t shared_receives, uint32_t entries,
                                                bool without_stamps) {
  CompletionQueue made;
  made.no_stamps_ =
      without_stamps ? "PACECAR_EXPERT_VERBS_WITHOUT names them" : flaw_of_stamps(device.extended);
  const auto failed = [&](std::string_view call, int error) {
    return verbs_failed(call, error, device.name);
  };
  ibv_context* context = device.context.get();
  made.channel_.reset(ibv_create_comp_channel(context));
  if (made.channel_ == nullptr) return failed("ibv_create_comp_channel", errno);
  ibv_srq_init_attr attributes{};
  attributes.attr.max_wr =
      std::min(shared_receives, static_cast<uint32_t>(std::max(device.attributes.max_srq_wr, 1)));
  attributes.attr.max_sge = 1;
  made.receives_.reset(ibv_create_srq(domain, &attributes));
  if (made.receives_ == nullptr) return failed("ibv_create_srq", errno);
  const uint32_t receives = attributes.attr.max_wr;  // may be more than requested
  made.receives_room_ = receives;
  const auto most = static_cast<uint32_t>(std::max(device.attributes.max_cqe, 1));
  const uint32_t size = std::min(most, receives + entries);
  if (const int error = made.make_queue(device, size); error != 0) {
    return failed("ibv_create_cq", error);
  }
  made.free_ = size - std::min(size, receives);
  made.receives_batch_ = std::clamp(receives / 8, 1U, kReceivesPerPost);
  for (uint32_t posted = 0; posted < receives;) {
    const uint32_t count = std::min(receives - posted, made.receives_batch_);
    if (const int error = made.post_receives(count); error != 0) {
      return failed("ibv_post_srq_recv", error);
    }
    posted += count;
  }
  return made;
}

int CompletionQueue::make_queue(const VerbsDevice& device, uint32_t entries) {
  if (no_stamps_.empty()) {
    ibv_cq_init_attr_ex wanted{};
    wanted.cqe = entries;
    wanted.channel = channel_.get();
    wanted.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM |
                      IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
    stamped_ = ibv_create_cq_ex(device.context.get(), &wanted);
    if (stamped_ != nullptr) {
      queue_.reset(ibv_cq_ex_to_cq(stamped_));
      clock_.emplace(device.extended.hca_core_clock, device.extended.completion_timestamp_mask);
      return 0;
    }
    no_stamps_ = fmt::format("ibv_create_cq_ex: {}", strerror(errno));
  }
  queue_.reset(
      ibv_create_cq(device.context.get(), static_cast<int>(entries), nullptr, channel_.get(), 0));
  return queue_ == nullptr ? errno : 0;
}

std::string CompletionQueue::offloads() const {
  return no_stamps_.empty() ? "offloads: time_stamps"
                            : "offloads: none; no time_stamps: " + no_stamps_;
}

bool CompletionQueue::reserve(uint32_t entries) {
  if (entries > free_) return false;
  free_ -= entries;
  return true;
}

int CompletionQueue::post_receives(uint32_t count) {
  std::array<ibv_recv_wr, kReceivesPerPost> requests;
  for (uint32_t i = 0; i < count; ++i) {
    requests[i] = {.wr_id = VerbsWorkId{.receive = true}.pack(),
                   .next = i + 1 < count ? &requests[i + 1] : nullptr,
                   .sg_list = nullptr,
                   .num_sge = 0};
  }
  ibv_recv_wr* refused = nullptr;
  return ibv_post_srq_recv(receives_.get(), requests.data(), &refused);
}

void CompletionQueue::on_receive_used() {
  if (++receives_used_ < receives_batch_) return;
  const int error = post_receives(receives_used_);
  const bool full = error == ENOMEM;  // refilled meanwhile
  if (error != 0 && !full && error_ == 0) error_ = error;
  receives_used_ = 0;
}

void CompletionQueue::refill_receives() {
  uint32_t posted = 0;  // bounded, as a failed device may take any number
  while (posted < receives_room_ && post_receives(receives_batch_) == 0) posted += receives_batch_;
  receives_used_ = 0;
}

std::span<const ibv_wc> CompletionQueue::poll(Instant now) {
  emptied_before_ = emptied_;
  if (error_ != 0) return {};
  const int count =
      stamped_ != nullptr ? poll_stamped() : ibv_poll_cq(queue_.get(), kBatch, completions_.data());
  if (count < 0) error_ = EIO;
  if (count > 0) armed_.reset();
  if (count < static_cast<int>(kBatch)) emptied_ = now;
  return std::span(completions_).first(static_cast<size_t>(std::max(count, 0)));
}

// As ibv_poll_cq, with time stamps.
int CompletionQueue::poll_stamped() {
  ibv_poll_cq_attr attributes{};
  int error = ibv_start_poll(stamped_, &attributes);
  if (error != 0) return error == ENOENT ? 0 : -1;
  size_t count = 0;
  do {
    ibv_wc& out = completions_[count];
    out.wr_id = stamped_->wr_id;
    out.status = stamped_->status;
    out.qp_num = ibv_wc_read_qp_num(stamped_);
    stamps_[count] = 0;
    if (out.status != IBV_WC_SUCCESS) {
      out.vendor_err = ibv_wc_read_vendor_err(stamped_);
    } else if (VerbsWorkId::unpack(out.wr_id).receive) {
      out.opcode = ibv_wc_read_opcode(stamped_);
      out.byte_len = ibv_wc_read_byte_len(stamped_);
      out.wc_flags = ibv_wc_read_wc_flags(stamped_);
      out.imm_data = ibv_wc_read_imm_data(stamped_);
    } else {
      stamps_[count] = ibv_wc_read_completion_ts(stamped_);
    }
  } while (++count < kBatch && (error = ibv_next_poll(stamped_)) == 0);
  ibv_end_poll(stamped_);
  return error == 0 || error == ENOENT ? static_cast<int>(count) : -1;
}

Duration CompletionQueue::lateness(size_t index, Instant now) {
  const bool stamped = clock_.has_value() && completions_[index].status == IBV_WC_SUCCESS &&
                       !VerbsWorkId::unpack(completions_[index].wr_id).receive;
  return stamped ? clock_->lateness(stamps_[index], now, emptied_before_) : Duration();
}

void CompletionQueue::notify(Wake wake) {
  ibv_cq* which = nullptr;
  void* context = nullptr;
  unsigned events = 0;
  while (ibv_get_cq_event(channel_.get(), &which, &context) == 0) ++events;
  if (events > 0) {
    ibv_ack_cq_events(queue_.get(), events);
    armed_.reset();
  }
  if (armed_ == wake) return;
  const int error = ibv_req_notify_cq(queue_.get(), wake == Wake::kSolicited ? 1 : 0);
  if (error != 0 && error_ == 0) error_ = error;
  armed_ = wake;
}

}  // namespace pacecar
