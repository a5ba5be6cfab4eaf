"""JAX environments found by their ids, and as Gymnasium environments."""

import importlib
import importlib.util
from functools import lru_cache
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec as GymSpec
from gymnasium.spaces import Box, Discrete

from wng.behavior.registry import nearest
from wng.envs.jax_env import JaxEnv


class Package(NamedTuple):
    """A package of JAX environments, whose ids start with its name and a slash."""

    adapter: str  # class in `wng.envs.jax_packages`
    module: str  # what must be installed


PACKAGES = {
    "gymnax": Package("Gymnax", "gymnax"),
    "brax": Package("Brax", "brax"),
    "playground": Package("Playground", "mujoco_playground"),
}


def jax_gym_spec(env_id: str) -> GymSpec | None:
    """The Gymnasium spec of a JAX environment; None if the id is not one of a JAX environment.

    Ids are 'package/name', or 'module:name' where the module has a `JaxEnv` of that name.
    """
    package, slash, name = env_id.partition("/")
    if slash and package in PACKAGES:
        if importlib.util.find_spec(PACKAGES[package].module) is None:
            raise ValueError(f"{env_id!r} needs {package}: pip install 'wng[{package}]'.")
        try:
            names = _adapter(package).names()
        except ImportError as error:
            raise ValueError(
                f"{package} cannot be imported ({error}): pip install 'wng[{package}]'."
            ) from error
        if name not in names:
            raise ValueError(
                f"there is no environment {env_id!r}: did you mean "
                f"'{package}/{nearest(name, names)}'?"
            )
        own = env_id
    else:
        module, _, own = env_id.rpartition(":")
        found = getattr(importlib.import_module(module), own, None) if module else None
        if not (callable(getattr(found, "reset", None)) and callable(getattr(found, "step", None))):
            return None
        if isinstance(found, type) and issubclass(found, gymnasium.Env):
            return None
    env = load_jax_env(env_id)
    return GymSpec(
        own,
        f"{__name__}:{'DrawnJaxGym' if hasattr(env, 'render') else 'JaxGym'}",
        max_episode_steps=env.max_episode_steps,
        kwargs={"env_id": env_id},
    )


@lru_cache(maxsize=64)  # the same object every time, so that programs are compiled once
def load_jax_env(env_id: str) -> JaxEnv:
    """The JAX environment of an id that `jax_gym_spec` knows."""
    package, slash, name = env_id.partition("/")
    if slash and package in PACKAGES:
        env = _adapter(package)(name)
        _check_spaces(env, env_id)
        return env
    module, _, name = env_id.rpartition(":")
    found = getattr(importlib.import_module(module), name)
    try:
        env = found() if isinstance(found, type) else found
    except Exception as error:
        raise ValueError(
            f"cannot make the JAX environment {env_id!r} ({type(error).__name__}: {error}): name "
            "an object, or a class whose constructor takes no arguments."
        ) from error
    for needed in ("observation_space", "action_space", "max_episode_steps"):
        if not hasattr(env, needed):
            raise ValueError(f"the JAX environment {env_id!r} has no attribute '{needed}': add it.")
    _check_spaces(env, env_id)
    try:
        hash(env)
    except TypeError:
        raise ValueError(
            f"the JAX environment {env_id!r} cannot be hashed: if a dataclass, make it frozen."
        ) from None
    check_functions(env, env_id)
    return env


def _check_spaces(env: JaxEnv, env_id: str) -> None:
    allowed = {"observation_space": (Box,), "action_space": (Box, Discrete)}
    for name, kinds in allowed.items():
        space = getattr(env, name)
        if not isinstance(space, kinds):
            names = " or ".join(f"gymnasium.spaces.{kind.__name__}" for kind in kinds)
            raise ValueError(
                f"the {name} of the JAX environment {env_id!r} must be a {names}, got {space!r}."
            )


