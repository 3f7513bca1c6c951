// The ranks of a communicator, and each rank's times in each collective, in seconds. Pure.
#pragma once

#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/doctor/job.h"

namespace pacecar::doctor {

// A collective of a communicator: its operation, and its number among those of that operation.
using CollectiveKey = std::pair<std::string, uint64_t>;

// A rank's part of a collective, once all its messages are done.
struct Part {
  double began_s = std::numeric_limits<double>::infinity();  // on the rank's clock
  double ended_s = 0;
  bool detailed = true;  // the next one is known
  double first_s = 0;    // until the GPU's first message was ready
};

// A rank's messages to a peer, or from one.
struct Messages {
  std::vector<double> took_s;  // the network's time for each, as this end has measured it
  double busy = 0;             // the share of time in which at least one was waited for
};

struct Member {
  const Process* process = nullptr;
  const Profile* profile = nullptr;
  std::vector<CollectiveKey> order;  // as they were begun
  std::map<CollectiveKey, const ProfiledEvent*> begun;
  std::map<CollectiveKey, Part> parts;  // between the samples
  std::map<int64_t, Messages> sent;     // by peer
  std::map<int64_t, Messages> received;
  std::vector<double> taken_s;  // the GPU's time to take each received message
};

// The members of each communicator, by its name; those with one rank are left out.
std::map<std::string, std::vector<Member>> communicators(const Job& job);

}  // namespace pacecar::doctor
