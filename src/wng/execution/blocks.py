"""Blocks: runs that differ in the seed alone, which one worker trains as one program."""

import dataclasses
import math
import os
from collections.abc import Sequence

import numpy as np

from wng.agents.run import Job

COPIES = 20  # of the numbers in a rollout that its update makes, roughly


def in_blocks(jobs: Sequence[Job], cores: int, size: int) -> list[Job]:
    """The jobs in blocks, at least one for each core; the jobs themselves if `size` is 0.

    `size` is how many numbers the states and actions of a rollout, or of a population's episodes,
    and the parameters are (`Family.seed_size`). A seed needs several times that, and all blocks at
    once at most a quarter of the memory.
    """
    if not size:
        return list(jobs)
    cores = max(1, cores)  # of a cluster, none may be free: whoever starts the jobs says so
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    most = max(1, memory // 4 // (cores * COPIES * 4 * size))
    number = max(min(cores, len(jobs)), math.ceil(len(jobs) / most))
    blocks = [list(part) for part in np.array_split(np.array(jobs, object), number)]
    return [
        dataclasses.replace(block[0], block=tuple(job.seed for job in block) * (len(block) > 1))
        for block in blocks
    ]
