"""Items of Cobb and Jalaian (2021) and of its draft: what the papers have, and what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.papers.cobb_2021 import cifar, curve, digits_table, fashion, hyperparameters, softmax
from benchmarks.papers.findings import Comparison, Finding, Item, Run, close, mean_error, number, order

SCRIPTS = "benchmarks.papers.cobb_2021"
SCHEMES = ("full", "naive", "randomised", "symmetric")
STUCK = 0.01  # acceptance below which a chain has not moved
ARMS = ("SGD", "SGLD", "SGHMC", "symmetric")
ON_ALL_ROWS = ("SGLD", "SGHMC", "symmetric")
STAND_IN = "free spoken digits (Jackson, CC BY-SA 4.0) for the closed recordings of vehicles"


def moved(row: Mapping[str, Any], key: str = "accept_prob_by_chain") -> list[float]:
    """The entries of the chains that have left their start."""
    return [x for x, accepted in zip(row[key], row["accept_prob_by_chain"], strict=True) if accepted > STUCK]


def stuck(run: Run) -> list[Comparison]:
    """How many chains never left their start, where any did."""
    counts = {
        scheme: len(row["accept_prob_by_chain"]) - len(moved(row)) for scheme, row in run.results["schemes"].items()
    }
    text = ", ".join(f"{scheme} {count} of {run.settings['chains']}" for scheme, count in counts.items())
    return (
        [Comparison("chains that never left their start, left out below", "none told of", text, False)]
        if any(counts.values())
        else []
    )


def acceptances(run: Run, paper: Mapping[str, Any]) -> list[Comparison]:
    """Acceptance by scheme, beside the paper's, and its order."""
    rows, comparisons = run.results["schemes"], stuck(run)
    for scheme, row in rows.items():
        theirs, spread = paper[scheme]
        ours, error = mean_error(moved(row))
        comparisons.append(
            Comparison(
                f"acceptance, {scheme}",
                f"{theirs} ± {spread} (sd)",
                number(ours, error),
                close(ours, error, theirs, spread),
            )
        )
    return comparisons


def orders(run: Run, key: str, what: str) -> list[Comparison]:
    """Symmetric over the three others."""
    rows = run.results["schemes"]
    values = {name: moved(row, key) for name, row in rows.items()}
    found = [
        order(values, "symmetric", other)
        for other in ("randomised", "naive", "full")
        if {other, "symmetric"} <= set(rows)
    ]
    return [one._replace(what=f"{what}: {one.what}") for one in found]


def sizes(run: Run, paper: Mapping[str, float]) -> list[Comparison]:
    """Effective sizes: of all chains, as the paper's, and of a chain alone."""
    return [
        Comparison(
            f"mean ESS, {scheme}",
            f"{paper[scheme]}",
            f"{row['ess']:.2f} of all chains; of one {number(*mean_error(moved(row, 'ess_by_chain')))}",
        )
        for scheme, row in run.results["schemes"].items()
    ]


def chain_size(run: Run) -> str:
    """Chains and draws beside the published ones."""
    settings = run.settings

    def published(name: str) -> Any:
        return settings.get(f"published_{name}", settings[name])

    mine = f"{settings['chains']} chains of {settings['draws']} draws after {settings['warmup']}"
    theirs = f"{published('chains')} of {published('draws')} after {published('warmup')}"
    text = f"{mine}, of {theirs}"
    if missing := [scheme for scheme in SCHEMES if scheme not in run.results["schemes"]]:
        text = f"without the scheme {', '.join(missing)}, which was not run; {text}"
    if "published_rows" in settings:
        text += (
            f"; {settings['rows']:,} rows of {settings['published_rows']:,}, ε = "
            f"{settings['step_size']:g} for {published('step_size'):g}"
        )
    return text


def is_full(run: Run) -> bool:
    """Whether nothing is below the published size."""
    return not any(name.startswith("published_") for name in run.settings)


