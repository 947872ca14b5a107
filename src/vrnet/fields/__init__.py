"""The calculus of displacement fields, on batches of tensors `(b, d, *s)` in voxels."""

from vrnet.fields.calculus import (
    add_divergence as add_divergence,
)
from vrnet.fields.calculus import (
    check_finite as check_finite,
)
from vrnet.fields.calculus import (
    compose as compose,
)
from vrnet.fields.calculus import (
    convolve as convolve,
)
from vrnet.fields.calculus import (
    determinant as determinant,
)
from vrnet.fields.calculus import (
    divergence as divergence,
)
from vrnet.fields.calculus import (
    exp as exp,
)
from vrnet.fields.calculus import (
    forward_gradient as forward_gradient,
)
from vrnet.fields.calculus import (
    gaussian as gaussian,
)
from vrnet.fields.calculus import (
    gradient as gradient,
)
from vrnet.fields.calculus import (
    interpolate as interpolate,
)
from vrnet.fields.calculus import (
    jacobian as jacobian,
)
from vrnet.fields.calculus import (
    minor as minor,
)
from vrnet.fields.calculus import (
    position as position,
)
from vrnet.fields.calculus import (
    relative_spacing as relative_spacing,
)
from vrnet.fields.calculus import (
    repeat_border as repeat_border,
)
from vrnet.fields.calculus import (
    resize as resize,
)
from vrnet.fields.calculus import (
    resize_field as resize_field,
)
from vrnet.fields.calculus import (
    rows_around as rows_around,
)
from vrnet.fields.calculus import (
    sample as sample,
)
from vrnet.fields.calculus import (
    scale as scale,
)
from vrnet.fields.calculus import (
    shorten as shorten,
)
from vrnet.fields.calculus import (
    smooth as smooth,
)
from vrnet.fields.calculus import (
    squared_gradient as squared_gradient,
)
from vrnet.fields.calculus import (
    squared_norm as squared_norm,
)
from vrnet.fields.calculus import (
    warp as warp,
)
from vrnet.fields.calculus import (
    warp_labels as warp_labels,
)
from vrnet.fields.calculus import (
    warp_rows as warp_rows,
)
from vrnet.fields.calculus import (
    zeros as zeros,
)
