// One end of a test over libfabric: the objects of the provider under test, and the completions of
// operations. One thread.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/waiting.h"

namespace pacecar::test {

// Throws when a call of libfabric has returned an error.
inline void must(ssize_t result, const char* call) {
  if (result < 0) {
    throw std::runtime_error(std::string(call) + ": " + fi_strerror(static_cast<int>(-result)));
  }
}

struct FiOutcome {
  void* context = nullptr;
  uint64_t flags = 0;
  size_t length = 0;
  uint64_t data = 0;
  uint64_t tag = 0;
  fi_addr_t source = FI_ADDR_NOTAVAIL;
  int error = 0;
  size_t overflow = 0;
};

class FiEnd {
 public:
  struct Options {
    fi_av_type vector = FI_AV_TABLE;
    fi_wait_obj wait = FI_WAIT_NONE;
    int mr_mode = 0;
    fi_progress progress = FI_PROGRESS_MANUAL;
    bool gpus = false;
  };

  FiEnd() : FiEnd(Options()) {}
  explicit FiEnd(const Options& options) {
    fi_info* const hints = fi_allocinfo();
    hints->fabric_attr->prov_name = strdup("pacecar");
    hints->caps =
        FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SOURCE | FI_DIRECTED_RECV | FI_MULTI_RECV;
    if (options.gpus) hints->caps |= FI_HMEM;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = options.mr_mode | (options.gpus ? FI_MR_HMEM : 0);
    hints->domain_attr->data_progress = options.progress;
    const int found = fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints, &info_);
    fi_freeinfo(hints);
    must(found, "fi_getinfo");
    must(fi_fabric(info_->fabric_attr, &fabric, nullptr), "fi_fabric");
    must(fi_domain(fabric, info_, &domain, nullptr), "fi_domain");
    fi_av_attr vector{.type = options.vector};
    must(fi_av_open(domain, &vector, &addresses, nullptr), "fi_av_open");
    fi_cq_attr queue{.format = FI_CQ_FORMAT_TAGGED, .wait_obj = options.wait};
    must(fi_cq_open(domain, &queue, &completions, nullptr), "fi_cq_open");
    fi_cntr_attr counter{};
    must(fi_cntr_open(domain, &counter, &sent, nullptr), "fi_cntr_open");
    must(fi_cntr_open(domain, &counter, &written, nullptr), "fi_cntr_open");
    must(fi_endpoint(domain, info_, &endpoint, nullptr), "fi_endpoint");
    must(fi_ep_bind(endpoint, &addresses->fid, 0), "fi_ep_bind");
    must(fi_ep_bind(endpoint, &completions->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
    must(fi_ep_bind(endpoint, &sent->fid, FI_SEND), "fi_ep_bind");
    must(fi_ep_bind(endpoint, &written->fid, FI_REMOTE_WRITE), "fi_ep_bind");
    must(fi_enable(endpoint), "fi_enable");
  }
  FiEnd(const FiEnd&) = delete;
  FiEnd& operator=(const FiEnd&) = delete;
  ~FiEnd() {
    for (fid_mr* const region : regions_) fi_close(&region->fid);
    fi_close(&endpoint->fid);
    fi_close(&sent->fid);
    fi_close(&written->fid);
    fi_close(&completions->fid);
    fi_close(&addresses->fid);
    fi_close(&domain->fid);
    fi_close(&fabric->fid);
    fi_freeinfo(info_);
  }

  fi_info* info() const { return info_; }
  std::vector<uint8_t> name() const {
    std::vector<uint8_t> name(64);
    size_t bytes = name.size();
    must(fi_getname(&endpoint->fid, name.data(), &bytes), "fi_getname");
    name.resize(bytes);
    return name;
  }
  fi_addr_t add(const void* name) {
    fi_addr_t address = FI_ADDR_NOTAVAIL;
    if (fi_av_insert(addresses, name, 1, &address, 0, nullptr) != 1) {
      throw std::runtime_error("fi_av_insert inserted nothing");
    }
    return address;
  }
  fid_mr* share(void* memory, size_t bytes, uint64_t key) {
    fid_mr* region = nullptr;
    must(fi_mr_reg(domain, memory, bytes, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, key, 0, &region,
                   nullptr),
         "fi_mr_reg");
    regions_.push_back(region);
    return region;
  }

  fid_mr* share_of_gpu(void* memory, size_t bytes, uint64_t key, int gpu = 0) {
    const iovec iov{memory, bytes};
    fi_mr_attr attr{};
    attr.mr_iov = &iov;
    attr.iov_count = 1;
    attr.access = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    attr.requested_key = key;
    attr.iface = FI_HMEM_CUDA;
    attr.device.cuda = gpu;
    fid_mr* region = nullptr;
    must(fi_mr_regattr(domain, &attr, 0, &region), "fi_mr_regattr");
    regions_.push_back(region);
    return region;
  }

  // Repeats the call while it returns -FI_EAGAIN.
  template <typename Call>
  void until_taken(Call call) {
    for (const Waiting waiting;; waiting.pause()) {
      const ssize_t result = call();
      if (result == 0) return;
      if (result != -FI_EAGAIN) must(result, "an operation");
      if (waiting.hangs()) throw std::runtime_error("still -FI_EAGAIN");
      progress();
    }
  }
  // Waits for the next completion; completions that poll() has kept come first.
  FiOutcome next() {
    for (const Waiting waiting;; waiting.pause()) {
      if (auto outcome = poll()) return *outcome;
      if (waiting.hangs()) throw std::runtime_error("nothing completes");
    }
  }
  std::optional<FiOutcome> poll() {
    if (!kept_.empty()) {
      const FiOutcome outcome = kept_.front();
      kept_.erase(kept_.begin());
      return outcome;
    }
    return read();
  }
  // Waits for the completion of that operation; others are kept.
  FiOutcome outcome_of(const void* context) {
    for (const Waiting waiting;; waiting.pause()) {
      for (size_t i = 0; i < kept_.size(); ++i) {
        if (kept_[i].context != context) continue;
        const FiOutcome outcome = kept_[i];
        kept_.erase(kept_.begin() + static_cast<ptrdiff_t>(i));
        return outcome;
      }
      progress();
      if (waiting.hangs()) throw std::runtime_error("an operation hangs");
    }
  }
  void progress() {
    if (auto outcome = read()) kept_.push_back(*outcome);
  }

  fid_fabric* fabric = nullptr;
  fid_domain* domain = nullptr;
  fid_av* addresses = nullptr;
  fid_cq* completions = nullptr;
  fid_cntr* sent = nullptr;
  fid_cntr* written = nullptr;
  fid_ep* endpoint = nullptr;

 private:
  std::optional<FiOutcome> read() {
    fi_cq_tagged_entry entry{};
    fi_addr_t source = FI_ADDR_NOTAVAIL;
    const ssize_t count = fi_cq_readfrom(completions, &entry, 1, &source);
    if (count == 1) {
      return FiOutcome{entry.op_context, entry.flags, entry.len, entry.data, entry.tag, source};
    }
    if (count == -FI_EAGAIN) return std::nullopt;
    fi_cq_err_entry error{};
    must(fi_cq_readerr(completions, &error, 0), "fi_cq_readerr");
    return FiOutcome{error.op_context, error.flags, error.len, error.data,
                     error.tag,        source,      error.err, error.olen};
  }

  fi_info* info_ = nullptr;
  std::vector<fid_mr*> regions_;
  std::vector<FiOutcome> kept_;
};

}  // namespace pacecar::test