def draw_schemes(name: str, paper: Mapping[str, Any], figure: Any) -> None:
    """Acceptance and effective size of a chain, by scheme."""
    rows = Run(name).results["schemes"]
    names = [scheme for scheme in SCHEMES if scheme in rows]
    axes = figure.subplots(1, 2)
    for ax, key, label in zip(
        axes, ("accept_prob_by_chain", "ess_by_chain"), ("acceptance", "mean ESS of a chain"), strict=True
    ):
        for place, scheme in enumerate(names):
            values = moved(rows[scheme], key)
            ax.plot(
                [place] * len(values), values, "o", color="tab:blue", alpha=0.5, label="chains" if place == 0 else None
            )
        ax.set_xticks(range(len(names)), names)
        ax.set_ylabel(label)
    axes[0].plot(range(len(names)), [paper[scheme][0] for scheme in names], "x", color="black", label="paper")
    axes[0].legend()


# Table 1


def table_1() -> Finding:
    """Softmax regression on MNIST."""
    small, published = Run("cobb_2021_softmax_numpyro"), Run("logistic_mnist_numpyro")
    paper = softmax.PAPER
    comparisons = [
        Comparison(
            f"acceptance at 48,000 images, {row['scheme']}",
            f"{paper[row['scheme']][0]} ± 0.01 (sd)",
            f"{row['accept_prob']:.3f} ± {row['accept_prob_sd']:.3f} (sd of 2 chains)",
            close(row["accept_prob"], row["accept_prob_sd"], paper[row["scheme"]][0], 0.01),
        )
        for row in published.results
    ]
    comparisons += orders(small, "accept_prob_by_chain", "acceptance")
    comparisons += orders(small, "ess_by_chain", "ESS of a chain")
    comparisons += sizes(small, {scheme: row[2] for scheme, row in paper.items()})
    comparisons += [
        Comparison(f"ESS a second, {scheme}", f"{paper[scheme][3]}", f"{row['ess_per_second']:.2f}")
        for scheme, row in small.results["schemes"].items()
    ]
    sentence = (
        "The paper gives neither the prior nor the scaling of the inputs, which fix the "
        "acceptances; the order is what can be compared. Its time per draw "
        "of a split scheme is ten times that of one gradient, ours twice."
    )
    size = f"acceptances at the published rows and step by 2 chains of 30; effective sizes by {chain_size(small)}"
    return Finding(comparisons, size, [small, published], sentence, command=f"{SCRIPTS}.softmax")


# Table 2 and what belongs to it


def table_2(paper: Mapping[str, Any]) -> Finding:
    """The network on a curve."""
    run = Run("cobb_2021_curve_numpyro")
    runs = [run]
    comparisons = acceptances(run, {scheme: row[:2] for scheme, row in paper.items()})
    comparisons += orders(run, "accept_prob_by_chain", "acceptance")
    together = {scheme: row["ess"] for scheme, row in run.results["schemes"].items()}
    text = ", ".join(f"{scheme} {together[scheme]:.2f}" for scheme in SCHEMES)
    in_order = together["symmetric"] > together["randomised"] > max(together["full"], together["naive"])
    comparisons.append(Comparison("ESS: symmetric, then randomised, then the others", "yes", text, in_order))
    comparisons += sizes(run, {scheme: row[2] for scheme, row in paper.items()})
    try:
        pyro = Run("cobb_2021_curve_pyro")
        runs.append(pyro)
        comparisons += both_frameworks(run, pyro)
    except FileNotFoundError:
        pass
    sentence = (
        "Activation, start of the chains and scale of the inputs are not given, and the acceptances depend on them. "
        "Chains that have not met have an ESS of about their number, whatever they do, and one that drifts all along "
        "has about 5.6 of 800; the order of these numbers is the paper's, and says how far a chain has come."
    )
    disagree = [c.what for c in comparisons if c.agrees is False]
    contradicted = None
    if is_full(run) and disagree:
        contradicted = (
            f"at the published size and with what is not given taken as said, these differ: {'; '.join(disagree)}."
        )
    return Finding(
        comparisons,
        chain_size(run),
        runs,
        sentence,
        is_full(run),
        contradicted=contradicted,
        command=f"{SCRIPTS}.curve",
    )


