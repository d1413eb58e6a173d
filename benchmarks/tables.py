"""The figures of the benchmarks that have no page of their own."""

from __future__ import annotations

from typing import Any

from benchmarks.common.markdown import results_of, table

HOSTS = {"NumPyro": "numpyro", "Pyro": "pyro"}
MODELS = {"softmax": "softmax", "conv": "convolutional net"}
SCHEMES = {"full": 0.87, "naive": 0.87, "randomised": 0.45, "symmetric": 0.96}  # and the paper's acceptance


def data_pass() -> str:
    """Pass / bare by model, number of subsets and schedule: medians and quartiles over rounds."""
    found = {host: {_setting(x): x for x in results_of(f"data_pass_{name}")} for host, name in HOSTS.items()}
    settings = dict.fromkeys(setting for by_setting in found.values() for setting in by_setting)
    rows = (
        [
            f"{MODELS[model]}, {rows:,} rows",
            str(subsets),
            kernel,
            *(_ratio(found[host].get((model, rows, subsets, kernel))) for host in HOSTS),
        ]
        for model, rows, subsets, kernel in settings
    )
    return table(["model", "M", "schedule", *(f"{host}, goal {_goal(found[host])}" for host in HOSTS)], rows)


def _setting(found: dict[str, Any]) -> tuple[str, int, int, str]:
    return found["model"], found["num_rows"], found["num_subsets"], found["kernel"]


def _goal(by_setting: dict[Any, dict[str, Any]]) -> str:
    (goal,) = {found["goal"] for found in by_setting.values()}
    return f"{goal:.2f}"


def _ratio(found: dict[str, Any] | None) -> str:
    return "{median:.2f} [{quartile_1:.2f}, {quartile_3:.2f}]".format(**found["ratio"]) if found else ""


def compile_and_memory() -> str:
    """Ratios, with what they are ratios of."""
    found = {x["what"]: x for name in HOSTS.values() for x in results_of(f"compile_and_memory_{name}")}
    return table(
        ["what", "at M = 4, s; at M = 1, MiB", "at M = 256, s; at M = 10, MiB", "ratio"],
        (
            [
                what,
                *(f"{x[key]:,.1f}" for key in (("few", "many") if "few" in x else ("whole", "split"))),
                f"{x['ratio']:.3f}",
            ]
            for what, x in found.items()
        ),
    )


def acceptance() -> str:
    """Of four schemes at one step size."""
    found = {x["scheme"]: x["accept_prob"] for x in results_of("logistic_mnist_numpyro")}
    return table(
        ["", *SCHEMES],
        [["paper", *(f"{x:.2f}" for x in SCHEMES.values())], ["NumPyro", *(f"{found[x]:.3f}" for x in SCHEMES)]],
    )


def gpu() -> str:
    """Memory and times on an accelerator, by target, framework and number of subsets."""
    shown = {"numpyro": "NumPyro", "pyro": "Pyro"}
    rows = (
        [
            f"{x['target']}, {x['rows']:,} rows",
            shown[x["framework"]],
            str(x["num_subsets"]),
            "" if x["planned_mib"] is None else f"{x['planned_mib']:,.1f}",
            f"{'≤ ' * x['peak_is_bound']}{x['peak_mib']:,.1f}",
            f"{x['gradient_ms']['median']:.2f}",
            f"{x['iteration_ms']['median']:.1f}",
            str(x["num_grads"]),
        ]
        for x in results_of("gpu")
    )
    header = ["target", "", "M", "XLA plan, MiB", "peak, MiB", "gradient, ms", "iteration, ms", "its gradients"]
    return table(header, rows)


TABLES = {"data_pass": data_pass, "compile_and_memory": compile_and_memory, "logistic_mnist": acceptance, "gpu": gpu}
