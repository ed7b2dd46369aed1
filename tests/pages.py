"""A result folder for the tests of its page, with odd texts wherever a user can have them."""

import dataclasses
from html.parser import HTMLParser

import pandas as pd
from matplotlib.figure import Figure

from jaxarch.lab import charts
from jaxarch.lab.charts import Chart
from jaxarch.lab.harness import Experiment, Outcome, Results, TrainingSettings, finding, run_in, tables

ODD = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
"""What a careless page would run."""


@dataclasses.dataclass(frozen=True)
class Settings(TrainingSettings):
    """Runs of two strategies, at three densities.

    Attributes:
      own: the name of a strategy.
      offset: added to every accuracy.
    """

    own: str = ODD
    offset: float = 0.0


def run(settings, context):
    rows = [
        {
            "strategy": name,
            "density": density,
            "seed": seed,
            "accuracy": density / (1 + seed) + settings.offset,
        }
        for name in ("dense", settings.own)
        for density in (0.1, 0.5, 1.0)
        for seed in range(settings.seeds)
    ]
    table = pd.DataFrame(rows).assign(failed_at=-1)
    table.loc[1, ["accuracy", "failed_at"]] = float("nan"), 7
    found = [finding(f"accuracy of {name}", of["accuracy"]) for name, of in table.groupby("strategy")]
    more = pd.DataFrame({"<b>column</b>": [1.5, 2.5], "text": [ODD, "b"]})
    costs = {"all": {"notes": {ODD: [f"{ODD} is noted"]}}}
    return Outcome(table, found, costs=costs, tables={"more <b>.csv": more})


def report(results):
    groups = list(results.table.groupby("strategy", sort=False))
    figure = Figure()
    axes = figure.subplots()
    for name, of in groups:
        axes.plot(of["density"], of["accuracy"], label=name)
    axes.set(title=results.settings["own"], xlabel="density", ylabel="accuracy")
    results.draw(figure, "accuracy")
    rows = [(name, tables.spread(of["accuracy"], ".3f"), "-") for name, of in groups]
    yield tables.table(f"accuracy of {results.settings['own']}", ("strategy", "median", "nothing"), rows)
    yield "- an item"
    yield from results.remarks(groups)


def conclusion(results):
    best = results.table.groupby("strategy", sort=False)["accuracy"].median().max()
    yield f"The highest median accuracy is {best:.3f}."
    yield f"It is of {results.settings['own']}."


def shown(results):
    table, own = results.table, results.settings["own"]
    yield Chart(own, table, "density", "accuracy", "strategy", at="density", logarithmic=(True, False))
    yield Chart(own, table, "accuracy", "strategy", "seed")


TOY = Experiment("jaxarch.lab.toys.page", Settings, lambda _: [], run, report, conclusion, charts=shown)


def made(folder, **settings):
    """A folder of the experiment above."""
    folder.mkdir(exist_ok=True)
    run_in(folder, TOY, Settings(**settings))
    return folder


def charted(folder, experiment):
    """The specifications of all charts of an experiment's folder."""
    return [charts.specification(chart) for chart in experiment.charts(Results(folder))]


class Page(HTMLParser):
    """A page as an HTML parser reads it: its elements with their attributes, and all of its text.

    Attributes:
      elements: names and attributes, in order.
      text: all text outside of scripts and styles.
      left_open: names of elements that end nowhere.
    """

    VOID = ("meta", "img", "br", "link", "input")

    def __init__(self, text):
        super().__init__()
        self.elements, self.texts, self.left_open = [], [], []
        self.feed(text)
        self.close()
        self.text = "".join(self.texts)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.left_open.append(tag)

    def handle_endtag(self, tag):
        assert self.left_open.pop() == tag, (tag, self.getpos())

    def handle_data(self, data):
        if not {"script", "style"} & set(self.left_open):
            self.texts.append(data)

    def all(self, tag):
        """The attributes of all elements of a name."""
        return [attributes for name, attributes in self.elements if name == tag]
