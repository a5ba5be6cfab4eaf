"""The 24 functions of BBOB: our strategies beside those of evosax, as the field compares them.

    pip install -e '.[peers]'
    python benchmarks/bbob.py --dimensions 2 10 --out results/evolution/bbob

15 instances of each function (evosax's implementation, float64, f_opt = 0), 10⁴·d evaluations, 51
targets from 1e2 to 1e-8. Every contender has the same population, the even number next to
4 + 3 ln d, and starts from the same mean, drawn from [−4, 4]. Strategies that adapt σ start with 2;
ES, WNES and OpenAI-ES, which do not, have σ = 0.1 and Adam with a rate of 0.02. "WSNES, c = 0" has
the Wasserstein metric alone, without the Fisher metric that damps it. Behaviors are x. No contender
restarts.

runs.csv has a row for each run: the evaluations after which it reached the first, second, …
target, counted in whole generations; targets beyond the last number were not reached. Blocks of
instances that are in the file already are not repeated. The table and the figure are made from it:
the share of (function, instance, target) that is solved, over evaluations divided by d.
"""

import argparse
import csv
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from evosax import algorithms
from evosax.problems.bbob.bbob_fns import bbob_fns
from evosax.problems.bbob.meta_bbob import MetaBBOBProblem

import wng
from wng.experiments.output import markdown_table

TARGETS = 10.0 ** np.linspace(2, -8, 51)
FUNCTIONS = list(bbob_fns)
SIGMA, FIXED_SIGMA, RATE = 2.0, 0.1, 0.02
COLUMNS = ["method", "dimension", "function", "instance", "evaluations"]
# Starts with (key, mean) and makes a generation: (state, key, f) ↦ (state, values).
Contender = tuple[Callable, Callable]


def population(d: int) -> int:
    """Number of members in d dimensions."""
    return 2 * round((4 + 3 * np.log(d)) / 2)


def ours(cls: type[wng.Strategy], d: int, **more: Any) -> Contender:
    """Make a strategy of this package."""
    learns = cls in (wng.SNES, wng.WSNES)
    settings: dict[str, Any] = {"sigma": SIGMA} | more
    if not learns:
        settings = {"sigma": FIXED_SIGMA, "learning_rate": RATE, "num_basis": population(d) - 1}
    es = cls(jnp.zeros(d), population=population(d), **settings)

    def start(key: jax.Array, mean: jax.Array) -> Any:
        return es.init(key, behavior_size=d)._replace(center=mean)

    def generation(state: Any, key: jax.Array, f: Callable) -> tuple[Any, jax.Array]:
        members, state = es.ask(state)
        values = f(members)
        return es.tell(state, members, -values, members)[0], values

    return start, generation


def peer(name: str, d: int) -> Contender:
    """Make a strategy of evosax."""
    cls = getattr(algorithms, name)
    if name == "Open_ES":
        schedule = optax.constant_schedule(FIXED_SIGMA)
        es = cls(population(d), jnp.zeros(d), optimizer=optax.adam(RATE), std_schedule=schedule)
        params = es.default_params
    else:
        es = cls(population(d), jnp.zeros(d))
        params = es.default_params.replace(std_init=SIGMA)

    def start(key: jax.Array, mean: jax.Array) -> Any:
        return es.init(key, mean, params)

    def generation(state: Any, key: jax.Array, f: Callable) -> tuple[Any, jax.Array]:
        members, state = es.ask(key, state, params)
        values = f(members)
        return es.tell(key, members, values, state, params)[0], values

    return start, generation


CONTENDERS: dict[str, Callable[[int], Contender]] = {
    "ES": lambda d: ours(wng.ES, d),
    "WNES": lambda d: ours(wng.WNES, d),
    "SNES": lambda d: ours(wng.SNES, d),
    "WSNES": lambda d: ours(wng.WSNES, d),
    "WSNES, c = 0": lambda d: ours(
        wng.WSNES, d, search_damping=0.0
    ),  # the Wasserstein metric alone
    "evosax OpenAI-ES": lambda d: peer("Open_ES", d),
    "evosax SNES": lambda d: peer("SNES", d),
    "evosax sep-CMA-ES": lambda d: peer("Sep_CMA_ES", d),
    "evosax CMA-ES": lambda d: peer("CMA_ES", d),
}


