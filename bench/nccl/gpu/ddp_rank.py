"""One rank of `bench/nccl/run --ddp`: trains a small transformer and prints a line of JSON, as
collectives.cc does for an operation. All ranks must have the same parameters at last, bit by bit.

    ddp_rank.py probe
    ddp_rank.py RANK RANKS GPU MEETING LAYERS WIDTH BATCH TOKENS STEPS REPETITIONS
"""

import json
import sys
import time

HEAD_WIDTH = 64
LEARNING_RATE = 1e-3
WARM_UP = 5


def probe():
    """{gpus, reason, nccl, nccl_reason, cuda_driver}, of this Python's PyTorch."""
    seen = {"gpus": 0, "nccl": 0, "nccl_reason": "", "cuda_driver": 0}
    try:
        import torch
    except ImportError as error:
        why = (f"this Python has no PyTorch ({error}): run it with one that has, as in PYTHON "
               "bench/nccl/run --ddp")
        return {**seen, "reason": why, "nccl_reason": why}
    seen["nccl"] = 1
    try:
        torch.empty(1, device="cuda")
        major, minor, patch = torch.cuda.nccl.version()
        seen["nccl"] = major * 10000 + minor * 100 + patch
    except (RuntimeError, AssertionError) as error:  # the latter: a torch without CUDA
        return {**seen, "reason": str(error).splitlines()[0]}
    return {**seen, "gpus": torch.cuda.device_count(), "reason": "no error"}


def train(rank, ranks, gpu, meeting, layers, width, batch, tokens, steps, repetitions):
    import torch
    from torch import distributed
    from torch.nn.parallel import DistributedDataParallel

    torch.cuda.set_device(gpu)
    distributed.init_process_group("nccl", init_method=f"file://{meeting}", rank=rank,
                                   world_size=ranks)
    torch.manual_seed(1)  # the same model everywhere, and in every arm
    blocks = [torch.nn.TransformerEncoderLayer(width, width // HEAD_WIDTH, 4 * width, dropout=0.0,
                                               batch_first=True) for _ in range(layers)]
    model = DistributedDataParallel(torch.nn.Sequential(*blocks).cuda(), device_ids=[gpu])
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    torch.manual_seed(2 + rank)  # other data on each rank
    inputs, wanted = torch.randn(2, batch, tokens, width, device="cuda")

    def seconds(count):
        """Of one of so many steps: forward, backward with the gradients' all-reduce, and SGD."""
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(count):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(inputs), wanted)
            loss.backward()
            optimizer.step()
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) / count, loss

    seconds(WARM_UP)
    processor = time.process_time()
    times, losses = zip(*(seconds(steps) for _ in range(repetitions)))
    processor = time.process_time() - processor
    parameters = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    result = {"op": "step", "bytes": 4 * len(parameters), "count": len(parameters),
              "iterations": steps, "wrong": apart(parameters, distributed), "seconds": times,
              "processor_seconds": processor / (steps * repetitions), "loss": losses[-1].item()}
    distributed.destroy_process_group()
    return result


def apart(parameters, distributed):
    """The number of parameters that differ between ranks in any bit."""
    least, most = parameters.clone(), parameters.clone()
    distributed.all_reduce(least, distributed.ReduceOp.MIN)
    distributed.all_reduce(most, distributed.ReduceOp.MAX)
    return int((least != most).sum())


def main(arguments):
    if arguments == ["probe"]:
        print(json.dumps(probe()))
        return
    rank, ranks, gpu, meeting, *sizes = arguments
    print(json.dumps(train(int(rank), int(ranks), int(gpu), meeting, *map(int, sizes))))


if __name__ == "__main__":
    main(sys.argv[1:])
