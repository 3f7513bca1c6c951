#include "bench/hosts/matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace pacecar::hosts {
namespace {

constexpr size_t kLongestLine = 140;
constexpr std::string_view kCorner = "from \\ to";
constexpr size_t kFigureWidth = 7;

// Host names without their domains, if they are still distinct.
std::vector<std::string> short_names(const std::vector<std::string>& names) {
  std::vector<std::string> cut;
  for (const std::string& name : names) {
    const bool number = name.find_first_not_of("0123456789.:") == name.npos;  // an address
    cut.push_back(number ? name : name.substr(0, name.find('.')));
  }
  const std::set<std::string> different(cut.begin(), cut.end());
  return different.size() == names.size() ? cut : names;
}

size_t widest(const std::vector<std::string>& texts) {
  size_t width = 0;
  for (const std::string& text : texts) width = std::max(width, text.size());
  return width;
}

std::string whole_matrix(const Matrix& matrix, const std::vector<std::string>& names,
                         const Quantity& quantity) {
  const size_t left = std::max(widest(names), kCorner.size());
  const size_t width = std::max(widest(names), kFigureWidth);
  std::string text = fmt::format("{} in {}: rows send, columns receive\n{:<{}}", quantity.name,
                                 quantity.unit, kCorner, left);
  for (const std::string& name : names) text += fmt::format(" {:>{}}", name, width);
  for (size_t i = 0; i < names.size(); ++i) {
    std::string line = fmt::format("\n{:<{}}", names[i], left);
    for (size_t j = 0; j < names.size(); ++j) {
      const auto& value = matrix.at(i, j);
      const std::string cell = i == j ? "" : value ? figure(*value) : "-";
      line += fmt::format(" {:>{}}", cell, width);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1);
  }
  return text + "\n";
}

// The measured ones among the `count` figures that at(i) gives.
template <typename At>
std::vector<double> known(size_t count, At at) {
  std::vector<double> values;
  for (size_t i = 0; i < count; ++i) {
    if (const auto& value = at(i)) values.push_back(*value);
  }
  return values;
}

// Median and worst of a row or column, and the peer of the worst.
struct Side {
  std::string median = "-";
  std::string worst = "-";
  std::string peer;
};

// The summary of one host's figures with its peers; at(i) is the figure with peer i.
template <typename At>
Side side_of(const std::vector<std::string>& names, const Quantity& quantity, At at) {
  const std::vector<double> values = known(names.size(), at);
  if (values.empty()) return {};
  const double worst = quantity.more_is_better ? *std::ranges::min_element(values)
                                               : *std::ranges::max_element(values);
  Side side{figure(median(values)), figure(worst), ""};
  for (size_t i = 0; i < names.size() && side.peer.empty(); ++i) {
    if (at(i) == worst) side.peer = names[i];
  }
  return side;
}

std::string line_per_host(const Matrix& matrix, const std::vector<std::string>& names,
                          const Quantity& quantity) {
  const size_t left = std::max<size_t>(widest(names), 4);
  std::string text = fmt::format("{} in {}\n{:<{}} {:>9} {:>9}  {:<{}} {:>9} {:>9}  {}\n",
                                 quantity.name, quantity.unit, "host", left, "sends", "worst", "to",
                                 left, "receives", "worst", "from");
  for (size_t i = 0; i < names.size(); ++i) {
    const Side out = side_of(names, quantity, [&](size_t peer) { return matrix.at(i, peer); });
    const Side in = side_of(names, quantity, [&](size_t peer) { return matrix.at(peer, i); });
    text += fmt::format("{:<{}} {:>9} {:>9}  {:<{}} {:>9} {:>9}  {}\n", names[i], left, out.median,
                        out.worst, out.peer, left, in.median, in.worst, in.peer);
  }
  return text;
}

}  // namespace

std::vector<double> Matrix::row(size_t sender) const {
  return known(hosts_, [&](size_t peer) { return at(sender, peer); });
}

std::vector<double> Matrix::column(size_t receiver) const {
  return known(hosts_, [&](size_t peer) { return at(peer, receiver); });
}

std::vector<double> Matrix::all() const {
  return known(values_.size(), [&](size_t i) { return values_[i]; });
}

std::string figure(double value) {
  const int decimals = value >= 1000 ? 0 : value >= 100 ? 1 : value >= 1 ? 2 : 3;
  return fmt::format("{:.{}f}", value, decimals);
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::string to_text(const Matrix& matrix, const std::vector<std::string>& all_names,
                    const Quantity& quantity) {
  const std::vector<std::string> names = short_names(all_names);
  const size_t line = std::max(widest(names), kCorner.size()) +
                      names.size() * (std::max(widest(names), kFigureWidth) + 1);
  return line <= kLongestLine ? whole_matrix(matrix, names, quantity)
                              : line_per_host(matrix, names, quantity);
}

}  // namespace pacecar::hosts
