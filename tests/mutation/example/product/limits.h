// What the self-test mutates: some of it is tested well, some badly, and some not at all.
#pragma once

namespace example {

constexpr int kMost = 100;  // said once: no mutants

int limited(int value);
bool is_limited(int value);
int never_called(int value);

class Counter {
 public:
  void add(int value) { sum_ += value; }
  int sum() const { return sum_; }

 private:
  int sum_ = 0;
};

}  // namespace example
