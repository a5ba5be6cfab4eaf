"""Looks up an environment by its id, or says in one sentence why it cannot be used."""

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
from wng.envs.jax_gym import jax_gym_spec
from wng.envs.worker import quiet_bullet


def find(env_id: Any, **kwargs: Any) -> tuple[gymnasium.Env, str]:
    """Make the environment of an id, with arguments of `gymnasium.make`.

    An id is a Gymnasium id, 'module:id', or that of a JAX environment (`jax_gym_spec`).

    Returns the environment, and its full id (with module and version).
    """
    if not isinstance(env_id, str) or not env_id:
        raise ValueError(
            f"env must be an environment id, such as 'Hopper-v5', got {env_id!r}; register your "
            "own environments with gymnasium.register."
        )
    module, _, name = env_id.rpartition(":")
    if module:
        try:
            importlib.import_module(module)
        except (ImportError, TypeError, ValueError) as error:  # TypeError: '.a' as a module
            raise ValueError(
                f"cannot import the module {module!r} of the environment id {env_id!r} ({error}): "
                "install it, or check its name."
            ) from error
    if "Bullet" in name:
        if importlib.util.find_spec("pybullet_envs_gymnasium") is None:
            raise ValueError(f"{env_id!r} needs PyBullet: pip install 'wng[pybullet]'.")
        with quiet_bullet(name):
            importlib.import_module("pybullet_envs_gymnasium")
    made = jax_gym_spec(env_id) or name
    try:
        with quiet_bullet(name):
            env = gymnasium.make(made, disable_env_checker=True, **kwargs)
    except gymnasium.error.UnregisteredEnv:
        raise ValueError(_unknown(env_id, name)) from None
    except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
        raise ValueError(_missing(env_id, name, error)) from error
    except Exception as error:
        raise ValueError(f"cannot make {env_id!r}: {type(error).__name__}: {error}") from error
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
    """Describe an environment by its spaces, or raise a ValueError if they are not supported."""
    if not isinstance(observations, Box):
        raise ValueError(
            f"{env_id!r} has observations of {_show(observations)}, but only Box observations are "
            "supported: wrap it in gymnasium.wrappers.FlattenObservation before registering it."
        )
    if not isinstance(actions, Box | Discrete):
        raise ValueError(
            f"{env_id!r} has actions of {_show(actions)}, but only Box and Discrete actions are "
            "supported: wrap it in a gymnasium.ActionWrapper before registering it."
        )
    if isinstance(actions, Discrete):
        size, start, dtype, bounds = int(actions.n), int(actions.start), "int64", [(), ()]
    else:
        size, start, dtype = int(np.prod(actions.shape)), 0, str(actions.dtype)
        bounds = [tuple(x.ravel().tolist()) for x in (actions.low, actions.high)]
    return EnvSpec(
        id=env_id,
        backend=backend,
        observation_size=int(np.prod(observations.shape)),
        discrete=isinstance(actions, Discrete),
        action_size=size,
        replayable=replayable,
        max_episode_steps=max_episode_steps,
        action_shape=actions.shape or (),
        action_dtype=dtype,
        action_low=bounds[0],
        action_high=bounds[1],
        action_start=start,
    )


def nearest(name: str, ids: Iterable[str]) -> str | None:
    """Guess which id was meant by `name`: the highest version of the closest match."""
    versions = {i: _split(i) for i in ids}
    folded = {base.lower(): base for base in sorted({base for base, _ in versions.values()})}
    close = difflib.get_close_matches(_split(name)[0].lower(), folded, n=1, cutoff=0.7)
    same = [i for i, (base, _) in versions.items() if close and base == folded[close[0]]]
    return max(same, key=lambda i: versions[i][1], default=None)


def _split(env_id: str) -> tuple[str, int]:
    match = re.fullmatch(r"(.+?)-v(\d+)", env_id)
    return (match[1], int(match[2])) if match else (env_id, -1)


def _unknown(env_id: str, name: str) -> str:
    near = nearest(name, gymnasium.registry)
    if near is not None:
        return f"there is no environment {env_id!r}: did you mean {near!r}?"
    return (
        f"there is no environment {env_id!r}: if another package registers it, name that "
        f"package in the id, as in 'package:{name}'."
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
    return f"cannot make {env_id!r}: {error}"


def _show(space: Space) -> str:
    """Format a space on one line of limited length."""
    text = " ".join(str(space).split())
    return text if len(text) <= 100 else f"{text[:100]}…"
