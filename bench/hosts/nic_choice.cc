#include "bench/hosts/nic_choice.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench/hosts/reach.h"
#include "bench/perf/json_fields.h"

namespace pacecar::hosts {
namespace {

constexpr Duration kLimit = Duration::from_s(60);
constexpr size_t kMaxName = 256;

}  // namespace

Result<std::string> nic_with_address(const std::string& info, const std::string& address) {
  const auto document = nlohmann::json::parse(info, nullptr, /*allow_exceptions=*/false);
  std::vector<std::string> found;
  if (document.is_object() && document.contains("nics") && document["nics"].is_array()) {
    for (const auto& nic : document["nics"]) {
      const auto name = perf::text_field(nic, "name", kMaxName);
      const auto its = perf::text_field(nic, "address", kMaxName);
      if (!name || !its) continue;
      if (*its == address) return *name;
      found.push_back(fmt::format("{} ({})", *name, *its));
    }
  }
  return fail(ErrorCode::kNotFound,
              fmt::format("none of its NICs has the address {}: it has {}", address,
                          found.empty() ? "none" : fmt::format("{}", fmt::join(found, ", "))));
}

void choose_nics(Crew& crew, bool unnamed, std::vector<std::vector<std::string>>& flags,
                 const perf::Console& console) {
  const auto asked = [&](size_t host) {
    const bool addressed = unnamed && !crew.host(host).address.empty();
    return addressed ? std::vector<std::string>{"info", "--json"} : std::vector<std::string>();
  };
  const auto ends = run_on_all(crew, asked, kLimit, console);
  for (size_t i = 0; i < ends.size(); ++i) {
    if (!ends[i]) continue;
    const auto nic = ends[i]->code == 0 ? nic_with_address(ends[i]->output, crew.host(i).address)
                                        : fail(ErrorCode::kPeer, why_failed(*ends[i]));
    if (nic) {
      flags[i] = {"--ib-dev", *nic};
      continue;
    }
    console.error(fmt::format("{}: {}", crew.host(i).name, nic.error().message));
    crew.lose(i, nic.error().message);
  }
}

}  // namespace pacecar::hosts