def instance(d: int, function: jax.Array, number: jax.Array) -> tuple[jax.Array, ...]:
    """Draw the optimum, two rotations and the initial mean of an instance."""
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(d), function), number)
    key, key_mean = jax.random.split(key)
    drawn = MetaBBOBProblem(min_num_dims=d, max_num_dims=d).sample_params(key)
    mean = jax.random.uniform(key_mean, (d,), minval=-4, maxval=4)
    return drawn.x_opt, drawn.R, drawn.Q, mean


def make_run(method: str, d: int, generations: int) -> Callable:
    """Compile (function, instances) ↦ the best value after each generation of each instance.

    All functions are branches of one program, so that it is compiled once.
    """
    start, generation = CONTENDERS[method](d)

    def value(f: Callable) -> Callable:
        def penalized(x: jax.Array, *parts: jax.Array) -> jax.Array:
            found, penalty = f(x, *parts, d)
            return jnp.asarray(found + penalty, float)

        return jax.vmap(penalized, (0, None, None, None))

    branches = [value(f) for f in bbob_fns.values()]

    def one(function: jax.Array, number: jax.Array) -> jax.Array:
        *parts, mean = instance(d, function, number)
        key = jax.random.fold_in(jax.random.key(0), number)

        def step(carry: tuple, t: jax.Array) -> tuple[tuple, jax.Array]:
            state, best = carry
            state, values = generation(
                state,
                jax.random.fold_in(key, t),
                lambda members: jax.lax.switch(function, branches, members, *parts),
            )
            best = jnp.fmin(best, jnp.nanmin(values))
            return (state, best), best

        return jax.lax.scan(step, (start(key, mean), jnp.inf), jnp.arange(generations))[1]

    return jax.jit(jax.vmap(one, (None, 0)))


def hits(best: np.ndarray, members: int) -> str:
    """Evaluations after which each target was reached, as text."""
    reached = [np.argmax(best <= target) for target in TARGETS if best[-1] <= target]
    return " ".join(str(members * (1 + int(g))) for g in reached)


def read(path: Path) -> list[dict[str, str]]:
    """Read the runs that are done."""
    if not path.exists():
        return []
    with path.open() as file:
        return list(csv.DictReader(file))


def solved(rows: list[dict[str, str]], method: str, d: int, budget: int) -> np.ndarray:
    """All evaluations at which a target was reached, divided by d, and how many there could be."""
    own = [r for r in rows if r["method"] == method and int(r["dimension"]) == d]
    counts = [int(n) for r in own for n in r["evaluations"].split()]
    times = np.sort([n for n in counts if n <= budget * d]) / d
    return np.concatenate([times, np.full(len(TARGETS) * len(own) - len(times), np.inf)])


def apart(rows: list[dict[str, str]], methods: tuple[str, str], d: int) -> str:
    """How much more of the targets one method solves than another: mean over functions, 95%."""
    shares = {m: {name: [] for name in FUNCTIONS} for m in methods}
    for row in rows:
        if row["method"] in methods and int(row["dimension"]) == d:
            share = len(row["evaluations"].split()) / len(TARGETS)
            shares[row["method"]][row["function"]].append(share)
    if not all(values for own in shares.values() for values in own.values()):
        return "–"
    one, other = (np.array([np.mean(v) for v in shares[m].values()]) for m in methods)
    drawn = np.random.default_rng(0).choice(one - other, (5000, len(one))).mean(axis=1)
    low, high = np.percentile(drawn, [2.5, 97.5])
    return f"{np.mean(one - other):+.3f} [{low:+.3f}, {high:+.3f}]"


