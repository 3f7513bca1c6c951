// One figure for each ordered pair of hosts, and its text. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace pacecar::hosts {

struct Pair {
  size_t sender = 0;
  size_t receiver = 0;

  bool operator==(const Pair&) const = default;
};

class Matrix {
 public:
  explicit Matrix(size_t hosts) : hosts_(hosts), values_(hosts * hosts) {}

  size_t hosts() const { return hosts_; }
  // nullopt: not measured. Above 0 otherwise.
  const std::optional<double>& at(size_t sender, size_t receiver) const {
    return values_[sender * hosts_ + receiver];
  }
  void set(size_t sender, size_t receiver, double value) {
    values_[sender * hosts_ + receiver] = value;
  }
  // The figures of one sender, of one receiver, of all.
  std::vector<double> row(size_t sender) const;
  std::vector<double> column(size_t receiver) const;
  std::vector<double> all() const;

 private:
  size_t hosts_;
  std::vector<std::optional<double>> values_;
};

// What the figures measure.
struct Quantity {
  std::string name;  // "bandwidth"
  std::string unit;  // "Gb/s"
  bool more_is_better = true;
};

// With about four digits: "92.14", "0.512", "1204".
std::string figure(double value);
// For an even number the mean of the two in the middle. `values` is not empty.
double median(std::vector<double> values);

// A row for each sender and a column for each receiver, or, where this is wider than 140 characters
// (from 17 hosts on), a line for each host.
std::string to_text(const Matrix& matrix, const std::vector<std::string>& names,
                    const Quantity& quantity);

}  // namespace pacecar::hosts
