"""One rank of bench/nccl/torch_ddp.py: trains a small transformer and prints a line of JSON.

    ddp_rank.py probe
    ddp_rank.py RANK RANKS GPU MEETING LAYERS WIDTH BATCH TOKENS WARM_UP STEPS
"""

import json
import sys
import time

HEAD_WIDTH = 64
LEARNING_RATE = 1e-3


def probe():
    """{gpus, reason, torch, nccl}; torch is None if this Python has no PyTorch."""
    try:
        import torch
    except ImportError as error:
        return {"gpus": 0, "reason": str(error), "torch": None, "nccl": None}
    seen = {"torch": torch.__version__, "nccl": None}
    try:
        torch.empty(1, device="cuda")
        seen["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    except (RuntimeError, AssertionError) as error:  # the latter: a torch without CUDA
        return {**seen, "gpus": 0, "reason": str(error).splitlines()[0]}
    return {**seen, "gpus": torch.cuda.device_count(), "reason": "no error"}


def train(rank, ranks, gpu, meeting, layers, width, batch, tokens, warm_up, steps):
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
    seconds = []
    for _ in range(warm_up + steps):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), wanted)
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    parameters = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    result = {"step_s": seconds[warm_up:], "loss": loss.item(), "parameters": len(parameters),
              "apart": apart(parameters, distributed)}
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
