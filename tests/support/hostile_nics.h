// NICs, each on its own hostile device; devices make progress when the test calls them. One thread.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/hostile_seeds.h"
#include "tests/support/hostile_verbs/hostile_verbs.h"
#include "transport/verbs/verbs_nic.h"

namespace pacecar::test {

class HostileNics {
 public:
  static constexpr Duration kSilence = Duration::from_ms(300);
  static constexpr uint32_t kQueuePairs = 32;  // per NIC

  explicit HostileNics(hostile::Behavior behavior, size_t count = 2, uint32_t paths = 1,
                       bool without_stamps = false) {
    behavior.threaded = false;
    behavior.devices = static_cast<uint32_t>(count);
    hostile::configure(behavior);
    for (size_t i = 0; i < count; ++i) {
      auto opened = VerbsNic::open({.device = "hostile" + std::to_string(i),
                                    .flows = 16,
                                    .queue_pairs = kQueuePairs,
                                    .regions = 512,
                                    .paths = paths,
                                    .pkey_index = behavior.pkey_table - 1U,
                                    .without_stamps = without_stamps,
                                    .silence_limit = kSilence,
                                    .log = {&write_log, &log_}},
                                   now());
      if (!opened) throw std::runtime_error(opened.error().message);
      nics_.push_back(std::move(*opened));
    }
  }

  ~HostileNics() {
    nics_.clear();
    EXPECT_EQ(hostile::left_over(), "");
  }
  HostileNics(const HostileNics&) = delete;
  HostileNics& operator=(const HostileNics&) = delete;

  size_t size() const { return nics_.size(); }
  const std::string& log() const { return log_; }  // of all NICs
  VerbsNic& operator[](size_t i) { return *nics_[i]; }
  static Instant now() { return Instant::from_ns(hostile::now_ns()); }

  Instant step() {
    for (int turn = 0; turn < kTurns; ++turn) hostile::turn();
    for (const auto& nic : nics_) {
      nic->receive(now());
      nic->on_time(now());
      nic->transmit(now());
    }
    return now();
  }

 private:
  static constexpr int kTurns = 4;  // turns of the devices per step

  static void write_log(void* context, LogLevel, std::string_view line) {
    static_cast<std::string*>(context)->append(line).append("\n");
  }

  std::string log_;
  std::vector<std::unique_ptr<VerbsNic>> nics_;
};

}  // namespace pacecar::test
