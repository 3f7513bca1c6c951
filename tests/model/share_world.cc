#include "tests/model/share_world.h"

#include <fmt/format.h>

#include <algorithm>

#include "tests/support/max_min.h"

namespace pacecar::model {
namespace {

constexpr Duration kRound = Duration::from_us(3);
constexpr Duration kStop = Duration::from_ms(80);
constexpr Duration kPatience = Duration::from_ms(200);
constexpr Duration kNonsense = Duration::from_ms(2200);
constexpr int kMostRounds = 20'000;

LinkClaim percent(uint64_t share, uint32_t weight = 1) {
  return {
      .demand = Rate::from_bps(kSharedLink.bps() / 100 * share), .weight = weight, .ready = true};
}

// The processes' max-min parts.
std::vector<double> reference(const std::vector<LinkClaim>& claims) {
  std::vector<test::MaxMinFlow> flows;
  std::vector<double> capacities = {static_cast<double>(kSharedLink.bps())};
  for (const LinkClaim& claim : claims) {
    capacities.push_back(static_cast<double>(claim.demand.bps()));
    flows.push_back({.source = 0,
                     .destination = static_cast<uint32_t>(flows.size() + 1),
                     .weight = static_cast<double>(std::max(claim.weight, 1U))});
  }
  for (double& capacity : capacities) capacity = std::max(capacity, 1.0);
  return test::max_min_rates(flows, capacities);
}

}  // namespace

std::vector<ShareScenario> share_scenarios() {
  return {
      {.name = "a newcomer",
       .processes = 2,
       .changes = {{0, 0, percent(100)}, {3, 1, percent(100)}}},
      {.name = "two newcomers",
       .processes = 3,
       .changes = {{0, 0, percent(100)}, {3, 1, percent(100)}, {3, 2, percent(100, 2)}}},
      {.name = "one leaves",
       .processes = 3,
       .changes = {{0, 0, percent(100)}, {0, 1, percent(100)}, {0, 2, percent(100)}, {6, 0, {}}}},
      {.name = "demands cross",
       .processes = 2,
       .changes =
           {{0, 0, percent(80)}, {0, 1, percent(10)}, {5, 0, percent(10)}, {5, 1, percent(90)}}},
      {.name = "of four, two change",
       .processes = 4,
       .changes = {{0, 0, percent(100)},
                   {0, 1, percent(20)},
                   {1, 2, percent(40, 3)},
                   {5, 3, percent(100)},
                   {5, 1, percent(60)}}},
      {.name = "beside nonsense",
       .processes = 2,
       .changes = {{0, 0, percent(100)}, {3, 1, percent(100)}},
       .nonsense = true},
  };
}

ShareScenario wild_share_scenario(Chooser& chooser) {
  ShareScenario scenario;
  scenario.name = "wild";
  scenario.processes = 2 + chooser.choose(3);
  scenario.nonsense = chooser.choose(8) == 7;
  for (int round = 0; round < scenario.faults_until; ++round) {
    if (chooser.choose(3) != 0) continue;
    const uint32_t process = chooser.choose(scenario.processes);
    const bool leaves = chooser.choose(4) == 3;
    scenario.changes.push_back(
        {round, process,
         leaves ? LinkClaim{} : percent(1 + chooser.choose(100), 1 + chooser.choose(4))});
  }
  return scenario;
}

class ShareWorld::Identity final : public ShareProcess {
 public:
  Identity(ShareWorld& world, uint64_t owner) : ShareProcess(owner), world_(world) {}
  bool ended(uint64_t owner) const override;

 private:
  ShareWorld& world_;
};

struct ShareWorld::Process {
  Process(ShareWorld& world, uint32_t number)
      : identity(world, 100 + number),
        member(*world.table_, identity, "", kSharedLink),
        fiber([this, &world] {
          for (;;) world.poll(*this);
        }) {}

