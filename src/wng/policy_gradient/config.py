"""Every setting of a policy-gradient run, in one frozen dataclass."""

from dataclasses import dataclass
from typing import Literal

from wng.behavior.embedding import EMBEDDINGS
from wng.policy_gradient.axes import GEOMETRIES, PROXIMITIES, STEPS
from wng.runs.settings import Limits

Backend = Literal["auto", "gymnasium", "workers", "envpool", "jax"]


@dataclass(frozen=True)
class Config:
    """Settings of a policy-gradient run. The method chooses the defaults (`wng methods`)."""

    proximity: str = "none"
    """Global term in the objective that keeps the new policy near the old one: none, clip, kl,
    wasserstein, or module:object."""
    geometry: str = "euclidean"
    """Local metric that turns the gradient into a direction: euclidean, fisher, wasserstein (the
    paper's kernel estimator), wasserstein-exact (closed form for the actions of Gaussian
    policies), wasserstein-auto (the closed form where it applies, else the estimator), or
    module:object."""
    step: str = "optimizer"
    """How a batch is used: optimizer (epochs of minibatches), trust_region (one step of a given KL
    divergence), or module:object."""

    num_envs: int = 8
    """Number of environments stepped at once."""
    rollout: int = 2048
    """Environment steps per iteration, over all environments."""
    backend: Backend = "auto"
    """Where environments run: in this process (gymnasium), in worker processes (workers), in
    EnvPool's threads (envpool), inside the compiled program if they are written in JAX (jax), or
    whichever is fastest (auto)."""
    gamma: float = 0.99
    """Discount factor."""
    gae_lambda: float = 0.95
    """λ of generalized advantage estimation."""
    normalize_observations: bool = True
    """Standardize observations by their running mean and variance, clipped at 10."""
    normalize_rewards: bool = True
    """Divide rewards by the running spread of the discounted return, clipped at 10."""

    hidden: tuple[int, ...] = (64, 64)
    """Widths of the tanh layers of the policy and of the value function."""
    log_std: float = 0.0
    """Initial log standard deviation of continuous actions."""

    optimizer: Literal["adam", "sgd"] = "adam"
    """Optimizer of the policy with step=optimizer: adam or sgd. The value function always uses
    Adam."""
    learning_rate: float = 3e-4
    """Learning rate of the policy."""
    value_learning_rate: float = 1e-3
    """Learning rate of the value function."""
    steer: bool = False
    """With step=optimizer, scale the policy's learning rate so that the KL divergence of an
    iteration approaches kl_target, and stop using a batch once the KL divergence exceeds 1.5 times
    kl_target."""
    epochs: int = 10
    """Passes of the policy over each batch with step=optimizer."""
    minibatch: int = 64
    """Samples per optimizer step of the policy."""
    value_epochs: int = 10
    """Passes of the value function over each batch."""
    value_minibatch: int = 64
    """Samples per optimizer step of the value function."""
    max_grad_norm: float = 0.5
    """Maximum norm of the direction; a longer one is clipped before the optimizer."""
    value_weight: float = 0.5
    """Weight of the value function's squared error. It matters only if the embedding includes
    values, because policy and value function then share one metric."""

    clip_range: float = 0.2
    """Largest change c of the probability ratio with proximity=clip, which clips it to 1 ± c."""
    penalty: float = 1.0
    """Weight β of the penalty with proximity=kl (its initial value) or wasserstein."""
    kl_target: float = 0.01
    """KL divergence per iteration: the length of a trust-region step, and the target of steer and
    of the adaptive weight with proximity=kl."""
    penalty_embedding: str = "state-action"
    """Behavior that proximity=wasserstein compares: state-action (the actions in each state),
    trajectory-actions (those of a stretch of trajectory), or any other embedding with
    penalty_form=dual."""
    penalty_form: Literal["exact", "dual", "matched"] = "exact"
    """Form of the penalty W₂² with proximity=wasserstein: exact (closed form for actions), dual
    (test functions on samples) or matched (test functions on matched pairs of actions, with
    absolute scales, as in the paper's code)."""
    dual_actions: int = 10
    """Number of actions drawn in each state with penalty_form=dual or matched."""
    dual_features: int = 100
    """Number of random Fourier features of the penalty's test functions."""
    dual_bandwidth: float = 1.0
    """Width of the random Fourier features, as a multiple of the root-mean-square distance between
    behaviors (an absolute width with penalty_form=matched)."""
    dual_gamma: float = 0.1
    """Entropic smoothing of the penalty, as a multiple of the mean squared distance between
    behaviors (absolute with penalty_form=matched)."""
    dual_samples: int = 64
    """Number of states, or stretches of trajectory, that the penalty's test functions compare."""
    dual_steps: int = 25
    """Ascent steps on the penalty's test functions at each minibatch."""

    embedding: str = "state-action"
    """Behavior Φ that the Wasserstein metric sees: state-action, clipped-action (the state, and the
    action clipped to its bounds), state-change (the state, and how the step changes it), actions,
    actions-value, trajectory-actions, final-state, reward-to-go, or module:function."""
    horizon: int = 32
    """Number of steps in a stretch of trajectory, for embeddings of more than one step."""
    jacobian: Literal["auto", "reparam", "score"] = "auto"
    """Form of the Jacobian of the kernel metric: reparam (reparameterized), score (from log
    probabilities), or auto (reparam for continuous actions if the embedding allows it, otherwise
    score)."""
    basis: Literal["auto", "kernel", "policy"] = "auto"
    """Basis of the transport potential with geometry=wasserstein: kernel (derivatives of a Gaussian
    kernel, for any embedding), policy (functions that are local in the state and linear in the
    policy's outputs, for embedding=state-action; without action noise), or auto (policy where it
    applies and num_basis is large enough, otherwise kernel)."""
    num_basis: int = 200
    """Number M of basis functions, the rank of the kernel metric."""
    bandwidth: float = 0.5
    """Bandwidth of the kernel with basis=kernel, as a multiple of the root-mean-square distance
    between behaviors."""
    metric_samples: int = 512
    """Number of behaviors that the kernel metric is estimated from; at most one per step."""
    refresh_every: int = 1
    """Number of minibatches for which one estimate of the kernel metric is used."""
    damping: float = 0.005
    """Damping ε of the metric; a multiple of its largest eigenvalue with relative_damping."""
    relative_damping: bool = True
    """Measure the damping in units of the metric's largest eigenvalue."""
    adapt_damping: int = 0
    """Number of minibatches between adaptations of the damping by the reduction ratio (actual over
    predicted decrease of the loss); 0 keeps it fixed."""
    rescale: bool = False
    """Rescale the damping by the metric's diagonal, as the paper's released code does."""
    cg_iterations: int = 10
    """Conjugate-gradient iterations (products with the metric) in a solve with geometry=fisher or
    wasserstein-exact."""

    momentum: float = 0.0
    """Share of the last trust-region direction to keep where the metric barely constrains it."""
    std_share: float = 0.0
    """Largest share of kl_target for a separate step of the standard deviation σ, with
    step=trust_region and continuous actions. The averaged gradient of σ and its noise determine the
    length of this step. 0 moves σ together with the mean."""
    backtracks: int = 10
    """Maximum number of times that a trust-region step is halved before it is given up."""

    def __post_init__(self) -> None:
        LIMITS.check(self)
        if self.rollout % self.num_envs:
            raise ValueError(
                f"rollout={self.rollout} must be a multiple of num_envs={self.num_envs}: "
                f"use {max(1, self.rollout // self.num_envs) * self.num_envs}."
            )
        for name in ("minibatch", "value_minibatch"):
            if self.rollout % getattr(self, name):
                raise ValueError(
                    f"rollout={self.rollout} must be a multiple of {name}={getattr(self, name)}."
                )


LIMITS = Limits(
    registries={
        "proximity": PROXIMITIES,
        "geometry": GEOMETRIES,
        "step": STEPS,
        "penalty_embedding": EMBEDDINGS,
    },
    at_least={"adapt_damping": 0, "backtracks": 0, "dual_steps": 0},
    any_sign=("log_std",),
    at_most_one=("gamma", "gae_lambda", "momentum", "std_share"),
    may_be_zero=("gae_lambda", "gamma", "momentum", "penalty", "std_share", "value_weight"),
)
# Groups of flags in --help, by the first setting of each.
GROUPS = {
    "proximity": "axes",
    "num_envs": "data",
    "hidden": "networks",
    "optimizer": "optimizer",
    "clip_range": "proximity",
    "embedding": "geometry",
    "momentum": "trust_region",
}