def both_frameworks(numpyro: Run, pyro: Run) -> list[Comparison]:
    """Acceptance of the same chains in both packages, over their first iterations."""
    found = []
    for scheme, row in pyro.results["schemes"].items():
        theirs = numpyro.results["schemes"][scheme]
        a, b = mean_error(moved(theirs)), mean_error(moved(row))
        text = (
            f"NumPyro {number(*a)}, Pyro {number(*b)} ({pyro.settings['chains']} chains of "
            f"{pyro.settings['draws']} after {pyro.settings['warmup']})"
        )
        found.append(Comparison(f"both packages, acceptance, {scheme}", "", text, close(*a, b[0], b[1] or 0.0)))
    return found


def figure_1(is_draft: bool) -> Finding:
    """Bands."""
    run = Run("cobb_2021_curve_numpyro")
    spreads = {name: moved(row, "sd_outside_data") for name, row in run.results["schemes"].items()}
    comparisons = [
        Comparison("spread outside the data, " + name, "", number(*mean_error(values)))
        for name, values in spreads.items()
    ]
    symmetric = run.results["schemes"]["symmetric"]["bands"]["sd"]
    grid, x = np.array(run.results["grid"]), np.array(run.results["x"])
    inside = float(np.mean(np.array(symmetric)[np.abs(grid) <= np.abs(x).max()]))
    outside = float(np.mean(np.array(symmetric)[np.abs(grid) > np.abs(x).max()]))
    shown = outside > 0  # else the chain that was kept never left its start
    text = f"sd {inside:.3f} inside, {outside:.3f} outside" if shown else "the chain kept for it never left its start"
    comparisons.append(Comparison("bands widen outside the data", "yes", text, outside > inside if shown else None))
    if is_draft:
        comparisons += [order(spreads, "symmetric", other) for other in ("full", "naive") if other in spreads]
    sentence = "Outside the data the spread is that of the weights' random walk so far, no chain having mixed."
    whole = is_full(run) and shown
    return Finding(comparisons, chain_size(run), [run], sentence, whole, command=f"{SCRIPTS}.curve")


def draw_bands(schemes: Sequence[str], figure: Any) -> None:
    """Function and noise, a panel a scheme."""
    run = Run("cobb_2021_curve_numpyro")
    grid, noise = np.array(run.results["grid"]), 1 / run.settings["precision"]
    names = [scheme for scheme in schemes if scheme in run.results["schemes"]]
    for ax, name in zip(np.atleast_1d(figure.subplots(1, len(names), sharey=True)), names, strict=True):
        mean, sd = (np.array(run.results["schemes"][name]["bands"][key]) for key in ("mean", "sd"))
        for width, label, alpha in ((np.sqrt(sd**2 + noise), "with noise", 0.2), (sd, "function", 0.4)):
            ax.fill_between(
                grid, mean - 2 * width, mean + 2 * width, color="tab:blue", alpha=alpha, label=label, linewidth=0
            )
        ax.plot(grid, mean, color="tab:blue")
        ax.plot(run.results["x"], run.results["y"], ".", color="black", markersize=2)
        ax.set(title=name if sd.any() else f"{name}: a chain that never left its start", xlabel="x", ylim=(-2.5, 2.5))
    ax.legend(loc="lower right")


def coverage() -> Finding:
    """Shares outside of one and two standard deviations."""
    run = Run("cobb_2021_curve_numpyro")
    comparisons = []
    for scheme in ("full", "symmetric"):
        for name, paper in curve.COVERAGE.items():
            row = run.results["schemes"][scheme]
            ours, error = mean_error(100 * np.array(moved({**row, "outside": row["outside"][name]}, "outside")))
            close_enough = close(
                ours, float(np.hypot(error or 0, 100 * np.sqrt(paper * (1 - paper) / 400))), 100 * paper
            )
            theirs = f"{100 * paper:.1f}" if scheme == "full" else "–"
            comparisons.append(
                Comparison(
                    f"% outside {name}, {scheme}",
                    theirs,
                    number(ours, error),
                    close_enough if scheme == "full" else None,
                )
            )
    comparisons.append(Comparison("what is right for a normal distribution", "31.7 and 4.6", "", None))
    sentence = (
        "The points are those that the network is fitted to, as in the paper, so "
        "that this is no test of calibration beyond them."
    )
    contradicted = None
    if is_full(run) and any(c.agrees is False for c in comparisons):
        contradicted = "full HMC refuses most trajectories at this step here, and its chains are still on their way."
    return Finding(
        comparisons,
        chain_size(run),
        [run],
        sentence,
        is_full(run),
        contradicted=contradicted,
        command=f"{SCRIPTS}.curve",
    )


