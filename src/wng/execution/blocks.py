"""Blocks: runs that differ in the seed alone, which one worker trains as one program."""

import dataclasses
import math
import os
from collections.abc import Sequence

import numpy as np

from wng.agents.run import Job


def in_blocks(jobs: Sequence[Job], cores: int, size: int) -> list[Job]:
    """The jobs in blocks, at least one for each core; the jobs themselves if `size` is 0.

    `size` is roughly how many numbers of 4 bytes a seed has in memory (`Family.seed_size`). All
    blocks at once get at most a quarter of it.
    """
    if not size:
        return list(jobs)
    cores = max(1, cores)  # of a cluster, none may be free: whoever starts the jobs says so
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    most = max(1, memory // 4 // (cores * 4 * size))
    number = max(min(cores, len(jobs)), math.ceil(len(jobs) / most))
    blocks = [list(part) for part in np.array_split(np.array(jobs, object), number)]
    return [
        dataclasses.replace(block[0], block=tuple(job.seed for job in block) * (len(block) > 1))
        for block in blocks
    ]
