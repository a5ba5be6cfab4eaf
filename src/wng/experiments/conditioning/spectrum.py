"""Conditioning of a task: the leading curvature of the objective at the end of training.

The paper computes the Hessian at the end of training and plots the ratio of its largest eigenvalue
to each of the following ones (Figure 3).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from matplotlib.ticker import MaxNLocator

from wng.agents.agent import Agent
from wng.agents.registry import GRADIENT
from wng.estimator.checks import check_count
from wng.estimator.spectrum import hessian_vector_product, leading_eigenvalues
from wng.experiments.output import GRAY, figure, save
from wng.policy_gradient.networks import Networks, Policy
from wng.policy_gradient.proximity import none

OBJECTIVE = "E[ρA]"
MOST = 200  # eigenvalues; Lanczos keeps twice as many vectors of the policy's size


class Spectrum(NamedTuple):
    """Leading Hessian eigenvalues of an agent's objective with respect to its policy."""

    env: str
    method: str
    seed: int
    steps: int  # environment steps of training
    samples: int  # environment steps that the objective averages over
    parameters: int  # number of the policy's parameters, p
    eigenvalues: Float[np.ndarray, " k"]  # of the maximized objective, by decreasing |λ|
    noise: float  # largest |λ| that chance alone gives on equally many samples
    objective: str = OBJECTIVE


def diagnose(agent: Agent, rollouts: int = 8, number: int = 20) -> Spectrum:
    """Compute leading eigenvalues of the Hessian of E[ρA], ρ = π_θ/π_k, at the agent's policy.

    The objective is the surrogate alone, without clipping or penalty, so it is the same for every
    method; A is standardized. The objective is maximized: λ < 0 is a direction in which it curves
    down.

    The noise in a Hessian from a finite batch adds eigenvalues. To measure them, the advantages are
    shifted by half the batch, so that none belongs to its action: since E[∇²π/π] = 0 in every
    state, the expectation of that Hessian is zero, and what remains is noise.

    Args:
      agent: Policy-gradient agent. Its environments advance; nothing else changes.
      rollouts: Number of rollouts, of `config.rollout` steps each, in the batch.
      number: Number of eigenvalues.

    Raises:
      ValueError: If the agent is an evolution strategy or a number is out of range.
    """
    if agent.family is not GRADIENT:
        raise ValueError(
            f"{agent.title} is an evolution strategy, whose objective has no gradient: "
            "`wng diagnose` needs a policy-gradient run."
        )
    check_count(rollouts, "rollouts", 1)
    if not isinstance(number, int) or not 2 <= number <= MOST:  # a ratio needs two
        raise ValueError(f"number must be a whole number from 2 to {MOST}, got {number!r}.")
    batch = agent.trainer.sample_batch(rollouts)
    networks = agent.trainer.state.networks

    def spectrum(advantages: Array, number: int) -> tuple[np.ndarray, int]:
        def objective(policy: Policy) -> Array:
            rows = batch._replace(advantages=advantages)
            return -none.surrogate(agent.config, Networks(policy, networks.value), rows)

        product, size = hessian_vector_product(objective, networks.policy)
        return leading_eigenvalues(product, size, number), size

    advantages = batch.advantages
    eigenvalues, size = spectrum(advantages, number)
    (noise,), _ = spectrum(jnp.roll(advantages, len(advantages) // 2), 1)
    who = agent.env, agent.title, agent.seed, agent.steps
    return Spectrum(*who, len(advantages), size, eigenvalues, abs(float(noise)))


def ratios(eigenvalues: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
    """Return |λ₁|/|λᵢ|, infinite where λᵢ is zero."""
    size = np.abs(eigenvalues)
    return np.divide(size[0], size, out=np.full(len(size), np.inf), where=size > 0)


def describe(spectrum: Spectrum) -> str:
    """Explain the eigenvalues in a few sentences."""
    values = spectrum.eigenvalues
    begin = (
        f"{spectrum.method} on {spectrum.env}, seed {spectrum.seed}, after {spectrum.steps:,} "
        f"steps: the {len(values)} leading Hessian eigenvalues of {spectrum.objective} for "
        f"the policy's {spectrum.parameters:,} parameters, from {spectrum.samples:,} steps."
    )
    if not values.any():
        return f"{begin} All of them are zero: the objective is flat, so there is no ratio."
    places = [i for i in (10, 20) if i < len(values)] + [len(values)]
    share = ratios(values)
    shown = [f"{share[i - 1]:.3g} at i = {i}" for i in dict.fromkeys(places)]
    negative, clear = int((values < 0).sum()), int((np.abs(values) > spectrum.noise).sum())
    rest = "" if clear == len(values) else "; the others need more rollouts to be reliable"
    return (
        f"{begin} |λ₁|/|λᵢ| is {' and '.join(shown)}. A larger ratio means worse conditioning: a "
        "plain gradient step that is safe along the first direction makes little progress along "
        f"the others. {negative} of the {len(values)} eigenvalues are negative (the maximized "
        f"objective curves down along these, and up along the rest). {clear} of them exceed "
        f"{spectrum.noise:.3g} in magnitude, the noise level of this batch{rest}. In the paper, "
        "Wasserstein natural gradients help most on the tasks with the largest ratios (Figure "
        "3). This is a heuristic from a few tasks, without a threshold: compare the "
        "ratios with those of your other tasks, and decide by training with both kinds of gradient."
    )


def by_env(spectra: Sequence[Spectrum]) -> dict[str, list[Spectrum]]:
    """Group spectra by environment."""
    tasks: dict[str, list[Spectrum]] = {}
    for spectrum in spectra:
        tasks.setdefault(spectrum.env, []).append(spectrum)
    return tasks


def draw_spectrum(spectra: Sequence[Spectrum], to: Path) -> Path:
    """Draw the ratios of each task: geometric mean over runs, with a band from min to max.

    A dotted line marks the ratio of the noise: above it, eigenvalues cannot be told from noise.
    """
    fig, (axis,) = figure(1, 1, (6.5, 4.2))
    for k, (env, runs) in enumerate(by_env(spectra).items()):
        length = min(len(run.eigenvalues) for run in runs)  # some may not have converged
        # The last column is the ratio of the noise.
        values = np.stack([ratios(np.append(run.eigenvalues[:length], run.noise)) for run in runs])
        values[~np.isfinite(values) | (values == 0)] = np.nan  # cannot be drawn on a log scale
        place, color = np.arange(1, length + 1), f"C{k}"
        label = f"{env} ({len(runs)} run{'s' * (len(runs) > 1)})"
        mean = np.exp(np.log(values).mean(axis=0))  # geometric
        axis.plot(place, mean[:-1], "o-", color=color, ms=3, lw=1.4, label=label)
        axis.axhline(mean[-1], color=color, ls=":", lw=1)
        if len(runs) > 1:
            low, high = values.min(axis=0)[:-1], values.max(axis=0)[:-1]
            axis.fill_between(place, low, high, color=color, alpha=0.18, lw=0)
    # Legend entry, drawn where every line starts so that the log scale has a value without lines.
    axis.plot([1, 1], [1, 1], ":", color=GRAY, lw=1, label="noise of the batch (and above)")
    axis.set_yscale("log")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    title = f"Hessian of {spectra[0].objective}: leading eigenvalue over the i-th"
    axis.set(xlabel="i", ylabel="|λ₁| / |λᵢ|", title=title)
    axis.legend(frameon=False, fontsize=8)
    save(fig, to)
    return to
