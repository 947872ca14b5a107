"""Deformable image registration: a variational solver, and the networks unrolled from it.

result = vrnet.register(fixed, moving)                      # arrays: moving(x + result.field(x)) ≈ fixed(x)

fixed, moving = vrnet.read_image("ed.nii.gz"), vrnet.read_image("es.nii.gz")
result = vrnet.register_images(fixed, moving)               # images in space: result.transform, result.warped
result.transform.save("transform.nii.gz")                   # as ITK, ANTs and 3D Slicer read it
result.verdict, result.metrics(fixed_labels, moving_labels) # good, look or failed; Dice, distances, folds
result.show(), result.report("page.html")                   # a figure; a page to look at. In notebooks: a card

result = vrnet.register(fixed, moving, "TV-L1(lam=0.15)")   # any name of vrnet.names(), with other parameters
vrnet.parameters(vrnet.parse("TV-L1"))                      # those that it has, with their values and meanings

tracked = vrnet.track("cine.nii.gz", labels="frame0.nii.gz")  # a beating heart: tracked.transforms, .strain, .volumes

vrnet.judge(fixed, moving, result.field)                    # good, look or failed, why, and what to try

The calculus of fields, on batches of tensors, is in `vrnet.fields`.
"""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