# Images


def table_3() -> Finding:
    """Fashion-MNIST."""
    run = Run("cobb_2021_fashion")
    comparisons = acceptances(run, {scheme: row[0] for scheme, row in fashion.PAPER.items()})
    comparisons += orders(run, "accept_prob_by_chain", "acceptance")
    for scheme, row in run.results["schemes"].items():
        accuracy, nll = fashion.PAPER[scheme][2:]
        ours = f"{number(*mean_error(row['accuracy']))}; {number(*mean_error(row['nll']))}"
        comparisons.append(Comparison(f"accuracy % and NLL, {scheme}", f"{accuracy[0]}; {nll[0]}", ours))
    sentence = (
        f"With {run.settings['rows']:,} images accuracy is that of so few; too few draws for an effective size, and "
        "for an acceptance far from where the chain started."
    )
    if np.isinf([row["nll"] for row in run.results["schemes"].values()]).any():
        sentence += (
            " Weights as large as the prior's drive the softmax to zeros: an NLL is infinite where all draws give a "
            "test image's class the probability 0 in double precision."
        )
    return Finding(comparisons, chain_size(run), [run], sentence, is_full(run), command=f"{SCRIPTS}.fashion")


def draft_table_3() -> Finding:
    """CIFAR-10."""
    run = Run("cobb_2021_cifar")
    comparisons = acceptances(run, {scheme: row[0] for scheme, row in cifar.PAPER.items()})
    comparisons += orders(run, "accept_prob_by_chain", "acceptance")
    for scheme, row in run.results["schemes"].items():
        accuracy = cifar.PAPER[scheme][2]
        comparisons.append(Comparison(f"accuracy %, {scheme}", f"{accuracy[0]}", number(*mean_error(row["accuracy"]))))
    sentence = "Published rows, step and split, but so few draws of one chain that nothing is settled."
    stand_in = "the JPEG copy of CIFAR-10 for the original"
    return Finding(comparisons, chain_size(run), [run], sentence, stand_in=stand_in, command=f"{SCRIPTS}.cifar")


def memory() -> Finding:
    """Memory of a gradient."""
    numpyro, pyro = Run("compile_and_memory_numpyro"), Run("compile_and_memory_pyro")
    ratio = next(row for row in numpyro.results if row["what"] == "XLA buffers, subset gradient")
    torch = pyro.results[0]
    comparisons = [
        Comparison(
            "memory of a gradient with M subsets",
            "about 1/M",
            f"{ratio['ratio']:.3f} at M = 10, NumPyro (XLA's plan)",
            ratio["ratio"] < 0.15,
        ),
        Comparison(
            "",
            "7,928 MB whole, M = 3",
            f"{torch['ratio']:.3f} at M = 10, Pyro (peak of a process), of {torch['whole']:,.0f} MiB",
            torch["ratio"] < 0.15,
        ),
    ]
    sentence = "On a CPU, of a smaller network; the paper's figure is a GPU's, its M is 3."
    size = (
        f"{numpyro.settings['rows']['numpyro']:,} images of 48,000 in "
        f"NumPyro, {pyro.settings['rows']['pyro']:,} in Pyro"
    )
    return Finding(comparisons, size, [numpyro, pyro], sentence, command="benchmarks.compile_and_memory")


# Spoken digits


def _splits(run: Run, arms: Sequence[str] = ARMS) -> dict[str, list[dict[str, Any]]]:
    """Rows of each of these arms, one a split that is complete."""
    whole = [split for split in run.results["splits"].values() if all(arm in split for arm in arms)]
    return {arm: [split[arm] for split in whole] for arm in arms}


def digits_size(run: Run, arms: Sequence[str] = ARMS) -> str:
    """Splits, rows and draws."""
    count = len(_splits(run, arms)["symmetric"])
    lengths = run.settings["lengths"]["symmetric"]
    return (
        f"{count} splits of 7, {run.settings['rows']} rows of 1,878, "
        f"{lengths['draws']} draws of symmetric split HMC of 2,700"
    )


