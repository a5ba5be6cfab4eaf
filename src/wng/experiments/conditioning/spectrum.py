"""How ill-conditioned a task is: the leading curvature of the objective where training ended.

The paper computed the Hessian at the end of training and drew the ratios of its largest eigenvalue
to each successive one (Figure `fig:cond_number`).
"""

import dataclasses
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from matplotlib.ticker import MaxNLocator

from wng.estimator.checks import check_count
from wng.estimator.spectrum import hessian_vector_product, leading_eigenvalues
from wng.evolution.agent import Evolution
from wng.experiments.output import GRAY, figure, save
from wng.policy_gradient.agent import Agent
from wng.policy_gradient.networks import Networks, Policy
from wng.policy_gradient.proximity import surrogate_loss

OBJECTIVE = "E[ρA]"
MOST = 200  # eigenvalues: Lanczos keeps twice as many vectors of the policy's size


class Spectrum(NamedTuple):
    """Leading Hessian eigenvalues of one agent's objective, in its policy's parameters."""

    env: str
    method: str
    seed: int
    steps: int  # of training
    samples: int  # environment steps that the objective is the mean over
    parameters: int  # p
    eigenvalues: Float[np.ndarray, " k"]  # of the objective that is maximised, by decreasing |λ|
    noise: float  # the largest |λ| that chance alone gives, on as many samples
    objective: str = OBJECTIVE


def diagnose(agent: Agent | Evolution, rollouts: int = 8, number: int = 20) -> Spectrum:
    """Leading eigenvalues of the Hessian of E[ρA], ρ = π_θ/π_k, at the agent's own policy.

    The objective is the surrogate alone, without clipping or penalty, so that it is the same for
    every method; A is standardised. It is maximised: λ < 0 is a direction in which it bends down.

    A Hessian from a finite batch has eigenvalues of its own. To tell how large, the advantages are
    moved on by half the batch, so that none belongs to its action: since E[∇²π/π] = 0 in every
    state, the expectation of that Hessian is zero, and what is left of it is noise.

    Args:
      agent: of policy gradients. Its environments move on, and nothing else of it changes.
      rollouts: how many, of `config.rollout` steps each, in one fixed batch.
      number: of eigenvalues.
    """
    if not isinstance(agent, Agent):
        raise ValueError(
            f"{agent.title} is an evolution strategy, whose objective has no gradient to "
            "differentiate: `wng diagnose` needs a policy-gradient run."
        )
    check_count(rollouts, "rollouts", 1)
    if not isinstance(number, int) or not 2 <= number <= MOST:  # a ratio is of two
        raise ValueError(f"number must be a whole number from 2 to {MOST}, got {number!r}.")
    batch = agent._trainer.sample_batch(rollouts)
    networks = agent._trainer.state.networks
    config = dataclasses.replace(agent.config, proximity="none")

    def spectrum(advantages: Array, number: int) -> tuple[np.ndarray, int]:
        def objective(policy: Policy) -> Array:
            rows = batch._replace(advantages=advantages)
            return -surrogate_loss(config, Networks(policy, networks.value), rows)

        product, size = hessian_vector_product(objective, networks.policy)
        return leading_eigenvalues(product, size, number), size

    advantages = batch.advantages
    eigenvalues, size = spectrum(advantages, number)
    (noise,), _ = spectrum(jnp.roll(advantages, len(advantages) // 2), 1)
    return Spectrum(
        env=agent.env,
        method=agent.title,
        seed=agent.seed,
        steps=agent.steps,
        samples=len(advantages),
        parameters=size,
        eigenvalues=eigenvalues,
        noise=abs(float(noise)),
    )


def ratios(eigenvalues: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
    """|λ₁|/|λᵢ|, infinite where λᵢ is zero."""
    size = np.abs(eigenvalues)
    return np.divide(size[0], size, out=np.full(len(size), np.inf), where=size > 0)


def describe(spectrum: Spectrum) -> str:
    """What the eigenvalues say, in a few plain sentences."""
    values = spectrum.eigenvalues
    begin = (
        f"{spectrum.method} on {spectrum.env}, seed {spectrum.seed}, after {spectrum.steps:,} "
        f"steps: the {len(values)} leading Hessian eigenvalues of {spectrum.objective} in the "
        f"{spectrum.parameters:,} parameters of the policy, from {spectrum.samples:,} steps."
    )
    if not values.any():
        return f"{begin} All of them are zero: the objective is flat here, so there is no ratio."
    places = [i for i in (10, 20) if i < len(values)] + [len(values)]
    share = ratios(values)
    shown = [f"{share[i - 1]:.3g} at i = {i}" for i in dict.fromkeys(places)]
    negative, clear = int((values < 0).sum()), int((np.abs(values) > spectrum.noise).sum())
    return " ".join(
        [
            begin,
            f"|λ₁|/|λᵢ| is {' and '.join(shown)}: the larger, the worse the conditioning, and the "
            "more a plain gradient step that is safe along the first direction crawls along the "
            "others.",
            f"{negative} of the {len(values)} are negative (the objective is maximised: it bends "
            "down along these, and up along the rest).",
            f"{clear} of them are larger in size than {spectrum.noise:.3g}, which noise of this "
            "batch alone gives"
            + ("." if clear == len(values) else "; the rest need more rollouts to be trusted."),
            "In the paper, Wasserstein natural gradients helped most on the tasks with the largest "
            "ratios (Figure fig:cond_number).",
            "That is a heuristic from a few tasks and it comes without a threshold: compare the "
            "ratios with those of your other tasks, and decide by training both kinds.",
        ]
    )


def draw_spectrum(spectra: list[Spectrum], to: Path) -> Path:
    """Ratio against i, a line for each task: geometric mean over runs, band from min to max.

    Dotted, the ratio of the noise: eigenvalues above that line cannot be told from it.
    """
    tasks: dict[str, list[Spectrum]] = {}
    for spectrum in spectra:
        tasks.setdefault(spectrum.env, []).append(spectrum)
    fig, (axis,) = figure(1, 1, (6.5, 4.2))
    for k, (env, runs) in enumerate(tasks.items()):
        length = min(len(run.eigenvalues) for run in runs)  # not every one may have converged
        # The last column is the noise: the ratio beyond which eigenvalues cannot be trusted.
        values = np.stack([ratios(np.append(run.eigenvalues[:length], run.noise)) for run in runs])
        values[~np.isfinite(values) | (values == 0)] = np.nan  # no place on a log scale
        place, color = np.arange(1, length + 1), f"C{k}"
        label = f"{env} ({len(runs)} run{'s' * (len(runs) > 1)})"
        mean = np.exp(np.log(values).mean(axis=0))  # of ratios, on a log scale
        axis.plot(place, mean[:-1], "o-", color=color, ms=3, lw=1.4, label=label)
        axis.axhline(mean[-1], color=color, ls=":", lw=1)
        if len(runs) > 1:
            low, high = values.min(axis=0)[:-1], values.max(axis=0)[:-1]
            axis.fill_between(place, low, high, color=color, alpha=0.18, lw=0)
    # At the point where every line begins: it gives the log scale a value if there is no line.
    axis.plot(
        [1, 1], [1, 1], ":", color=GRAY, lw=1, label="above it: within the noise of the batch"
    )
    axis.set_yscale("log")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    axis.set_xlabel("i")
    axis.set_ylabel("|λ₁| / |λᵢ|")
    axis.set_title(f"Hessian of {spectra[0].objective}: the leading eigenvalue to each next one")
    axis.legend(frameon=False, fontsize=8)
    save(fig, to)
    return to
