"""The labels that data sets give to structures."""

HEART = {"LV": 3, "Myo": 2, "RV": 1}
"""As ACDC numbers them, and phantoms; labels of UK Biobank are brought to these numbers."""
HIPPOCAMPUS = {"anterior": 1, "posterior": 2}
"""Those of the Medical Segmentation Decathlon."""
