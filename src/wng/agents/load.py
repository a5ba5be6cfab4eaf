"""An agent back from its file, whichever family it is of."""

import dataclasses
import warnings
from pathlib import Path
from typing import Any

from wng.behavior.embedding import check_loadable
from wng.evolution.agent import Evolution
from wng.policy_gradient.agent import Agent
from wng.runs import checkpoint
from wng.runs.directory import RunDirectory
from wng.runs.trees import MISMATCH

FAMILIES = {family.kind: family for family in (Agent, Evolution)}


def config_from(saved: Any, config_class: type) -> Any:
    """A configuration that was in a file, whole: no setting unknown and none missing."""
    names = [f.name for f in dataclasses.fields(config_class)]
    if not isinstance(saved, dict) or set(saved) != set(names):
        raise ValueError(f"the file has other settings than a {config_class.__name__}: {MISMATCH}.")
    hidden = saved["hidden"]
    return config_class(
        **{**saved, "hidden": tuple(hidden) if isinstance(hidden, list) else hidden}
    )


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
    if str(info.get("kind")) not in FAMILIES:
        raise ValueError(f"{path} is not an agent of wng.")
    checkpoint.check_info(info, env=str, method=str, seed=int, config=dict)
    family = FAMILIES[info["kind"]]
    config = config_from(info["config"], family.config_class)
    check_loadable(config.embedding, embedding, path)
    agent = family(info["env"], info["method"], info["seed"], embedding=embedding, config=config)
    try:
        agent._trainer.restore(arrays, info)
    except BaseException:
        agent.close()
        raise
    agent._newest = newest
    return agent
