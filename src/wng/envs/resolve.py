"""From an id to an environment that can be used, or to a sentence that says what to do."""

import difflib
import importlib
import importlib.util
import re
from collections.abc import Iterable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, Space

from wng.envs.base import Backend, EnvSpec
from wng.envs.worker import quiet_bullet


def find(env_id: Any, render_mode: str | None = None) -> tuple[gymnasium.Env, str]:
    """Make one environment with Gymnasium; also its full id (with the version, and the module)."""
    if not isinstance(env_id, str) or not env_id:
        raise ValueError(
            f"an environment is given by its id, such as 'Hopper-v5', got {env_id!r}; register "
            "one of your own with gymnasium.register."
        )
    module, _, name = env_id.rpartition(":")
    if module:
        _import(module, env_id)
    if "Bullet" in name:
        if importlib.util.find_spec("pybullet_envs_gymnasium") is None:
            raise ValueError(f"{env_id!r} needs PyBullet: pip install 'wng[pybullet]'.")
        with quiet_bullet(name):
            importlib.import_module("pybullet_envs_gymnasium")
    try:
        with quiet_bullet(name):
            settings: dict[str, Any] = {} if render_mode is None else {"render_mode": render_mode}
            env = gymnasium.make(name, disable_env_checker=True, **settings)
    except gymnasium.error.UnregisteredEnv:
        raise ValueError(_unknown(env_id, name, gymnasium.registry)) from None
    except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
        raise ValueError(_missing(env_id, name, error)) from error
    except Exception as error:
        raise ValueError(f"{env_id!r} cannot be made: {type(error).__name__}: {error}") from error
    found = env.spec.id if env.spec is not None else name
    return env, f"{module}:{found}" if module else found


def describe(
    env_id: str,
    backend: Backend,
    observations: Space,
    actions: Space,
    *,
    replayable: bool,
    max_episode_steps: int | None,
) -> EnvSpec:
    """The `EnvSpec` of an environment with these spaces, or a ValueError if they do not fit."""
    if not isinstance(observations, Box):
        raise ValueError(
            f"{env_id!r} has observations of {_show(observations)}, but only Box observations are "
            "supported: register it with gymnasium.wrappers.FlattenObservation around it."
        )
    if not isinstance(actions, Box | Discrete):
        raise ValueError(
            f"{env_id!r} has actions of {_show(actions)}, but only Box and Discrete actions are "
            "supported: register it with a gymnasium.ActionWrapper around it."
        )
    discrete = isinstance(actions, Discrete)
    return EnvSpec(
        id=env_id,
        backend=backend,
        observation_size=int(np.prod(observations.shape)),
        discrete=discrete,
        action_size=int(actions.n)
        if isinstance(actions, Discrete)
        else int(np.prod(actions.shape)),
        replayable=replayable,
        max_episode_steps=max_episode_steps,
        action_shape=actions.shape or (),
        action_dtype="int64" if discrete else str(actions.dtype),
        action_low=() if isinstance(actions, Discrete) else tuple(actions.low.ravel().tolist()),
        action_high=() if isinstance(actions, Discrete) else tuple(actions.high.ravel().tolist()),
        action_start=int(actions.start) if isinstance(actions, Discrete) else 0,
    )


def nearest(name: str, ids: Iterable[str]) -> str | None:
    """The id that `name` was probably meant to be: the highest version of the nearest name."""
    ids = list(ids)
    versions = {i: _split(i) for i in ids}
    names = sorted({base for base, _ in versions.values()})
    base, _ = _split(name)
    folded = {n.lower(): n for n in names}
    close = difflib.get_close_matches(base.lower(), folded, n=1, cutoff=0.7)
    if not close:
        return None
    return max((i for i in ids if versions[i][0] == folded[close[0]]), key=lambda i: versions[i][1])


def _split(env_id: str) -> tuple[str, int]:
    match = re.fullmatch(r"(.+?)-v(\d+)", env_id)
    return (match[1], int(match[2])) if match else (env_id, -1)


def _unknown(env_id: str, name: str, ids: Iterable[str]) -> str:
    near = nearest(name, ids)
    if near is not None:
        return f"there is no environment {env_id!r}: did you mean {near!r}?"
    return (
        f"there is no environment {env_id!r}: if another package registers it, name the package "
        f"in the id, as in 'package:{name}'."
    )


def _missing(env_id: str, name: str, error: Exception) -> str:
    extra = re.search(r"gymnasium\[[\w-]+\]", str(error))
    if extra is not None:
        return f"{env_id!r} needs a package that is not installed: pip install '{extra[0]}'."
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"{env_id!r} needs a package that is not installed: pip install {error.name}."
    newer = nearest(name, gymnasium.registry)
    if newer is not None and newer != name and _split(newer)[0] == _split(name)[0]:
        return f"{env_id!r} is no longer part of Gymnasium: use {newer!r}."
    return f"{env_id!r} cannot be made: {error}"


def _import(module: str, env_id: str) -> None:
    try:
        importlib.import_module(module)
    except (ImportError, TypeError, ValueError) as error:  # TypeError: '.a' as a module
        raise ValueError(
            f"the module {module!r} of the environment id {env_id!r} cannot be imported ({error}): "
            "install it, or check its name."
        ) from error


def _show(space: Space) -> str:
    """A space on one line, not too long."""
    text = " ".join(str(space).split())
    return text if len(text) <= 100 else f"{text[:100]}…"