def table_4() -> Finding:
    """Four arms."""
    run, whole = Run("cobb_2021_digits"), Run("cobb_2021_digits_all_rows")
    comparisons = []
    for rows, of_size in ((_splits(run), ""), (_splits(whole, ON_ALL_ROWS), ", on all rows")):
        for arm, found in rows.items():
            theirs = "; ".join(f"{mean} ± {sd}" for mean, sd in digits_table.PAPER[arm])
            ours = "; ".join(number(*mean_error([row[key] for row in found])) for key in ("accuracy", "nll", "brier"))
            what = f"{arm}: accuracy %, NLL, Brier (paper: sd over splits){of_size}"
            comparisons.append(Comparison(what, theirs, ours))
        for other in [arm for arm in rows if arm != "symmetric"]:
            for key, what in (("nll", "NLL"), ("brier", "Brier score")):
                comparisons.append(paired(rows, key, other, "symmetric", f"{what}: {other} above symmetric{of_size}"))
    errors = {arm: [row["calibration_error"] for row in found] for arm, found in _splits(whole, ON_ALL_ROWS).items()}
    calibration = ", ".join(f"{arm} {number(*mean_error(values))}" for arm, values in errors.items())
    used = run.settings["hyperparameters"]
    text = ", ".join(f"{arm} {used[arm]['prior_sd']:.2g}" for arm in ARMS)
    sentence = (
        f"Prior standard deviations by the search of B.2: {text}. The step of SGLD that the search finds fails on one "
        "of the splits. SGHMC predicts better than symmetric split HMC, of whose 7,200 iterations 400 are made, and "
        "whose prior, as in the paper, is found by fewer rows than the other arms'. On all rows, with steps and priors "
        "that a search on all of them has found (12 trials an arm, symmetric's on half of the rows), symmetric split "
        "HMC comes to the paper's figures by as many iterations as before, and SGLD and SGHMC predict better than in "
        f"the paper and than it. It is the best calibrated: calibration errors are {calibration}."
    )
    size = f"{digits_size(run)}; and {digits_size(whole, ON_ALL_ROWS)}"
    command = f"{SCRIPTS}.digits_table"
    return Finding(comparisons, size, [run, whole], sentence, stand_in=STAND_IN, command=command)


def paired(rows: Mapping[str, list[dict[str, Any]]], key: str, larger: str, smaller: str, what: str) -> Comparison:
    """Whether an arm has more than another, by the differences within splits."""
    differences = [
        a[key] - b[key] for a, b in zip(rows[larger], rows[smaller], strict=True) if None not in (a[key], b[key])
    ]
    mean, error = mean_error(differences)
    agrees = None if error is None else True if mean > 2 * error else False if mean < -2 * error else None
    return Comparison(
        what,
        "yes",
        f"difference {number(mean, error)}, {sum(d > 0 for d in differences)} of {len(differences)} splits",
        agrees,
    )


def figure_2() -> Finding:
    """Entropies of errors."""
    run = Run("cobb_2021_digits")
    rows = _splits(run)
    medians = {arm: [float(np.median(row["entropies_of_errors"])) for row in found] for arm, found in rows.items()}
    comparisons = [
        Comparison(f"median entropy of errors, {arm}, nats", "", number(*mean_error(values)))
        for arm, values in medians.items()
    ]
    as_rows = {arm: [{"entropy": value} for value in values] for arm, values in medians.items()}
    comparisons += [
        paired(as_rows, "entropy", "symmetric", other, f"errors of symmetric less sure than those of {other}")
        for other in ("SGD", "SGLD", "SGHMC")
    ]
    return Finding(comparisons, digits_size(run), [run], "", stand_in=STAND_IN, command=f"{SCRIPTS}.digits_table")


