// A communicator's ranks and what each collective took each of them. Pure values; seconds.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/doctor/job.h"

namespace pacecar::doctor {

// Which collective of a communicator: its operation, and the number among those.
using CollectiveKey = std::pair<std::string, uint64_t>;

// A rank's part of a collective whose messages are all through.
struct Part {
  double began_s = 0;  // on the rank's clock
  double ended_s = 0;
  bool detailed = true;  // what follows is known
  double first_s = 0;    // until the GPU had given its first message
  double taken_s = 0;    // that the GPU took what had come, summed over messages
};

// A rank's messages to a peer, or from one.
struct Messages {
  std::vector<double> took_s;  // the network's time for each, as this end has measured it
  double busy = 0;             // how much of the time one or more were waited for
};

struct Member {
  const Process* process = nullptr;
  const Profile* profile = nullptr;
  std::vector<CollectiveKey> order;  // as they were begun
  std::map<CollectiveKey, const ProfiledEvent*> begun;
  std::map<CollectiveKey, Part> parts;  // between the looks
  std::map<int64_t, Messages> sent;     // by peer
  std::map<int64_t, Messages> received;
};

// Members that share a communicator, by its number; those of one rank only are left out.
std::map<std::string, std::vector<Member>> communicators(const Job& job);

}  // namespace pacecar::doctor
