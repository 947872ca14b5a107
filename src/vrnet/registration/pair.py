"""Two images, and the motion between them: one object from the files to the measures, the verdict and the page. An
`ImagePair` is two images with what comes with them, a `PairResult` a registered one. What is measured, judged and drawn
is asked of the layers above."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from dataclasses import field as member
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Real
from numpy import ndarray
from numpy.typing import NDArray

from vrnet.data.labels import LabelNames, check_labels_are_there, names_told_by_files, read_label_names
from vrnet.errors import BadInput, warn_of_input
from vrnet.fields.folds import Repair
from vrnet.images.grid import Affine, Grid, check_same_grid
from vrnet.images.image import Image, as_labels
from vrnet.images.io import File, ImageLike, given_image
from vrnet.images.resample import coverage, match_histogram, place_image, place_labels
from vrnet.images.transforms import Inverse, Transform
from vrnet.methods.names import MODELS, without_average
from vrnet.registration.intensity import Remap
from vrnet.registration.masks import PairMasks, inpaint_image, read_mask
from vrnet.vocabulary import RegistrationOptions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from vrnet.cardiac.heart import Heart
    from vrnet.verdict.rules import Verdict

Names = str | Mapping[int, str] | None  # 1=RV,2=Myo,3=LV, a mapping, or the name of a data set or atlas
L = TypeVar("L")  # a label map: an image or a file, or an array


@dataclass(frozen=True, repr=False, eq=False)
class ImagePair:
    """Two images, and the labels and masks of either, each on its image's grid."""

    fixed: Image
    moving: Image
    fixed_labels: Image | None = None
    moving_labels: Image | None = None
    masks: PairMasks[Image] = member(default_factory=PairMasks)
    label_names: LabelNames = member(default_factory=dict, kw_only=True)
    are_names_told_by_files: bool = member(default=False, kw_only=True)
    """Whether nobody gave these names, but the label maps are called as a data set calls its own."""
    true_motion: Float[ndarray, "d *s"] | None = member(default=None, kw_only=True)
    """The displacement from fixed to moving, in voxels of fixed, where it is known: that of a phantom."""

    def __post_init__(self) -> None:
        maps = (self.fixed_labels, self.fixed, self.moving), (self.moving_labels, self.moving, self.fixed)
        for labels, image, other in maps:
            if labels is not None:
                check_same_grid(labels.name, labels.grid, image.name, image.grid, {other.name: other.grid})

    @classmethod
    def read(
        cls, fixed: ImageLike, moving: ImageLike, fixed_labels: ImageLike | None = None,
        moving_labels: ImageLike | None = None, fixed_mask: ImageLike | None = None,
        moving_mask: ImageLike | None = None,
    ) -> "ImagePair":  # fmt: skip
        """The pair of what is given, as files or as images; BadInput where a map or a mask is not for its image."""
        I0, I1 = given_image("fixed", fixed), given_image("moving", moving)
        L0, L1 = given_labels("fixed_labels", fixed_labels), given_labels("moving_labels", moving_labels)
        masks = PairMasks(read_mask("fixed_mask", fixed_mask, I0), read_mask("moving_mask", moving_mask, I1))
        return cls(I0, I1, L0, L1, masks)

    @property
    def images(self) -> dict[str, Image]:
        """All images that are given, by their names here."""
        names, masks = ("fixed", "moving", "fixed_labels", "moving_labels"), self.masks
        given = {name: getattr(self, name) for name in names} | {"fixed_mask": masks.fixed, "moving_mask": masks.moving}
        return {name: image for name, image in given.items() if image is not None}

    @property
    def label_maps(self) -> list[Image]:
        return [labels for labels in (self.fixed_labels, self.moving_labels) if labels is not None]

    def with_label_names(self, given: Names) -> "ImagePair":
        """The pair with names for its labels, which both images must have; given none, with those of the data set whose
        names the files have, if the labels are among its own."""
        there = {label for labels in self.label_maps for label in np.unique(labels.array).tolist()}
        if given is None:
            names = names_told_by_files(labels.name for labels in self.label_maps)
            is_told = names and len(self.label_maps) == 2 and not self.label_names and there <= {0, *names}
            return replace(self.named(names), are_names_told_by_files=True) if is_told else self
        if len(self.label_maps) < 2:
            raise BadInput("names of labels are given, but not the labels: give `fixed_labels` and `moving_labels` too")
        check_labels_are_there(given, there)
        return self.named(read_label_names(given))

    def named(self, names: LabelNames) -> "ImagePair":
        """The pair with these names, whether or not every label is there; a warning where LV and RV seem exchanged."""
        from vrnet.cardiac.labels import warn_of_exchanged_ventricles

        warn_of_exchanged_ventricles(self.label_maps, names)
        return replace(self, label_names=names)

    @property
    def naming(self) -> str:
        """How the labels were named, if the user did not."""
        if len(self.label_maps) == 2 and not self.label_names:
            return "called by their numbers; --label-names names them, as in 1=RV,2=Myo"
        if not self.are_names_told_by_files:
            return ""
        names = ", ".join(f"{label} {name}" for label, name in self.label_names.items())
        return f"called as in ACDC, whose names the files of the labels have: {names}"


