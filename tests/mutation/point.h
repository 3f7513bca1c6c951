// Functions that a rewritten source calls at each mutation point; they choose the variant that the
// environment asks for. The mutants of a point have consecutive numbers; 0 is the original code.
//   MUTATION=NUMBER          runs with that mutant
//   MUTATION_SEEN=FILE       a byte per number: what this run could notice of each mutant
// Expressions that the compiler evaluates are never mutated.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <concepts>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <type_traits>

namespace mutation {

// The same values as in trials.py.
inline constexpr uint8_t kReached = 1;
inline constexpr uint8_t kDiffers = 2;     // mutant and original have different values
inline constexpr uint8_t kImpossible = 4;  // these types have no such operator

// Shared, so that points that a child reaches before it is killed count.
inline uint8_t* map_seen() {
  const char* name = std::getenv("MUTATION_SEEN");
  if (name == nullptr) return nullptr;
  const int file = open(name, O_RDWR);
  struct stat status {};
  if (file < 0 || fstat(file, &status) != 0) std::abort();
  void* seen = mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ | PROT_WRITE,
                    MAP_SHARED, file, 0);
  close(file);
  if (seen == MAP_FAILED) std::abort();
  return static_cast<uint8_t*>(seen);
}

inline int chosen_mutant() {
  const char* number = std::getenv("MUTATION");
  return number == nullptr ? 0 : std::atoi(number);
}

inline uint8_t* const seen = map_seen();
inline const int chosen = chosen_mutant();

inline void note(int number, bool differs) {
  if (seen != nullptr) seen[number] |= differs ? kReached | kDiffers : kReached;
}

// Whether this mutant runs; for mutants whose difference shows only when they run.
constexpr bool on(int number) {
  if (std::is_constant_evaluated()) return false;
  note(number, true);
  return chosen == number;
}

// A boolean, inverted by the mutant.
template <int kNumber, class T>
constexpr bool flip(const T& value) {
  return static_cast<bool>(value) != on(kNumber);
}

// A literal; each mutant has another value.
template <int kNumber, class T, class... Others>
constexpr T constant(T value, Others... others) {
  if (std::is_constant_evaluated()) return value;
  int number = kNumber;
  T taken = value;
  ((on(number++) ? void(taken = static_cast<T>(others)) : void()), ...);
  return taken;
}

struct ShiftLeft {
  template <class A, class B>
  constexpr auto operator()(const A& a, const B& b) const -> decltype(a << b) {
    return a << b;
  }
};

struct ShiftRight {
  template <class A, class B>
  constexpr auto operator()(const A& a, const B& b) const -> decltype(a >> b) {
    return a >> b;
  }
};

template <class Operator, class A, class B>
inline constexpr bool kDivides = (std::same_as<Operator, std::divides<>> ||
                                  std::same_as<Operator, std::modulus<>>)&&std::integral<B>;

template <class T, class Other>
bool differ(const T& value, const Other& other) {
  if constexpr (requires { value == other; }) return !(value == other);
  return true;
}

template <class Mutant, class A, class B, class T>
void try_mutant(int number, const A& a, const B& b, T& taken) {
  if constexpr (requires { requires std::same_as<decltype(Mutant{}(a, b)), T>; }) {
    if (seen != nullptr) {
      if constexpr (kDivides<Mutant, A, B>) {
        if (b == 0) return note(number, true);
      }
      note(number, differ(taken, Mutant{}(a, b)));
    }
    if (chosen == number) taken = Mutant{}(a, b);
  } else if (seen != nullptr) {
    seen[number] |= kImpossible;
  }
}

template <int kNumber, class Original, class... Mutants, class A, class B>
constexpr auto binary(const A& a, const B& b) {
  auto taken = Original{}(a, b);
  if (std::is_constant_evaluated()) return taken;
  if (seen == nullptr && (chosen < kNumber || chosen >= kNumber + int{sizeof...(Mutants)})) {
    return taken;
  }
  int number = kNumber;
  (try_mutant<Mutants>(number++, a, b, taken), ...);
  return taken;
}

// x op= y; the mutant is x other= y.
template <int kNumber, class Original, class Mutant, class A, class B>
constexpr A& assign(A& a, const B& b) {
  if constexpr (requires { Mutant::of(a, b); }) {
    if (on(kNumber)) {
      Mutant::of(a, b);
      return a;
    }
  } else if (!std::is_constant_evaluated() && seen != nullptr) {
    seen[kNumber] |= kImpossible;
  }
  Original::of(a, b);
  return a;
}

#define MUTATION_ASSIGNMENT(Name, op)                                                   \
  struct Name {                                                                         \
    template <class A, class B>                                                         \
    static constexpr auto of(A& a, const B& b) -> decltype(static_cast<void>(a op b)) { \
      a op b;                                                                           \
    }                                                                                   \
  }
MUTATION_ASSIGNMENT(Add, +=);
MUTATION_ASSIGNMENT(Subtract, -=);
MUTATION_ASSIGNMENT(Multiply, *=);
MUTATION_ASSIGNMENT(Divide, /=);
MUTATION_ASSIGNMENT(Remainder, %=);
MUTATION_ASSIGNMENT(And, &=);
MUTATION_ASSIGNMENT(Or, |=);
MUTATION_ASSIGNMENT(Xor, ^=);
MUTATION_ASSIGNMENT(Left, <<=);
MUTATION_ASSIGNMENT(Right, >>=);
#undef MUTATION_ASSIGNMENT

// ++ and --: kStep is 1 or -1; the mutant steps the other way.
template <int kNumber, int kStep, class T>
constexpr decltype(auto) step_before(T& value) {
  if constexpr (requires { --value, ++value; }) {
    if ((kStep > 0) != on(kNumber)) return ++value;
    return --value;
  } else {
    if (!std::is_constant_evaluated() && seen != nullptr) seen[kNumber] |= kImpossible;
    return ++value;
  }
}

template <int kNumber, int kStep, class T>
constexpr auto step_after(T& value) {
  T before = value;
  step_before<kNumber, kStep>(value);
  return before;
}

}  // namespace mutation
