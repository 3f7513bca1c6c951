"""Makes one report in Markdown from the parts' documents, for a note in bench/log."""

import bundle_folder as bundle
import arms
import figures
import thread_profile
import toolkit
import torch_ddp

FAILURE_LETTERS = 400
NO_GOALS = figures.Goals(0, 1e9)


def write(host, parts, states):
    """The lines of the report. `states` has a sentence for each part that failed or was skipped."""
    documents = {part.name: part.read(host.output) for part in parts}
    lines = [*heading(host, documents), "", "| part | what | how far |", "|---|---|---|"]
    for part in parts:
        how_far = states.get(part.name) or part.progress(host.output)
        lines.append(f"| `{part.name}` | {part.what} | {how_far} |")
    for part in parts:
        body = lines_of(documents[part.name])
        if body:
            lines += ["", f"## {part.name}: {part.what}", *body]
    lines += ["", "## What the host has", "```", *map(str, host.findings), "```"]
    return lines


def heading(host, documents):
    made = bundle.manifest()
    of_runs = [one for one in documents.values() if "machine" in one]
    lines = ["# NCCL over its own sockets and over Pacecar", ""]
    change = ", with changes that are not committed" if made["uncommitted_changes"] else ""
    lines.append(f"Commit {made['commit']}{change}; the plugin's SHA-256 begins with "
                 f"{made['plugin_sha256'][:12]}.")
    if not of_runs:
        return [*lines, "Nothing has been measured yet."]
    times = sorted(one["machine"]["time"] for one in of_runs)
    machine = of_runs[0]["machine"]
    versions = next((one["versions"] for one in of_runs if "cuda_driver" in one["versions"]), {})
    gpus = "; ".join(of_runs[0]["gpus"]) or "GPUs that nvidia-smi does not name"
    lines += [f"Measured from {times[0]} to {times[-1]} on {gpus} (name, driver); NCCL "
              f"{versions.get('nccl', 'unknown')}, the driver is for CUDA "
              f"{versions.get('cuda_driver', 'unknown')}; {machine['cpus']} processors "
              f"({machine['cpu_model']}), Linux {machine['kernel']}; MPS "
              f"{'serves' if any(one['mps'] for one in of_runs) else 'does not serve'}."]
    wrong = sum(row["wrong"] for one in of_runs for run in one["runs"]
                for row in run.get("rows", ()))
    failures = [failure for one in of_runs for failure in one["failures"]]
    lines.append(f"Wrong elements: {wrong}; failed runs: {len(failures)}.")
    return lines + [f"- {failure.splitlines()[0][:FAILURE_LETTERS]}" for failure in failures]


def lines_of(document):
    """The lines of one part. A document in an unexpected form does not spoil the whole report."""
    try:
        return body_of(document)
    except Exception as error:  # of any kind: results.json has the figures
        return ["", f"This part's figures cannot be shown ({error!r}): see results.json."]


def body_of(document):
    if "testsuites" in document:
        return gpu_tests(document)
    if "rules" in document:
        return rules(document)
    if not document.get("runs"):
        return []
    if "step_s" in document["runs"][0]:
        return training(document)
    return collectives(document)


def gpu_tests(document):
    rows = ["| test | result |", "|---|---|"]
    for suite in document["testsuites"]:
        for test in suite["testsuite"]:
            what = "; ".join(one["failure"].splitlines()[-1] for one in test.get("failures", ()))
            result = f"failed: {what}" if what else test["result"].lower()  # completed or skipped
            result += f"; {test['said']}" if "said" in test else ""
            rows.append(f"| {test['name']} | {result} |")
    return rows


def rules(document):
    broken = [rule for rule in document["rules"] if rule["verdict"] == "fail"]
    lines = ["", f"{len(broken)} of {len(document['rules'])} rules do not hold."]
    lines += [f"- {rule['rule']}: {rule['verdict']}; {rule['sentence']}: {rule['detail']}"
              for rule in broken]
    for one in document["performance"]:
        stream, latency = one["stream"], one["latency"]
        lines.append(f"- table v{one['version']} on {stream['device']}: {stream['gbps']:.1f} Gb/s "
                     f"in messages of {figures.size_text(stream['size_bytes'])}; half a round "
                     f"trip of {latency['size_bytes']} B {latency['p50_us']:.1f} us (median)")
    return lines


def training(document):
    return ["```", *torch_ddp.table(document["runs"]), "```"]


def collectives(document):
    runs, lines = document["runs"], []
    for ranks in dict.fromkeys(run["ranks"] for run in runs):
        some = [run for run in runs if run["ranks"] == ranks]
        names = list(dict.fromkeys(run["arm"] for run in some))
        for arm in sorted(names, key=lambda name: name != arms.BASELINE):
            lines += ["", f"`{arm}`: median time of one operation, us", "",
                      *grid(by_cell(figures.summary(runs, ranks, arm)),
                            lambda one: f"{one['time_s'] * 1e6:.1f}")]
        ratios = figures.ratios(bundle.PROGRAMS / toolkit.RATIOS, runs, ranks, names, arms.BASELINE,
                                NO_GOALS, None)
        for arm in dict.fromkeys(one["arm"] for one in ratios):
            cells = by_cell(one for one in ratios if one["arm"] == arm)
            rounds = max(one["n"] for one in cells.values())
            lines += ["", f"`{arm}`: how many times as fast as `{arms.BASELINE}`, within a round; "
                      f"95% interval; {rounds} rounds", "", *grid(cells, ratio_text)]
        for run in some:
            if "profile" in run:
                profile = thread_profile.table(run["profile"], "processor seconds")
                lines += ["", f"`{run['arm']}`:", "```", *profile[1:], "```"]
    return lines


def by_cell(found):
    return {figures.key(one): one for one in found}


def ratio_text(one):
    interval = f" ({one['low']:.2f}..{one['high']:.2f})" if "low" in one else ""
    return f"{one['ratio']:.2f}{interval}"


def grid(cells, text):
    """A row for each operation, a column for each size."""
    sizes = sorted({size for _, size in cells})
    lines = ["| | " + " | ".join(map(figures.size_text, sizes)) + " |",
             "|---" * (len(sizes) + 1) + "|"]
    for op in dict.fromkeys(op for op, _ in cells):
        values = [text(cells[op, size]) if (op, size) in cells else "-" for size in sizes]
        lines.append(f"| {op} | " + " | ".join(values) + " |")
    return lines
