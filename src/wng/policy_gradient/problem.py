"""The problem that the three axes apply to: settings, sizes, behaviors, and the axis objects."""

import copy
import math
from typing import TYPE_CHECKING, Any

from wng.behavior.embedding import Embedding, find_embedding
from wng.estimator.damping import Damping
from wng.policy_gradient.axes import GEOMETRIES, PROXIMITIES, STEPS
from wng.policy_gradient.behaviors import Behaviors
from wng.policy_gradient.config import Config
from wng.runs.settings import shape_of, with_numbers

if TYPE_CHECKING:
    from wng.policy_gradient.geometry import Geometry
    from wng.policy_gradient.proximity import Proximity
    from wng.policy_gradient.steps import Step

Axes = tuple["Proximity", "Geometry", "Step"]


def find_axes(config: Config) -> Axes:
    """The axis objects that the configuration names."""
    proximity, geometry = PROXIMITIES.find(config.proximity), GEOMETRIES.find(config.geometry)
    return proximity, geometry, STEPS.find(config.step)


class Problem:
    """One method on one kind of environment.

    The kernel metric sees `behaviors` of `num_windows` windows, the Wasserstein penalty sees
    `penalty_behaviors`, and `control` chooses the damping ε. `action_bounds` are the lowest and the
    highest actions, to which the environment clips. Inside a compiled program, numbers in `config`
    may be arguments of the program. The program itself depends only on `shape`, where these numbers
    are 0 or 1.
    """

    def __init__(
        self,
        config: Config,
        embedding: Embedding,
        *,
        observation_size: int,
        action_size: int,
        discrete: bool,
        action_bounds: tuple[Any, Any] = (-math.inf, math.inf),
        axes: Axes | None = None,
    ):
        self.config, self.shape, self.discrete = config, shape_of(config), discrete
        self.observation_size, self.action_size = observation_size, action_size
        self.action_bounds = action_bounds
        self.proximity, geometry, self.step = axes or find_axes(config)
        self.geometry = geometry.suited(discrete, embedding)
        joint = embedding.uses_value and self.geometry.needs_behaviors and self.step.joint
        self.behaviors, self.penalty_behaviors = (
            Behaviors(seen, config, discrete, action_size, shared, action_bounds)
            for seen, shared in (
                (embedding, joint),
                (find_embedding(config.penalty_embedding), False),
            )
        )
        steps = config.rollout // config.num_envs
        if max(self.behaviors.horizon, self.penalty_behaviors.horizon) > steps:
            raise ValueError(
                f"horizon={config.horizon} is longer than the {steps} steps that each of the "
                f"{config.num_envs} environments takes in an iteration: lower horizon or num_envs."
            )
        windows = steps // self.behaviors.horizon * config.num_envs
        self.num_windows = min(config.metric_samples, windows)
        if self.geometry.needs_behaviors:
            self.behaviors.check()
        if self.proximity.needs_behaviors:
            self.penalty_behaviors.check()
        self.geometry.check(self)
        self.proximity.check(self)

    @property
    def control(self) -> Damping:
        """The rule that chooses ε."""
        config = self.config
        return Damping(
            config.damping,
            relative=config.relative_damping,
            every=config.adapt_damping,
            step_size=config.learning_rate,
        )

    def at(self, numbers: dict[str, Any]) -> "Problem":
        """This problem with other numbers among its settings."""
        found = copy.copy(self)
        found.config = with_numbers(self.config, numbers)
        return found
