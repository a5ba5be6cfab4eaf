"""JAX environments of gymnax, brax and MuJoCo Playground as `JaxEnv`s."""

import contextlib
import io
import warnings
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete


@dataclass(frozen=True)
class Gymnax:
    """An environment of gymnax."""

    name: str

    @cached_property
    def _made(self) -> tuple[Any, Any]:
        import gymnax

        try:
            return gymnax.make(self.name)
        except Exception as error:  # such as a data set that cannot be fetched
            raise ValueError(
                f"cannot make 'gymnax/{self.name}': {type(error).__name__}: {error}"
            ) from error

    @property
    def max_episode_steps(self) -> int:
        """Its time limit."""
        return int(self._made[1].max_steps_in_episode)

    @property
    def observation_space(self) -> Box | Discrete:
        """Its observations, without their bounds."""
        env, params = self._made
        space = env.observation_space(params)
        if hasattr(space, "n"):
            return Discrete(int(space.n))
        return Box(-np.inf, np.inf, space.shape, np.float32)

    @property
    def action_space(self) -> Box | Discrete:
        """Its actions."""
        env, params = self._made
        space = env.action_space(params)
        if hasattr(space, "n"):
            return Discrete(int(space.n))
        low, high = (np.broadcast_to(x, space.shape) for x in (space.low, space.high))
        return Box(low.astype(np.float32), high.astype(np.float32), dtype=np.float32)

    def reset(self, key: Any) -> tuple[Any, Any]:
        """Start an episode."""
        env, params = self._made
        observation, state = env.reset_env(key, params)
        return state, observation

    def step(self, key: Any, state: Any, action: Any) -> tuple[Any, ...]:
        """Take one step, without gymnax's own reset."""
        env, params = self._made
        observation, state, reward, terminated, _ = env.step_env(key, state, action, params)
        return state, observation, reward, terminated, env.is_truncated(state, params)

    @staticmethod
    def names() -> list[str]:
        """The environments there are."""
        import gymnax

        return list(gymnax.registered_envs)


@dataclass(frozen=True)
class Brax:
    """An environment of brax, unwrapped: it neither ends in time nor resets itself."""

    name: str
    max_episode_steps = 1000

    @cached_property
    def _env(self) -> Any:
        with warnings.catch_warnings(action="ignore"):  # that brax recommends Playground
            return _brax_envs().get_environment(self.name)

    @property
    def observation_space(self) -> Box:
        """Its observations, which have no bounds."""
        return Box(-np.inf, np.inf, (self._env.observation_size,), np.float32)

    @property
    def action_space(self) -> Box:
        """Its actions."""
        return Box(-1.0, 1.0, (self._env.action_size,), np.float32)

    def reset(self, key: Any) -> tuple[Any, Any]:
        """Start an episode."""
        state = self._env.reset(key)
        return state, state.obs

    def step(self, key: Any, state: Any, action: Any) -> tuple[Any, ...]:
        """Take one step."""
        state = self._env.step(state, action)
        return state, state.obs, state.reward, state.done > 0, False

    @staticmethod
    def names() -> list[str]:
        """The environments there are."""
        return list(_brax_envs()._envs)  # there is no public list

    @property
    def render_fps(self) -> int:
        """Steps per second."""
        return round(1 / float(self._env.dt))

    @cached_property
    def _viewer(self) -> Any:
        from wng.envs.viewer import Viewer

        return Viewer(self._model)

    def render(self, state: Any) -> np.ndarray:
        """Draw a state."""
        camera = 0 if self._model.ncam else None  # which follows the body, where there is one
        return self._viewer.draw(partial(_place, self._places(state)), camera)

    def close(self) -> None:
        """Free the renderer, if there is one."""
        viewer = vars(self).pop("_viewer", None)
        if viewer is not None:
            viewer.close()

    @property
    def _model(self) -> Any:
        return self._env.sys.mj_model

    def _places(self, state: Any) -> dict[str, Any]:
        return {"qpos": state.pipeline_state.q}


class Playground(Brax):
    """A task of the DM Control suite in MuJoCo Playground, simulated by MJX."""

    @cached_property
    def _env(self) -> Any:
        from mujoco_playground import registry

        return registry.load(self.name, config_overrides={"impl": "jax"})

    @property
    def max_episode_steps(self) -> int:  # type: ignore[override]
        """Its time limit."""
        from mujoco_playground import registry

        return int(registry.get_default_config(self.name).episode_length)

    @property
    def _model(self) -> Any:
        return self._env.mj_model

    def _places(self, state: Any) -> dict[str, Any]:
        names = ("qpos", "mocap_pos", "mocap_quat")  # targets are moved as mocap bodies
        return {name: getattr(state.data, name) for name in names}

    @staticmethod
    def names() -> list[str]:
        """The tasks there are; those of other suites fetch files at run time."""
        from mujoco_playground import dm_control_suite

        return list(dm_control_suite.ALL_ENVS)


def _brax_envs() -> Any:
    with contextlib.redirect_stdout(io.StringIO()):  # about optional packages
        from brax import envs
    return envs


def _place(places: dict[str, Any], model: Any, data: Any) -> None:
    for name, value in places.items():
        getattr(data, name)[:] = np.asarray(value)
