// While it lives, this process can open no descriptor from that number on.
#pragma once

#include <sys/resource.h>

namespace pacecar::test {

class DescriptorLimit {
 public:
  explicit DescriptorLimit(rlim_t first_refused = 0) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit lower{.rlim_cur = first_refused, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &lower);
  }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;
  ~DescriptorLimit() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

}  // namespace pacecar::test
