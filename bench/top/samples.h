// The newest samples of all hosts, written by the thread that takes them and read by the display.
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "bench/doctor/documents.h"

namespace pacecar::top {

class HostSamples {
 public:
  // An empty name: this host.
  explicit HostSamples(const std::vector<std::string>& hosts);

  // Adds a host's sample. Each process is paired with its document in the sample before.
  void post(size_t host, doctor::Evidence evidence, std::vector<std::string> notes);
  // Marks a host as lost.
  void end(size_t host, const std::string& why);

  struct Seen {
    doctor::Evidence evidence;       // of all hosts
    std::vector<std::string> notes;  // about directories and answers that could not be read
  };
  Seen all() const;
  size_t hosts() const { return hosts_.size(); }
  // Changes with every post() and end().
  uint64_t version() const;
  // Every host has this many samples, or is lost.
  bool has_samples(uint64_t samples) const;

 private:
  struct Host {
    std::string name;
    doctor::Evidence evidence;
    std::vector<std::string> notes;
    uint64_t samples = 0;
    bool ended = false;
  };

  mutable std::mutex mutex_;
  std::vector<Host> hosts_;
  uint64_t version_ = 0;
};

}  // namespace pacecar::top