def draw_entropies(figure: Any) -> None:
    """The distribution functions."""
    rows, ax = _splits(Run("cobb_2021_digits")), figure.subplots()
    for arm, found in rows.items():
        entropies = np.sort(np.concatenate([row["entropies_of_errors"] for row in found]))
        ax.step(entropies, np.arange(1, len(entropies) + 1) / len(entropies), where="post", label=arm)
    ax.axvline(np.log(10), color="gray", linewidth=0.8)
    ax.set(xlabel="predictive entropy of errors, nats", ylabel="share at most that", xlim=(0, None), ylim=(0, 1))
    ax.legend()


def figure_3() -> Finding:
    """Mutual information of right and wrong predictions."""
    run = Run("cobb_2021_digits")
    rows, comparisons = _splits(run), []
    for arm in ("SGHMC", "symmetric"):
        right, wrong = (mean_error([row[f"information_{kind}"] for row in rows[arm]]) for kind in ("right", "wrong"))
        comparisons.append(
            Comparison(f"{arm}: mutual information where right; where wrong", "", f"{number(*right)}; {number(*wrong)}")
        )
    gap = {
        arm: [{"gap": row["information_wrong"] - row["information_right"]} for row in rows[arm]]
        for arm in ("SGHMC", "symmetric")
    }
    comparisons.append(paired(gap, "gap", "symmetric", "SGHMC", "symmetric tells errors from what is right by more"))
    comparisons.append(
        paired(rows, "information_wrong", "symmetric", "SGHMC", "errors of symmetric have more mutual information")
    )
    return Finding(comparisons, digits_size(run), [run], "", stand_in=STAND_IN, command=f"{SCRIPTS}.digits_table")


def draw_information(figure: Any) -> None:
    """The two matrices, all splits together."""
    rows, axes = _splits(Run("cobb_2021_digits")), figure.subplots(1, 2)
    matrices = {}
    for arm in ("SGHMC", "symmetric"):
        count = np.sum([row["count"] for row in rows[arm]], axis=0)
        total = np.sum([np.multiply(row["count"], row["information"]) for row in rows[arm]], axis=0)
        matrices[arm] = np.divide(total, count, out=np.full(count.shape, np.nan), where=count > 0)
    top = max(np.nanmax(matrix) for matrix in matrices.values())
    for ax, (arm, matrix) in zip(axes, matrices.items(), strict=True):
        image = ax.imshow(matrix, vmin=0, vmax=top)
        ax.set(xlabel="predicted digit", ylabel="digit", title=arm, xticks=range(10), yticks=range(10))
    figure.colorbar(image, ax=axes, label="mean mutual information, nats")


def draft_figure_6() -> Finding:
    """Widths of the prior."""
    run = Run("cobb_2021_prior_widths")
    found, comparisons = run.results["widths"], []
    last = {
        width: {key: float(np.mean(row[key][-20:])) for key in row if key.startswith(("train", "test"))}
        for width, row in found.items()
    }
    for width, row in last.items():
        ours = f"{row['train_accuracy']:.1f}, {row['test_accuracy']:.1f}; {row['train_nll']:.2f}, {row['test_nll']:.2f}"
        comparisons.append(Comparison(f"σ = {width}: accuracy %, training and test; NLL", "", ours))
    widest, narrowest = (pick(last, key=float) for pick in (max, min))
    comparisons += [
        Comparison(
            "the widest prior fits the training data",
            "near 100 %",
            f"{last[widest]['train_accuracy']:.1f} %",
            last[widest]["train_accuracy"] > 95,
        ),
        Comparison(
            "and has a worse test NLL than training NLL",
            "yes",
            f"{last[widest]['test_nll']:.2f}, {last[widest]['train_nll']:.2f}",
            last[widest]["test_nll"] > 2 * last[widest]["train_nll"],
        ),
        Comparison(
            "the narrowest prior keeps it from fitting",
            "yes",
            f"training accuracy {last[narrowest]['train_accuracy']:.1f} %",
            last[narrowest]["train_accuracy"] < last[widest]["train_accuracy"] - 5,
        ),
    ]
    size = (
        f"{run.settings['draws']} draws after {run.settings['warmup']} (the paper some "
        f"hundred), {run.settings['rows']} rows, one chain a width"
    )
    sentence = (
        "The exact chain's log-posterior settles for every width; the paper's keeps "
        "falling at σ = 0.32, which it reads as misspecification."
    )
    return Finding(comparisons, size, [run], sentence, stand_in=STAND_IN, command=f"{SCRIPTS}.prior_widths")


