#include "bench/doctor/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/perf/json_fields.h"
#include "transport/base/return_if_error.h"

namespace pacecar::doctor {
namespace {

using Json = nlohmann::json;

constexpr size_t kEventNumbers = 20;
constexpr uint64_t kTooMuch = uint64_t{1} << 60;
constexpr size_t kMaxCommunicatorName = 64;
constexpr uint64_t kProfileVersion = 1;

// The names of the numbers that net_plugin/profiler has for collectives.
constexpr std::array<std::string_view, 11> kOperations = {
    "Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce", "SendRecv",
    "Send",      "Recv",   "AlltoAll",  "Scatter",       "Gather"};

tl::unexpected<Error> unusable(const std::string& what) {
  return fail(ErrorCode::kPeer,
              "there is no usable '" + what + "': run the same version of pacecar everywhere");
}

Result<ProfiledEvent> read_event(const Json& numbers) {
  if (!numbers.is_array() || numbers.size() != kEventNumbers) return unusable("operations");
  const auto usable = [](const Json& one) {
    return one.is_number_integer() &&
           (one.is_number_unsigned() ? one.get<uint64_t>() < kTooMuch : one.get<int64_t>() >= -1);
  };
  if (!std::all_of(numbers.begin(), numbers.end(), usable)) return unusable("operations");
  const auto number = [&](size_t i) { return numbers[i].get<uint64_t>(); };
  constexpr auto kLastKind = static_cast<uint64_t>(ProfiledKind::kNetwork);
  if (number(1) > kLastKind) return unusable("operations");
  return ProfiledEvent{
      .id = number(0),
      .kind = static_cast<ProfiledKind>(number(1)),
      .operation = number(2) < kOperations.size() ? std::string(kOperations[number(2)]) : "another",
      .datatype = number(3),
      .channel = number(4),
      .sending = number(5) != 0,
      .peer = numbers[6].get<int64_t>(),
      .number = number(7),
      .amount = number(8),
      .parent = number(9),
      .start_ns = number(10),
      .stop_ns = number(11),
      .moment_ns = number(12),
      .first_ns = number(13),
      .bytes = number(14),
      .waits = {number(15), number(16), number(17), number(18)},
      .detailed = number(19) != 0};
}

Result<std::vector<ProfiledEvent>> read_events(const Json& object, const char* key) {
  const auto list = object.find(key);
  if (list == object.end() || !list->is_array()) return unusable(key);
  std::vector<ProfiledEvent> events;
  for (const Json& one : *list) {
    ASSIGN_OR_RETURN(auto event, read_event(one));
    events.push_back(std::move(event));
  }
  return events;
}

Result<Profile> read_profile(const Json& object) {
  Profile profile;
  ASSIGN_OR_RETURN(profile.communicator,
                   perf::text_field(object, "communicator", kMaxCommunicatorName));
  const auto rank = perf::number_field(object, "rank", -1, 1e9);
  if (!rank) return unusable("rank");
  profile.rank = static_cast<int64_t>(*rank);
  ASSIGN_OR_RETURN(profile.operations, read_events(object, "operations"));
  ASSIGN_OR_RETURN(profile.steps, read_events(object, "steps"));
  return profile;
}

struct Moment {
  uint64_t now_ns = 0;
  uint64_t waited_ns = 0;
};

Result<Moment> read_moment(const Json& page) {
  const auto version =
      perf::unsigned_field(page, "schema_version", kProfileVersion, kProfileVersion);
  const auto now = perf::unsigned_field(page, "now_ns", 0, UINT64_MAX);
  const auto processor = page.is_object() ? page.find("processor") : page.end();
  if (!version || !now || processor == page.end()) return unusable("processor");
  ASSIGN_OR_RETURN(const auto waited, perf::unsigned_field(*processor, "waited_ns", 0, UINT64_MAX));
  return Moment{*now, waited};
}

}  // namespace

Result<std::vector<Profile>> read_profiles(const Json& before, const Json& now) {
  ASSIGN_OR_RETURN(const auto moment, read_moment(now));
  ASSIGN_OR_RETURN(const auto earlier,
                   before.is_null() ? Result<Moment>(moment) : read_moment(before));
  const auto list = now.find("communicators");
  if (list == now.end() || !list->is_array()) return unusable("communicators");
  std::vector<Profile> profiles;
  for (const Json& one : *list) {
    ASSIGN_OR_RETURN(auto profile, read_profile(one));
    profile.now_ns = moment.now_ns;
    if (earlier.now_ns < moment.now_ns && earlier.waited_ns <= moment.waited_ns) {
      profile.since_ns = earlier.now_ns;
      profile.starved = static_cast<double>(moment.waited_ns - earlier.waited_ns) /
                        static_cast<double>(moment.now_ns - earlier.now_ns);
    }
    profiles.push_back(std::move(profile));
  }
  return profiles;
}

std::string name_of(const Process& process) {
  const std::string who = process.rank ? fmt::format("rank {}", *process.rank) : process.program;
  return fmt::format("{} ({}, pid {})", who, process.host, process.pid);
}

std::string name_of(const SilentProcess& process) {
  return fmt::format("pid {} on {}", process.pid, process.host);
}

void Job::add(Process process) {
  const bool known = std::any_of(process.nics.begin(), process.nics.end(),
                                 [this](const Nic& nic) { return nics_.contains(nic.identity); });
  if (known) return;
  for (size_t i = 0; i < process.nics.size(); ++i) {
    nics_[process.nics[i].identity] = {processes_.size(), i};
  }
  processes_.push_back(std::move(process));
}

std::optional<Job::Place> Job::find(const std::string& identity) const {
  const auto found = nics_.find(identity);
  return found == nics_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace pacecar::doctor
