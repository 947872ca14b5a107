"""The calculus of displacement fields, on batches of tensors `(b, d, *s)` in voxels."""

from vrnet.fields.calculus import *  # noqa: F403