def draw_widths(figure: Any) -> None:
    """Accuracy, NLL and log-posterior by draw."""
    found = Run("cobb_2021_prior_widths").results["widths"]
    axes = figure.subplots(1, 3)
    for colour, (width, row) in enumerate(found.items()):
        for ax, key in zip(axes, ("accuracy", "nll"), strict=False):
            ax.plot(row[f"train_{key}"], color=f"C{colour}", label=f"σ = {width}")
            ax.plot(row[f"test_{key}"], color=f"C{colour}", linestyle=":")
        axes[2].plot(-np.array(row["potential_energy"]), color=f"C{colour}")
    for ax, label in zip(axes, ("accuracy %", "negative log-likelihood", "log-posterior density"), strict=True):
        ax.set(xlabel="draw", ylabel=label)
    axes[0].legend(title="training; test dotted")


def draft_figure_7() -> Finding:
    """Accuracy of the first draws' mean."""
    run = Run("cobb_2021_digits")
    rows = _splits(run)
    comparisons = []
    for arm in ("SGLD", "SGHMC", "symmetric"):
        first, last = (mean_error([row["cumulative_accuracy"][place] for row in rows[arm]]) for place in (0, -1))
        comparisons.append(
            Comparison(f"{arm}: accuracy % of one draw; of all", "", f"{number(*first)}; {number(*last)}")
        )
    comparisons += [
        paired(rows, "accuracy", "symmetric", other, f"symmetric ends above {other}") for other in ("SGLD", "SGHMC")
    ]
    return Finding(comparisons, digits_size(run), [run], "", stand_in=STAND_IN, command=f"{SCRIPTS}.digits_table")


def draw_cumulative(figure: Any) -> None:
    """The curves, means over splits."""
    rows, ax = _splits(Run("cobb_2021_digits")), figure.subplots()
    for colour, arm in enumerate(("SGLD", "SGHMC", "symmetric")):
        curves = np.array([row["cumulative_accuracy"] for row in rows[arm]])
        share, mean = np.linspace(0, 1, curves.shape[1]), curves.mean(0)
        ax.plot(share, mean, color=f"C{colour}", label=arm)
        if len(curves) > 1:
            error = curves.std(0, ddof=1) / np.sqrt(len(curves))
            ax.fill_between(share, mean - error, mean + error, color=f"C{colour}", alpha=0.2, linewidth=0)
    ax.set(xlabel="share of the draws", ylabel="accuracy of their mean, %")
    ax.legend()


def search() -> Finding:
    """The hyperparameters found."""
    run = Run("cobb_2021_hyperparameters")
    comparisons = []
    for arm, found in run.results["arms"].items():
        best = found["trials"][found["best"]]
        step, prior = hyperparameters.PAPER[arm]
        theirs = f"step {step:g}" + ("" if prior is None else f", prior sd {prior:g}")
        ours = f"prior sd {best['prior_sd']:.2g}, log score {best['log_score']:.2f}"
        ours = ours if arm == "symmetric" else f"step {best['step_size']:.2g}, {ours}"
        first = max(trial["log_score"] for trial in found["trials"][: run.settings["first"]])
        comparisons.append(
            Comparison(arm, theirs, f"{ours}; best of the first {run.settings['first']}, at random, {first:.2f}")
        )
    sentence = (
        "The numbers belong to the data, so that they are not compared; symmetric split "
        "HMC adapts its step, which leaves one to be searched for."
    )
    size = (
        f"{run.settings['trials']} trials an arm, {run.settings['rows']} rows; "
        f"the paper does not give its number of trials"
    )
    sizes = " ".join(f"--{name} {run.settings[name]}" for name in ("trials", "first", "factor"))
    return Finding(comparisons, size, [run], sentence, stand_in=STAND_IN, command=f"{SCRIPTS}.hyperparameters {sizes}")


