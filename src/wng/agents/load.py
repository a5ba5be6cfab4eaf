"""Loading an agent from its file or from the folder of a run."""

import warnings
from pathlib import Path
from typing import Any

from wng.agents.agent import Agent
from wng.agents.registry import FAMILIES
from wng.behavior.embedding import check_loadable
from wng.runs import checkpoint
from wng.runs.directory import RunDirectory
from wng.runs.settings import config_from


def load(path: str | Path, *, embedding: Any = None) -> Agent:
    """Load an agent from a file that `save` wrote or from the folder of a run, ready to continue.

    Args:
      path: the file or folder.
      embedding: the function that the agent was created with, if any (files never hold code).
    """
    path = Path(path)
    newest = None
    if path.is_dir():
        run = RunDirectory.open(path)
        arrays, info, problems = checkpoint.read_latest(run.checkpoints)
        newest = checkpoint.saved(run.checkpoints)[0].resolve()
        for problem in problems:
            warnings.warn(problem, stacklevel=2)
    else:
        arrays, info = checkpoint.read(path)
    family = {family.kind: family for family in FAMILIES}.get(str(info.get("kind")))
    if family is None:
        raise ValueError(f"{path} does not hold an agent of wng.")
    checkpoint.check_info(info, env=str, method=str, seed=int, config=dict)
    config = config_from(info["config"], family.config)
    check_loadable(config.embedding, embedding, path)
    agent = Agent(info["env"], info["method"], info["seed"], embedding=embedding, config=config)
    try:
        agent.caveat = agent.trainer.restore(arrays, info)
    except BaseException:
        agent.close()
        raise
    agent.trainer.newest = newest
    return agent