def check_functions(env: JaxEnv, env_id: str) -> None:
    """Trace `reset` and `step` once; ValueError if they return something else than a `JaxEnv`'s."""
    import jax
    import jax.numpy as jnp

    def call(name: str, fields: str, *arguments: Any) -> tuple[Any, ...]:
        def wrong(what: str) -> ValueError:
            return ValueError(f"'{name}' of the JAX environment {env_id!r} {what}.")

        try:
            returned = jax.eval_shape(getattr(env, name), *arguments)
        except Exception as error:
            reason = str(error).strip().split("\n")[0].rstrip(".")
            raise wrong(f"failed: {type(error).__name__}: {reason}") from error
        if not isinstance(returned, tuple) or len(returned) != len(fields.split(", ")):
            raise wrong(f"must return ({fields})")
        if getattr(returned[1], "shape", None) != env.observation_space.shape:
            raise wrong(
                f"must return observations of shape {list(env.observation_space.shape or ())}, "
                f"that of its observation_space, but it returned {_shown(returned[1])}"
            )
        return returned

    key, space = jax.random.key(0), env.action_space
    state, _ = call("reset", "state, observation", key)
    action = jnp.asarray(getattr(space, "start", jnp.zeros(space.shape, jnp.float32)))
    results = "state, observation, reward, terminated, truncated"
    after, _, *numbers = call("step", results, key, state, action)
    shapes, expected = (jax.tree.map(lambda x: x.shape, tree) for tree in (after, state))
    if shapes != expected:
        raise ValueError(
            f"'step' of the JAX environment {env_id!r} must return a state of the same structure "
            "and shapes as 'reset'."
        )
    for name, number in zip(results.split(", ")[2:], numbers, strict=True):
        if getattr(number, "size", 0) != 1:
            raise ValueError(
                f"'step' of the JAX environment {env_id!r} must return one number as {name}, but "
                f"it returned {_shown(number)}."
            )


def _shown(traced: Any) -> str:
    shape = getattr(traced, "shape", None)
    return f"a {type(traced).__name__}" if shape is None else f"shape {list(shape)}"


def _adapter(package: str) -> Any:
    from wng.envs import jax_packages

    return getattr(jax_packages, PACKAGES[package].adapter)


class JaxGym(gymnasium.Env):
    """A JAX environment that Gymnasium steps, for evaluations and videos."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, env_id: str, render_mode: str | None = None) -> None:
        self.jax_env, self.render_mode = load_jax_env(env_id), render_mode
        self._env_id = env_id
        self.observation_space = self.jax_env.observation_space
        self.action_space = self.jax_env.action_space
        self._reset, self._step = _compiled(self.jax_env)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode."""
        import jax

        super().reset(seed=seed)
        self._key = jax.random.key(int(self.np_random.integers(2**31)))
        self._steps = 0
        self._state, observation = self._reset(jax.random.fold_in(self._key, 0))
        return np.asarray(observation), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Take one step."""
        self._steps += 1
        self._state, observation, reward, terminated, truncated = self._step(
            self._key, self._steps, self._state, action
        )
        return np.asarray(observation), float(reward), bool(terminated), bool(truncated), {}


class DrawnJaxGym(JaxGym):
    """A JAX environment with a method `render(state)`, which returns a picture [h, w, 3]."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012

    def __init__(self, env_id: str, render_mode: str | None = None) -> None:
        super().__init__(env_id, render_mode)
        self._drawn = False
        fps = getattr(self.jax_env, "render_fps", self.metadata["render_fps"])
        self.metadata = self.metadata | {"render_fps": fps}

    def close(self) -> None:
        """Free what drawing needed, if this copy has drawn: all copies share the environment."""
        if self._drawn:
            getattr(self.jax_env, "close", lambda: None)()
        self._drawn = False

    def render(self) -> np.ndarray | None:
        """Draw the current state."""
        if self.render_mode is None:
            return None
        env: Any = self.jax_env
        self._drawn = True
        picture = np.asarray(env.render(self._state), np.uint8)
        if picture.ndim != 3 or picture.shape[2] != 3:
            raise ValueError(
                f"'render' of the JAX environment {self._env_id!r} must return a picture of shape "
                f"[height, width, 3], but it returned shape {list(picture.shape)}."
            )
        return picture


@lru_cache(maxsize=64)
def _compiled(env: JaxEnv) -> tuple[Any, Any]:
    import jax

    def step(key: Any, number: Any, state: Any, action: Any) -> Any:
        return env.step(jax.random.fold_in(key, number), state, action)

    return jax.jit(env.reset), jax.jit(step)
