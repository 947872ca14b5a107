"""Tiny whole files of every format that is read, to be damaged."""

import nibabel
import numpy as np
import SimpleITK as sitk
from PIL import Image as Picture

SHAPE = (6, 5, 4)
ARRAY = np.arange(120, dtype=np.int16).reshape(SHAPE[::-1])


def volume(dtype=np.int16, is_vector=False):
    array = np.zeros((*ARRAY.shape, 3)) + ARRAY[..., None] / 100 if is_vector else ARRAY
    image = sitk.GetImageFromArray(array.astype(dtype), isVector=is_vector)
    image.SetSpacing((1.0, 1.5, 2.0))
    return image


def write_nifti(folder):
    sitk.WriteImage(volume(), str(folder / "a.nii"))
    sitk.WriteImage(volume(np.float32), str(folder / "b.nii.gz"))
    sitk.WriteImage(volume(np.float64, is_vector=True), str(folder / "c.nii"))
    nibabel.save(nibabel.Nifti2Image(ARRAY, np.eye(4)), folder / "d.nii")


def write_mha(folder):
    for name, compress in [("a.mha", False), ("b.mha", True), ("c.mhd", False), ("d.mhd", True)]:
        sitk.WriteImage(volume(np.float32), str(folder / name), useCompression=compress)
    sitk.WriteImage(volume(np.float64, is_vector=True), str(folder / "e.mha"), useCompression=True)


def write_nrrd(folder):
    for name, compress in [("a.nrrd", False), ("b.nrrd", True), ("c.nhdr", False)]:
        sitk.WriteImage(volume(np.float32), str(folder / name), useCompression=compress)
    sitk.WriteImage(volume(np.float64, is_vector=True), str(folder / "d.nrrd"), useCompression=True)


def write_dicom(folder):
    writer = sitk.ImageFileWriter()
    for name, compressor in [("a.dcm", ""), ("b.dcm", "JPEG2000"), ("c.dcm", "JPEG")]:
        slice_ = (np.arange(4096) % 251).astype(np.uint8).reshape(1, 64, 64)  # of a smaller one the writer crashes
        image = sitk.GetImageFromArray(slice_)
        image.SetMetaData("0020|0032", "1\\2\\3")
        image.SetMetaData("0020|0037", "1\\0\\0\\0\\1\\0")
        writer.SetUseCompression(bool(compressor))
        if compressor:
            writer.SetCompressor(compressor)
        writer.SetFileName(str(folder / name))
        writer.Execute(image)


def write_pictures(folder):
    grey = Picture.fromarray((ARRAY[0] * 8).astype(np.uint8))
    for ending in ("png", "jpg", "bmp", "tif"):
        grey.save(folder / f"a.{ending}")
    grey.convert("P").save(folder / "b.png")
    grey.save(folder / "b.tif", compression="tiff_lzw")
    grey.save(folder / "c.tif", compression="tiff_deflate")
    grey.convert("1").save(folder / "d.tif", compression="group4")


def write_transforms(folder):
    affine = sitk.AffineTransform((1.1, 0.1, 0, 0, 0.9, 0, 0.2, 0, 1), (1, 2, 3), (3, 2, 1))
    spline = sitk.BSplineTransform(3, 3)
    field = sitk.DisplacementFieldTransform(volume(np.float64, is_vector=True))
    for ending in ("tfm", "txt", "mat", "xfm", "h5"):
        sitk.WriteTransform(affine, str(folder / f"a.{ending}"))
    sitk.WriteTransform(sitk.CompositeTransform([affine, sitk.Euler3DTransform()]), str(folder / "b.tfm"))
    sitk.WriteTransform(spline, str(folder / "c.tfm"))
    sitk.WriteTransform(field, str(folder / "d.h5"))
    sitk.WriteTransform(field, str(folder / "e.tfm"))


SEEDS = {
    "nifti": write_nifti,
    "mha": write_mha,
    "nrrd": write_nrrd,
    "dicom": write_dicom,
    "pictures": write_pictures,
    "transforms": write_transforms,
}
