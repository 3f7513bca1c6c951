#include "transport/verbs/flush_pair.h"

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "transport/base/random_word.h"
#include "transport/base/return_if_error.h"
#include "transport/verbs/errors.h"

namespace pacecar {
namespace {

constexpr uint32_t kFlushes = 1024;  // at a time: far more than NCCL has receives
// How long a device may take for reads of its own host.
constexpr std::chrono::milliseconds kPatience{50};

}  // namespace

FlushPair::FlushPair(const VerbsDevice& device, const LaneConfig& lanes, uint64_t first)
    : device_(device.name),
      port_(device.port),
      config_(lanes),
      first_(first),
      started_(first),
      done_(first) {
  config_.shared_receives = nullptr;
  config_.receives = 0;
  config_.work_requests = std::min({kFlushes, static_cast<uint32_t>(device.attributes.max_qp_wr),
                                    static_cast<uint32_t>(device.attributes.max_cqe)});
}

Result<std::unique_ptr<FlushPair>> FlushPair::create(const VerbsDevice& device,
                                                     const LaneConfig& lanes, uint64_t first) {
  std::unique_ptr<FlushPair> pair(new FlushPair(device, lanes, first));
  pair->completions_.reset(ibv_create_cq(
      device.context.get(), static_cast<int>(pair->config_.work_requests), nullptr, nullptr, 0));
  if (pair->completions_ == nullptr) return verbs_failed("ibv_create_cq", errno, device.name);
  pair->config_.completions = pair->completions_.get();
  pair->memory_.reset(ibv_reg_mr(pair->config_.domain, pair->byte_.data(), pair->byte_.bytes(),
                                 IBV_ACCESS_LOCAL_WRITE));
  if (pair->memory_ == nullptr) {
    return verbs_failed("ibv_reg_mr", errno, device.name, Call::kRegister);
  }
  ASSIGN_OR_RETURN(pair->lane_, make_lane(device, pair->config_, path_label(random_word(), 0)));
  RETURN_IF_ERROR(
      connect_lane(device, pair->config_, *pair->lane_, endpoint_of(device), pair->lane_->local));
  return pair;
}

Result<uint64_t> FlushPair::start(const MemoryRegion& region, const uint8_t* data) {
  poll();
  if (fault_) return tl::unexpected(*fault_);
  if (started_ - done_ == config_.work_requests) {
    return fail(ErrorCode::kUnavailable, "too many flushes at once: wait for earlier ones");
  }
  const ibv_send_wr request{
      .wr_id = started_,
      .opcode = IBV_WR_RDMA_READ,
      .send_flags = IBV_SEND_SIGNALED,
      .wr = {.rdma = {.remote_addr = region.remote(data), .rkey = region.key}}};
  const int error = post_send(*lane_, request, piece_of(byte_.data(), 1, memory_->lkey));
  if (error != 0) return verbs_failed("ibv_post_send", error, device_);
  return started_++;
}

Result<bool> FlushPair::done(uint64_t flush) {
  poll();
  if (flush < first_) {
    return fail(ErrorCode::kSystem,
                device_ + ": a flush of GPU memory has failed: look for the first error");
  }
  if (flush < done_) return true;
  if (fault_) return tl::unexpected(*fault_);
  return false;
}

void FlushPair::finish() {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (done_ < started_ && !fault_ && std::chrono::steady_clock::now() < deadline) poll();
}

// Reads of one connection complete in the order of posting.
void FlushPair::poll() {
  ibv_wc completion;
  while (!fault_ && ibv_poll_cq(completions_.get(), 1, &completion) > 0) {
    if (completion.status == IBV_WC_SUCCESS) {
      done_ = completion.wr_id + 1;
    } else {
      fault_ = Error{ErrorCode::kSystem,
                     describe_fault({device_, port_, "itself (a flush of GPU memory)"},
                                    completion.status, completion.vendor_err)};
    }
  }
}

}  // namespace pacecar
