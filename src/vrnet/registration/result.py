"""What anyone who holds a registration may ask of it: what it is worth, its measures, its page, its picture.

The answers come from the viewer, a layer above: see `vrnet.views`."""

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from vrnet.attributes import cached_property
from vrnet.views import Names, viewer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Labels = TypeVar("Labels")


class RegistrationResult(Generic[Labels]):
    """A registration of arrays, whose labels are arrays, or of images, whose labels are images or files."""

    @cached_property
    def verdict(self) -> Any:
        """What the registration is worth, by the images alone: a `vrnet.Verdict`, good, look or failed."""
        return viewer().verdict(self._measured)

    def metrics(
        self, fixed_labels: Labels | None = None, moving_labels: Labels | None = None, label_names: Names = None
    ) -> dict[str, Any]:
        """What `vrnet register` writes in metrics.json: similarity, folds, verdict; with the labels of both images,
        each on the grid of its image, Dice and distances too. Lengths are in mm; of arrays without a spacing, in
        voxels. `label_names` are texts such as 1=RV,2=Myo,3=LV, or {1: "RV"}. What to try is said in arguments, not in
        options."""
        return self._measure(fixed_labels, moving_labels, label_names).metrics

    def show(
        self, fixed_labels: Labels | None = None, moving_labels: Labels | None = None, label_names: Names = None
    ) -> "Figure":
        """A figure of matplotlib: images, differences, grid, motion and Jacobian determinant of the main slice."""
        return viewer().draw_measured(self._measure(fixed_labels, moving_labels, label_names))

    def report(
        self,
        path: str | PathLike[str],
        fixed_labels: Labels | None = None,
        moving_labels: Labels | None = None,
        label_names: Names = None,
    ) -> Path:
        """Write the page that `vrnet register --report` writes, as one HTML file; returns its path."""
        return viewer().report(self, self._measure(fixed_labels, moving_labels, label_names), Path(path))

    @cached_property
    def _measured(self) -> Any:
        """What is measured without labels, once for all who ask."""
        return viewer().measure(self)

    def _measure(self, fixed_labels: Labels | None, moving_labels: Labels | None, names: Names) -> Any:
        """What is measured, with labels and their names where there are any."""
        if fixed_labels is None and moving_labels is None and names is None:
            return self._measured
        return viewer().measure(self, fixed_labels, moving_labels, names)

    def _repr_html_(self) -> str:
        return viewer().card(self)
