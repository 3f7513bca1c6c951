"""Exit codes of bench/nccl/run; and nccl-tests' flags: their meaning for it, or a sentence why it
does not have them."""

import argparse
import subprocess

import arms
import toolkit
from console import between, exit_with, log

ERROR, SKIPPED = 2, 77
FLOAT_BYTES = 4
MOST_SIZES = 1000
# Flags with one possible value: {flag: (value, reason in the error for any other value)}.
FIXED = {
    ("-o", "--op"): ("sum", "sums are exact, so that every element can be compared"),
    ("-d", "--datatype"): ("float", "elements are floats, as the network knows only bytes"),
    ("-r", "--root"): ("0", "the root is rank 0"),
    ("-c", "--check"): ("1", "every element is always checked"),
    ("-t", "--nthreads"): ("1", "each rank is a process, so that the network joins them: -g sets "
                                "how many"),
    ("-m", "--agg_iters"): ("1", "operations are not aggregated"),
    ("-N", "--run_cycles"): ("1", "--rounds sets how often all is measured"),
    ("-p", "--parallel_init"): ("0", "each rank is a process and starts by itself"),
    ("-z", "--blocking"): ("0", "operations follow each other in a stream"),
    ("-y", "--stream_null"): ("0", "operations follow each other in a stream of their own"),
    ("-G", "--cudagraph"): ("0", "operations are launched one by one"),
    ("-a", "--average"): ("3", "a repetition takes as long as its slowest rank"),
    ("-C", "--report_cputime"): ("0", "the processor time is always shown"),
    ("-S", "--report_timestamps"): ("0", "the --json file has every time"),
    ("-w", "--warmup_iters"): ("5", "up to 5 operations come before those that count"),
    ("-R", "--local_register"): ("0", "buffers are not registered by the application"),
}


def arm_list(text):
    try:
        found = [arms.parse(part) for part in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if len(set(found)) != len(found):
        raise argparse.ArgumentTypeError("an arm is named twice")
    return found


def finish(main):
    """Runs `main` and exits with the code that it returns."""
    exit_with(lambda: status_of(main))


def status_of(main):
    try:
        return main()
    except toolkit.Skipped as reason:
        log(f"skipped: {reason}")
        return SKIPPED
    except (toolkit.Broken, subprocess.SubprocessError) as reason:
        log(reason)
        return ERROR


def add_flags_of_nccl_tests(parser, size):
    """Adds the flags to the parser; `size` parses a number of bytes."""
    group = parser.add_argument_group(
        "as nccl-tests", "-n, -T and -J are --iterations, --timeout and --json; for other flags of "
        "nccl-tests the error says why they are not supported")
    add = group.add_argument
    add("-b", "--minbytes", type=size, metavar="SIZE", help="smallest size, instead of --sizes")
    add("-e", "--maxbytes", type=size, metavar="SIZE", help="largest size")
    add("-f", "--stepfactor", type=between(float, 1, 1024), metavar="X",
        help="factor from one size to the next; default 2")
    add("-i", "--stepbytes", type=size, metavar="SIZE", help="add SIZE from one size to the next")
    add("-g", "--ngpus", type=between(int, 2, 16), metavar="N",
        help="ranks, instead of --ranks: each is a process; they share GPUs if there are fewer")
    for names, (value, reason) in FIXED.items():
        add(*names, action=Answer, value=value, reason=reason)


class Answer(argparse.Action):
    """Refuses every value but one, with the reason."""

    def __init__(self, option_strings, dest, value, reason):
        super().__init__(option_strings, argparse.SUPPRESS, help=argparse.SUPPRESS)
        self.value, self.reason = value, reason

    def __call__(self, parser, _namespace, given, option_string=None):
        if given != self.value:
            parser.error(f"there is no {option_string} {given} as nccl-tests has it: {self.reason}")


def sizes_of_nccl_tests(parser, options):
    """The sizes in bytes by -b, -e, -f and -i; None if none of these flags is given."""
    first, last = options.minbytes, options.maxbytes
    if first is None and last is None:
        if options.stepfactor is not None or options.stepbytes is not None:
            parser.error("-f and -i need the first size with -b and the last with -e")
        return None
    if options.sizes is not None:
        parser.error("--sizes and -b, -e: give one of them")
    first, last = first or last, last or first
    if first > last:
        parser.error(f"-b {first} is more than -e {last}: give the smaller one as -b")
    if options.stepbytes is not None:
        if options.stepfactor is not None:
            parser.error("-f multiplies, -i adds: give one of them")
        found = list(range(first, last + 1, options.stepbytes))
    else:
        found = geometric(parser, first, last, options.stepfactor or 2)
    if len(found) > MOST_SIZES:
        parser.error(f"{len(found)} sizes are more than {MOST_SIZES}: take larger steps")
    return found


def geometric(parser, first, last, factor):
    if factor == 1 and first != last:
        parser.error("-f 1 never reaches -e: give a larger factor")
    found, exact = [], float(first)
    while int(exact) <= last:
        size = int(exact) // FLOAT_BYTES * FLOAT_BYTES
        if not found or size > found[-1]:
            found.append(size)
        if factor == 1:
            break
        exact *= factor
    return found
