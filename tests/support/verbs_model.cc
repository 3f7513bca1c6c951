#include "tests/support/verbs_model.h"

#include <algorithm>

namespace pacecar::test {
namespace {

std::string describe(const ibv_wc& wc) {
  return "completion of " + std::to_string(wc.wr_id) + " (kind " + std::to_string(wc.opcode) +
         ", " + ibv_wc_status_str(wc.status) + ", " + std::to_string(wc.byte_len) + " bytes)";
}

}  // namespace

std::string ModelQueue::on_completion(const ibv_wc& wc) {
  if (wc.status == IBV_WC_SUCCESS)
    return failed_ ? describe(wc) + " behind a failure" : on_success(wc);
  if (wc.status == IBV_WC_WR_FLUSH_ERR) {
    if (!failed_ && !may_flush_) return describe(wc) + ": nothing has failed";
  } else if (failed_) {
    return describe(wc) + ": not the first failure";
  }
  // Unsignaled work requests before it have succeeded.
  while (!failed_ && !waiting_.empty() && waiting_.front().wr_id != wc.wr_id &&
         !waiting_.front().signaled && waiting_.front().status == IBV_WC_SUCCESS) {
    waiting_.pop_front();
  }
  if (waiting_.empty() || waiting_.front().wr_id != wc.wr_id)
    return describe(wc) + ": out of order";
  const Expected expected = waiting_.front();
  waiting_.pop_front();
  const bool first = !failed_;
  failed_ = true;
  if (first && wc.status != IBV_WC_WR_FLUSH_ERR && wc.status != expected.status && !may_flush_) {
    return describe(wc) + " instead of " + ibv_wc_status_str(expected.status);
  }
  return {};
}

std::string ModelQueue::on_success(const ibv_wc& wc) {
  while (!waiting_.empty() && waiting_.front().wr_id != wc.wr_id && !waiting_.front().signaled) {
    waiting_.pop_front();
  }
  if (waiting_.empty() || waiting_.front().wr_id != wc.wr_id)
    return describe(wc) + ": out of order";
  const Expected expected = waiting_.front();
  waiting_.pop_front();
  if (!expected.signaled) return describe(wc) + ": nobody wanted it";
  if (expected.status != IBV_WC_SUCCESS) return describe(wc) + ": it must fail";
  if (wc.opcode != expected.opcode) return describe(wc) + ": of another kind";
  const bool received = (wc.opcode & IBV_WC_RECV) != 0;
  if (received && wc.byte_len != expected.bytes) return describe(wc) + ": of another size";
  const bool immediate = (wc.wc_flags & IBV_WC_WITH_IMM) != 0;
  if (received &&
      (immediate != expected.with_immediate || (immediate && wc.imm_data != expected.immediate))) {
    return describe(wc) + ": another immediate";
  }
  const std::string wrong = expected.check ? expected.check() : std::string();
  return wrong.empty() ? wrong : describe(wc) + ": " + wrong;
}

bool ModelQueue::drained() const {
  return std::ranges::none_of(waiting_, [this](const Expected& expected) {
    return expected.signaled || expected.status != IBV_WC_SUCCESS || failed_;
  });
}

void ModelQueue::clear() {
  waiting_.clear();
  may_flush_ = failed_ = false;
}

}  // namespace pacecar::test
