"""Natural steps of a search distribution N(μ, diag σ²), tried on six functions.

    python benchmarks/tune_search.py --out results/evolution/search_tuning.csv

Separable and rotated ellipsoids, Rosenbrock and Rastrigin in 2, 10 and 40 dimensions, with optima
and starts drawn from [−4, 4], σ = 2, antithetic members, utilities, 2000·d evaluations. Rules, with
ĝ and ĝ_σ the gradients in (μ, σ), s² the mean of σ², η = (3 + ln d)/(5√d), numbers a, b, c:

    fisher    μ += a σ²ĝ, ln σ += b η ½σĝ_σ: separable NES with a = b = 1
    scaled    μ += a s²ĝ, ln σ += b η ½(s²/σ)ĝ_σ: the Wasserstein metric in units of s
    radius    (μ, σ) += s (aĝ, bĝ_σ)/‖(ĝ, ĝ_σ)‖: a W₂ radius in units of s
    speed     (μ, σ) += t (aĝ, b η ĝ_σ): the Wasserstein metric, as long in KL as `fisher`
    between   as scaled, with σ_i^{2c} s^{2−2c} for s², and s the geometric mean
    running   as scaled, with a running mean of σ_i² (rate c) for s²
    damped    μ += aĝ/(1/(cs²) + 1/σ²), σ += b η ĝ_σ/(1/(cs²) + 2/σ²): the metric I/(cs²) + F

A row is one rule with its numbers on one function: the share of 51 targets from 1e2 to 1e-8 that is
reached at the end, and the mean of this share over the logarithm of evaluations.
"""

import argparse
import csv
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from wng.evolution.fitness import utilities

TARGETS = 10.0 ** np.linspace(2, -8, 51)
POPULATION = {2: 6, 10: 10, 40: 16}
A = jax.Array
Step = tuple[A, A, A]  # of μ, of ln σ, and the new running scale


def functions(d: int) -> dict[str, Callable]:
    """Functions of x with their minimum 0 at x = 0."""
    place = jnp.arange(d) / max(d - 1, 1)
    rotation = jnp.array(np.linalg.qr(np.random.default_rng(77).normal(size=(d, d)))[0])

    def rosenbrock(x: A) -> A:
        x = x + 1
        return jnp.sum(100 * (x[:-1] ** 2 - x[1:]) ** 2 + (x[:-1] - 1) ** 2)

    return {
        "sphere": lambda x: jnp.sum(x**2),
        "ellipsoid 1e2": lambda x: jnp.sum(10 ** (2 * place) * x**2),
        "ellipsoid 1e6": lambda x: jnp.sum(10 ** (6 * place) * x**2),
        "rotated ellipsoid 1e6": lambda x: jnp.sum(10 ** (6 * place) * (rotation @ x) ** 2),
        "rosenbrock": rosenbrock,
        "rastrigin": lambda x: 10 * (d - jnp.sum(jnp.cos(2 * jnp.pi * x))) + jnp.sum(x**2),
    }


def fisher(g: A, gs: A, s: A, eta: float, a: A, b: A, c: A, scale: A) -> Step:
    """Step by the Fisher metric."""
    return a * s**2 * g, b * eta * 0.5 * s * gs, scale


def scaled(g: A, gs: A, s: A, eta: float, a: A, b: A, c: A, scale: A) -> Step:
    """Step by the Wasserstein metric in units of s."""
    square = jnp.mean(s**2)
    return a * square * g, jnp.clip(b * eta * 0.5 * square * gs / s, -0.5, 0.5), scale


def radius(g: A, gs: A, s: A, eta: float, a: A, b: A, c: A, scale: A) -> Step:
    """Step of a given W₂ length in units of s."""
    length = jnp.sqrt(jnp.mean(s**2)) / jnp.sqrt(jnp.sum(g**2) + jnp.sum(gs**2) + 1e-300)
    return a * length * g, jnp.clip(b * length * gs / s, -0.5, 0.5), scale


def speed(g: A, gs: A, s: A, eta: float, a: A, b: A, c: A, scale: A) -> Step:
    """Step by the Wasserstein metric, as long in KL as that of Fisher."""
    wanted = jnp.sum((a * s * g) ** 2 + 2 * (b * eta * 0.5 * s * gs) ** 2)
    t = jnp.sqrt(wanted / (jnp.sum((a * g / s) ** 2 + 2 * (b * eta * gs / s) ** 2) + 1e-300))
    return t * a * g, t * b * eta * gs / s, scale


def between(g: A, gs: A, s: A, eta: float, a: A, b: A, c: A, scale: A) -> Step:
    """Step between `scaled` and units of each σ_i."""
    square = s ** (2 * c) * jnp.exp(jnp.mean(jnp.log(s))) ** (2 - 2 * c)
    return a * square * g, jnp.clip(b * eta * 0.5 * square * gs / s, -1, 1), scale