  Identity identity;
  BasicShareMember<SteppedWord> member;
  Fiber fiber;
  LinkClaim wanted;
  LinkClaim claimed;
  bool polled = false;  // a poll has ended since the fiber was resumed
  bool dead = false;
  Instant stopped_until;
  uint64_t began = 0;     // changes_ when the newest poll began
  uint64_t finished = 0;  // changes_ when the newest finished poll began
  bool inside = false;    // a poll
  uint64_t part = 0;      // in use
};

bool ShareWorld::Identity::ended(uint64_t owner) const {
  const size_t number = owner - 100;
  return number < world_.processes_.size() && world_.processes_[number]->dead;
}

ShareWorld::ShareWorld(const ShareScenario& scenario, Chooser& chooser)
    : scenario_(scenario),
      chooser_(chooser),
      table_(std::make_unique<BasicShareTable<SteppedWord>>()) {
  for (uint32_t i = 0; i < scenario.processes; ++i) {
    processes_.push_back(std::make_unique<Process>(*this, i));
    processes_.back()->member.join(now_);
  }
  SteppedWord::shared_begin = &table_->generations[0].number;
  SteppedWord::shared_end = &table_->slots[scenario.processes + 1].owner;
}

ShareWorld::~ShareWorld() { SteppedWord::shared_begin = SteppedWord::shared_end = nullptr; }

std::string ShareWorld::run() {
  settled_at_ = Instant::never();
  for (; round_ < kMostRounds && failure_.empty(); ++round_) {
    change_claims();
    write_nonsense();
    run_round();
    pass_time();
    if (faults_over() && settled_at_ == Instant::never() &&
        std::ranges::all_of(processes_, [this](auto& p) { return p->stopped_until <= now_; })) {
      settled_at_ = now_ + (scenario_.nonsense ? kNonsense : kPatience);
    }
    if (now_ < settled_at_) continue;
    check_parts();
    return failure_;
  }
  return failure_.empty() ? "the run does not end" : failure_;
}

void ShareWorld::change_claims() {
  for (const ClaimChange& change : scenario_.changes) {
    if (change.round != round_) continue;
    processes_[change.process]->wanted = change.claim;
    changed();
  }
}

// Random words in a slot that has an owner.
void ShareWorld::write_nonsense() {
  if (!scenario_.nonsense || faults_over()) return;
  auto& slot = table_->slots[scenario_.processes];
  Prng prng(static_cast<uint64_t>(round_) + 1);
  slot.owner.store(prng.next_u64() | 1);
  for (auto& direction : slot.directions) {
    direction.claim.store(prng.next_u64());
    direction.taking.store(prng.next_u64() >> prng.below(64));
    const uint64_t near = static_cast<uint64_t>(now_.ns()) + prng.below(2'000'000'000);
    direction.beat.store(prng.chance(0.5) ? near : prng.next_u64());
  }
  table_->generations[0].number.store(prng.next_u64());
  changed();
}

void ShareWorld::run_round() {
  std::vector<uint32_t> pending;
  for (uint32_t i = 0; i < processes_.size(); ++i) {
    if (!processes_[i]->dead && processes_[i]->stopped_until <= now_) pending.push_back(i);
  }
  for (size_t at = 0; !pending.empty() && failure_.empty();) {
    Process& process = *processes_[pending[at]];
    process.polled = false;
    process.fiber.run();
    if (process.polled) {
      finish_poll(process);
      pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(at));
      at = 0;
    } else if (round_ >= scenario_.faults_from && !faults_over()) {
      at = interrupt(pending, at);
    }
  }
}

size_t ShareWorld::interrupt(std::vector<uint32_t>& pending, size_t at) {
  const auto others = static_cast<uint32_t>(pending.size() - 1);
  const uint32_t fault = chooser_.fault(others + 3);
  if (fault == 0) return at;
  if (fault <= others) return (at + fault) % pending.size();
  Process& process = *processes_[pending[at]];
  if (fault == others + 1) {
    process.stopped_until = now_ + kStop;
    ++stops_;
  } else {
    process.dead = true;
    ++deaths_;
  }
  changed();
  pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(at));
  return 0;
}

// Runs in a fiber.
void ShareWorld::poll(Process& process) {
  process.began = changes_;
  process.inside = true;
  const Instant now = now_;
  HostLink& link = process.member.outgoing();
  if (!(process.claimed == process.wanted) || link.due(now)) {
    process.claimed = process.wanted;
    link.claim(now, process.claimed);
  }
  process.polled = true;
  Fiber::pause();
}

void ShareWorld::finish_poll(Process& process) {
  ++polls_;
  process.inside = false;
  process.finished = process.began;
  process.part = process.claimed.demand.bps() == 0 ? 0 : process.member.outgoing().part().bps();
  check_safety();
}

void ShareWorld::check_safety() {
  uint64_t sum = 0;
  uint64_t floors = 0;
  for (const auto& process : processes_) {
    if (process->dead || process->stopped_until > now_) continue;
    if (process->inside) continue;  // a process sends nothing while it claims
    if (process->finished < changes_) return;
    sum += process->part;
    floors += kSharedLink.bps() / BasicShareLink<SteppedWord>::kLeastPart;
  }
  if (sum <= kSharedLink.bps() + floors) return;
  failure_ = fmt::format("round {}: the parts in use add up to {} of the link:", round_,
                         static_cast<double>(sum) / static_cast<double>(kSharedLink.bps()));
  for (const auto& process : processes_) failure_ += fmt::format(" {}", process->part);
}

// A process that was stopped in a poll resumes this poll later; others may be in one, too.
void ShareWorld::pass_time() {
  const Instant before = now_;
  now_ = now_ + kRound;
  if (!faults_over()) {
    // Time jumps only while a process is stopped.
    const bool stopped = std::ranges::any_of(
        processes_, [&](auto& p) { return !p->dead && p->stopped_until > before; });
    if (!stopped) return;
  }
  Instant next = faults_over() && settled_at_ != Instant::never() ? settled_at_ : now_ + kStop;
  for (const auto& process : processes_) {
    if (process->dead) continue;
    if (process->stopped_until > now_) {
      next = std::min(next, process->stopped_until);
      continue;
    }
    HostLink& link = process->member.outgoing();
    const bool waits = !(process->claimed == process->wanted) || link.due(now_);
    next = std::min(next, waits ? now_ : std::max(now_, link.next_deadline()));
  }
  for (const auto& process : processes_) {
    // The stop of this process is over.
    if (!process->dead && process->stopped_until > before && process->stopped_until <= next)
      changed();
  }
  now_ = next;
}

void ShareWorld::check_parts() {
  std::vector<LinkClaim> claims;
  std::vector<Process*> live;
  for (const auto& process : processes_) {
    if (process->dead || process->wanted.demand.bps() == 0) continue;
    claims.push_back(process->wanted);
    live.push_back(process.get());
  }
  if (live.empty()) return;
  const std::vector<double> fair = reference(claims);
  for (size_t i = 0; i < live.size(); ++i) {
    const auto part = static_cast<double>(live[i]->part);
    if (part >= fair[i] * (1 - 1.0 / 32)) continue;
    failure_ = fmt::format("a process has {}, but its part is {}", part, fair[i]);
  }
}

}  // namespace pacecar::model
