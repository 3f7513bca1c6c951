"""The report of a run: a score for each folder, and the mutants that survived."""
import collections
import tomllib

KILLED, SURVIVED, UNREACHED = "killed", "survived", "not reached"


class Accepted:
    """Survivors with a reason, by file and change (accepted.toml)."""

    def __init__(self, path):
        entries = tomllib.loads(path.read_text())["accepted"] if path.exists() else []
        self.reasons = {}
        for entry in entries:
            for became in entry["became"]:
                self.reasons[entry["file"], entry["was"], became] = entry["reason"]

    def reason(self, mutant):
        return self.reasons.get((mutant.file, mutant.was, mutant.became))

    def problems(self, mutants, results):
        """Outdated entries: changes that no mutant makes any more, and mutants that are killed."""
        known = {(mutant.file, mutant.was, mutant.became) for mutant in mutants}
        gone = [f"no mutant makes this change any more: {file}: {was}  ->  {became}"
                for file, was, became in self.reasons if (file, was, became) not in known]
        outcomes = collections.defaultdict(set)
        for mutant in mutants:
            if mutant.key in results:
                outcomes[mutant.file, mutant.was, mutant.became].add(results[mutant.key])
        dead = [f"accepted, but killed: {file}: {was}  ->  {became}"
                for (file, was, became) in self.reasons
                if outcomes[file, was, became] == {KILLED}]
        return gone + dead


def folder_of(file, folders):
    return next(folder for folder in folders if file.startswith(folder + "/"))


def score(killed, counted):
    return 100 * killed / counted if counted else 100.0


def table(mutants, results, accepted, folders):
    """Rows of text, and the score of the worst folder. Accepted survivors do not count."""
    counts = {folder: collections.Counter() for folder in folders}
    for mutant in mutants:
        count = counts[folder_of(mutant.file, folders)]
        outcome = results[mutant.key]
        alive = outcome != KILLED
        count["accepted" if alive and accepted.reason(mutant) else outcome] += 1
    rows = [f"{'folder':24} {'mutants':>8} {'killed':>8} {'survived':>9} {'unreached':>10} "
            f"{'accepted':>9} {'score':>7}"]
    worst = 100.0
    everything = sum(counts.values(), collections.Counter())
    for folder, count in [*counts.items(), ("all", everything)]:
        total = sum(count.values())
        reached = score(count[KILLED], total - count["accepted"])
        worst = min(worst, reached)
        rows.append(f"{folder:24} {total:8} {count[KILLED]:8} {count[SURVIVED]:9} "
                    f"{count[UNREACHED]:10} {count['accepted']:9} {reached:6.1f}%")
    return rows, worst


def survivors(mutants, results, accepted):
    """The survivors without a reason, in the order of the files."""
    rows = []
    for mutant in mutants:
        if results[mutant.key] != KILLED and not accepted.reason(mutant):
            note = "" if results[mutant.key] == SURVIVED else "  (not reached)"
            rows.append(f"{mutant.file}:{mutant.line}:{note}\n  was     {mutant.was}\n"
                        f"  became  {mutant.became}")
    return rows
