"""Every setting of a policy-gradient run, in one frozen dataclass."""

from dataclasses import dataclass
from typing import Literal, get_args

from wng.runs.settings import Limits

Proximity = Literal["none", "clip", "kl", "wasserstein"]
Geometry = Literal["euclidean", "fisher", "wasserstein", "wasserstein-exact"]
Step = Literal["optimizer", "trust_region"]
Jacobian = Literal["auto", "reparam", "score"]
Backend = Literal["auto", "gymnasium", "workers", "envpool"]


@dataclass(frozen=True)
class Config:
    """Settings of a run. The method and the environment choose the defaults (`wng methods`)."""

    # What is learned
    proximity: Proximity = "none"
    """Global term in the objective: keep the new policy near the old one in this sense."""
    geometry: Geometry = "euclidean"
    """Local metric that turns the gradient into a direction."""
    step: Step = "optimizer"
    """optimizer: epochs of minibatches. trust_region: one step of a given length per batch."""

    # Data
    num_envs: int = 8
    """Environments stepped at once."""
    rollout: int = 2048
    """Environment steps per iteration, over all environments."""
    backend: Backend = "auto"
    """Where environments run."""
    gamma: float = 0.99
    """Discount."""
    gae_lambda: float = 0.95
    """λ of generalised advantage estimation."""
    normalize_observations: bool = True
    """Standardise observations by running mean and variance, clipped at 10."""
    normalize_rewards: bool = True
    """Divide rewards by the running spread of the discounted return, clipped at 10."""

    # Networks
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the tanh layers, the same for policy and value."""
    log_std: float = 0.0
    """Initial log standard deviation of continuous actions."""

    # Optimiser
    optimizer: Literal["adam", "sgd"] = "adam"
    """Applied to the direction with step=optimizer. The value function always has Adam."""
    learning_rate: float = 3e-4
    """Of the policy."""
    value_learning_rate: float = 1e-3
    """Of the value function."""
    steer: bool = False
    """step=optimizer: scale the policy's learning rate so that KL per iteration nears kl_target,
    and stop using a batch once the policy is 1.5 times as far."""
    epochs: int = 10
    """Passes of the policy over each batch with step=optimizer."""
    minibatch: int = 64
    """Samples per optimiser step of the policy."""
    value_epochs: int = 10
    """Passes of the value function over each batch."""
    value_minibatch: int = 64
    """Samples per optimiser step of the value function."""
    max_grad_norm: float = 0.5
    """The direction is shortened to this norm before the optimiser."""
    value_weight: float = 0.5
    """Weight of the value function's squared error; matters where Φ has it share the metric."""

    # Proximity
    clip_range: float = 0.2
    """proximity=clip: of the probability ratio."""
    penalty: float = 1.0
    """proximity=kl, wasserstein: weight of the divergence; the initial one if it adapts."""
    kl_target: float = 0.01
    """KL per iteration that steer, proximity=kl (its weight) and a radius in W₂ aim at."""
    dual_features: int = 100
    """proximity=wasserstein: random Fourier features of the two test functions."""
    dual_bandwidth: float = 1.0
    """Width of these features, as a multiple of the root-mean-square distance of behaviours."""
    dual_gamma: float = 1.0
    """Entropic smoothing of the distance."""
    dual_samples: int = 64
    """Behaviours of the old and of the new policy that are compared."""
    dual_steps: int = 25
    """Ascent steps on the test functions at each minibatch."""

    # Geometry
    embedding: str = "state-action"
    """Behaviour Φ that the kernel metric and the Wasserstein penalty see, or module:function."""
    horizon: int = 32
    """Steps of a trajectory, for embeddings of more than one step."""
    jacobian: Jacobian = "auto"
    """Form of J. auto: reparam for continuous actions where Φ allows it, otherwise score."""
    num_basis: int = 200
    """M, the rank of the kernel metric."""
    bandwidth: float = 0.5
    """Of the kernel, as a multiple of the root-mean-square distance of behaviours."""
    metric_samples: int = 512
    """Behaviours that the kernel metric is estimated from; at most one per step of the batch."""
    refresh_every: int = 1
    """Estimate the kernel metric at every so-many-th minibatch."""
    damping: float = 0.005
    """ε; a multiple of the metric's largest eigenvalue with relative_damping."""
    relative_damping: bool = True
    """Kernel metric only."""
    adapt_damping: int = 0
    """Adapt ε by the reduction ratio at every so-many-th minibatch; 0: never."""
    rescale: bool = False
    """Diagonal rescaling of the damping, as released."""
    cg_iterations: int = 10
    """Conjugate-gradient steps of geometry=fisher, wasserstein-exact."""

    # Trust region
    radius: float = 0.01
    """Length of the first step: mean KL for geometry=fisher, squared W₂ otherwise."""
    backtracks: int = 10
    """Halvings of the step before it is given up."""

    def __post_init__(self) -> None:
        LIMITS.check(self)
        if self.rollout % self.num_envs:
            raise ValueError(
                f"rollout={self.rollout} must be a multiple of num_envs={self.num_envs}: "
                f"take {max(1, self.rollout // self.num_envs) * self.num_envs}."
            )
        for name in ("minibatch", "value_minibatch"):
            if self.rollout % getattr(self, name):
                raise ValueError(
                    f"rollout={self.rollout} must be a multiple of {name}={getattr(self, name)}."
                )
        if self.relative_damping and self.geometry in ("fisher", "wasserstein-exact"):
            object.__setattr__(self, "relative_damping", False)  # solved by CG: no eigenvalues


LIMITS = Limits(
    choices={
        "proximity": get_args(Proximity),
        "geometry": get_args(Geometry),
        "step": get_args(Step),
        "jacobian": get_args(Jacobian),
        "backend": get_args(Backend),
        "optimizer": ("adam", "sgd"),
    },
    at_least={"adapt_damping": 0, "backtracks": 0, "dual_steps": 0},
    any_sign=("log_std",),
    at_most_one=("gamma", "gae_lambda"),
    may_be_zero=("gae_lambda", "gamma", "penalty", "value_weight"),
)