def given_labels(name: str, given: ImageLike | None) -> Image | None:
    return None if given is None else as_labels(given_image(name, given))


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class Reportable(Generic[L]):
    """How a registration was found, and what anyone who holds it may ask of it, be it of images, whose labels are
    images or files, or of arrays, whose labels are arrays. Measures, verdict and page are imported on use."""

    method: str = ""  # the name of the method that was used, never `default`; or that of the transform's file
    seconds: float | None = None  # None for a transform from a file
    weights: str | None = None  # the file that the weights of a trained model came from
    slice_axis: int | None = None  # the axis across which slices were registered one by one, if they were
    repair: Repair | None = None  # what was changed to free the field of folds: None where nothing was
    remap: Remap | None = None  # what made moving as bright as fixed while they were compared: None if nothing had to
    options: RegistrationOptions = member(default_factory=RegistrationOptions)  # what was asked for beside the method
    details: dict[str, str] = member(default_factory=dict)  # what a page says of the method beside its name
    parameters: dict[str, Any] | None = None  # those of the method that can be set; None for a transform from a file
    compares_structure: bool = False  # whether the method accepts that one image is brighter
    channels: str = "none"  # by what images were matched beside their intensities: none, anatomy or labels
    notes: tuple[str, ...] = ()  # why the default came to this method, where one may wonder

    def with_labels(self, fixed_labels: L | None, moving_labels: L | None, label_names: Names) -> "PairResult":
        """The result of images with these labels, and what they are called; the same object where none is given."""
        raise NotImplementedError

    @property
    def verdict(self) -> "Verdict":
        """What the registration is worth, by the images and the labels that it has: good, look or failed."""
        return self.with_labels(None, None, None).verdict

    @property
    def heart(self) -> "Heart | None":
        """Volumes of the ventricles in both images, ejection fractions and mass: by the labels of both, else by the
        network, which then looks at every slice. None where they are of no heart, or of voxels without a size."""
        return self.with_labels(None, None, None).heart

    def metrics(
        self, fixed_labels: L | None = None, moving_labels: L | None = None, label_names: Names = None
    ) -> dict[str, Any]:
        """What `vrnet register` writes in metrics.json: similarity, folds, verdict; with the labels of both images,
        each on the grid of its image, Dice and distances too. Lengths are in mm; of arrays without a spacing, in
        voxels. `label_names` are texts such as 1=RV,2=Myo,3=LV, or {1: "RV"}."""
        result = self.with_labels(fixed_labels, moving_labels, label_names)
        return result.measures | {"verdict": result.verdict.as_json()}

    def show(
        self, fixed_labels: L | None = None, moving_labels: L | None = None, label_names: Names = None
    ) -> "Figure":
        """A figure of matplotlib: images, differences, grid, motion and Jacobian determinant of the main slice."""
        from vrnet.report.figures import pair_figure

        return pair_figure(self.with_labels(fixed_labels, moving_labels, label_names))

    def report(
        self, path: File, fixed_labels: L | None = None, moving_labels: L | None = None, label_names: Names = None
    ) -> Path:
        """Write the page that `vrnet register --report` writes, as one HTML file; returns its path."""
        from vrnet.report.page import write_report

        return write_report(Path(path), self.with_labels(fixed_labels, moving_labels, label_names))

    def _repr_html_(self) -> str:
        from vrnet.report.figures import pair_card

        return pair_card(self.with_labels(None, None, None))


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class PairResult(ImagePair, Reportable[ImageLike]):
    """A registered pair: what `register_images` returns. If the transform came from a file, little is known about how
    it was found; `affine`, `remap` and `options` are what is recorded beside it."""

    transform: Transform  # from fixed to moving, on the grid of fixed: the whole of it, with the affine start
    warped: Image  # moving, in its own intensities, resampled through the transform on the grid of fixed
    energies: NDArray[np.floating[Any]] = member(default_factory=lambda: np.zeros(0, np.float32))
    """The energy of no motion, then after each linearisation at full resolution; none if no energy was watched."""
    device: str | None = None
    affine: Affine | None = None  # the start, through which moving was seen when the deformation was sought
    unit: str = "mm"  # what lengths are counted in: voxels, of arrays without a spacing

    def __repr__(self) -> str:
        took = "" if self.seconds is None else f", {self.seconds:.2f} s"
        return f"PairResult({self.method}, {self.transform}{took})"

    @property
    def is_from_file(self) -> bool:
        return self.seconds is None

    def inverse(self, grid: Grid | None = None) -> Inverse:
        """(transform, residual): from moving to fixed, which brings fixed to the grid of moving, or to the grid given;
        and how far, in mm, each voxel ends from where it began."""
        return self.transform.inverse(grid or self.moving.grid)

    def with_labels(
        self, fixed_labels: ImageLike | None = None, moving_labels: ImageLike | None = None, label_names: Names = None
    ) -> "PairResult":
        if fixed_labels is None and moving_labels is None and label_names is None:
            return self
        fixed = given_labels("fixed_labels", fixed_labels) or self.fixed_labels
        moving = given_labels("moving_labels", moving_labels) or self.moving_labels
        result = replace(self, fixed_labels=fixed, moving_labels=moving)
        return result.with_label_names(label_names)  # type: ignore[return-value]

    @property
    def grid(self) -> Grid:
        return self.fixed.grid

    @property
    def is_matched(self) -> bool:
        """Whether moving was seen in other intensities than its own; images are then compared and shown in these."""
        return self.options.match_intensities or self.remap is not None

    @cached_property
    def matched_moving(self) -> Image:
        """Moving in the intensities in which it was compared; where these are not its own, only inside the masks."""
        if not self.is_matched:
            return self.moving
        fixed, moving = self.masks.apply(inpaint_image, self.fixed, self.moving)
        if self.options.match_intensities or self.remap is None:
            return match_histogram(moving, fixed)
        return moving.with_array(self.remap.match(moving.array.astype(np.float32)))

    @cached_property
    def matched_warped(self) -> Real[ndarray, "*s"]:
        return self.transform.apply(self.matched_moving, self.grid).array if self.is_matched else self.warped.array

    @cached_property
    def placed(self) -> Real[ndarray, "*s"]:
        """Moving as the headers place it."""
        return place_image(self.matched_moving, self.grid).array

    @cached_property
    def started(self) -> Real[ndarray, "*s"] | None:
        """Moving as the affine start places it, if there was one."""
        return None if self.affine is None else place_image(self.matched_moving, self.grid, self.affine).array

    @cached_property
    def placed_labels(self) -> Image | None:
        return None if self.moving_labels is None else place_labels(self.moving_labels, self.grid)

    @cached_property
    def warped_labels(self) -> Image | None:
        return None if self.moving_labels is None else self.transform.apply_labels(self.moving_labels, self.grid)

    @cached_property
    def field(self) -> Float[ndarray, "d *s"]:
        """The whole transform, in voxels."""
        return self.transform.on(self.grid).in_voxels()

    @cached_property
    def deformation(self) -> Float[ndarray, "d *s"]:
        """What the transform does beyond the affine start A, in voxels: x ↦ A⁻¹(x + u(x))."""
        if self.affine is None:
            return self.field
        places = np.indices(self.grid.shape, dtype=np.float64)  # single precision would seem to move far slices
        ends = self.affine.inverse().points(self.grid.points((places + self.field).reshape(len(places), -1).T))
        return (self.grid.index(ends).T.reshape(places.shape) - places).astype(np.float32)

    @cached_property
    def compared(self) -> Bool[ndarray, "*s"] | None:
        """The voxels inside both masks, before the transform (after an affine start: headers may lie apart) and after
        it; None for all. Masks without a common voxel are warned of, and all inside that of fixed are compared."""
        if self.masks.is_everywhere:
            return None
        fixed = np.ones(self.grid.shape, bool) if self.masks.fixed is None else self.masks.fixed.array != 0
        if self.masks.moving is None:
            return fixed
        before = place_labels(self.masks.moving, self.grid, self.affine).array != 0
        after = self.transform.apply_labels(self.masks.moving, self.grid).array != 0
        for voxels in (fixed & after & before, fixed & after):  # headers may put the masks far apart
            if voxels.any():
                return voxels
        told = "the masks of fixed and moving have no voxel in common after the registration"
        warn_of_input(f"{told}: images are compared inside that of fixed, if any. Check the masks and the headers")
        return fixed

    @cached_property
    def has_values(self) -> tuple[Bool[ndarray, "*s"], Bool[ndarray, "*s"]]:
        """The voxels for which moving has values, before the transform and after it; inside the masks, if given."""
        inside = np.ones(self.grid.shape, bool) if self.compared is None else self.compared
        if self.masks.moving is not None:
            before = inside & (place_labels(self.masks.moving, self.grid).array != 0)
            return before if before.any() else inside, inside
        before, after = (inside & coverage(self.moving.grid, self.grid, one) for one in (None, self.transform.itk))
        return (before, after) if before.any() and after.any() else (inside, inside)

    @cached_property
    def regularity(self) -> dict[str, float]:
        """Folds and smoothness of the deformation: of a stack registered slice by slice, within its slices."""
        from vrnet.evaluation.pair import regularity

        return regularity(self.deformation, self.grid)

    @cached_property
    def heart(self) -> "Heart | None":
        from vrnet.cardiac.heart import find_heart

        return find_heart(self)

    @cached_property
    def measures(self) -> dict[str, Any]:
        """What metrics.json holds, but for the verdict."""
        from vrnet.evaluation.pair import measure_pair

        return measure_pair(self)

    def with_heart(self, measures: Mapping[str, Any]) -> dict[str, Any]:
        """Measures, and what a page tells beside them: the heart by the network, where a model of hearts registered."""
        is_due = "heart" not in measures and without_average(self.method) in MODELS.values()
        return {**measures, **({"heart": self.heart.as_json()} if is_due and self.heart else {})}

    @cached_property
    def verdict(self) -> "Verdict":
        from vrnet.verdict.rules import judge_pair

        return judge_pair(self)


ImageRegistration = PairResult  # what it was called before
