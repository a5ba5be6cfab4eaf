"""An agent back from its file, whichever family it is of."""

import warnings
from pathlib import Path
from typing import Any

from wng.behavior.embedding import check_loadable
from wng.evolution.agent import Evolution
from wng.policy_gradient.agent import Agent
from wng.runs import checkpoint
from wng.runs.directory import RunDirectory

FAMILIES = {family.kind: family for family in (Agent, Evolution)}


def load(path: str | Path, *, embedding: Any = None) -> Agent | Evolution:
    """The agent in a file of `save`, or in the folder of a run, ready to go on.

    Args:
      path: the file or folder.
      embedding: the function, if the agent was made with one (files never hold code).
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
    if info.get("kind") not in FAMILIES:
        raise ValueError(f"{path} is not an agent of wng.")
    check_loadable(info["config"]["embedding"], embedding, path)
    family = FAMILIES[info["kind"]]
    settings = info["config"] | {"hidden": tuple(info["config"]["hidden"])}
    config = family.config_class(**settings)
    agent = family(info["env"], info["method"], info["seed"], embedding=embedding, config=config)
    agent._trainer.restore(arrays, info)
    agent._newest = newest
    return agent