def report(rows: list[dict[str, str]], out: Path, budget: int, sizes: str) -> None:
    """Write the table and the figure."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    dims = sorted({int(r["dimension"]) for r in rows})
    table = []
    figure, axes = plt.subplots(1, len(dims), figsize=(4.6 * len(dims), 3.8), squeeze=False)
    for d, ax in zip(dims, axes[0], strict=True):
        for number, method in enumerate(CONTENDERS):
            times = solved(rows, method, d, budget)
            if not times.size:
                continue
            share = np.arange(1, times.size + 1) / times.size
            known = np.isfinite(times)
            x = np.concatenate([[1.0], times[known], [budget]])
            y = np.concatenate([[0.0], share[known], [known.mean()]])
            style = "--" if method.startswith("evosax") else "-"
            ax.step(x, y, style, color=f"C{number}", where="post", label=method, linewidth=1.3)
            hard = [r for r in rows if r["method"] == method and int(r["dimension"]) == d]
            below = np.mean([len(r["evaluations"].split()) > 40 for r in hard])  # 1e-6 is the 41st
            log = np.log(np.clip(times, 1, budget)) / np.log(budget)
            area = np.mean(1 - log)
            table.append(
                [str(d), method, f"{known.mean():.3f}", f"{area:.3f}", f"{below:.3f}", len(hard)]
            )
        ax.set(xscale="log", xlim=(1, budget), ylim=(0, 1), title=f"BBOB, d = {d}")
        ax.set(xlabel="evaluations / d", ylabel="share of solved targets")
        ax.grid(alpha=0.3)
    axes[0][0].legend(fontsize=7, loc="upper left")
    figure.tight_layout()
    figure.savefig(out / "ecdf.png", dpi=150)
    head = ["d", "method", "solved", "mean over log evaluations", "runs that reach 1e-6", "runs"]
    text = markdown_table(head, [[str(x) for x in row] for row in table])
    pair = ("WSNES", "SNES")
    text += "\n\nSolved by WSNES minus solved by SNES (mean over functions, 95% bootstrap): "
    text += "; ".join(f"d = {d}: {apart(rows, pair, d)}" for d in dims) + "."
    command = f"python benchmarks/bbob.py --dimensions {' '.join(map(str, dims))} {sizes}"
    (out / "table.md").write_text(f"`{command}`\n\n{text}\n\n![ECDF of solved targets](ecdf.png)\n")
    print(text)


def main() -> None:
    """Run what is missing, then write the table and the figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("bbob"))
    parser.add_argument("--dimensions", type=int, nargs="+", default=[2, 10, 40])
    parser.add_argument("--methods", nargs="+", default=list(CONTENDERS), choices=list(CONTENDERS))
    parser.add_argument("--instances", type=int, default=15)
    parser.add_argument("--budget", type=int, default=10_000, help="evaluations divided by d")
    parser.add_argument("--smoke", action="store_true", help="a tiny size, to see that it runs")
    args = parser.parse_args()
    if args.smoke:
        args.dimensions, args.instances, args.budget = [2], 2, 60
    jax.config.update("jax_enable_x64", True)
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "runs.csv"
    rows = read(path)
    done = {(r["method"], int(r["dimension"]), r["function"], int(r["instance"])) for r in rows}
    numbers = range(args.instances)
    with path.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if not path.stat().st_size:
            writer.writerow(COLUMNS)
        for d in args.dimensions:
            members = population(d)
            for method in args.methods:
                begin, run = time.perf_counter(), None
                for function, name in enumerate(FUNCTIONS):
                    if all((method, d, name, n) in done for n in numbers):
                        continue
                    run = run or make_run(method, d, args.budget * d // members)
                    best = np.asarray(run(jnp.array(function), jnp.arange(args.instances)))
                    for n in numbers:
                        if (method, d, name, n) not in done:
                            writer.writerow([method, d, name, n, hits(best[n], members)])
                    file.flush()
                print(f"d={d} {method}: {time.perf_counter() - begin:.0f} s", flush=True)
    sizes = f"--instances {args.instances} --budget {args.budget}"
    report(read(path), args.out, args.budget, sizes)


if __name__ == "__main__":
    main()