CURVE_TABLE = {scheme: row[:2] for scheme, row in curve.PAPER.items()}
PUBLISHED = (
    Item(
        "A table 1",
        "softmax regression on MNIST, four schemes",
        "acceptances of .87, .87, .45 and .96, mean ESS of 68.7, 68.7, 38.4 "
        "and 75.0 (full, naive, randomised, symmetric).",
        table_1,
        partial(draw_schemes, "cobb_2021_softmax_numpyro", softmax.PAPER),
    ),
    Item(
        "A table 2",
        "a network of 10,401 weights on 400 points, four schemes",
        "acceptances of .71, .68, .75 and .89; mean ESS of 9.27, 9.13, 9.78 and 10.01.",
        partial(table_2, curve.PAPER),
        partial(draw_schemes, "cobb_2021_curve_numpyro", CURVE_TABLE),
    ),
    Item(
        "A fig. 1",
        "its bands by symmetric split HMC",
        "credible intervals widen outside the data.",
        partial(figure_1, False),
        partial(draw_bands, ("symmetric",)),
    ),
    Item(
        "A 5.2",
        "coverage of one and two standard deviations",
        "30.5 % and 3.5 % of the data lie outside, by full HMC.",
        coverage,
    ),
    Item(
        "A table 3",
        "a network of 38,390 weights on Fashion-MNIST, four schemes (the draft's table 2)",
        "acceptances of .76, .72, .66 and .89; 89.8 to 90.0 % right; NLL of .282 to .276.",
        table_3,
        partial(draw_schemes, "cobb_2021_fashion", {scheme: row[0] for scheme, row in fashion.PAPER.items()}),
    ),
    Item("A 5.3", "memory", "7,928 MB of 7,982 for all images; with M = 3 three times as many images fit.", memory),
    Item(
        "A table 4",
        "SGD, SGLD, SGHMC and symmetric split HMC on recordings of vehicles",
        "80.3, 78.6, 82.6 and 84.4 % right; NLL of .72, .69, .59 and .51; Brier scores of .297, .307, .252 and .228.",
        table_4,
    ),
    Item(
        "A fig. 2",
        "entropies of predictions that are wrong",
        "those of symmetric split HMC are the highest.",
        figure_2,
        draw_entropies,
    ),
    Item(
        "A fig. 3",
        "mutual information by true and predicted class",
        "symmetric split HMC tells errors from what is right, SGHMC does not.",
        figure_3,
        draw_information,
    ),
)
DRAFT = (
    Item(
        "A′ table 1",
        "table 2 in the draft",
        "acceptances of .63, .59, .73 and .88; mean ESS of 6.92, 6.77, 7.52 and 7.72.",
        partial(table_2, curve.DRAFT),
    ),
    Item(
        "A′ fig. 1",
        "bands by the four schemes",
        "narrower for schemes that accept less.",
        partial(figure_1, True),
        partial(draw_bands, SCHEMES),
    ),
    Item(
        "A′ table 3",
        "a network of 62,006 weights on 1,000 images of CIFAR-10, four schemes",
        "acceptances of .74, .74, .60 and .83; mean ESS of 73 to 84; 43.1 to 43.4 % right.",
        draft_table_3,
        partial(draw_schemes, "cobb_2021_cifar", {scheme: row[0] for scheme, row in cifar.PAPER.items()}),
    ),
    Item(
        "A′ fig. 4",
        "a spectrogram of a vehicle",
        "one datum of the closed recordings.",
        closed="The recordings (ACIDS) are not public, and the figure is of one of them.",
    ),
    Item(
        "A′ fig. 5",
        "how many recordings there are of each vehicle",
        "a large imbalance.",
        closed="The recordings (ACIDS) are not public; the spoken digits that stand in elsewhere "
        "are balanced, 300 of each, so that they cannot show it.",
    ),
    Item(
        "A′ B.2",
        "hyperparameters by Bayesian optimisation",
        "learning rates, prior widths and lengths of each arm.",
        search,
    ),
    Item(
        "A′ fig. 6",
        "four widths of the prior: accuracy, NLL, log-posterior",
        "too wide a prior overfits, too narrow a one underfits.",
        draft_figure_6,
        draw_widths,
    ),
    Item(
        "A′ fig. 7",
        "accuracy of the mean of the first draws",
        "SGLD and SGHMC settle at a lower accuracy.",
        draft_figure_7,
        draw_cumulative,
    ),
)
