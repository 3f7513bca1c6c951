#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <optional>
#include <ranges>
#include <span>
#include <utility>

#include "transport/base/invalid.h"
#include "transport/base/return_if_error.h"
#include "transport/sim/text_file.h"
#include "transport/sim/topologies.h"

namespace pacecar {
namespace {

// A line of the header or of a tier: its words in lower case, and the range of its number.
struct Key {
  std::string_view name;
  uint32_t min;
  uint32_t max;
};
enum HeaderKey { kNodes, kTiers, kPodsize, kHeaderKeys };
constexpr std::array<Key, kHeaderKeys> kHeader = {Key{"nodes", 1, 1 << 20}, Key{"tiers", 2, 3},
                                                  Key{"podsize", 1, 1 << 20}};
enum TierKey { kSpeed, kLatency, kDown, kUp, kBundle, kSwitchLatency, kOversubscribed, kTierKeys };
constexpr std::array<Key, kTierKeys> kTier = {Key{"downlink_speed_gbps", 1, 1'000'000},
                                              Key{"downlink_latency_ns", 0, 1'000'000'000},
                                              Key{"radix_down", 1, 1 << 20},
                                              Key{"radix_up", 1, 1 << 20},
                                              Key{"bundle", 1, 1 << 20},
                                              Key{"switch_latency_ns", 0, 1'000'000'000},
                                              Key{"oversubscribed", 1, 1 << 20}};

struct Value {
  uint32_t number = 0;
  size_t line = 0;  // 0: not given
};

std::string small_letters(std::string_view word) {
  std::string text(word);
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

class TopoFile {
 public:
  explicit TopoFile(const std::string& file) : file_(file) {}

  Result<void> read(std::string_view text) {
    for (const TextLine& line : text_lines(text)) {
      if (auto taken = take(line); !taken) return taken;
    }
    return check_complete();
  }

  Result<Topology> build() const {
    RETURN_IF_ERROR(check_numbers());
    auto topology = header(kTiers) == 2 ? make_leaf_spine(leaf_spine()) : make_fat_tree(fat_tree());
    if (!topology) return invalid("{}: {}", file_, topology.error().message);
    topology->name = file_;
    return topology;
  }

 private:
  template <typename... Args>
  tl::unexpected<Error> error_at(size_t line, fmt::format_string<Args...> text,
                                 Args&&... args) const {
    return bad_line(file_, line, fmt::format(text, std::forward<Args>(args)...));
  }

  Result<void> take(const TextLine& line) {
    const std::string name = small_letters(line.words[0]);
    if (name == "tier") return begin_tier(line);
    if (name == "queue_up" || name == "queue_down") {
      return error_at(line.number,
                      "a .topo file has only the network's shape; remove {}, and give the size of "
                      "queues with the switches of the experiment",
                      shown(line.words[0]));
    }
    if (tier_ < 0) return assign(line, name, kHeader, header_);
    if (tier_ == 2 && name == kTier[kUp].name) {
      return error_at(line.number, "nothing is above tier 2; remove Radix_up");
    }
    return assign(line, name, kTier, tiers_[static_cast<size_t>(tier_)]);
  }

  Result<void> begin_tier(const TextLine& line) {
    const auto number = line.words.size() == 2 ? parse_number(line.words[1], 2) : std::nullopt;
    if (!number) return error_at(line.number, "write 'Tier' and its number: 0, 1 or 2");
    if (tier_lines_[*number] != 0) {
      return error_at(line.number, "tier {} was given in line {} already; keep one of them",
                      *number, tier_lines_[*number]);
    }
    tier_ = static_cast<int>(*number);
    tier_lines_[*number] = line.number;
    return {};
  }

  Result<void> assign(const TextLine& line, const std::string& name, std::span<const Key> keys,
                      std::span<Value> values) {
    const auto key = std::ranges::find(keys, name, &Key::name);
    if (key == keys.end()) {
      return error_at(line.number, "'{}' is not known {}; use {}", shown(line.words[0]),
                      tier_ < 0 ? "before the first Tier" : "in a tier",
                      fmt::join(keys | std::views::transform(&Key::name), ", "));
    }
    Value& value = values[static_cast<size_t>(key - keys.begin())];
    if (value.line != 0) {
      return error_at(line.number, "{} was given in line {} already; keep one of them",
                      shown(line.words[0]), value.line);
    }
    const auto number =
        line.words.size() == 2 ? parse_number(line.words[1], key->max) : std::nullopt;
    if (!number || *number < key->min) {
      return error_at(line.number, "write {} and one whole number from {} to {}",
                      shown(line.words[0]), key->min, key->max);
    }
    value = {static_cast<uint32_t>(*number), line.number};
    return {};
  }

  Result<void> missing(std::string_view name, const std::string& where) const {
    return invalid("{}: {} is missing{}; add it", file_, name, where);
  }

  Result<void> check_complete() const {
    for (size_t key = 0; key < kHeaderKeys; ++key) {
      if (header_[key].line == 0) return missing(kHeader[key].name, " before the first Tier");
    }
    for (size_t tier = 0; tier < 3; ++tier) {
      const bool wanted = tier < header(kTiers);
      if (wanted && tier_lines_[tier] == 0) return missing(fmt::format("Tier {}", tier), "");
      if (!wanted && tier_lines_[tier] != 0) {
        return error_at(tier_lines_[tier], "tier {} is one too many; remove it or raise Tiers",
                        tier);
      }
      for (const TierKey key : {kSpeed, kLatency, kDown, kUp}) {
        const bool needed = wanted && (key != kUp || tier + 1 < header(kTiers));
        if (needed && tiers_[tier][key].line == 0) {
          return missing(kTier[key].name, fmt::format(" in tier {}", tier));
        }
      }
    }
    return {};
  }

  // Checks that the numbers of the tiers are consistent.
  Result<void> check_numbers() const {
    if (bundle(0) != 1) {
      return error_at(tiers_[0][kBundle].line, "a host has one cable; make the bundle of tier 0 1");
    }
    if (header(kNodes) % header(kPodsize) != 0 ||
        (header(kTiers) == 2 && header(kNodes) != header(kPodsize))) {
      return error_at(header_[kPodsize].line,
                      "{} nodes are not made of pods of {}; with two tiers the only pod has all "
                      "nodes, with three make Nodes a multiple of Podsize",
                      header(kNodes), header(kPodsize));
    }
    if (header(kPodsize) % get(0, kDown) != 0) {
      return error_at(
          tiers_[0][kDown].line,
          "leaves of {} hosts do not make up a pod of {}; make Podsize a multiple of Radix_down",
          get(0, kDown), header(kPodsize));
    }
    for (size_t tier = 0; tier + 1 < header(kTiers); ++tier) {
      if (auto fits = check_between(tier); !fits) return fits;
    }
    return {};
  }

  // Checks that the cables up from `tier` equal those down from the tier above.
  Result<void> check_between(size_t tier) const {
    const uint32_t below = tier == 0 ? leaves_per_pod() : header(kNodes) / header(kPodsize);
    if (get(tier, kUp) % bundle(tier + 1) != 0) {
      return error_at(tiers_[tier][kUp].line,
                      "{} cables up do not make bundles of {}; make Radix_up a multiple of the "
                      "bundle of tier {}",
                      get(tier, kUp), bundle(tier + 1), tier + 1);
    }
    const uint64_t down = uint64_t{below} * bundle(tier + 1);
    if (get(tier + 1, kDown) != down) {
      return error_at(
          tiers_[tier + 1][kDown].line,
          "a switch of tier {} has a bundle of {} to each of {} {} below; make its Radix_down {}",
          tier + 1, bundle(tier + 1), below, tier == 0 ? "leaves" : "pods", down);
    }
    const Value& oversubscribed = tiers_[tier][kOversubscribed];
    const uint64_t in = uint64_t{get(tier, kDown)} * get(tier, kSpeed);
    const uint64_t out = uint64_t{get(tier, kUp)} * get(tier + 1, kSpeed);
    if (oversubscribed.line != 0 && in != out * oversubscribed.number) {
      return error_at(oversubscribed.line,
                      "a switch of tier {} has {} Gb/s down and {} Gb/s up, which is no "
                      "oversubscription of {}; correct it, the radixes or the speeds, or remove it",
                      tier, in, out, oversubscribed.number);
    }
    return {};
  }

  LeafSpineSpec leaf_spine() const {
    return {.hosts = header(kNodes),
            .hosts_per_leaf = get(0, kDown),
            .spines = get(0, kUp) / bundle(1),
            .bundle = bundle(1),
            .cable = cable(0),
            .uplink = cable(1)};
  }

  FatTreeSpec fat_tree() const {
    return {.pods = header(kNodes) / header(kPodsize),
            .leaves_per_pod = leaves_per_pod(),
            .hosts_per_leaf = get(0, kDown),
            .aggregations_per_pod = get(0, kUp) / bundle(1),
            .cores_per_aggregation = get(1, kUp) / bundle(2),
            .leaf_bundle = bundle(1),
            .core_bundle = bundle(2),
            .cable = cable(0),
            .leaf_uplink = cable(1),
            .core_uplink = cable(2)};
  }

  // The cables below a tier's switches.
  CableSpec cable(size_t tier) const {
    const uint32_t switches =
        get(tier, kSwitchLatency) + (tier == 0 ? 0 : get(tier - 1, kSwitchLatency));
    return {.rate = Rate::from_gbps(get(tier, kSpeed)),
            .delay = Duration::from_ns(get(tier, kLatency) + switches / 2)};
  }

  uint32_t leaves_per_pod() const { return header(kPodsize) / get(0, kDown); }
  uint32_t bundle(size_t tier) const { return std::max(1U, get(tier, kBundle)); }
  uint32_t header(HeaderKey key) const { return header_[key].number; }
  uint32_t get(size_t tier, TierKey key) const { return tiers_[tier][key].number; }

  const std::string& file_;
  int tier_ = -1;  // whose lines are read now; -1: the header
  std::array<Value, kHeaderKeys> header_;
  std::array<std::array<Value, kTierKeys>, 3> tiers_;
  std::array<size_t, 3> tier_lines_{};
};

}  // namespace

Result<Topology> parse_topo(std::string_view text, const std::string& file) {
  TopoFile topo(file);
  RETURN_IF_ERROR(topo.read(text));
  return topo.build();
}

Result<Topology> read_topo_file(const std::string& path) {
  ASSIGN_OR_RETURN(const auto text, read_text_file(path));
  return parse_topo(text, path);
}

}  // namespace pacecar