def running(g: A, gs: A, s: A, eta: float, a: A, b: A, c: A, scale: A) -> Step:
    """Step in units of a running mean of σ_i²."""
    square = jnp.where(scale == 0, s**2, scale)
    log_step = jnp.clip(b * eta * 0.5 * square * gs / s, -1, 1)
    return a * square * g, log_step, (1 - c) * square + c * (s * jnp.exp(log_step)) ** 2


def damped(g: A, gs: A, s: A, eta: float, a: A, b: A, c: A, scale: A) -> Step:
    """Step by the Wasserstein metric, damped by the Fisher metric."""
    metric = 1 / (c * jnp.mean(s**2))
    return a * g / (metric + 1 / s**2), b * eta * gs / (metric + 2 / s**2) / s, scale


# Rule, a, b, c.
TRIED: list[Any] = [
    *[(fisher, a, b, 0) for a, b in ((1, 1), (1, 2), (2, 1), (1, 0.5))],
    *[(scaled, a, b, 0) for a, b in ((1, 1), (1, 2), (0.3, 0.3), (0.1, 0.1))],
    *[(radius, a, a, 0) for a in (1, 0.3, 0.1)],
    *[(speed, a, b, 0) for a, b in ((1, 1), (1, 2), (2, 2), (0.5, 0.5))],
    *[(between, 1, b, c) for b, c in ((1, 0.5), (1, 0.8), (2, 0.8), (2, 1))],
    *[(running, 1, b, c) for b, c in ((1, 0.3), (2, 0.3), (1, 0.1), (2, 0.1), (1, 0.03))],
    *[(damped, a, a, c) for c in (0.1, 1, 10) for a in (1, 2)],
    *[(damped, 2, b, 1) for b in (3, 4)],
    *[(damped, 4 / 3, b, 3) for b in (7 / 6, 2, 8 / 3)],  # the first is `wsnes`
]


def best_so_far(rule: Callable, f: Callable, d: int, generations: int, key: A, numbers: A) -> A:
    """The best value after each generation of one run."""
    key_noise, key_optimum, key_start = jax.random.split(key, 3)
    optimum = jax.random.uniform(key_optimum, (d,), minval=-4, maxval=4)
    start = jax.random.uniform(key_start, (d,), minval=-4, maxval=4)
    population, eta = POPULATION[d], (3 + np.log(d)) / (5 * d**0.5)

    def generation(carry: tuple, number: A) -> tuple[tuple, A]:
        mean, log_sigma, scale, best = carry
        sigma = jnp.exp(log_sigma)
        half = jax.random.normal(jax.random.fold_in(key_noise, number), (population // 2, d))
        eps = jnp.concatenate([half, -half])
        values = jax.vmap(f)(mean + sigma * eps - optimum)
        values = jnp.where(jnp.isfinite(values), values, 1e300)
        u = utilities(-values, jnp.ones(population, bool)) / population
        g, gs = u @ eps / sigma, u @ (eps**2 - 1) / sigma
        step, log_step, new = rule(g, gs, sigma, eta, *numbers, scale)
        good = jnp.isfinite(step).all() & jnp.isfinite(log_step).all()
        moved = mean + step, jnp.clip(log_sigma + log_step, -300, 300), new
        mean, log_sigma, scale = (
            jnp.where(good, x, y) for x, y in zip(moved, (mean, log_sigma, scale), strict=True)
        )
        best = jnp.minimum(best, values.min())
        return (mean, log_sigma, scale, best), best

    first = start, jnp.full(d, jnp.log(2.0)), jnp.zeros(d), jnp.inf
    return jax.lax.scan(generation, first, jnp.arange(generations))[1]


def main() -> None:
    """Try all rules, write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("search_tuning.csv"))
    parser.add_argument("--runs", type=int, default=5, help="for each function")
    parser.add_argument("--evaluations", type=int, default=2000, help="divided by d")
    parser.add_argument("--dimensions", type=int, nargs="+", default=[2, 10, 40])
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    keys = jax.random.split(jax.random.key(1234), args.runs)
    rows = []
    for rule in dict.fromkeys(rule for rule, *_ in TRIED):
        numbers = [row[1:] for row in TRIED if row[0] is rule]
        for d in args.dimensions:
            generations = args.evaluations * d // POPULATION[d]
            weight = np.diff(np.log(np.arange(1, generations + 1)), prepend=0.0)
            for name, f in functions(d).items():
                run = partial(best_so_far, rule, f, d, generations)
                runs = jax.jit(jax.vmap(jax.vmap(run, (0, None)), (None, 0)))
                best = np.array(runs(keys, jnp.array(numbers, float)))
                for one, found in zip(numbers, best, strict=True):
                    share = np.mean([(found <= t).mean(axis=0) for t in TARGETS], axis=0)
                    area = (share * weight).sum() / weight.sum()
                    parts = (f"{x:.4g}" for x in (*one, share[-1], area))
                    rows.append([rule.__name__, d, name, *parts])
        print(rule.__name__, flush=True)
        with args.out.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["rule", "d", "function", "a", "b", "c", "share_at_end", "mean_share"])
            writer.writerows(rows)


if __name__ == "__main__":
    main()
