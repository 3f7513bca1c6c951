#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <map>
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

// What a line may begin with, in lower case, and the range of the number that follows.
struct Key {
  std::string_view name;
  uint32_t min;
  uint32_t max;
};
constexpr Key kHeaderKeys[] = {{"nodes", 1, 1 << 20}, {"tiers", 2, 3}, {"podsize", 1, 1 << 20}};
constexpr Key kTierKeys[] = {{"downlink_speed_gbps", 1, 1'000'000},
                             {"downlink_latency_ns", 0, 1'000'000'000},
                             {"radix_down", 1, 1 << 20},
                             {"radix_up", 1, 1 << 20},
                             {"bundle", 1, 1 << 20},
                             {"switch_latency_ns", 0, 1'000'000'000},
                             {"oversubscribed", 1, 1 << 20}};
constexpr size_t kRequired = 4;  // of the keys of a tier; radix_up, the last one, not on top

// Lines up to the first Tier, or of one tier.
struct Section {
  struct Value {
    uint32_t number = 0;
    size_t line = 0;  // 0: not given
  };
  size_t line = 0;  // where it begins; 0: it is missing
  std::map<std::string_view, Value> values;

  Value find(std::string_view key) const {
    const auto found = values.find(key);
    return found == values.end() ? Value() : found->second;
  }
};

class TopoFile {
 public:
  explicit TopoFile(const std::string& file) : file_(file) {}

  Result<void> read(std::string_view text) {
    for (const TextLine& line : text_lines(text)) RETURN_IF_ERROR(read(line));
    return check_complete();
  }

  Result<Topology> build() const {
    RETURN_IF_ERROR(check_numbers());
    auto topology = tiers() == 2 ? make_leaf_spine(leaf_spine()) : make_fat_tree(fat_tree());
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

  Result<void> read(const TextLine& line) {
    std::string name(line.words[0]);
    std::ranges::transform(name, name.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (name == "tier") return begin_tier(line);
    if (name == "queue_up" || name == "queue_down") {
      return error_at(line.number,
                      "a .topo file has only the network's shape; remove {}, and give the size of "
                      "queues with the switches of the experiment",
                      shown(line.words[0]));
    }
    if (section_ == &header_) return assign(line, name, kHeaderKeys, "before the first Tier");
    if (section_ == &tiers_[2] && name == "radix_up") {
      return error_at(line.number, "nothing is above tier 2; remove Radix_up");
    }
    return assign(line, name, kTierKeys, "in a tier");
  }

  Result<void> begin_tier(const TextLine& line) {
    const auto number = line.words.size() == 2 ? parse_number(line.words[1], 2) : std::nullopt;
    if (!number) return error_at(line.number, "write 'Tier' and its number: 0, 1 or 2");
    section_ = &tiers_[*number];
    if (section_->line != 0) {
      return error_at(line.number, "tier {} was given in line {} already; keep one of them",
                      *number, section_->line);
    }
    section_->line = line.number;
    return {};
  }

  Result<void> assign(const TextLine& line, std::string_view name, std::span<const Key> keys,
                      std::string_view where) {
    const std::string word = shown(line.words[0]);
    const auto key = std::ranges::find(keys, name, &Key::name);
    if (key == keys.end()) {
      return error_at(line.number, "'{}' is not known {}; use {}", word, where,
                      fmt::join(keys | std::views::transform(&Key::name), ", "));
    }
    const auto number =
        line.words.size() == 2 ? parse_number(line.words[1], key->max) : std::nullopt;
    if (!number || *number < key->min) {
      return error_at(line.number, "write {} and one whole number from {} to {}", word, key->min,
                      key->max);
    }
    const Section::Value value{static_cast<uint32_t>(*number), line.number};
    const auto [given, is_new] = section_->values.try_emplace(key->name, value);
    if (is_new) return {};
    return error_at(line.number, "{} was given in line {} already; keep one of them", word,
                    given->second.line);
  }

  Result<void> check_complete() const {
    const auto missing = [&](std::string_view name, const std::string& where) {
      return invalid("{}: {} is missing{}; add it", file_, name, where);
    };
    for (const Key& key : kHeaderKeys) {
      if (header_.find(key.name).line == 0) return missing(key.name, " before the first Tier");
    }
    for (size_t i = 0; i < tiers_.size(); ++i) {
      const Section& tier = tiers_[i];
      if (i >= tiers()) {
        if (tier.line == 0) continue;
        return error_at(tier.line, "tier {} is one too many; remove it or raise Tiers", i);
      }
      if (tier.line == 0) return missing(fmt::format("Tier {}", i), "");
      for (const Key& key : std::span(kTierKeys).first(kRequired - (i + 1 == tiers() ? 1 : 0))) {
        if (tier.find(key.name).line == 0) return missing(key.name, fmt::format(" in tier {}", i));
      }
    }
    return {};
  }

  // Checks that the numbers of the tiers are consistent.
  Result<void> check_numbers() const {
    if (bundle(0) != 1) {
      return error_at(tiers_[0].find("bundle").line,
                      "a host has one cable; make the bundle of tier 0 1");
    }
    if (nodes() % pod_size() != 0 || (tiers() == 2 && nodes() != pod_size())) {
      return error_at(header_.find("podsize").line,
                      "{} nodes are not made of pods of {}; with two tiers the only pod has all "
                      "nodes, with three make Nodes a multiple of Podsize",
                      nodes(), pod_size());
    }
    if (pod_size() % get(0, "radix_down") != 0) {
      return error_at(
          tiers_[0].find("radix_down").line,
          "leaves of {} hosts do not make up a pod of {}; make Podsize a multiple of Radix_down",
          get(0, "radix_down"), pod_size());
    }
    for (size_t tier = 0; tier + 1 < tiers(); ++tier) RETURN_IF_ERROR(check_between(tier));
    return {};
  }

  // Checks that the cables up from `tier` equal those down from the tier above.
  Result<void> check_between(size_t tier) const {
    const uint32_t below = tier == 0 ? leaves_per_pod() : nodes() / pod_size();
    const uint32_t up = get(tier, "radix_up");
    if (up % bundle(tier + 1) != 0) {
      return error_at(tiers_[tier].find("radix_up").line,
                      "{} cables up do not make bundles of {}; make Radix_up a multiple of the "
                      "bundle of tier {}",
                      up, bundle(tier + 1), tier + 1);
    }
    const uint64_t down = uint64_t{below} * bundle(tier + 1);
    if (get(tier + 1, "radix_down") != down) {
      return error_at(
          tiers_[tier + 1].find("radix_down").line,
          "a switch of tier {} has a bundle of {} to each of {} {} below; make its Radix_down {}",
          tier + 1, bundle(tier + 1), below, tier == 0 ? "leaves" : "pods", down);
    }
    const Section::Value oversubscribed = tiers_[tier].find("oversubscribed");
    const uint64_t in = uint64_t{get(tier, "radix_down")} * get(tier, "downlink_speed_gbps");
    const uint64_t out = uint64_t{up} * get(tier + 1, "downlink_speed_gbps");
    if (oversubscribed.line != 0 && in != out * oversubscribed.number) {
      return error_at(oversubscribed.line,
                      "a switch of tier {} has {} Gb/s down and {} Gb/s up, which is no "
                      "oversubscription of {}; correct it, the radixes or the speeds, or remove it",
                      tier, in, out, oversubscribed.number);
    }
    return {};
  }

  LeafSpineSpec leaf_spine() const {
    return {.hosts = nodes(),
            .hosts_per_leaf = get(0, "radix_down"),
            .spines = get(0, "radix_up") / bundle(1),
            .bundle = bundle(1),
            .cable = cable(0),
            .uplink = cable(1)};
  }

  FatTreeSpec fat_tree() const {
    return {.pods = nodes() / pod_size(),
            .leaves_per_pod = leaves_per_pod(),
            .hosts_per_leaf = get(0, "radix_down"),
            .aggregations_per_pod = get(0, "radix_up") / bundle(1),
            .cores_per_aggregation = get(1, "radix_up") / bundle(2),
            .leaf_bundle = bundle(1),
            .core_bundle = bundle(2),
            .cable = cable(0),
            .leaf_uplink = cable(1),
            .core_uplink = cable(2)};
  }

  // The cables below a tier's switches.
  CableSpec cable(size_t tier) const {
    const uint32_t switches =
        get(tier, "switch_latency_ns") + (tier == 0 ? 0 : get(tier - 1, "switch_latency_ns"));
    return {.rate = Rate::from_gbps(get(tier, "downlink_speed_gbps")),
            .delay = Duration::from_ns(get(tier, "downlink_latency_ns") + switches / 2)};
  }

  uint32_t nodes() const { return header_.find("nodes").number; }
  uint32_t tiers() const { return header_.find("tiers").number; }
  uint32_t pod_size() const { return header_.find("podsize").number; }
  uint32_t leaves_per_pod() const { return pod_size() / get(0, "radix_down"); }
  uint32_t bundle(size_t tier) const { return std::max(1U, get(tier, "bundle")); }
  uint32_t get(size_t tier, std::string_view key) const { return tiers_[tier].find(key).number; }

  const std::string& file_;
  Section header_;
  std::array<Section, 3> tiers_;
  Section* section_ = &header_;  // whose lines are read now
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
