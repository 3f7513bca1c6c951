// [hosts]: whether hosts are ideal, or late as a profile tells (bench/profiles).
#include <fmt/format.h>

#include <algorithm>

#include "bench/sim/host_profiles.h"
#include "bench/sim/spec_file.h"
#include "bench/sim/spec_reader.h"
#include "transport/base/invalid.h"
#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

constexpr double kLongestUs = 10e6;

Duration from_us(double us) { return Duration::from_ns(static_cast<int64_t>(us * 1000)); }

Quantiles read_quantiles(SpecReader& reader, std::string_view key,
                         const std::vector<double>& percents) {
  std::vector<Duration> values;
  for (const double us : reader.ascending(key)) values.push_back(from_us(std::min(us, kLongestUs)));
  if (values.size() == percents.size()) return {percents, values};
  reader.complain(key, fmt::format("has {} values, and percent has {}: give as many", values.size(),
                                   percents.size()));
  return {};
}

Result<HostProfile> read_profile(const SpecValue& value, const std::string& name) {
  SpecReader reader(value, "the host profile");
  const auto duration = [&reader](std::string_view key) {
    return from_us(reader.number(key, 0, 0, kLongestUs));
  };
  reader.text("source", "");  // these two are for readers
  reader.table("seen");
  const std::vector<double> percents = reader.ascending("percent");
  if (percents.size() < 2 || percents.front() != 0 || percents.back() != 100) {
    reader.complain("percent", "does not go from 0 to 100");
  }
  HostProfile profile{.name = name,
                      .wake = read_quantiles(reader, "wake_us", percents),
                      .pause = read_quantiles(reader, "pause_us", percents),
                      .pauses_per_second = reader.number("pauses_per_second", 0, 0, 1e6),
                      .turn = duration("turn_us"),
                      .packet = duration("packet_us"),
                      .message = duration("message_us"),
                      .burst_bytes = reader.bytes("burst_bytes", 0),
                      .joins_packets = reader.flag("joins_packets", false),
                      .stack = duration("stack_us"),
                      .times_arrivals = reader.flag("times_arrivals", true)};
  RETURN_IF_ERROR(reader.finish());
  return profile;
}

}  // namespace

Result<HostProfile> read_hosts(const SpecValue& value, const std::string& base_dir) {
  SpecReader reader(value, "[hosts]");
  const std::string model = reader.text("model", "ideal");
  RETURN_IF_ERROR(reader.finish());
  if (model == "ideal") return HostProfile();
  const auto named = host_profiles();
  const auto found = std::ranges::find(named, model, &NamedProfile::name);
  if (found != named.end()) {
    ASSIGN_OR_RETURN(const auto profile, parse_spec(found->text, model));
    return read_profile(profile, model);
  }
  if (!model.ends_with(".toml")) {
    return invalid(
        "{}: [hosts] model is '{}': write ideal, udp, dpdk, verbs or the name of a "
        "profile's file, such as profiles/ranks4.toml",
        value.place.text(), model);
  }
  ASSIGN_OR_RETURN(const auto profile, read_spec(path_in(base_dir, model)));
  return read_profile(profile, model);
}

}  // namespace pacecar
