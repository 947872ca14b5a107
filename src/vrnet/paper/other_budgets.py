"""Whether all rows of a table are measured: within its budget, and within others whose results are in the same folder.

A table that is asked for within the wrong budget would be trained for hours, though it is there within another."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from vrnet.errors import BadInput, warn_of_input
from vrnet.paper.alphas import choose_alphas, tried_by_all
from vrnet.paper.budget import BUDGETS
from vrnet.paper.results import Results
from vrnet.paper.study import Study
from vrnet.wording import either


def measured_rows(results: Results, names: Sequence[str], alphas: Mapping[str, float], seeds: int) -> list[str]:
    """Those of the methods that are measured with so many seeds, each with its α."""
    return [name for name in names if all(map(results.has, results.seeds(name, alphas.get(name), seeds)))]


def tell_of_whole_budgets(study: Study, names: Sequence[str], alphas: Mapping[str, float], seeds: int) -> None:
    """Say which other budgets have all rows of a table, where that of the study lacks some."""
    results = study.results
    lacking = len(names) - len(measured_rows(results, names, alphas, seeds))
    if not lacking:
        return
    whole = [name for name in comparable_budgets(results) if has_whole_table(study, name, names, seeds)]
    if whole:
        choices = either([f'`budget="{name}"`' for name in whole])
        warn_of_input(
            f'{lacking} of the {len(names)} rows of this table are not measured within the budget "'
            f'{results.budget.name}", but {results.out} has all of them with {choices}'
        )


def comparable_budgets(results: Results) -> list[str]:
    """The other budgets that are measured on the same images."""
    own = results.budget
    return [name for name, budget in BUDGETS.items() if name != own.name and budget.phantoms is own.phantoms]


def has_whole_table(study: Study, budget: str, names: Sequence[str], seeds: int) -> bool:
    """Whether a table of these methods could be made within another budget, with nothing trained or measured."""
    other = replace(study, results=replace(study.results, budget=BUDGETS[budget]))
    try:
        tried = tried_by_all(other.results, names)
        alphas = choose_alphas(other, names, tried) if tried else {}
    except BadInput:  # its scores are damaged, which who asks for it is told
        return False
    return len(measured_rows(other.results, names, alphas, seeds)) == len(names)
